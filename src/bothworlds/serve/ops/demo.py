"""The service with simulated visitors: a dashboard that comes alive in a minute.

The service runs as it would for real visitors, in a process of its own, and is only ever spoken to over HTTP. All that
it knows is in its store, so that a second start goes on where the first one ended.
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
from ..client.client import Client, ClientError, Page

__all__ = ["ITEMS", "Visitors", "run"]

ITEMS = (
    "Oak desk", "Reading lamp", "Linen sofa", "Wool rug", "Wall shelf", "Bar stool", "Side table", "Plant pot",
    "Armchair", "Floor mirror", "Coat rack", "Bedside lamp", "Bookcase", "Footstool", "Picture frame", "Throw blanket",
)  # fmt: skip
SURFACE = "demo"
# Somebody may try out keys meanwhile: visitors go on, as those of a page without a key would.
SETTINGS = {
    "BOTHWORLDS_REQUEST_LOG": "false",
    "BOTHWORLDS_PUBLIC_RANK": "true",
    "BOTHWORLDS_PUBLIC_FEEDBACK": "true",
}
SILENT = 0.02  # visitors without a click who leave without a word, so that deadlines have something to do
REPEATED = 0.01  # feedback that is sent twice, as impatient phones do


def names_of(count: int) -> list[str]:
    """So many plausible names.

    >>> names_of(2), names_of(17)[-1]
    (['Oak desk', 'Reading lamp'], 'Oak desk 2')
    """
    return [ITEMS[i % len(ITEMS)] + (f" {i // len(ITEMS) + 1}" if i >= len(ITEMS) else "") for i in range(count)]


class Visitors:
    """Visitors of a simulated world, one page view after the other: they ask for a list, click, and say so.

    The world's items are shuffled, or the order in which they are listed, which the holdout is shown, would be the
    best one in most worlds.
    """

    def __init__(self, client: Client, world: World, seed: int = 1, surface: str = SURFACE) -> None:
        self._client, self.surface = client, surface
        self._chance = np.random.default_rng([seed, time.time_ns()])
        self._world = Relabelled(world, np.random.default_rng(seed).permutation(world.n_items))
        self.items = names_of(world.n_items)
        self._row = {name: row for row, name in enumerate(self.items)}
        self.views = self.clicks = 0

    def prepare(self) -> None:
        """Create the surface, unless it is there, and go on with the world's rounds where they stopped."""
        path = f"/v1/surfaces/{quote(self.surface, safe='')}"
        try:
            self._client.call("GET", path)
        except ClientError as error:
            if error.status != 404:
                raise
            settings = {"holdout": 0.1, "attribution_seconds": 60, "late_seconds": 3600}
            body = {"slots": self._world.n_positions, "items": self.items, **settings}
            self._client.call("PUT", path, body)
        self.views = self._rounds(f"{path}/state")

    def _rounds(self, path: str) -> int:
        try:
            return int(self._client.call("GET", path)["rounds"])
        except ClientError as error:
            if error.status != 404:
                raise
            return 0  # nobody has come yet

    def visit(self) -> None:
        """One page view."""
        page = self._client.rank(self.surface)
        clicked = self._clicks(page)
        self.views += 1
        self.clicks += len(clicked)
        if not clicked and self._chance.random() < SILENT:
            return
        self._client.done(page, *clicked)
        if self._chance.random() < REPEATED:
            self._client.flush()
            self._client.done(page, *clicked)

    def _clicks(self, page: Page) -> list[int]:
        probabilities: NDArray[np.float64] = self._world.click_probabilities(self.views)
        chances = [
            probabilities[self._row[item], slot] if item in self._row else 0.0 for slot, item in enumerate(page.items)
        ]
        return np.flatnonzero(self._chance.random(len(chances)) < chances).tolist()


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
    """Serve simulated visitors, ``rate`` a second, until interrupted (or for ``seconds``).

    ``world`` is the paper's steady world with items far enough apart to be told apart in a minute, if not given;
    ``store`` is a file, or the address of a PostgreSQL database; ``bothworlds-demo.db`` here if not given.
    """
    found = world_named("paper/stochastic", gap=0.1) if world is None else resolve(world)
    where = store or str(Path("bothworlds-demo.db").resolve())
    address = f"http://127.0.0.1:{port}"
    command = command or [sys.executable, "-c", _WATCHED, "serve"]
    say("starting the service")
    with _service([*command, "--store", where, "--port", str(port)], address), Client(address, tries=6) as client:
        # Each world has a surface of its own: its items are liked differently.
        visitors = Visitors(
            client, found, surface=SURFACE if world is None else found.name.replace("/", "-") or SURFACE
        )
        try:
            visitors.prepare()
        except ClientError as error:
            if error.status not in (401, 403):
                raise
            raise ValueError(
                f"{where} has keys, and the visitors of a demo have none: choose another --store"
            ) from error
        say(_greeting(address, where, found, visitors, rate))
        try:
            for _ in paced(rate, seconds):
                visitors.visit()
        except KeyboardInterrupt:
            say(f"stopped after {visitors.views:,} page views; the next start goes on from there")
        except ClientError as error:
            raise ValueError(f"the service has gone ({error}); start again, everything acknowledged is kept") from error


# The service ends with whoever started it, even if that was killed: its standard input then comes to an end. It is read
# without a buffer, whose lock the thread would still hold when the interpreter shuts down.
_WATCHED = """
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
    before = f"{visitors.views:,} page views are there already; " if visitors.views else ""
    return (
        f"open {address}/surfaces/{quote(visitors.surface)}\n"
        f"{before}visitors of {world.name or 'the world'} come at about {rate:g} a second. "
        f"Watch the order settle and pull away from the holdout.\n"
        f"everything is kept in {store}: stop with Ctrl+C, or with kill -9, and start again."
    )


def paced(rate: float, seconds: float | None = None, clock: Callable[[], float] = time.monotonic) -> Iterator[int]:
    """Count page views at this rate; what could not be kept up with is not made up for."""
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
    """The service as a process of its own; it is asked to stop at the end, and drains."""
    if not _falls_silent(address):
        raise ValueError(f"something listens at {address} already; choose another --port, or stop it")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, env={**SETTINGS, **os.environ})
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
    end = time.monotonic() + seconds  # the first start of an installation compiles
    while time.monotonic() < end:
        if process.poll() is not None:
            raise ValueError(f"the service did not start (exit status {process.returncode}); its own message is above")
        if _answers(address, "/readyz"):
            return
        time.sleep(0.1)
    raise ValueError(f"the service was not ready within {seconds:g} seconds")


def _falls_silent(address: str, seconds: float = 5.0) -> bool:
    """Whether the port is free; a service whose demo was killed a moment ago may still be draining."""
    end = time.monotonic() + seconds
    while _answers(address):
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _answers(address: str, path: str = "/healthz") -> bool:
    with Client(address, tries=1, timeout=1.0) as client:
        try:
            client.call("GET", path)
        except ClientError as error:
            return error.status != 0 and path == "/healthz"
        return True
