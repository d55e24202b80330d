"""Routes of the API: from the table of operations to their handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..schemas import Role
from .operations import OPERATIONS, Operation
from .paths import percent_decoded
from .problems import Problem

__all__ = ["API_PATHS", "Handler", "api_routes", "not_found"]

Handler = Callable[[Request, str], Awaitable[Response]]  # called with the request and the actor
Authorise = Callable[[Scope, Role], Awaitable[str]]  # returns the actor, or raises
API_PATHS = frozenset(operation.path for operation in OPERATIONS if "{" not in operation.path)


class PathEndpoint:
    """The ASGI application of one path, for all of its methods.

    Authorises the request by the role of its operation, then calls the handler of that name. Raises a 405 for other
    methods, and whatever ``authorise`` and the handler raise.
    """

    def __init__(self, operations: list[Operation], handlers: Mapping[str, Handler], authorise: Authorise) -> None:
        self._operations = {operation.method: operation for operation in operations}
        self._handlers, self._authorise = handlers, authorise
        self._route = operations[0].path
        methods = {*self._operations, "OPTIONS"} | ({"HEAD"} if "GET" in self._operations else set())
        self._allow = {"allow": ", ".join(sorted(methods))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["bothworlds.route"] = self._route
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        operation = self._operations.get(method)
        if operation is not None:
            scope["path_params"] = {name: percent_decoded(part) for name, part in scope["path_params"].items()}
            actor = await self._authorise(scope, operation.role) if operation.role is not None else ""
            response = await self._handlers[operation.name](Request(scope, receive), actor)
        elif method == "OPTIONS":
            response = Response(status_code=204, headers=self._allow)
        else:
            raise Problem(405, f"this path takes {self._allow['allow']}", headers=self._allow)
        await response(scope, receive, send)


def api_routes(handlers: Mapping[str, Handler], authorise: Authorise) -> list[Route]:
    """Return one route for every path of ``OPERATIONS``; ``handlers`` maps names of operations to their handlers."""
    paths = dict.fromkeys(operation.path for operation in OPERATIONS)
    grouped = {path: [operation for operation in OPERATIONS if operation.path == path] for path in paths}
    return [Route(path, PathEndpoint(operations, handlers, authorise)) for path, operations in grouped.items()]


async def not_found(scope: Scope, receive: Receive, send: Send) -> NoReturn:
    """The ASGI application of all paths that have no route: raises a 404."""
    raise Problem(404, "there is nothing at this path; /openapi.json lists all paths")
