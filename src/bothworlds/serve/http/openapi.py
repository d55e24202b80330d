"""The OpenAPI 3.1 document, generated from the table of operations and the structs of ``schemas``."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from ..model import LISTED_ITEMS, MAX_ITEMS_EVER
from ..schemas import ProblemDetails, json_schemas
from .operations import OPERATIONS, Operation
from .problems import JSON, MEDIA_TYPE

REFERENCE = "#/components/schemas/{name}"
PATH_LENGTHS = {"surface": (1, 128), "item": (1, 128), "segment": (1, 128), "event_id": (1, 64), "key_id": (1, 64)}
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
    "segment": {"type": "string", "maxLength": 128},
    "arm": {"type": "string", "maxLength": 128},
    "since": {"type": "string", "format": "date-time"},
    "until": {"type": "string", "format": "date-time"},
    "format": {"type": "string", "enum": ["ndjson"]},
    "visitor": {"type": "string", "minLength": 1, "maxLength": 256},
    "surface": {"type": "string", "minLength": 1, "maxLength": 128},
    "request_id": {"type": "string", "minLength": 1, "maxLength": 256},
}


def _conditions(operation: Operation) -> list[dict[str, Any]]:
    """Return the parameters of conditional requests, which prevent lost updates."""
    names = ["If-Match"] * (operation.name in _IF_MATCH) + ["If-None-Match"] * (operation.name in _WITH_ETAG)
    return [{"name": name, "in": "header", "schema": {"type": "string"}} for name in names]
