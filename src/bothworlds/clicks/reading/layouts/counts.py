"""The layout ``counts``: a table of impressions and clicks per item and position."""

from __future__ import annotations

from .base import TableLayout

COUNTS = TableLayout(
    "counts",
    "columns item, position, impressions, clicks and optionally query",
    roles={
        "item": ("item", "url"),
        "position": ("position", "pos"),
        "impressions": ("impressions", "impression"),
        "clicks": ("clicks", "click"),
        "query": ("query",),
    },
    required=("item", "position", "impressions", "clicks"),
    foreign=("event", "propensity", "pscore", "propensity_score"),
)
