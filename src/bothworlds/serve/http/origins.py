"""Who calls the service: addresses, CORS for rank and feedback, and checks against CSRF and DNS rebinding."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Scope

from .body import header
from .problems import Problem

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}
CROSS_ORIGIN_FETCH = (b"cross-site", b"same-site")  # values of Sec-Fetch-Site
REFUSAL = (
    "without keys, pages of other origins may change nothing here; those among allowed_origins may call rank and "
    "feedback"
)


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the address in a text; raises ValueError if it is none.

    >>> address_of("::ffff:10.0.0.1")
    IPv4Address('10.0.0.1')
    """
    address = ipaddress.ip_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def with_cors(app: ASGIApp, allowed: Iterable[str]) -> CORSMiddleware:
    """Return an application that pages of the allowed origins may call; ``*`` allows all."""
    origins = [origin.rstrip("/") for origin in allowed]
    headers = ["authorization", "content-type"]
    return CORSMiddleware(app, origins, allow_methods=["POST"], allow_headers=headers, max_age=7200)


def check_origin(scope: Scope, cors: CORSMiddleware | None = None) -> None:
    """Raise a 403 for a change that a page of another origin makes the browser request, unless ``cors`` allows it.

    A browser sends a plain POST to any address without a preflight. Keys stop that, since the page does not know them;
    without keys, this check must.
    """
    if scope["method"] not in SAFE_METHODS and is_cross_origin(scope):
        origin = header(scope, b"origin").decode("latin-1")
        if cors is None or not cors.is_allowed_origin(origin):
            raise Problem(403, REFUSAL)


def check_host(scope: Scope, hosts: frozenset[bytes]) -> None:
    """Raise a 403 for another ``Host`` than these, which the page of a foreign host name has (DNS rebinding)."""
    host = header(scope, b"host")
    name = host if host.endswith(b"]") else host.rpartition(b":")[0] or host
    if name.lower() not in hosts:
        raise Problem(403, "without keys, the service answers under its loopback address only")


def is_cross_origin(scope: Scope) -> bool:
    """Return whether a browser sends this request for a page of another origin; programs send no ``Origin``.

    The service's own origin is the scheme of the request and its ``Host``. The scheme is that of the connection, which
    is http, or the value of ``X-Forwarded-Proto`` from a trusted proxy. Origins differ if scheme, host or port differ.
    """
    origin = header(scope, b"origin")
    if origin:
        own = b"%s://%s" % (scope["scheme"].encode(), header(scope, b"host"))
        if _normalised(origin) != _normalised(own):
            return True
    return header(scope, b"sec-fetch-site").lower() in CROSS_ORIGIN_FETCH


def _normalised(origin: bytes) -> tuple[bytes, bytes]:
    """Return scheme and host of an origin, without the port if it is the default.

    >>> _normalised(b"http://Shop.example:80") == _normalised(b"http://shop.example")
    True
    >>> _normalised(b"http://shop.example") == _normalised(b"https://shop.example")
    False
    """
    scheme, _, host = origin.lower().partition(b"://")
    return scheme, host.removesuffix(DEFAULT_PORTS.get(scheme, b""))
