"""Endpoints that delete events on request."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ..engine_protocol import EngineProtocol
from ..schemas import DeletedCount
from .problems import Problem
from .responses import json_response

__all__ = ["DeletionEndpoints"]

WHICH = "name the events by visitor, or by surface and request_id"


class DeletionEndpoints:
    """Handlers that delete events; what they have deleted is durably deleted when the response is sent."""

    def __init__(self, engine: EngineProtocol) -> None:
        self._engine = engine

    async def delete_event(self, request: Request, actor: str) -> Response:
        await self._engine.delete_event(request.path_params["event_id"], actor=actor)
        return Response(status_code=204)

    async def delete_events(self, request: Request, actor: str) -> Response:
        given = dict(request.query_params)
        if len(given) != len(request.query_params.multi_items()):
            raise Problem(422, f"a parameter is given twice; {WHICH}")
        if given.keys() == {"visitor"}:
            count = await self._engine.delete_visitor(given["visitor"], actor=actor)
        elif given.keys() == {"surface", "request_id"}:
            count = await self._engine.delete_request(given["surface"], given["request_id"], actor=actor)
        else:
            raise Problem(422, WHICH)
        return json_response(DeletedCount(count))
