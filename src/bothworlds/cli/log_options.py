"""The options of all commands that read a click log: where it is, how it is written, what of it is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ..clicks.reading.bad_input import BadInput

__all__ = ["Columns", "Files", "Format", "Positions", "Query", "SkipBad", "TopItems", "flags_in_errors"]

Files = Annotated[
    list[str], typer.Argument(help="The click log: files, a pattern or a folder of parts.", metavar="LOG...")
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", help="tidy, counts, obd, relpred, service or yandex; found out from the file if left out."
    ),
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="NAME=COLUMN,...", help="Columns of other names: item=product,click=clicked."),
]
Query = Annotated[str | None, typer.Option("--query", help="Only this query.")]
Positions = Annotated[int | None, typer.Option("--positions", min=1, help="Only the first so many positions.")]
TopItems = Annotated[
    int | None, typer.Option("--top-items", min=1, help="Only pages made of the so many most frequent items.")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out bad rows, records and pages, and say how many they were.")
]


@contextmanager
def flags_in_errors() -> Iterator[None]:
    """Turn an error about bad input into one that names the flags of a command instead of arguments in Python."""
    try:
        yield
    except BadInput as error:
        raise ValueError(error.with_flags()) from error
