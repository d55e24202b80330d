"""Endpoints for events, state, reports, health and metrics: all that do not change a surface."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ... import __version__
from ..model import LEARNER_ARM, LISTED_ITEMS, MAX_ITEMS_EVER
from ..observability.metrics import CONTENT_TYPE, Metrics
from ..schemas import DeletedCount
from .auth import Keyring
from .operations import describe
from .problems import Problem, json_response

if TYPE_CHECKING:
    from ..engine.engine import Engine

MAX_CONTEXT_LENGTH = 4096
NOT_READY = "the service is not ready; its log has the reason, and so has this response for a key with the role read"
FIRST_YEAR, LAST_YEAR = 1970, 9998  # of since and until: rounding up must not lead to the year 10000
WHICH = "name the events by visitor, by surface and request_id, or by surface and context"


class ReadEndpoints:
    """Handlers of requests that only read, and of those that delete events, which are durably deleted on return.

    ``stopping`` makes /readyz fail while the service shuts down.
    """

    def __init__(self, engine: Engine, keyring: Keyring, metrics: Metrics) -> None:
        self._engine, self._keyring, self._metrics = engine, keyring, metrics
        self.stopping = False

    async def get_event(self, request: Request, actor: str) -> Response:
        return json_response(await self._engine.reports.event(request.path_params["event_id"]))

    async def delete_event(self, request: Request, actor: str) -> Response:
        await self._engine.log.delete_event(request.path_params["event_id"], actor=actor)
        return Response(status_code=204)

    async def delete_events(self, request: Request, actor: str) -> Response:
        given = dict(request.query_params)
        if len(given) != len(request.query_params.multi_items()):
            raise Problem(422, f"a parameter is given twice; {WHICH}")
        if given.keys() == {"visitor"}:
            count = await self._engine.log.delete_visitor(given["visitor"], actor=actor)
        elif given.keys() == {"surface", "request_id"}:
            count = await self._engine.log.delete_request(given["surface"], given["request_id"], actor=actor)
        elif given.keys() == {"surface", "context"}:
            count = await self._engine.log.delete_context(given["surface"], _context(request), actor=actor)
        else:
            raise Problem(422, WHICH)
        return json_response(DeletedCount(count))

    async def get_state(self, request: Request, actor: str) -> Response:
        segment, arm = request.query_params.get("segment"), request.query_params.get("arm", LEARNER_ARM)
        context = ({"segment": segment} if segment else {}) | _context(request)
        state = await self._engine.reports.state(request.path_params["surface"], context, arm, _limit(request))
        return await asyncio.to_thread(json_response, state)  # in a thread, because it may be large

    async def get_effects(self, request: Request, actor: str) -> Response:
        query = request.query_params
        visitor, item, arm = query.get("visitor"), query.get("item"), query.get("arm", LEARNER_ARM)
        return json_response(await self._engine.reports.effects(request.path_params["surface"], visitor, item, arm))

    async def get_report(self, request: Request, actor: str) -> Response:
        report = await self._engine.reports.report(
            request.path_params["surface"],
            since=_time(request, "since"),
            until=_time(request, "until"),
            segment=request.query_params.get("segment"),
            context=_context(request),
        )
        return await asyncio.to_thread(json_response, report)

    async def openapi(self, request: Request, actor: str) -> Response:
        return json_response(_document())

    async def alive(self, request: Request, actor: str) -> Response:
        return json_response({"alive": True})

    async def ready(self, request: Request, actor: str) -> Response:
        health = self._engine.health()  # not in a thread: all threads may be waiting for a store that does not respond
        # Reasons may name the host of the store, which only the role read may see.
        reasons = list(health.get("reasons", ())) if await self._keyring.allows(request.scope, "read") else []
        reasons += ["the service is stopping"] if self.stopping else []
        ready = bool(health.get("ready")) and not self.stopping
        if not ready:
            raise Problem(503, "; ".join(map(str, reasons)) or NOT_READY, title="Not ready")
        return json_response({"ready": True, "reasons": reasons})

    async def metrics(self, request: Request, actor: str) -> Response:
        self._metrics.set_health(self._engine.health())
        return Response(self._metrics.exposition(), media_type=None, headers={"content-type": CONTENT_TYPE})


@cache
def _document() -> dict[str, Any]:
    return describe(__version__)


def _context(request: Request) -> dict[str, Any]:
    """Return the labels of the query, which are an object in JSON; raises a 422."""
    text = request.query_params.get("context", "{}")
    try:
        context = msgspec.json.decode(text) if len(text) <= MAX_CONTEXT_LENGTH else None
    except msgspec.DecodeError:
        context = None
    if not isinstance(context, dict):
        raise _wrong_parameter("context", 'it must be an object in JSON, such as {"device": "mobile"}')
    return context


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", str(LISTED_ITEMS))
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= MAX_ITEMS_EVER):
        raise _wrong_parameter("limit", f"it must be a number from 1 to {MAX_ITEMS_EVER}")
    return int(text[:9])


def _time(request: Request, name: str) -> int | None:
    """Return a time of the query in milliseconds, None if absent; raises a 422 for one without a time zone."""
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        parsed = datetime.fromisoformat(text.replace(" ", "+"))  # an unencoded plus sign in a query means a space
        if parsed.tzinfo is None:
            raise _wrong_parameter(name, "it needs a time zone, such as Z at the end")
        time = parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _wrong_parameter(name, "it must be a time such as 2026-01-31T12:00:00Z") from None
    if not FIRST_YEAR <= time.year <= LAST_YEAR:
        raise _wrong_parameter(name, f"it must be between the years {FIRST_YEAR} and {LAST_YEAR}")
    return round(time.timestamp() * 1000)


def _wrong_parameter(name: str, detail: str) -> Problem:
    errors = [{"pointer": f"?{name}", "detail": detail}]
    return Problem(422, f"the query parameter {name!r} is wrong: {detail}", errors=errors)
