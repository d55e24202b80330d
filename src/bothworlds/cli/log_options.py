"""The options that all commands reading a click log share: files, format, columns and filters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ..clicks.reading.bad_input import BadInput

Files = Annotated[
    list[str], typer.Argument(help="The click log: files, a pattern or a folder of parts.", metavar="LOG")
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="tidy, counts, obd, relpred, service or yandex; detected from the file if omitted."),
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="NAME=COLUMN,...", help="Columns with other names: item=product,click=clicked."),
]
Query = Annotated[str | None, typer.Option("--query", help="Keep only this query.")]
Positions = Annotated[int | None, typer.Option("--positions", min=1, help="Keep only this many first positions.")]
TopItems = Annotated[
    int | None, typer.Option("--top-items", min=1, help="Keep only pages made of this many most frequent items.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip bad rows, records and pages, and print their number.")]


@contextmanager
def flags_in_errors() -> Iterator[None]:
    """Turn a :class:`BadInput` into a ValueError that names command-line flags instead of Python arguments."""
    try:
        yield
    except BadInput as error:
        raise ValueError(error.with_flags()) from error
