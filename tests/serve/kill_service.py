"""Kills ``bothworlds serve`` under load, at random moments, and looks whether it has kept what it acknowledged.

    python -m tests.serve.kill_service --kills 100 --store postgres

With PostgreSQL there are two workers, and sometimes only one of them is killed. After every kill: all that visitors
were told is kept is there, nothing that they did not send, and every counter is the sum of the log. In the end the
counters are what the visitors' own notes come to, so that nothing was counted twice.
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
from collections.abc import Callable, Sequence
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from bothworlds.serve.ops.verify import verify
from bothworlds.serve.stores.factory import open_store

from .visiting import SURFACE, Notes, Visitor
from .workers import workers_of

ROOT = Path(__file__).parents[2]
HONEST = ("-m", "bothworlds")
HASTY = ("-c", "from tests.serve.kill_service import serve_hastily; serve_hastily()")
VISITORS = 4
ROUND = 25  # kills of one store; then a new one, so that looking at all of it stays quick
PATIENCE_SECONDS = 120.0


def command_line(*words: str, program: Sequence[str] = HONEST, **options: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own, and in a group that can be killed as a whole."""
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "BOTHWORLDS_REQUEST_LOG": "false"} | options.pop("env", {})
    command = [sys.executable, *program, *words]
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, start_new_session=True, **options)


def serve_hastily() -> None:
    """The service, with a store that says it has written what it will write next time: it must be caught."""
    from bothworlds.cli import main
    from bothworlds.serve.stores.sql_store import SqlStore

    write, waiting = SqlStore.apply_feedback, []

    def apply_feedback(self: SqlStore, feedback: Any, now: int) -> Any:
        late, waiting[:] = list(waiting), feedback
        write(self, late, now)
        return ["accepted"] * len(feedback)

    SqlStore.apply_feedback = apply_feedback  # type: ignore[method-assign]
    main()


class Serving:
    """A service that is killed and started again."""

    def __init__(self, place: str, folder: Path, program: Sequence[str] = HONEST) -> None:
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
        """One call on a connection of its own, which any worker may get: status, answer, ETag."""
        with closing(HTTPConnection(*self.where, timeout=PATIENCE_SECONDS)) as connection:
            sent = None if body is None else json.dumps(body).encode()
            connection.request(method, path, sent, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null"), answer.getheader("ETag", "")

    def kill(self, chance: random.Random) -> None:
        """Kill one worker, whom the service replaces, or everything, and start it again."""
        workers = workers_of(self.process) if self.shared and chance.random() < 0.5 else []
        if workers:
            os.kill(chance.choice(workers), signal.SIGKILL)
        else:
            self.end()
            self.start()

    def end(self) -> None:
        """Kill everything that this service consists of."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def stop(self) -> int:
        """Stop it as one should; its exit status."""
        self.process.terminate()
        return self.process.wait(PATIENCE_SECONDS)


def problems_of(place: str, notes: Notes, promised: dict[str, tuple[int, bool]]) -> list[str]:
    """What the store has lost or made up; the promises must be older than what is read."""
    names = list(promised)
    with closing(open_store(place, read_only=True)) as store:
        found = store.find_events([bytes.fromhex(name) for name in names])
        broken = (notes.broken(name, promised[name], found.get(bytes.fromhex(name))) for name in names)
        return [*notes.problems, *filter(None, broken), *map(str, verify(store).differences)]


def counters_in(place: str) -> dict[tuple[int, int], tuple[int, int, int]]:
    with closing(open_store(place, read_only=True)) as store:
        (segment,) = store.segments(store.surfaces()[0].id)
    cells = {*segment.loss, *segment.shown}
    return {cell: (segment.loss.get(cell, 0), segment.shown[cell], segment.clicked.get(cell, 0)) for cell in cells}


def kill_again_and_again(
    place: str, folder: Path, kills: int, seed: int = 0, program: Sequence[str] = HONEST
) -> tuple[int, int]:
    """Raise AssertionError if anything is lost or counted twice; how many pages, how many acknowledgements."""
    chance, notes = random.Random(seed), Notes()
    serving = Serving(place, folder, program)
    visitors = [Visitor(k, seed, lambda: serving.where, notes) for k in range(VISITORS)]
    try:
        visitors[0].call("PUT", "/v1/surfaces/home", SURFACE)
        for visitor in visitors:
            visitor.start()
        _kill_under_load(serving, notes, kills, chance)
        for visitor in visitors:
            visitor.stop()
        _check_the_end(serving, visitors[0], notes)
    finally:
        for visitor in visitors:
            visitor.stop(at_once=True)
        serving.end()
    return len(notes.shown), notes.count


def _kill_under_load(serving: Serving, notes: Notes, kills: int, chance: random.Random) -> None:
    looked_at: dict[str, tuple[int, bool]] = {}
    for kill in range(kills):
        _wait_for_more(notes, 20)
        time.sleep(chance.uniform(0.0, 0.3))
        serving.kill(chance)
        promised = notes.promised()
        fresh = {name: promise for name, promise in promised.items() if looked_at.get(name) != promise}
        problems = problems_of(serving.place, notes, fresh)
        assert not problems, f"after kill {kill}: {problems[:5]}"
        looked_at = promised


def _check_the_end(serving: Serving, visitor: Visitor, notes: Notes) -> None:
    pieces = notes.open_pages()
    for start in range(0, len(pieces), 500):
        visitor.feedback(pieces[start : start + 500])
    problems = problems_of(serving.place, notes, notes.promised())
    assert not problems, f"in the end: {problems[:5]}"
    assert counters_in(serving.place) == notes.counters(), "the counters are not what was acknowledged"
    verified = command_line("verify", "--store", serving.place, stdout=subprocess.PIPE)
    said, _ = verified.communicate()
    assert verified.returncode == 0, said
    assert serving.stop() == 0, "it did not stop as it should"


def _wait_for_more(notes: Notes, acknowledgements: int) -> None:
    enough, end = notes.count + acknowledgements, time.monotonic() + PATIENCE_SECONDS
    while notes.count < enough and not notes.problems:
        assert time.monotonic() < end, "nothing was acknowledged for a long time"
        time.sleep(0.01)


def _in_rounds(fresh_place: Callable[[Path], str], kills: int, seed: int) -> None:
    pages = acknowledgements = 0
    for done in range(0, kills, ROUND):
        with tempfile.TemporaryDirectory() as folder:
            count = min(ROUND, kills - done)
            more = kill_again_and_again(fresh_place(Path(folder)), Path(folder), count, seed + done)
        pages, acknowledgements = pages + more[0], acknowledgements + more[1]
        print(f"{done + count} kills, {pages} pages, {acknowledgements} acknowledgements, nothing lost", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="kill -9 of the whole service under load, again and again")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.store == "sqlite":
        _in_rounds(lambda folder: str(folder / "killed.db"), chosen.kills, chosen.seed)
        return
    from .postgres_server import PostgresServer

    server = PostgresServer()
    try:
        _in_rounds(lambda folder: server.fresh_address(), chosen.kills, chosen.seed)
    finally:
        server.remove()


if __name__ == "__main__":
    main()
