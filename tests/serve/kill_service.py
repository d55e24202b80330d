"""Kills ``bothworlds serve`` under load at random moments and checks that it keeps what it has acknowledged.

    python -m tests.serve.kill_service --kills 100 --store postgres

With PostgreSQL there are two workers, and sometimes only one of them is killed. After every kill, the store has all
acknowledged feedback and nothing that was not sent. In the end every page that was shown is in the log once, what is
served has learned from each of them once, and the log gives the same state again, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from bothworlds.serve.ops.verify import verify
from bothworlds.serve.outcomes import is_learned
from bothworlds.serve.stores import open_store

from .load_clients import ITEMS, SURFACE, ClientRecord, Visitor
from .workers import workers_of

ROOT = Path(__file__).parents[2]
COMMAND_LINE = ("-m", "bothworlds")
ACKNOWLEDGES_EARLY = (
    "-c",
    "from tests.serve.kill_service import serve_acknowledging_early; serve_acknowledging_early()",
)
VISITORS = 4
ROUND = 25  # kills of one store; then a new one, since all of it is checked after each kill
PATIENCE_SECONDS = 120.0


def command_line(*words: str, program: Sequence[str] = COMMAND_LINE, **options: Any) -> subprocess.Popen[str]:
    """Start the command line in its own process group, which can be killed as a whole."""
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "BOTHWORLDS_REQUEST_LOG": "false"} | options.pop("env", {})
    command = [sys.executable, *program, *words]
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, start_new_session=True, **options)


def serve_acknowledging_early() -> None:
    """Run the service with a store that acknowledges feedback one call before it writes it; the check must fail."""
    from bothworlds.cli import main
    from bothworlds.serve.stores import Store

    write, waiting = Store.write, []

    def write_late(self: Store, decisions: Any, feedback: Any, now: int) -> Any:
        late, waiting[:] = list(waiting), feedback
        write(self, decisions, late, now)
        return ["accepted"] * len(feedback)

    Store.write = write_late  # type: ignore[method-assign]
    main()


class ServiceProcess:
    """A service that is killed and started again."""

    def __init__(self, place: str, folder: Path, program: Sequence[str] = COMMAND_LINE) -> None:
        self.place, self._folder, self._program = place, folder, program
        self.shared = place.startswith("postgres")
        self.start()

    def start(self) -> None:
        workers = ("--workers", "2") if self.shared else ()
        words = ("serve", "--store", self.place, "--port", "0", *workers)
        with (self._folder / "errors.txt").open("a") as errors:
            self.process = command_line(
                *words, program=self._program, stdout=subprocess.PIPE, stderr=errors, env={"TMPDIR": str(self._folder)}
            )
        assert self.process.stdout is not None
        found = (re.search(r" at http://([^:]+):(\d+);", line) for line in self.process.stdout)
        where = next((match for match in found if match), None)
        assert where is not None, (self._folder / "errors.txt").read_text()
        self.where = where[1], int(where[2])

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, str]:
        """Send a request on a new connection, which any worker may get; return status, response and ETag."""
        with closing(HTTPConnection(*self.where, timeout=PATIENCE_SECONDS)) as connection:
            sent = None if body is None else json.dumps(body).encode()
            connection.request(method, path, sent, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null"), answer.getheader("ETag", "")

    def kill(self, chance: random.Random) -> None:
        """Kill or stop one worker, which the service replaces, or kill all processes, and start them again."""
        workers = workers_of(self.process) if self.shared and chance.random() < 0.5 else []
        if workers:
            os.kill(chance.choice(workers), chance.choice((signal.SIGKILL, signal.SIGSTOP)))
        else:
            self.end()
            self.start()

    def end(self) -> None:
        """Kill all processes of the service."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop(self) -> int:
        """Stop the service with SIGTERM; return its exit status."""
        self.process.terminate()
        return self.process.wait(PATIENCE_SECONDS)


def problems_of(place: str, record: ClientRecord, promised: dict[str, tuple[int, bool]]) -> list[str]:
    """Return what the store has lost or invented; ``promised`` must have been read before the store is."""
    names = list(promised)
    with closing(open_store(place, read_only=True)) as store:
        found = store.find_events([bytes.fromhex(name) for name in names])
        broken = (record.broken(name, promised[name], found.get(bytes.fromhex(name))) for name in names)
        return [*record.problems, *filter(None, broken), *map(str, verify(store).differences)]


Counts = Counter[tuple[str, int, str]]  # (item, slot, "shown" or "clicked") -> learned pages


def counts_in_log(place: str) -> tuple[int, Counts]:
    """Return the number of settled pages, and the counts of those that were learned from, of all arms together."""
    pages, counts = 0, Counts()
    with closing(open_store(place, read_only=True)) as store:
        for event in store.settled():
            pages += 1
            for slot, item in enumerate(event.listed.items if is_learned(event) else ()):
                if event.listed.learn >> slot & 1:
                    counts[ITEMS[item], slot, "shown"] += 1
                    counts[ITEMS[item], slot, "clicked"] += event.clicks >> slot & 1
    return pages, counts


def counts_served(service: ServiceProcess) -> Counts:
    """Return the same counts of the states that are served."""
    counts = Counts()
    for arm in ("learner", "new"):
        _, state, _ = service.call("GET", f"/v1/surfaces/home/state?arm={arm}")
        for name in ("shown", "clicked"):
            for item, row in zip(state["items"], state[name], strict=True):
                counts.update({(item, slot, name): round(count) for slot, count in enumerate(row)})
    return counts


def kill_repeatedly(
    place: str, folder: Path, kills: int, seed: int = 0, program: Sequence[str] = COMMAND_LINE
) -> tuple[int, int]:
    """Raise AssertionError if anything is lost or counted twice; return the numbers of pages and acknowledgements."""
    chance, record = random.Random(seed), ClientRecord()
    service = ServiceProcess(place, folder, program)
    visitors = [Visitor(k, seed, lambda: service.where, record) for k in range(VISITORS)]
    try:
        visitors[0].call("PUT", "/v1/surfaces/home", SURFACE)
        for visitor in visitors:
            visitor.start()
        _kill_under_load(service, record, kills, chance)
        for visitor in visitors:
            visitor.stop()
        _check_the_end(service, visitors[0], record)
    finally:
        for visitor in visitors:
            visitor.stop(at_once=True)
        service.end()
    return len(record.shown), record.count


def _kill_under_load(service: ServiceProcess, record: ClientRecord, kills: int, chance: random.Random) -> None:
    checked: dict[str, tuple[int, bool]] = {}
    for kill in range(kills):
        _wait_for_more(record, 20)
        time.sleep(chance.uniform(0.0, 0.3))
        service.kill(chance)
        promised = record.promised()
        fresh = {name: promise for name, promise in promised.items() if checked.get(name) != promise}
        problems = problems_of(service.place, record, fresh)
        assert not problems, f"after kill {kill}: {problems[:5]}"
        checked = promised


def _check_the_end(service: ServiceProcess, visitor: Visitor, record: ClientRecord) -> None:
    pieces = record.open_pages()
    for start in range(0, len(pieces), 500):
        visitor.feedback(pieces[start : start + 500])
    problems = problems_of(service.place, record, record.promised())
    assert not problems, f"in the end: {problems[:5]}"
    end = time.monotonic() + PATIENCE_SECONDS
    while (in_log := counts_in_log(service.place))[0] < len(record.shown) or counts_served(service) != in_log[1]:
        assert time.monotonic() < end, f"{in_log[0]} of {len(record.shown)} pages are settled, or learned otherwise"
        time.sleep(0.1)
    assert in_log[0] == len(record.shown), "the log has pages that nobody was shown"
    verified = command_line("verify", "--store", service.place, stdout=subprocess.PIPE)
    output, _ = verified.communicate()
    assert verified.returncode == 0, output
    assert service.stop() == 0, "the service did not stop cleanly"


def _wait_for_more(record: ClientRecord, acknowledgements: int) -> None:
    enough, end = record.count + acknowledgements, time.monotonic() + PATIENCE_SECONDS
    while record.count < enough and not record.problems:
        assert time.monotonic() < end, "nothing was acknowledged for a long time"
        time.sleep(0.01)


def _in_rounds(fresh_place: Callable[[Path], str], kills: int, seed: int) -> None:
    pages = acknowledgements = 0
    for done in range(0, kills, ROUND):
        with tempfile.TemporaryDirectory() as folder:
            count = min(ROUND, kills - done)
            more = kill_repeatedly(fresh_place(Path(folder)), Path(folder), count, seed + done)
        pages, acknowledgements = pages + more[0], acknowledgements + more[1]
        print(f"{done + count} kills, {pages} pages, {acknowledgements} acknowledgements, nothing lost", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="kill -9 of the whole service under load, again and again")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.store == "sqlite":
        _in_rounds(lambda folder: str(folder / "killed.db"), options.kills, options.seed)
        return
    from .postgres_server import PostgresServer

    server = PostgresServer()
    try:
        _in_rounds(lambda folder: server.fresh_address(), options.kills, options.seed)
    finally:
        server.remove()


if __name__ == "__main__":
    main()
