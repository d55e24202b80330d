"""Running one process of the service: checks, assembly, signals, start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..config import Config
from ..http.app import Service
from ..http.server import listening
from ..observability.logs import set_up_logs
from ..stores import Store, open_store

SLOW_START_SECONDS = 4.0
BEAT_SECONDS = 0.5
# Seconds after which a thread that waits for the interpreter lock requests it. By default, requests would wait 5 ms for
# each of the threads that write and refresh.
SWITCH_SECONDS = 0.0005
COMPILING = "Still starting: the first start of an installation compiles for 15 seconds or longer, later ones do not."
NO_KEYS = "The store has no keys: everyone on this machine may do everything, and no other machine can connect."
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
Announce = Callable[[str], None]  # called with a sentence for the terminal
Beat = Callable[[], None]


class OpenService(NamedTuple):
    """A service and its store, which the caller closes after the service has stopped."""

    service: Service
    store: Store


def run(
    config: Config,
    announce: Announce,
    factory: Callable[[Config, bool], OpenService] | None = None,
    beat: Beat = lambda: None,
) -> None:
    """Run one process on the address and port of ``config`` until SIGTERM or SIGINT; closes the store.

    ``factory`` makes the service; ``open_service`` by default. ``beat`` is called as soon as the service answers, and
    then every ``BEAT_SECONDS`` for as long as its event loop runs. Raises ValueError if the service cannot start. Must
    run in the main thread.
    """
    json_log = set_up_logs(config.log)
    sys.setswitchinterval(SWITCH_SECONDS)
    opened = (factory or open_service)(config, json_log)
    try:
        with asyncio.Runner(loop_factory=_new_event_loop) as runner:
            runner.run(_run(opened, config, announce, beat))
    finally:
        opened.store.close()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


async def _run(opened: OpenService, config: Config, announce: Announce, beat: Beat) -> None:
    service = opened.service
    with _signals() as stopped:
        await _start(service, announce)
        beating = None
        try:
            async with listening(service, config) as serving:
                _freeze_garbage_collector()
                announce_started(announce, config, not service.keyring.needed)
                beating = asyncio.create_task(_beat(beat))
                stopping = asyncio.create_task(stopped.wait())
                await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not stopping.done():
                    raise RuntimeError("the HTTP server has failed")
        finally:
            await service.stop()
            if beating is not None:
                beating.cancel()


async def _start(service: Service, announce: Announce) -> None:
    slow_start = asyncio.get_running_loop().call_later(SLOW_START_SECONDS, announce, COMPILING)
    try:
        await service.start()
    except Exception as error:
        raise ValueError(str(error) or type(error).__name__) from error
    finally:
        slow_start.cancel()


async def _beat(beat: Beat) -> None:
    while True:
        beat()
        await asyncio.sleep(BEAT_SECONDS)


@contextlib.contextmanager
def _signals() -> Iterator[asyncio.Event]:
    """Yield an event that SIGTERM and SIGINT set."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = [signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopped.set)) for number in numbers]
    try:
        yield stopped
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)


def open_service(config: Config, json_log: bool) -> OpenService:
    """Open the store and assemble engine and HTTP service, which is not started.

    Raises StoreError if the store cannot be opened, ValueError if the host needs keys and the store has none.
    """
    from ..engine.engine import Engine  # here, so that a supervisor, which only imports this module, loads no Numba

    store = open_store(config.store)
    try:
        keyed = check_host(config, bool(store.keys()))
        shared = is_postgres(config.store)
        engine = Engine(store, refresh_ms=config.refresh_ms, refresh_events=config.refresh_events, shared=shared)
        hosts = () if keyed else loopback_names(config.host)
        service = Service(engine, store, config, keys_required=keyed, hosts=hosts, json_log=json_log)
    except BaseException:
        store.close()
        raise
    return OpenService(service, store)


def is_postgres(store: str) -> bool:
    """Return whether a store is a PostgreSQL database, which several processes may share."""
    return store.startswith(("postgresql://", "postgres://"))


def check_workers(config: Config) -> None:
    """Raise ValueError if the store or the system does not allow several processes."""
    if not is_postgres(config.store):
        raise ValueError(
            f"{config.workers} workers need PostgreSQL, since one process owns a SQLite file: "
            "use --store postgresql://..., or leave out --workers"
        )
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ValueError("this system cannot share a port between workers: leave out --workers")


def check_host(config: Config, keyed: bool) -> bool:
    """Return ``keyed``, whether the store has keys; raise ValueError if it has none and the host is not loopback."""
    if not keyed and not is_loopback(config.host):
        raise ValueError(
            f"the store has no keys, so the service listens on loopback only and not on {config.host}: "
            f"create a key first with 'bothworlds keys create --role admin --store {_without_password(config.store)}'"
        )
    return keyed


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("shop.example")
    (True, False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def loopback_names(host: str) -> set[str]:
    """Return the values of ``Host`` that a service on loopback accepts.

    >>> loopback_names("127.0.0.2") - loopback_names("localhost")
    {'127.0.0.2'}
    >>> loopback_names("::1") == loopback_names("localhost")
    True
    """
    bare = host.strip("[]").lower()
    return {*LOOPBACK_NAMES, f"[{bare}]" if ":" in bare else bare}


def announce_started(announce: Announce, config: Config, is_open: bool) -> None:
    """Announce the address, and if ``is_open`` that there are no keys."""
    address = f"http://{f'[{config.host}]' if ':' in config.host else config.host}:{config.port}"
    workers = f" with {config.workers} workers" if config.workers > 1 else ""
    announce(f"bothworlds serves {_without_password(config.store)}{workers} at {address}; dashboard: {address}/")
    if is_open:
        announce(NO_KEYS)


def _without_password(store: str) -> str:
    if not is_postgres(store):
        return store
    scheme, _, rest = store.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def _freeze_garbage_collector() -> None:
    """Exclude all that was loaded and compiled from garbage collection: scanning it would delay requests."""
    gc.collect()
    gc.freeze()
