"""CORS and CSRF: which web pages of other origins may call rank and feedback, and that they may change nothing else.

Starlette's ``CORSMiddleware`` does not carry these rules. It allows origins for all paths it wraps, while here only
rank and feedback are for other origins; it answers a refused preflight with 400 in plain text, and ``*`` with ``*``
instead of the origin; and it only sets headers, while a service without keys must refuse cross-site requests (CSRF),
by the same list of origins.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import Scope

from .problems import Problem
from .request_body import header

__all__ = ["CorsPolicy", "Headers"]

Headers = list[tuple[bytes, bytes]]
PREFLIGHT = [
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", b"authorization, content-type"),
    (b"access-control-max-age", b"7200"),
]
DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}
CROSS_ORIGIN_FETCH = (b"cross-site", b"same-site")  # values of Sec-Fetch-Site
REFUSAL = (
    "without keys, pages of other origins may change nothing here; those among allowed_origins may call rank and "
    "feedback"
)


class CorsPolicy:
    """The origins that are allowed to call rank and feedback; ``*`` allows all."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = frozenset(origin.rstrip("/").encode("latin-1", "ignore") for origin in allowed)

    def headers(self, scope: Scope) -> Headers:
        """Return the CORS headers of a response; without an allowed origin the browser hides it from the page."""
        if not self._allowed:
            return []
        origin = header(scope, b"origin")
        if origin and self._allows(origin):
            return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        return [(b"vary", b"Origin")]

    def preflight(self, scope: Scope) -> Headers:
        """Return the headers of the response to a preflight request."""
        headers = self.headers(scope)
        return headers + PREFLIGHT if len(headers) > 1 else headers

    def check_origin(self, scope: Scope, *, cors_endpoint: bool) -> None:
        """Raise a 403 for a request that a page of another origin makes the browser send.

        Requests to a ``cors_endpoint`` (rank, feedback) from an allowed origin pass. A browser sends a plain POST to
        any address without a preflight. Keys stop that, since the page does not know them; without keys, this check
        must.
        """
        if is_cross_origin(scope) and not (cors_endpoint and self._allows(header(scope, b"origin"))):
            raise Problem(403, REFUSAL)

    def _allows(self, origin: bytes) -> bool:
        return not self._allowed.isdisjoint((origin, b"*"))


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
