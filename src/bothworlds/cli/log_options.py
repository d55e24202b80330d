"""The options that all commands reading a click log share: files, format, columns and filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..clicks.reading.errors import BadInput
from .common import column_names

if TYPE_CHECKING:
    from ..clicks import Log

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


def read_log(files: list[str], *, columns: str | None, **options: Any) -> Log:
    """Read a click log; an error names the flags of the command line instead of the arguments of Python."""
    from ..clicks import read

    try:
        return read(files[0] if len(files) == 1 else files, columns=column_names(columns), **options)
    except BadInput as error:
        raise ValueError(error.with_flags()) from error
