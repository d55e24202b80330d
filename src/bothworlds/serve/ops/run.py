"""Running one process of the service: checks, sockets, assembly, and the Uvicorn server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, cast

import uvicorn

from ..config import Config
from ..dashboard.routes import routes
from ..http.app import Service
from ..http.connection import Connection
from ..http.operations import OPERATIONS
from ..observability.logs import set_up_logs
from ..observability.metrics import Metrics
from ..observability.telemetry import open_telemetry
from ..stores.base import Store
from ..stores.factory import open_store

__all__ = ["Announce", "OpenService", "listen", "open_service", "run"]

BACKLOG = 2048
SLOW_START_SECONDS = 4.0
# Seconds after which a thread that waits for the interpreter lock requests it. By default, requests would wait 5 ms for
# each of the threads that write and refresh.
SWITCH_SECONDS = 0.0005
COMPILING = "Still starting: the first start of an installation compiles for 15 seconds or longer, later ones do not."
NO_KEYS = "The store has no keys: everyone on this machine may do everything, and no other machine can connect."
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
Announce = Callable[[str], None]  # called with a sentence for the terminal


class OpenService(NamedTuple):
    """A service and its store, which the caller closes after the service has stopped."""

    service: Service
    store: Store


def run(
    config: Config,
    listener: socket.socket,
    announce: Announce,
    factory: Callable[[Config, bool], OpenService] | None = None,
) -> None:
    """Run one process on a socket until SIGTERM or SIGINT; closes the socket and the store.

    ``factory`` makes the service; ``open_service`` by default. Raises ValueError if the service cannot start.
    """
    json_log = set_up_logs(config.log)
    sys.setswitchinterval(SWITCH_SECONDS)
    with contextlib.closing(listener):
        opened = (factory or open_service)(config, json_log)
        try:
            server = _Server(
                opened.service, config, announce, lambda: _announce_started(announce, config, listener, opened)
            )
            server.run(sockets=[listener])
        finally:
            opened.store.close()


def open_service(config: Config, json_log: bool) -> OpenService:
    """Open the store and assemble engine, pages and HTTP service, which is not started.

    Raises StoreError if the store cannot be opened, ValueError if the host needs keys and the store has none.
    """
    from ..engine.engine import Engine  # here, so that a supervisor, which only imports this module, loads no Numba

    store = open_store(config.store)
    try:
        keyed = check_host(config, bool(store.keys()))
        shared = is_postgres(config.store)
        metrics = Metrics(open_telemetry(config.telemetry))
        engine = Engine(
            store,
            refresh_ms=config.refresh_ms,
            refresh_events=config.refresh_events,
            shared=shared,
            telemetry=metrics.telemetry,
        )
        pages = routes(engine, latency=metrics.latency, audit=store.audit, operations=OPERATIONS)
        hosts = () if keyed else loopback_names(config.host)
        service = Service(
            engine, store, config, keys_required=keyed, pages=pages, hosts=hosts, json_log=json_log, metrics=metrics
        )
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


def listen(config: Config, *, shared: bool = False) -> socket.socket:
    """Return a bound socket; with ``shared``, other processes can bind the same port (SO_REUSEPORT).

    Raises ValueError if the host is unknown or the port is in use.
    """
    host = config.host.strip("[]")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, config.port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise ValueError(
            f"there is no host {config.host!r} to listen on; --host takes an address such as 127.0.0.1"
        ) from None
    listener = socket.socket(family, kind)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        reason = (error.strerror or str(error)).lower()
        raise ValueError(
            f"cannot listen on {config.host} port {config.port} ({reason}): choose another with --port"
        ) from None
    listener.setblocking(False)
    return listener


def address_of(config: Config, listener: socket.socket) -> str:
    """Return the URL of the service."""
    host = config.host.strip("[]")
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _announce_started(announce: Announce, config: Config, listener: socket.socket, opened: OpenService) -> None:
    address = address_of(config, listener)
    announce(f"bothworlds serves {_without_password(config.store)} at {address}; dashboard: {address}/")
    if not opened.service.keyring.needed:
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


class _Server(uvicorn.Server):
    """Uvicorn without its own log, whose stop by a signal is a success and whose failed start is a ValueError."""

    def __init__(self, app: Service, config: Config, announce: Announce, on_started: Callable[[], None]) -> None:
        loop = "asyncio" if sys.platform == "win32" else "uvloop"
        connection = partial(Connection, limits=config.limits, metrics=app.metrics)
        super().__init__(
            uvicorn.Config(
                self._recording_failure(app),
                loop=loop,
                http=cast(type[asyncio.Protocol], connection),
                ws="none",
                lifespan="on",
                access_log=False,
                log_config=None,
                log_level="critical",
                backlog=BACKLOG,
                server_header=False,
                forwarded_allow_ips=list(config.trusted_proxies),
                timeout_graceful_shutdown=config.stop_seconds,
            )
        )
        self._announce, self._on_started = announce, on_started
        self.failure = ""

    def _recording_failure(self, app: Service) -> Any:
        """Return the application, wrapped to record why it does not start."""

        async def recording(scope: Any, receive: Any, send: Any) -> None:
            try:
                await app(scope, receive, send)
            except Exception as error:
                if scope["type"] == "lifespan":
                    self.failure = str(error) or type(error).__name__
                raise

        return recording

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        finally:
            if self.failure:  # Uvicorn would call sys.exit
                raise ValueError(self.failure)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        slow_start = asyncio.get_running_loop().call_later(SLOW_START_SECONDS, self._announce, COMPILING)
        try:
            await super().startup(sockets)
        finally:
            slow_start.cancel()
        if self.started:
            _freeze_garbage_collector()
            self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGTERM and SIGINT. Uvicorn would raise the signal again at the end, as if the process had failed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
