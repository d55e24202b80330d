"""From the table of calls to those who answer them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..schemas import Role
from .operations import OPERATIONS, Operation
from .problems import Problem

__all__ = ["API_PATHS", "Handler", "api_routes", "nowhere", "unquoted"]

Handler = Callable[[Request, str], Awaitable[Response]]
Doorkeeper = Callable[[Scope, Role], Awaitable[str]]
API_PATHS = frozenset(operation.path for operation in OPERATIONS if "{" not in operation.path)


class Call:
    """All methods of one path."""

    def __init__(self, operations: list[Operation], handlers: Mapping[str, Handler], admit: Doorkeeper) -> None:
        self._operations = {operation.method: operation for operation in operations}
        self._handlers, self._admit = handlers, admit
        self._route = operations[0].path
        named = {*self._operations, "OPTIONS"} | ({"HEAD"} if "GET" in self._operations else set())
        self._allow = {"allow": ", ".join(sorted(named))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["bothworlds.route"] = self._route
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        operation = self._operations.get(method)
        if operation is not None:
            scope["path_params"] = {name: unquoted(part) for name, part in scope["path_params"].items()}
            actor = await self._admit(scope, operation.role) if operation.role is not None else ""
            response = await self._handlers[operation.name](Request(scope, receive), actor)
        elif method == "OPTIONS":
            response = Response(status_code=204, headers=self._allow)
        else:
            raise Problem(405, f"this path takes {self._allow['allow']}", headers=self._allow)
        await response(scope, receive, send)


def api_routes(handlers: Mapping[str, Handler], admit: Doorkeeper) -> list[Route]:
    """One route for every path of the table."""
    paths = dict.fromkeys(operation.path for operation in OPERATIONS)
    grouped = {path: [operation for operation in OPERATIONS if operation.path == path] for path in paths}
    return [Route(path, Call(operations, handlers, admit)) for path, operations in grouped.items()]


def unquoted(part: str | bytes) -> str:
    """A part of a path, with a name in it that may hold anything, a slash too.

    >>> unquoted("menu%2Fleft")
    'menu/left'
    """
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise Problem(404, "names in a path are percent-encoded UTF-8") from None


async def nowhere(scope: Scope, receive: Receive, send: Send) -> NoReturn:
    """What answers where nothing is."""
    raise Problem(404, "there is nothing at this path; /openapi.json lists what there is")
