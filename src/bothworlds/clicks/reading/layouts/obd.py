"""The layout ``obd``: the Open Bandit Dataset, one row per impression with its propensity and without its page."""

from __future__ import annotations

from typing import Any

from ....extras import import_extra
from .base import GeneratedPages, TableLayout, columns_of, timestamps


def _table(batch: GeneratedPages) -> Any:
    columns = columns_of(batch)
    return import_extra("pyarrow").table(
        {
            "timestamp": timestamps(batch),
            "item_id": columns["item"],
            "position": columns["position"],
            "click": columns["click"],
            "propensity_score": columns["propensity"],
        }
    )


OBD = TableLayout(
    "obd",
    "Open Bandit Dataset: timestamp, item_id, position, click, propensity_score",
    roles={
        "timestamp": ("timestamp",),
        "item": ("item_id",),
        "position": ("position",),
        "click": ("click",),
        "propensity": ("propensity_score",),
    },
    required=("item", "position", "click", "propensity"),
    table=_table,
)
