"""The layout ``service``: the export of the service, one row per event and slot, with exact propensities."""

from __future__ import annotations

from typing import Any

from ....extras import import_extra
from .base import GeneratedPages, TableLayout, columns_of, timestamps


def _table(batch: GeneratedPages) -> Any:
    pyarrow, columns = import_extra("pyarrow"), columns_of(batch)
    rows = columns["event"].size

    def always(value: Any) -> Any:
        return pyarrow.repeat(pyarrow.scalar(value), rows)

    return pyarrow.table(
        {
            "event": pyarrow.array(columns["event"]).cast("string"),
            "timestamp": timestamps(batch),
            "surface": always("generated"),
            "segment": pyarrow.array(columns["query"]).cast("string") if batch.n_queries > 1 else always(""),
            "arm": always("learner"),
            "policy_id": always("uniform"),
            "position": columns["position"],
            "item": pyarrow.array(columns["item"]).cast("string"),
            "click": columns["click"],
            "propensity": columns["propensity"],
            "pinned": always(False),
            "learn": always(True),
        }
    )


SERVICE = TableLayout(
    "service",
    "the service's export: event, timestamp, surface, segment, arm, policy_id, position, item, click, propensity, ...",
    roles={
        "event": ("event",),
        "timestamp": ("timestamp",),
        "query": ("segment",),
        "position": ("position",),
        "item": ("item",),
        "click": ("click",),
        "propensity": ("propensity",),
        "learn": ("learn",),
        "surface": ("surface",),
        "policy": ("policy_id",),
        "arm": ("arm",),
    },
    required=("event", "query", "position", "item", "click", "propensity", "policy", "arm"),
    table=_table,
)
