"""The table of operations: methods, paths, roles, requests and responses.

Routing, authorisation, the metrics' route labels and the OpenAPI document are derived from it. ``app`` maps the name of
each operation to its handler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..schemas import (
    Alive,
    Answer,
    DeletedCount,
    EventView,
    FeedbackBatch,
    FeedbackResults,
    Health,
    Imported,
    KeyRequest,
    Keys,
    NewKey,
    Promotion,
    Ranking,
    RankRequest,
    ReportView,
    Reset,
    Role,
    Rotation,
    Segments,
    StateView,
    SurfaceChanges,
    SurfaceRequest,
    Surfaces,
    SurfaceView,
    WarmStart,
)
from .media_types import NDJSON, PARQUET

__all__ = ["OPERATIONS", "Operation"]

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


SEGMENT = {"segment": "name of a segment"}
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
        "DELETE", "/v1/events", "delete_events", "admin", "Delete the events of a visitor, or the event of a request",
        {200: DeletedCount}, (404, 422),
        query={
            "visitor": "the id that rank requests had", "surface": "with request_id: the surface",
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
        "PUT", ITEM, "put_item", "admin", "Add an item", {200: SurfaceView, 201: SurfaceView}, (422, *VERSION_ERRORS)
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
        "GET", SURFACE + "/segments", "list_segments", "admin", "List the segments of a surface", {200: Segments}
    ),
    Operation(
        "DELETE", SURFACE + "/segments/{segment}", "delete_segment", "admin", "Delete a segment", {204: None}
    ),
    Operation(
        "POST", SURFACE + "/warm-start", "warm_start", "admin", "Start from a click model or the baseline", {204: None},
        BODY_ERRORS, WarmStart,
    ),
    Operation(
        "GET", SURFACE + "/state", "get_state", "read", "Get counters and probabilities", {200: StateView}, (422,),
        query={
            **SEGMENT,
            "arm": "name of an arm; without it, the surface's own policy",
            "limit": "the largest number of items to return; default: 1000",
        },
    ),
    Operation(
        "GET", SURFACE + "/report", "get_report", "read", "Get the report of a surface", {200: ReportView}, (422,),
        query={**PERIOD, **SEGMENT},
    ),
    Operation(
        "GET", SURFACE + "/export", "export", "admin", "Export the log, one row per list and slot",
        {200: (NDJSON, PARQUET)}, (406, 422),
        query={"format": "ndjson or parquet; without it, the Accept header decides"},
    ),
    Operation(
        "POST", SURFACE + "/import", "import_log", "admin", "Import a log and learn from it", {200: Imported},
        BODY_ERRORS, (NDJSON, PARQUET),
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
