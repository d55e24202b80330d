"""The options that all commands reading a click log share: files, format, columns and filters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from .common import column_names, from_options

if TYPE_CHECKING:
    from ..clicks import Log

F = TypeVar("F", bound=Callable[..., Any])
ReadLog = Callable[[], "Log"]

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
Query = Annotated[
    str | None,
    typer.Option("--query", help="Keep only this query; or the columns that are the query together: country,page."),
]
Positions = Annotated[int | None, typer.Option("--positions", min=1, help="Keep only this many first positions.")]
TopItems = Annotated[
    int | None, typer.Option("--top-items", min=1, help="Keep only pages made of this many most frequent items.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip bad rows, records and pages, and print their number.")]
Clip = Annotated[
    bool,
    typer.Option(
        "--clip",
        help="Where there are more clicks than impressions, count as many clicks as impressions, with a note.",
    ),
]
Engine = Annotated[str, typer.Option(help="Engine that counts the log: duckdb or ray.")]
OPTIONS: dict[str, tuple[Any, Any]] = {
    "format": (Format, None), "top_items": (TopItems, None), "positions": (Positions, None), "query": (Query, None),
    "columns": (Columns, None), "skip_bad": (SkipBad, False), "clip": (Clip, False), "engine": (Engine, "duckdb"),
}  # fmt: skip


def reads_log(*more: str) -> Callable[[F], F]:
    """Return a decorator of commands: ``log`` is a function that reads the log which the options describe.

    ``more`` are "clip" and "engine", if the command has these options.
    """
    options = {name: one for name, one in OPTIONS.items() if name not in ("clip", "engine") or name in more}
    return from_options("log", {"files": (Files, inspect.Parameter.empty), **options}, partial(partial, read_log))


def read_log(files: list[str], *, columns: str | None, **options: Any) -> Log:
    """Read a click log; an error names the flags of the command line instead of the arguments of Python."""
    from ..clicks import read

    try:
        return read(files[0] if len(files) == 1 else files, columns=column_names(columns), **options)
    except ValueError as error:
        raise ValueError(re.sub(r"\b(skip_bad|clip)=True", _flag, str(error))) from error


def _flag(argument: re.Match[str]) -> str:
    return f"--{argument[1].replace('_', '-')}"
