"""``bothworlds demo``: the service with simulated visitors.

The service runs in a process of its own, as for real visitors, and is called over HTTP only. All state is in its store:
the next start continues from there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from ...worlds import Relabelled, World, resolve
from ...worlds import world as world_named
from ..client.client import Client, Page
from ..client.http import ClientError

ITEMS = (
    "Oak desk", "Reading lamp", "Linen sofa", "Wool rug", "Wall shelf", "Bar stool", "Side table", "Plant pot",
    "Armchair", "Floor mirror", "Coat rack", "Bedside lamp", "Bookcase", "Footstool", "Picture frame", "Throw blanket",
)  # fmt: skip
SURFACE = "demo"
# Visitors have no key: they must still be served if the user of the demo creates keys.
ENVIRONMENT = {
    "BOTHWORLDS_REQUEST_LOG": "false",
    "BOTHWORLDS_PUBLIC_RANK": "true",
    "BOTHWORLDS_PUBLIC_FEEDBACK": "true",
    "BOTHWORLDS_PUBLIC_RATE": "0",
}
NO_FEEDBACK = 0.02  # share of visitors without a click that send no feedback, so that lists settle by their deadline
SENT_TWICE = 0.01  # share of feedback that is sent twice, as real clients do after a timeout


def names_of(count: int) -> list[str]:
    """Return ``count`` different names of items.

    >>> names_of(2), names_of(17)[-1]
    (['Oak desk', 'Reading lamp'], 'Oak desk 2')
    """
    return [ITEMS[i % len(ITEMS)] + (f" {i // len(ITEMS) + 1}" if i >= len(ITEMS) else "") for i in range(count)]


class Visitors:
    """Visitors of a simulated world, one page view after the other: each requests a list and sends its clicks.

    The world's items are shuffled: in most worlds they are sorted by attraction, and the holdout, which is shown the
    order of the surface, would get the best list. Methods raise ClientError.
    """

    def __init__(self, client: Client, world: World, seed: int = 1, surface: str = SURFACE) -> None:
        self._client, self.surface = client, surface
        self._random = np.random.default_rng([seed, time.time_ns()])
        self._world = Relabelled(world, np.random.default_rng(seed).permutation(world.n_items))
        self.items = names_of(world.n_items)
        self._row = {name: row for row, name in enumerate(self.items)}
        self.views = self.clicks = 0

    def prepare(self) -> None:
        """Create the surface unless it exists, and continue with the world's rounds where they stopped."""
        path = f"/v1/surfaces/{quote(self.surface, safe='')}"
        try:
            self._client.call("GET", path)
        except ClientError as error:
            if error.status != 404:
                raise
            settings = {"holdout": 0.1, "attribution_seconds": 60, "late_seconds": 3600}
            body = {"slots": self._world.n_positions, "items": self.items, **settings}
            self._client.call("PUT", path, body)
        self.views = int(self._client.call("GET", f"{path}/state")["rounds"])

    def visit(self) -> None:
        """Simulate one page view."""
        page = self._client.rank(self.surface)
        clicked = self._clicks(page)
        self.views += 1
        self.clicks += len(clicked)
        if not clicked and self._random.random() < NO_FEEDBACK:
            return
        self._client.done(page, *clicked)
        if self._random.random() < SENT_TWICE:
            self._client.flush()
            self._client.done(page, *clicked)

    def _clicks(self, page: Page) -> list[int]:
        probabilities: NDArray[np.float64] = self._world.click_probabilities(self.views)
        chances = [
            probabilities[self._row[item], slot] if item in self._row else 0.0 for slot, item in enumerate(page.items)
        ]
        return np.flatnonzero(self._random.random(len(chances)) < chances).tolist()


def run(
    world: str | World | None = None,
    *,
    store: str | None = None,
    port: int = 8080,
    rate: float = 200.0,
    seconds: float | None = None,
    say: Callable[[str], None] = print,
    command: Sequence[str] | None = None,
) -> None:
    """Start a service and simulate ``rate`` visitors a second, until interrupted or for ``seconds``.

    ``world`` defaults to the paper's stochastic world with a gap that is learned within a minute. ``store`` is a file
    or the address of a PostgreSQL database; ``bothworlds-demo.db`` in the current directory by default. ``say``
    receives messages for the user. ``command`` replaces ``bothworlds serve``. Raises ValueError if the port is in use,
    the store has keys, the service does not start or stops, or clicks were lost.
    """
    simulated = world_named("paper/stochastic", gap=0.1) if world is None else resolve(world)
    place = store or str(Path("bothworlds-demo.db").resolve())
    address = f"http://127.0.0.1:{port}"
    command = command or [sys.executable, "-c", _SERVE_UNTIL_ORPHANED, "serve"]
    say("starting the service")
    with _service([*command, "--store", place, "--port", str(port)], address), Client(address, tries=6) as client:
        # Each world has its own surface: the same items have other click probabilities in it.
        surface = SURFACE if world is None else simulated.name.replace("/", "-") or SURFACE
        visitors = Visitors(client, simulated, surface=surface)
        try:
            visitors.prepare()
        except ClientError as error:
            if error.status not in (401, 403):
                raise
            raise ValueError(
                f"{place} has keys, and the visitors of a demo have none: choose another --store"
            ) from error
        say(_greeting(address, place, simulated, visitors, rate))
        try:
            for _ in paced(rate, seconds):
                visitors.visit()
        except KeyboardInterrupt:
            say(f"stopped after {visitors.views:,} page views; the next start continues from there")
        except ClientError as error:
            raise ValueError(
                f"the service has stopped ({error}); start again, everything acknowledged is kept"
            ) from error
    if client.dropped:
        raise ValueError(f"the service did not take the feedback on {client.dropped:,} pages")


# The service stops when the demo ends, even by kill -9: its standard input is then closed. os.read is used because a
# thread inside a buffered read would hold the buffer's lock when the interpreter shuts down.
_SERVE_UNTIL_ORPHANED = """
import os, runpy, signal, sys, threading
def watch():
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=watch, daemon=True).start()
sys.argv[0] = "bothworlds"
runpy.run_module("bothworlds", run_name="__main__", alter_sys=False)
"""


def _greeting(address: str, store: str, world: World, visitors: Visitors, rate: float) -> str:
    before = f"{visitors.views:,} page views are stored already; " if visitors.views else ""
    return (
        f"open {address}/surfaces/{quote(visitors.surface)}\n"
        f"{before}visitors of {world.name or 'the world'} come at about {rate:g} a second. "
        f"Watch the order settle and pull away from the holdout.\n"
        f"everything is kept in {store}: stop with Ctrl+C, or with kill -9, and start again."
    )


def paced(rate: float, seconds: float | None = None, clock: Callable[[], float] = time.monotonic) -> Iterator[int]:
    """Yield 0, 1, ... at ``rate`` per second, for ``seconds``; delays of more than a second are not made up for.

    Raises ValueError if the rate is not positive.
    """
    if not rate > 0:
        raise ValueError(f"rate must be a positive number of page views a second; got {rate!r}")
    start = due = clock()
    number = 0
    while seconds is None or clock() - start < seconds:
        yield number
        number += 1
        due = max(due + 1.0 / rate, clock() - 1.0)
        time.sleep(max(0.0, due - clock()))


@contextmanager
def _service(command: Sequence[str], address: str) -> Iterator[None]:
    """Run the service in a process of its own, ready on entry; stops it with SIGTERM and waits for it."""
    if not _wait_until_free(address):
        raise ValueError(f"something already listens at {address}; choose another --port, or stop it")
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, start_new_session=True, env={**ENVIRONMENT, **os.environ}
    )
    try:
        _wait_until_ready(process, address)
        yield
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _wait_until_ready(process: subprocess.Popen[bytes], address: str, seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds  # long, since the first start of an installation compiles
    while time.monotonic() < end:
        if process.poll() is not None:
            raise ValueError(f"the service did not start (exit status {process.returncode}); its own message is above")
        if _answers(address, "/readyz"):
            return
        time.sleep(0.1)
    raise ValueError(f"the service was not ready within {seconds:g} seconds")


def _wait_until_free(address: str, seconds: float = 5.0) -> bool:
    """Return whether the port becomes free; the service of a demo that was just killed may still be stopping."""
    end = time.monotonic() + seconds
    while _answers(address):
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _answers(address: str, path: str = "/healthz") -> bool:
    """Return whether a request succeeds; for /healthz any response will do."""
    with Client(address, tries=1, timeout=1.0) as client:
        try:
            client.call("GET", path)
        except ClientError as error:
            return error.status != 0 and path == "/healthz"
        return True
