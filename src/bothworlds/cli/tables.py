"""Tables of all commands: one printer of rows, which fits a terminal, or 100 columns of a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

WIDTH = 100  # columns of output that is no terminal
SENTENCE = 20  # columns that a sentence needs at least


def console() -> Any:
    """Return a Rich console for standard output."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=WIDTH)


def print_rows(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[Any]],
    names: Sequence[str] = (),
    sentences: Sequence[str] = (),
    dim: Sequence[int] = (),
) -> None:
    """Print a table; columns with ``names`` and ``sentences`` are on the left, and only sentences are wrapped.

    Cells are text, or have a style as Rich's ``Text``; ``dim`` are the indices of rows of less weight. A table that is
    too wide has its headings wrapped, and if that is not enough it is printed in parts, each with the columns of names.
    """
    out = console()
    cells = [[cell if hasattr(cell, "cell_len") else _text(cell) for cell in row] for row in rows]
    natural, least = [], []
    for k, heading in enumerate(headings):
        widest = max((row[k].cell_len for row in cells), default=0)
        natural.append(max(widest, len(heading)))
        least.append(SENTENCE if heading in sentences else max([widest, *map(len, heading.split())]))
    fits = _width(natural) <= out.width
    for part in [list(range(len(headings)))] if fits else _parts(headings, least, names, out.width):
        table = _table(title, [headings[k] for k in part], names, sentences)
        title = ""
        if not fits:
            for column, k in zip(table.columns, part):
                column.width = None if headings[k] in sentences else least[k]
                column.no_wrap = False
        for number, row in enumerate(cells):
            table.add_row(*(row[k] for k in part), style="dim" if number in dim else None)
        out.print(table)


def _text(cell: Any) -> Any:
    from rich.text import Text

    return Text(str(cell))  # brackets in names are not markup


def _table(title: str, headings: Sequence[str], names: Sequence[str], sentences: Sequence[str]) -> Any:
    from rich.table import Table
    from rich.text import Text

    caption = Text(title, style="table.title") if title else None
    table = Table(title=caption, title_justify="left", pad_edge=False)
    if sentences:
        table.box = None
    for heading in headings:
        left = heading in names or heading in sentences
        table.add_column(heading, justify="left" if left else "right", no_wrap=heading not in sentences)
    return table


def _width(columns: Sequence[int]) -> int:
    """The width of a table with columns of some widths, with the lines between them."""
    return sum(columns) + 3 * (len(columns) - 1) + 2


def _parts(headings: Sequence[str], widths: Sequence[int], names: Sequence[str], width: int) -> list[list[int]]:
    """The columns of each part of a table that is too wide; all parts have those of names.

    >>> _parts(["item", "at 1", "at 2", "at 3"], [4, 5, 5, 5], ["item"], 22)
    [[0, 1, 2], [0, 3]]
    """
    always = [k for k, heading in enumerate(headings) if heading in names]
    parts: list[list[int]] = [[]]
    for k in range(len(headings)):
        if k not in always:
            wider = [*always, *parts[-1], k]
            if parts[-1] and _width([widths[j] for j in wider]) > width:
                parts.append([])
            parts[-1].append(k)
    return [sorted([*always, *part]) for part in parts]
