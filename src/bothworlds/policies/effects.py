"""What was learned of labels, as tables: which pairs of labels matter, and what visitors with a label like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from ..checks import choice
from ..data_frames import html_table, to_frame
from ..kernels import Floats
from ..labels import LabelTable
from .parts.label_effects import FIXED, LabelEffects

MAX_ROWS = 20  # of a table as text


class Pair(NamedTuple):
    """How much a pair of labels matters.

    ``sd`` is the standard deviation of its effects, in log-odds of a click; ``values`` how many pairs of their values
    were shown, and ``pages`` how many pages had a known value of the visitors' label.
    """

    visitor_label: str
    item_label: str
    sd: float
    values: int
    pages: int


class Effect(NamedTuple):
    """By how much visitors with a value like items with a value more than others do, in log-odds of a click."""

    visitor_value: str
    item_value: str
    effect: float
    standard_error: float


class Effects:
    """Rows that are printed as a table; ``to_frame`` returns a data frame."""

    def __init__(self, rows: Iterable[Pair] | Iterable[Effect], fields: tuple[str, ...]) -> None:
        self.rows: tuple[Any, ...] = tuple(rows)
        self.fields = fields

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, k: int) -> Any:
        return self.rows[k]

    def columns(self) -> dict[str, list[Any]]:
        """Return the columns by name."""
        return {name: [getattr(row, name) for row in self.rows] for name in self.fields}

    def to_frame(self, library: str | None = None) -> Any:
        """Return a data frame of "pandas", "polars" or "arrow"; by default the first of them that is installed."""
        return to_frame(self.columns(), library)

    def _repr_html_(self) -> str:
        return html_table(f"{len(self.rows)} rows", self.columns())

    def __repr__(self) -> str:
        table = [self.fields, *(tuple(map(_text, row)) for row in self.rows[:MAX_ROWS])]
        widths = [max(len(cells[k]) for cells in table) for k in range(len(self.fields))]
        lines = [
            "  ".join(cell.ljust(width) if k < 2 else cell.rjust(width) for k, (cell, width) in enumerate(pairs))
            for pairs in (list(zip(cells, widths)) for cells in table)
        ]
        more = len(self.rows) - MAX_ROWS
        return "\n".join([*lines, *([f"and {more:,} more"] if more > 0 else [])])


def pairs_of(effects: LabelEffects, visitor: LabelTable, item: LabelTable) -> Effects:
    """Return every pair of labels with a variance that is learned, the one that matters most first."""
    pairs = []
    columns = ["all", *item.names, "item", "slot"]
    for k, row in enumerate(["all", *visitor.names, "item x slot"]):
        for g, column in enumerate(columns):
            if 0.0 < effects.start[k, g] < FIXED:
                names = ("all", row) if k > len(visitor.names) else (row, column)
                known = effects.seen[_block(effects.row_ends, k)][1 if 0 < k <= len(visitor.names) else 0 :]
                pages = effects.since[0] if k in (0, 1 + len(visitor.names)) else known.sum()
                values = (_cells(effects, effects.information, k, g) > 0.0).sum()
                pairs.append(Pair(*names, sqrt(effects.variance[k, g]), int(values), int(pages)))
    return Effects(sorted(pairs, key=lambda pair: -pair.sd), Pair._fields)


def effects_of(
    effects: LabelEffects,
    visitor: LabelTable,
    item: LabelTable,
    items: dict[int, str],
    visitor_label: str,
    item_label: str,
) -> Effects:
    """Return the effects of a pair of labels whose values were shown together, the largest first.

    ``items`` are the names of items by their number. ``all``, ``item`` and ``slot`` are labels as well. Raises
    ValueError for other labels.
    """
    rows, columns = ["all", *visitor.names], ["all", *item.names, "item", "slot"]
    k, g = rows.index(choice(visitor_label, "visitor", rows)), columns.index(choice(item_label, "item", columns))
    of_rows = dict(enumerate(visitor.values(visitor_label) if k else ("all",)))
    slots = {j: str(j + 1) for j in range(effects.examined.shape[2])}
    of_columns = {"all": {0: "all"}, "item": items, "slot": slots}.get(item_label)
    if of_columns is None:
        of_columns = dict(enumerate(item.values(item_label)))
    mean, information = (_cells(effects, values, k, g) for values in (effects.mean, effects.information))
    error = np.sqrt(1.0 / (information + 1.0 / effects.variance[k, g]))
    found = [
        Effect(of_rows[r], of_columns[c], float(mean[r, c]), float(error[r, c]))
        for r, c in np.argwhere(information > 0.0).tolist()
        if c in of_columns
    ]
    return Effects(sorted(found, key=lambda row: -row.effect), Effect._fields)


def _block(ends: Any, k: int) -> slice:
    return slice(int(ends[k]), int(ends[k + 1]))


def _cells(effects: LabelEffects, values: Floats, k: int, g: int) -> Floats:
    """Return the block of a kind."""
    return values[_block(effects.row_ends, k), _block(effects.column_ends, g)]


def _text(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
