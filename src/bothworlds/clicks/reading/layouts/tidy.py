"""The layout ``tidy``: one row per result, with the event that groups results into pages.

The field names of open bandit pipeline (action, reward, pscore) are accepted as well.
"""

from __future__ import annotations

from typing import Any

from ....extras import import_extra
from .base import GeneratedPages, TableLayout, columns_of


def _table(batch: GeneratedPages) -> Any:
    columns = columns_of(batch)
    if batch.n_queries == 1:
        del columns["query"]
    return import_extra("pyarrow").table(columns)


TIDY = TableLayout(
    "tidy",
    "columns event, position, item, click and optionally propensity, query, timestamp",
    roles={
        "event": ("event",),
        "position": ("position",),
        "item": ("item", "action"),
        "click": ("click", "reward"),
        "propensity": ("propensity", "pscore", "propensity_score"),
        "query": ("query",),
        "timestamp": ("timestamp",),
    },
    required=("position", "item", "click"),
    foreign=("policy_id",),
    table=_table,
)
