"""The table of operations: methods, paths, roles, requests and responses; their routes, and the OpenAPI document.

Routing, authorisation and the metrics' route labels are derived from it. ``app`` maps the name of each operation to its
handler.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NoReturn

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..model import LISTED_ITEMS, MAX_ITEMS_EVER
from ..schemas import (
    Alive,
    Answer,
    DeletedCount,
    EffectsView,
    EventView,
    FeedbackBatch,
    FeedbackResults,
    Health,
    Imported,
    ItemChanges,
    KeyRequest,
    Keys,
    NewKey,
    ProblemDetails,
    Promotion,
    Ranking,
    RankRequest,
    ReportView,
    Reset,
    Role,
    Rotation,
    StateView,
    SurfaceChanges,
    SurfaceRequest,
    Surfaces,
    SurfaceView,
    WarmStart,
    json_schemas,
)
from .problems import JSON, MEDIA_TYPE, Problem
from .rank_feedback import percent_decoded

NDJSON = "application/x-ndjson"
ROUTE = "bothworlds.route"  # in a scope: the path of the operation, for log and metrics

SURFACE = "/v1/surfaces/{surface}"
ITEM = SURFACE + "/items/{item}"
BODY_ERRORS = (400, 408, 413, 415, 422)
VERSION_ERRORS = (409, 412)

Answers = dict[int, Any]  # a struct, a tuple of media types, or None for no body


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    name: str  # the operationId, and the key of its handler
    role: Role | None
    summary: str
    answers: Answers
    errors: tuple[int, ...] = ()
    body: Any = None  # a struct, or a tuple of media types
    body_required: bool = True
    query: dict[str, str] = field(default_factory=dict)  # name: description

    @property
    def statuses(self) -> set[int]:
        """All statuses that the operation may respond with, except 500."""
        access = {401, 403, 503} if self.role else {403}
        return {*self.answers, *self.errors, *access, *((404,) if "{" in self.path else ())}


SEGMENT = {"segment": "a value of the label segment"}
CONTEXT = {"context": "labels and values in JSON: the visitor for whom probabilities are returned"}
ARM = {"arm": "name of an arm; without it, the surface's own policy"}
PERIOD = {"since": "lists shown at or after this time (RFC 3339)", "until": "lists shown before this time (RFC 3339)"}

OPERATIONS = (
    Operation(
        "POST", SURFACE + "/rank", "rank", "serve", "Rank the items of a surface for a page view", {200: Ranking},
        (*BODY_ERRORS, 429), RankRequest,
    ),
    Operation(
        "POST", "/v1/feedback", "feedback", "ingest", "Report clicks or rewards", {200: FeedbackResults},
        (*BODY_ERRORS, 429), FeedbackBatch,
    ),
    Operation(
        "GET", "/v1/events/{event_id}", "get_event", "read", "Get a decision and its feedback", {200: EventView}
    ),
    Operation(
        "DELETE", "/v1/events/{event_id}", "delete_event", "admin", "Delete an event; what was learned from it stays",
        {204: None},
    ),
    Operation(
        "DELETE", "/v1/events", "delete_events", "admin",
        "Delete the events of a visitor, of a context, or the event of a request",
        {200: DeletedCount}, (404, 422),
        query={
            "visitor": "the id that rank requests had", "surface": "with request_id or context: the surface",
            "context": "with surface: labels and values in JSON, all of which a visitor had",
            "request_id": "with surface: the id of the rank request",
        },
    ),
    Operation("GET", "/v1/surfaces", "list_surfaces", "admin", "List all surfaces", {200: Surfaces}),
    Operation("GET", SURFACE, "get_surface", "admin", "Get a surface", {200: SurfaceView, 304: None}),
    Operation(
        "PUT", SURFACE, "put_surface", "admin", "Create a surface, or change its settings and add items",
        {200: SurfaceView, 201: SurfaceView}, (*BODY_ERRORS, *VERSION_ERRORS), SurfaceRequest,
    ),
    Operation(
        "PATCH", SURFACE, "patch_surface", "admin", "Change settings of a surface", {200: SurfaceView},
        (*BODY_ERRORS, *VERSION_ERRORS), SurfaceChanges,
    ),
    Operation(
        "DELETE", SURFACE, "delete_surface", "admin", "Delete a surface and everything that belongs to it", {204: None},
        VERSION_ERRORS,
    ),
    Operation(
        "PUT", ITEM, "put_item", "admin", "Add an item, or change its labels", {200: SurfaceView, 201: SurfaceView},
        (*BODY_ERRORS, *VERSION_ERRORS), ItemChanges, False,
    ),
    Operation("DELETE", ITEM, "delete_item", "admin", "Remove an item", {200: SurfaceView}, (422, *VERSION_ERRORS)),
    Operation(
        "POST", ITEM + "/pause", "pause_item", "admin", "Pause an item", {200: SurfaceView}, (422, *VERSION_ERRORS)
    ),
    Operation(
        "POST", ITEM + "/resume", "resume_item", "admin", "Resume a paused item", {200: SurfaceView},
        (422, *VERSION_ERRORS),
    ),
    Operation(
        "POST", SURFACE + "/reset", "reset", "admin", "Reset what was learned", {204: None}, BODY_ERRORS, Reset, False
    ),
    Operation(
        "POST", SURFACE + "/restart-comparison", "restart_comparison", "admin",
        "Start the comparison with the holdout again", {200: SurfaceView}, VERSION_ERRORS,
    ),
    Operation(
        "POST", SURFACE + "/promote", "promote", "admin", "Make the policy of an arm that of the surface",
        {200: SurfaceView}, (*BODY_ERRORS, *VERSION_ERRORS), Promotion,
    ),
    Operation(
        "POST", SURFACE + "/warm-start", "warm_start", "admin", "Start from the baseline", {204: None},
        BODY_ERRORS, WarmStart,
    ),
    Operation(
        "GET", SURFACE + "/state", "get_state", "read", "Get counters and probabilities", {200: StateView}, (422,),
        query={
            **SEGMENT, **CONTEXT, **ARM,
            "limit": "the largest number of items to return; default: 1000",
        },
    ),
    Operation(
        "GET", SURFACE + "/effects", "get_effects", "read", "Get which labels matter", {200: EffectsView}, (422,),
        query={
            **ARM, "visitor": "a label of visitors, or all; with item: the effects of their values",
            "item": "a label of items, or all, item or slot",
        },
    ),
    Operation(
        "GET", SURFACE + "/report", "get_report", "read", "Get the report of a surface", {200: ReportView}, (422,),
        query={**PERIOD, **SEGMENT, **CONTEXT},
    ),
    Operation(
        "GET", SURFACE + "/export", "export", "admin", "Export the log, one row per list and slot",
        {200: (NDJSON,)},
    ),
    Operation(
        "POST", SURFACE + "/import", "import_log", "admin", "Import a log and learn from it", {200: Imported},
        BODY_ERRORS, (NDJSON,),
    ),
    Operation("GET", "/v1/keys", "list_keys", "admin", "List all keys", {200: Keys}),
    Operation("POST", "/v1/keys", "create_key", "admin", "Create a key", {201: NewKey}, BODY_ERRORS, KeyRequest),
    Operation("DELETE", "/v1/keys/{key_id}", "revoke_key", "admin", "Revoke a key", {204: None}),
    Operation(
        "POST", "/v1/secret/rotate", "rotate_secret", "admin", "Sign tokens with a new secret", {204: None},
        BODY_ERRORS, Rotation, False,
    ),
    Operation("GET", "/healthz", "alive", None, "Is the process alive?", {200: Alive}),
    Operation("GET", "/readyz", "ready", None, "Is the service ready?", {200: Health}, (503,)),
    Operation("GET", "/metrics", "metrics", "read", "Metrics for Prometheus", {200: ("text/plain",)}),
    Operation("GET", "/openapi.json", "openapi", None, "This document", {200: Answer}),
)  # fmt: skip

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
        scope[ROUTE] = self._route
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


# The OpenAPI document

REFERENCE = "#/components/schemas/{name}"
PATH_LENGTHS = {"surface": (1, 128), "item": (1, 128), "event_id": (1, 64), "key_id": (1, 64)}
ETAG_HEADER = {"ETag": {"schema": {"type": "string"}, "description": "the version, for If-Match"}}
RETRY_HEADER = {"Retry-After": {"schema": {"type": "string"}, "description": "seconds to wait"}}


def describe(version: str, operations: tuple[Operation, ...] = OPERATIONS) -> dict[str, Any]:
    """Return the document as plain data."""
    structs = {struct for operation in operations for struct in _structs(operation)} | {ProblemDetails}
    ordered = sorted(structs, key=lambda struct: struct.__name__)
    references, schemas = json_schemas(ordered, REFERENCE)
    schema_of = dict(zip(ordered, references, strict=True))
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "bothworlds", "version": version, "description": _ABOUT, "license": {"name": "MIT"}},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "bw_<id>_<secret>"}},
        },
    }


_ABOUT = (
    "Rank items and learn from clicks. Every error is a problem (RFC 9457). A key has roles: serve, ingest, read, or "
    "admin, which includes all others. Without any key in the store, everything is open and the service listens on "
    "loopback only."
)


def _structs(operation: Operation) -> set[Any]:
    bodies = [operation.body, *operation.answers.values()]
    return {body for body in bodies if isinstance(body, type)}


def _operation(operation: Operation, schema_of: dict[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation), *_conditions(operation)],
        "responses": _responses(operation, schema_of),
    }
    if operation.role is not None:
        described["description"] = f"Needs a key with the role {operation.role}."
        described["security"] = [{"key": []}, {}]
    if operation.body is not None:
        described["requestBody"] = {
            "required": operation.body_required,
            "content": _content(operation.body, schema_of),
        }
    return described


def _responses(operation: Operation, schema_of: dict[Any, Any]) -> dict[str, Any]:
    responses = {}
    for status in sorted(operation.statuses):
        response: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if status in operation.answers:
            if operation.answers[status] is not None:
                response["content"] = _content(operation.answers[status], schema_of)
            if operation.name in _WITH_ETAG:
                response["headers"] = ETAG_HEADER
        else:
            response["content"] = {MEDIA_TYPE: {"schema": schema_of[ProblemDetails]}}
            if status in (429, 503):
                response["headers"] = RETRY_HEADER
        responses[str(status)] = response
    return responses


_CHANGES = {"put_surface", "patch_surface", "put_item", "delete_item", "pause_item", "resume_item", "promote"}
_IF_MATCH = {*_CHANGES, "delete_surface"}
_WITH_ETAG = {"get_surface", *_CHANGES}


def _content(body: Any, schema_of: dict[Any, Any]) -> dict[str, Any]:
    if isinstance(body, tuple):
        return {media_type: {"schema": {"type": "string"}} for media_type in body}
    return {JSON: {"schema": schema_of[body]}}


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": PATH_LENGTHS[name][0], "maxLength": PATH_LENGTHS[name][1]},
        }
        for name in re.findall(r"{(\w+)}", operation.path)
    ]


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "description": description, "schema": _QUERY[name]}
        for name, description in operation.query.items()
    ]


_QUERY: dict[str, dict[str, Any]] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_ITEMS_EVER, "default": LISTED_ITEMS},
    "segment": {"type": "string", "maxLength": 64},
    "context": {"type": "string", "maxLength": 4096},
    "item": {"type": "string", "maxLength": 64},
    "arm": {"type": "string", "maxLength": 128},
    "since": {"type": "string", "format": "date-time"},
    "until": {"type": "string", "format": "date-time"},
    "visitor": {"type": "string", "minLength": 1, "maxLength": 256},
    "surface": {"type": "string", "minLength": 1, "maxLength": 128},
    "request_id": {"type": "string", "minLength": 1, "maxLength": 256},
}


def _conditions(operation: Operation) -> list[dict[str, Any]]:
    """Return the parameters of conditional requests, which prevent lost updates."""
    names = ["If-Match"] * (operation.name in _IF_MATCH) + ["If-None-Match"] * (operation.name in _WITH_ETAG)
    return [{"name": name, "in": "header", "schema": {"type": "string"}} for name in names]
