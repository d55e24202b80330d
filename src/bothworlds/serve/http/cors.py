"""Pages of other origins: which of them may call rank and feedback from the browser, and that others may not."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import Scope

from .limits import header
from .problems import Problem

__all__ = ["Headers", "Origins"]

Headers = list[tuple[bytes, bytes]]
PREFLIGHT = [
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", b"authorization, content-type"),
    (b"access-control-max-age", b"7200"),
]
DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}
ELSEWHERE = (b"cross-site", b"same-site")


class Origins:
    """The origins that are allowed; ``*`` allows all."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = frozenset(origin.rstrip("/").encode("latin-1", "ignore") for origin in allowed)

    def headers(self, scope: Scope) -> Headers:
        """What to tell the browser about an answer; nothing if its page is not allowed to read it."""
        if not self._allowed:
            return []
        origin = header(scope, b"origin")
        if origin and self._allows(origin):
            return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        return [(b"vary", b"Origin")]

    def preflight(self, scope: Scope) -> Headers:
        """What to tell a browser that asks before it calls."""
        said = self.headers(scope)
        return said + PREFLIGHT if len(said) > 1 else said

    def check(self, scope: Scope, *, for_pages: bool) -> None:
        """Refuse what a page elsewhere makes a browser send, unless the call is for pages and its origin is allowed.

        A browser sends a plain POST to any address without asking first. Keys stop that, since it does not know them;
        where none are needed, this must.
        """
        if is_foreign(scope) and not (for_pages and self._allows(header(scope, b"origin"))):
            raise Problem(403, REFUSAL)

    def _allows(self, origin: bytes) -> bool:
        return not self._allowed.isdisjoint((origin, b"*"))


REFUSAL = (
    "without keys, pages of other origins may change nothing here; those among allowed_origins may call rank and "
    "feedback"
)


def is_foreign(scope: Scope) -> bool:
    """Whether a browser sends this request for a page of another origin; programs send no ``Origin``.

    The service's own origin is the scheme of the request and its ``Host``. The scheme is that of the connection, which
    is http, or what a trusted proxy states in ``X-Forwarded-Proto``. Origins differ if scheme, host or port differ.
    """
    origin = header(scope, b"origin")
    other = bool(origin) and _normal(origin) != _normal(b"%s://%s" % (scope["scheme"].encode(), header(scope, b"host")))
    return other or header(scope, b"sec-fetch-site").lower() in ELSEWHERE


def _normal(origin: bytes) -> tuple[bytes, bytes]:
    """Scheme and host of an origin, without the port if it is the default.

    >>> _normal(b"http://Shop.example:80") == _normal(b"http://shop.example") != _normal(b"https://shop.example")
    True
    """
    scheme, _, host = origin.lower().partition(b"://")
    return scheme, host.removesuffix(DEFAULT_PORTS.get(scheme, b""))
