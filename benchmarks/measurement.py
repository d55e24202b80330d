"""The result of a benchmark: a table with a title, and notes."""

from __future__ import annotations

from typing import Any, NamedTuple


class Measurement(NamedTuple):
    """A table of measured numbers; all rows have the same keys, which are its columns."""

    title: str
    rows: list[dict[str, Any]]
    notes: list[str]
