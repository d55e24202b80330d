"""Calls that show what the service has learned, and how it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..model import Unknown
from ..observability.metrics import CONTENT_TYPE, Metrics
from ..schemas import rfc3339
from .auth import Keyring
from .problems import Problem
from .surface_endpoints import answer

__all__ = ["Reading", "dated"]

EVENT_ID_DIGITS = 32
NOT_READY = "the service is not ready; its log says why, and so does this call with a key that may read"
FIRST_YEAR, LAST_YEAR = 1970, 9998  # of times that can be asked for; a year less than can be written down
TIMES = ("at", "since", "until", "late_until")


class Reading:
    """What may be looked at."""

    def __init__(self, engine: Any, keyring: Keyring, metrics: Metrics) -> None:
        self._engine, self._keyring, self._metrics = engine, keyring, metrics
        self.stopping = False

    async def get_event(self, request: Request, actor: str) -> Response:
        event_id = request.path_params["event_id"]
        if len(event_id) != EVENT_ID_DIGITS or not set(event_id) <= set("0123456789abcdef"):
            raise Unknown(f"there is no event with this id; ids have {EVENT_ID_DIGITS} digits from 0-9 and a-f")
        return answer(dated(await self._engine.event(event_id)))

    async def get_state(self, request: Request, actor: str) -> Response:
        segment = _segment(request) or ""
        return answer(dated(await self._engine.state(request.path_params["surface"], segment)))

    async def get_report(self, request: Request, actor: str) -> Response:
        since, until = _time(request, "since"), _time(request, "until")
        if since is not None and until is not None and until <= since:
            raise _wrong("until", "it must be later than since")
        report = await self._engine.report(
            request.path_params["surface"], since=since, until=until, segment=_segment(request)
        )
        return answer(dated(report))

    async def alive(self, request: Request, actor: str) -> Response:
        return answer({"alive": True})

    async def ready(self, request: Request, actor: str) -> Response:
        health = self._engine.health()  # here: threads may all be waiting for a store that does not answer
        # Reasons may say where the store is, which is for those who may read.
        reasons = list(health.get("reasons", ())) if await self._keyring.allows(request.scope, "read") else []
        reasons += ["the service is stopping"] if self.stopping else []
        ready = bool(health.get("ready")) and not self.stopping
        if not ready:
            raise Problem(503, "; ".join(map(str, reasons)) or NOT_READY, title="Not ready")
        return answer({"ready": True, "reasons": reasons})

    async def metrics(self, request: Request, actor: str) -> Response:
        self._metrics.look(self._engine.health())
        return Response(self._metrics.text(), media_type=None, headers={"content-type": CONTENT_TYPE})


def dated(said: Any) -> Any:
    """What the engine says, with times written out.

    >>> dated({"created_at": 0, "series": [{"at": 1000, "pages": 3}]})
    {'created_at': '1970-01-01T00:00:00.000Z', 'series': [{'at': '1970-01-01T00:00:01.000Z', 'pages': 3}]}
    """
    if isinstance(said, dict):
        return {name: rfc3339(value) if _is_time(name, value) else dated(value) for name, value in said.items()}
    return [dated(value) for value in said] if isinstance(said, list | tuple) else said


def _is_time(name: Any, value: Any) -> bool:
    return type(value) is int and (name in TIMES or str(name).endswith("_at"))


def _segment(request: Request) -> str | None:
    segment = request.query_params.get("segment")
    if segment is not None and len(segment) > 128:
        raise _wrong("segment", "names of segments have 128 characters at most")
    return segment


def _time(request: Request, name: str) -> int | None:
    """A time from the query, in milliseconds; times without a zone are refused, since nobody knows which is meant."""
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        said = datetime.fromisoformat(text.replace(" ", "+"))  # a plus sign in a query means a space
        if said.tzinfo is None:
            raise _wrong(name, "it needs a zone, such as Z at the end")
        asked = said.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _wrong(name, "it must be a time such as 2026-01-31T12:00:00Z") from None
    if not FIRST_YEAR <= asked.year <= LAST_YEAR:
        raise _wrong(name, f"it must be between the years {FIRST_YEAR} and {LAST_YEAR}")
    return round(asked.timestamp() * 1000)


def _wrong(name: str, detail: str) -> Problem:
    errors = [{"pointer": f"?{name}", "detail": detail}]
    return Problem(422, f"the query parameter {name!r} is wrong: {detail}", errors=errors)
