"""The table of calls: what they are named, who may make them, what goes in and what comes out.

The router, the keys, the metrics and the documentation are all made from this one table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..schemas import (
    Alive,
    Answer,
    EventView,
    FeedbackBatch,
    FeedbackResults,
    Health,
    Imported,
    KeyRequest,
    Keys,
    NewKey,
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
from .log_endpoints import NDJSON, PARQUET

__all__ = ["OPERATIONS", "Operation"]

JSON = "application/json"
SURFACE = "/v1/surfaces/{surface}"
ITEM = SURFACE + "/items/{item}"
READ_BODY = (400, 408, 413, 415, 422)  # what can be wrong with a body
VERSIONED = (409, 412)

Answers = dict[int, Any]  # a struct, a tuple of media types, or None for no body


@dataclass(frozen=True)
class Operation:
    """One call."""

    method: str
    path: str
    name: str  # of the method that answers it, and its operationId
    role: Role | None
    summary: str
    answers: Answers
    errors: tuple[int, ...] = ()
    body: Any = None  # a struct, or a tuple of media types
    body_needed: bool = True
    query: dict[str, str] = field(default_factory=dict)  # name: what it is

    @property
    def statuses(self) -> set[int]:
        """Every status that the call may have, except that of a fault."""
        keyed = {401, 403, 503} if self.role else {403}
        return {*self.answers, *self.errors, *keyed, *((404,) if "{" in self.path else ())}


SEGMENT = {"segment": "a part of the visitors"}
PERIOD = {"since": "only lists shown from then on (RFC 3339)", "until": "only lists shown before then (RFC 3339)"}

OPERATIONS = (
    Operation(
        "POST", SURFACE + "/rank", "rank", "serve", "Which items to show", {200: Ranking},
        (*READ_BODY, 429), RankRequest,
    ),
    Operation(
        "POST", "/v1/feedback", "feedback", "ingest", "What visitors clicked", {200: FeedbackResults},
        (*READ_BODY, 429), FeedbackBatch,
    ),
    Operation(
        "GET", "/v1/events/{event_id}", "get_event", "read", "One decision and what became of it", {200: EventView}
    ),
    Operation("GET", "/v1/surfaces", "list_surfaces", "admin", "All surfaces", {200: Surfaces}),
    Operation("GET", SURFACE, "get_surface", "admin", "One surface", {200: SurfaceView, 304: None}),
    Operation(
        "PUT", SURFACE, "put_surface", "admin", "Create a surface, or change its settings and add items",
        {200: SurfaceView, 201: SurfaceView}, (*READ_BODY, *VERSIONED), SurfaceRequest,
    ),
    Operation(
        "PATCH", SURFACE, "patch_surface", "admin", "Change settings of a surface", {200: SurfaceView},
        (*READ_BODY, *VERSIONED), SurfaceChanges,
    ),
    Operation(
        "PUT", ITEM, "put_item", "admin", "Add an item", {200: SurfaceView, 201: SurfaceView}, (422, *VERSIONED)
    ),
    Operation("DELETE", ITEM, "delete_item", "admin", "Remove an item", {200: SurfaceView}, (422, *VERSIONED)),
    Operation("POST", ITEM + "/pause", "pause_item", "admin", "Pause an item", {200: SurfaceView}, (422, *VERSIONED)),
    Operation(
        "POST", ITEM + "/resume", "resume_item", "admin", "Resume a paused item", {200: SurfaceView}, (422, *VERSIONED)
    ),
    Operation(
        "POST", SURFACE + "/reset", "reset", "admin", "Forget what was learned", {204: None}, READ_BODY, Reset, False
    ),
    Operation("GET", SURFACE + "/segments", "list_segments", "admin", "All segments of a surface", {200: Segments}),
    Operation(
        "DELETE", SURFACE + "/segments/{segment}", "delete_segment", "admin",
        "Forget a segment and free its place", {204: None},
    ),
    Operation(
        "POST", SURFACE + "/warm-start", "warm_start", "admin", "Start from a fitted click model", {204: None},
        READ_BODY, WarmStart,
    ),
    Operation(
        "GET", SURFACE + "/state", "get_state", "read", "Counters and probabilities", {200: StateView}, (422,),
        query=SEGMENT,
    ),
    Operation(
        "GET", SURFACE + "/report", "get_report", "read", "How well it does", {200: ReportView}, (422,),
        query={**PERIOD, **SEGMENT},
    ),
    Operation(
        "GET", SURFACE + "/export", "export", "admin", "The log, one row per list and slot", {200: (NDJSON, PARQUET)},
        (406, 422), query={"format": "ndjson or parquet; otherwise the header Accept decides"},
    ),
    Operation(
        "POST", SURFACE + "/import", "import_log", "admin", "Learn from a log", {200: Imported}, READ_BODY,
        (NDJSON, PARQUET),
    ),
    Operation("GET", "/v1/keys", "list_keys", "admin", "All keys", {200: Keys}),
    Operation("POST", "/v1/keys", "create_key", "admin", "Make a key", {201: NewKey}, READ_BODY, KeyRequest),
    Operation("DELETE", "/v1/keys/{key_id}", "revoke_key", "admin", "Revoke a key", {204: None}),
    Operation(
        "POST", "/v1/secret/rotate", "rotate_secret", "admin", "Sign tokens with a new secret", {204: None},
        READ_BODY, Rotation, False,
    ),
    Operation("GET", "/healthz", "alive", None, "Is the process alive?", {200: Alive}),
    Operation("GET", "/readyz", "ready", None, "Can the service work?", {200: Health}, (503,)),
    Operation("GET", "/metrics", "metrics", "read", "Figures for Prometheus", {200: ("text/plain",)}),
    Operation("GET", "/openapi.json", "openapi", None, "This description", {200: Answer}),
)  # fmt: skip
