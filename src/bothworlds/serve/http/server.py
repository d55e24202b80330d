"""The HTTP server: Granian in the event loop of the service.

Granian limits heads, connections and pipelining, the application the bodies, and the system closes the connection of a
client that does not read.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server
from starlette.types import ASGIApp, Receive, Scope, Send

from ..config import Config
from .auth import address_of

BACKLOG = 2048
MOST_CONNECTIONS = 1 << 16
RESERVED_DESCRIPTORS = 128  # left to the store, the log and files
START_SECONDS = 0.01  # between two looks whether the server accepts connections
FORWARDED_FOR, FORWARDED_PROTO = b"x-forwarded-for", b"x-forwarded-proto"


def reserve(config: Config) -> tuple[socket.socket, Config]:
    """Return a socket that reserves the port until it is closed, and the settings with the address and port in numbers.

    Servers can listen on the port meanwhile, but no other ``reserve`` succeeds: Granian shares its port with every
    other server of this user, so that a second service would take half of the requests. Raises ValueError if the host
    is unknown or the port is in use.
    """
    try:
        found = socket.getaddrinfo(config.host.strip("[]"), config.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        raise ValueError(
            f"there is no host {config.host!r} to listen on; --host takes an address such as 127.0.0.1"
        ) from None
    family, address = found[0][0], found[0][4]
    try:
        with _bound(family, address, "SO_REUSEADDR") as exclusive:
            address = exclusive.getsockname()
        reservation = _bound(family, address, "SO_REUSEADDR", "SO_REUSEPORT")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ValueError(
            f"cannot listen on {config.host} port {config.port} ({reason}): choose another with --port"
        ) from None
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # others may not bind before a server listens
    return reservation, msgspec.structs.replace(config, host=str(address[0]), port=int(address[1]))


def _bound(family: int, address: Any, *options: str) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        for option in options:
            if hasattr(socket, option):
                bound.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


@asynccontextmanager
async def listening(app: ASGIApp, config: Config) -> AsyncIterator[asyncio.Task[None]]:
    """Serve an application, without its lifespan, on the address of ``config``; accepts connections on entry.

    Yields a task that ends only if the server fails. On exit, requests under way are answered, for at most
    ``config.stop_seconds``. Raises OSError if the server does not start.
    """
    limits = config.limits
    head_ms = max(1, round(limits.head_seconds * 1000))
    server = Server(
        _with_proxy_headers(app, config.trusted_proxies),
        address=config.host,
        port=config.port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        backpressure=_most_connections(),
        http1_settings=HTTP1Settings(header_read_timeout=head_ms, max_buffer_size=limits.head_bytes),
        log_enabled=False,
    )
    serving: asyncio.Task[None] = asyncio.create_task(server.serve())
    try:
        await _until_accepting(config, serving)
        _set_write_timeout(config.port, limits.write_seconds)
        yield serving
    finally:
        server.stop()  # type: ignore[no-untyped-call]
        await asyncio.wait({serving}, timeout=config.stop_seconds)
        serving.cancel()
        await asyncio.wait({serving})


async def _until_accepting(config: Config, serving: asyncio.Task[None]) -> None:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)
    while not serving.done():
        with suppress(OSError):
            _, writer = await asyncio.open_connection(host, config.port)
            writer.close()
            return
        await asyncio.sleep(START_SECONDS)
    raise OSError(f"the HTTP server does not start on {config.host} port {config.port}")


def _most_connections() -> int:
    """Return how many connections may be open; others wait until one is closed."""
    try:
        import resource
    except ImportError:  # Windows
        return MOST_CONNECTIONS
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(limit - RESERVED_DESCRIPTORS, limit // 2)


def _set_write_timeout(port: int, seconds: float) -> None:
    """Let the system abort connections to ``port`` whose client reads nothing for so long; on Linux only.

    Connections inherit it from the socket that listens. Granian does not hand that out, but the system lists it. No
    descriptor is closed here: closing any one of a SQLite file would release the locks of the file.
    """
    for path in Path("/proc/self/fd").glob("*"):
        try:
            found = socket.socket(fileno=int(path.name))
        except OSError:  # not a socket
            continue
        with suppress(OSError):
            if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and found.getsockname()[1] == port:
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, round(seconds * 1000)))
        found.detach()


def _with_proxy_headers(app: ASGIApp, trusted: Iterable[str]) -> ASGIApp:
    """Return an application whose scheme and client are those that the headers of a trusted proxy say.

    The client is the last address of ``X-Forwarded-For`` that is not a trusted proxy.
    """
    networks = [ipaddress.ip_network(proxy, strict=False) for proxy in trusted]

    def is_trusted(host: str) -> bool:
        try:
            address = address_of(host)
        except ValueError:
            return False
        return any(address in network for network in networks)

    is_proxy = lru_cache(1024)(is_trusted)  # of connections only: addresses in headers may be long and many

    async def forwarded(scope: Scope, receive: Receive, send: Send) -> None:
        if is_proxy(scope["client"][0]):
            for name, value in scope["headers"]:
                if name == FORWARDED_PROTO and value.strip() in (b"http", b"https"):
                    scope["scheme"] = value.strip().decode()
                elif name == FORWARDED_FOR:
                    hosts = [host.strip() for host in value.decode("latin-1").split(",")]
                    scope["client"] = (next((host for host in reversed(hosts) if not is_trusted(host)), hosts[0]), 0)
        await app(scope, receive, send)

    return forwarded
