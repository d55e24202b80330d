"""Pages of other origins: which of them may call rank and feedback from the browser (CORS)."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import Scope

from .limits import header

__all__ = ["Headers", "Origins"]

Headers = list[tuple[bytes, bytes]]
PREFLIGHT = [
    (b"access-control-allow-methods", b"POST"),
    (b"access-control-allow-headers", b"authorization, content-type"),
    (b"access-control-max-age", b"7200"),
]


class Origins:
    """The origins that are allowed; ``*`` allows all."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = frozenset(origin.rstrip("/").encode("latin-1", "ignore") for origin in allowed)

    def headers(self, scope: Scope) -> Headers:
        """What to tell the browser about an answer; nothing if its page is not allowed to read it."""
        if not self._allowed:
            return []
        origin = header(scope, b"origin")
        if origin and not self._allowed.isdisjoint((origin, b"*")):
            return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        return [(b"vary", b"Origin")]

    def preflight(self, scope: Scope) -> Headers:
        """What to tell a browser that asks before it calls."""
        said = self.headers(scope)
        return said + PREFLIGHT if len(said) > 1 else said
