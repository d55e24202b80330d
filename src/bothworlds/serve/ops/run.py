"""Starting the service: one process, or several that share a port and a PostgreSQL store."""

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
from typing import TYPE_CHECKING, Any, cast

import uvicorn

from ..config import Config
from ..http.connection import Connection
from ..observability.logs import set_up_logs
from ..stores.base import Store

if TYPE_CHECKING:
    from ..http.app import Service

__all__ = ["Opened", "listen", "open_service", "run", "serve"]

BACKLOG = 2048
PATIENCE_SECONDS = 4.0
COMPILING = "Still starting: the first start of an installation compiles for 15 seconds or longer, later ones do not."
NO_KEYS = "The store has no keys: everybody on this machine may do everything, and nobody else can connect."
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
Announce = Callable[[str], None]


class Opened:
    """A service with the store that it needs; close it when it has stopped."""

    def __init__(self, service: Service, store: Store) -> None:
        self.service, self.store = service, store


def serve(config: Config, announce: Announce) -> None:
    """Run the service until it is told to stop; says where it listens."""
    if config.workers > 1:
        from .supervise import supervise

        check_workers(config)
        supervise(config, announce)
    else:
        run(config, listen(config), announce)


def run(
    config: Config, listener: socket.socket, announce: Announce, opening: Callable[..., Opened] | None = None
) -> None:
    """Run one process on a socket."""
    json = set_up_logs(config.log)
    with contextlib.closing(listener):
        opened = (opening or open_service)(config, json)
        try:
            server = _Server(opened.service, config, announce, lambda: _tell(announce, config, listener, opened))
            server.run(sockets=[listener])
        finally:
            opened.store.close()


def open_service(config: Config, json_log: bool) -> Opened:
    """Open the store, and put an engine and the pages around it."""
    from ..dashboard.routes import routes
    from ..engine.engine import Engine
    from ..http.app import Service
    from ..http.operations import OPERATIONS
    from ..observability.metrics import Metrics
    from ..stores.factory import open_store

    store = open_store(config.store)
    try:
        keyed = check_host(config, bool(store.keys()))
        shared = is_postgres(config.store)
        engine: Any = Engine(store, refresh_ms=config.refresh_ms, refresh_events=config.refresh_events, shared=shared)
        metrics = Metrics()
        pages = routes(engine, latency=metrics.latency, audit=store.audit, operations=OPERATIONS)
        hosts = () if keyed else own_names(config.host)
        service = Service(
            engine, store, config, keys_required=keyed, pages=pages, hosts=hosts, json_log=json_log, metrics=metrics
        )
    except BaseException:
        store.close()
        raise
    return Opened(service, store)


def is_postgres(store: str) -> bool:
    """Whether a store is a PostgreSQL database, which several processes may share."""
    return store.startswith(("postgresql://", "postgres://"))


def check_workers(config: Config) -> None:
    """Refuse several processes where the store or the system does not allow them."""
    if not is_postgres(config.store):
        raise ValueError(
            f"{config.workers} workers need PostgreSQL, since one process owns a SQLite file: "
            "give --store postgresql://..., or leave out --workers"
        )
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ValueError("this system cannot share a port between workers: leave out --workers")


def check_host(config: Config, keyed: bool) -> bool:
    """Refuse to listen to the world while everybody may do everything; says whether keys are needed."""
    if not keyed and not is_loopback(config.host):
        raise ValueError(
            f"the store has no keys, so the service listens on loopback only and not on {config.host}: "
            f"make a key first with 'bothworlds keys create --role admin --store {_without_password(config.store)}'"
        )
    return keyed


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("shop.example")
    (True, False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def own_names(host: str) -> set[str]:
    """The names under which a service on loopback answers.

    >>> sorted(own_names("127.0.0.2") - own_names("localhost")), sorted(own_names("::1") - own_names("localhost"))
    (['127.0.0.2'], [])
    """
    bare = host.strip("[]").lower()
    return {*LOOPBACK_NAMES, f"[{bare}]" if ":" in bare else bare}


def listen(config: Config, *, shared: bool = False) -> socket.socket:
    """A socket on the host and port; other processes can open theirs beside it if ``shared``."""
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


def where(config: Config, listener: socket.socket) -> str:
    """The address at which the service is found."""
    host = config.host.strip("[]")
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _tell(announce: Announce, config: Config, listener: socket.socket, opened: Opened) -> None:
    address = where(config, listener)
    announce(f"bothworlds serves {_without_password(config.store)} at {address}; dashboard: {address}/")
    if not opened.service.keyring.needed:
        announce(NO_KEYS)


def _without_password(store: str) -> str:
    if not is_postgres(store):
        return store
    scheme, _, rest = store.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def _keep_for_good() -> None:
    """Let the garbage collector pass over what was loaded and compiled: looking at all of it holds up every visitor."""
    gc.collect()
    gc.freeze()


class _Server(uvicorn.Server):
    """Uvicorn, quiet, and with an end that counts as success."""

    def __init__(self, app: Any, config: Config, tell: Announce, started: Callable[[], None]) -> None:
        loop = "asyncio" if sys.platform == "win32" else "uvloop"
        connection = partial(Connection, limits=config.limits, metrics=app.metrics)
        super().__init__(
            uvicorn.Config(
                self._remembering(app),
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
        self._tell, self._tell_started = tell, started
        self.failure = ""

    def _remembering(self, app: Any) -> Any:
        """The application; if it does not start, why is remembered, to be told in one line."""

        async def remembering(scope: Any, receive: Any, send: Any) -> None:
            try:
                await app(scope, receive, send)
            except Exception as error:
                if scope["type"] == "lifespan":
                    self.failure = str(error) or type(error).__name__
                raise

        return remembering

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            super().run(sockets)
        finally:
            if self.failure:  # instead of the exit that Uvicorn makes of it
                raise ValueError(self.failure)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._tell, COMPILING)
        try:
            await super().startup(sockets)
        finally:
            patience.cancel()
        if self.started:
            _keep_for_good()
            self._tell_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGTERM and SIGINT. Uvicorn would raise them again at the end; a stop as asked for is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sign: signal.signal(sign, self.handle_exit) for sign in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for sign, handler in before.items():
                signal.signal(sign, handler)
