"""Tables on disk as DuckDB sees them: one relation of checked rows, whatever the kind of file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

from ...progress import Report, progress_bar
from ..log import Log
from .file_format import Head, needs
from .layouts import TableLayout
from .row_checks import checks, clicks, column, label, propensities, spaced, whole

__all__ = ["among", "connect", "literal", "made_rows", "run", "watched"]

NAMES = ("item", "query")  # roles of columns whose spaces are worth a note
INTERRUPTED = "Query interrupted"  # all that DuckDB says of Ctrl-C: a RuntimeError, and none of its own errors
FOLDERS = "hive_partitioning = false"  # else a folder named query=tea would overwrite the column


@contextmanager
def connect() -> Iterator[Any]:
    """A database in memory that spills to a temporary folder, removed afterwards.

    Raises KeyboardInterrupt where DuckDB reports an interrupted query in words of its own.
    """
    duckdb = needs("duckdb")
    with (
        TemporaryDirectory(prefix="bothworlds-") as folder,
        duckdb.connect(config={"temp_directory": folder}) as opened,
    ):
        opened.execute("SET enable_progress_bar_print = false")  # DuckDB's own bar would go to standard output
        try:
            yield opened
        except duckdb.InterruptException as error:
            raise KeyboardInterrupt from error
        except RuntimeError as error:
            if str(error) == INTERRUPTED:
                raise KeyboardInterrupt from error
            raise


def run(connection: Any, sql: str, title: str = "", progress: bool | None = False) -> list[Any]:
    """Execute a statement and fetch its rows, with a progress bar if wanted; what cannot be read is a ValueError."""
    duckdb = needs("duckdb")
    try:
        with watched(connection, title, progress if title else False):
            return connection.execute(sql).fetchall()  # to the end: a result half read would block
    except (duckdb.OutOfMemoryException, duckdb.InterruptException):
        raise
    except duckdb.Error as error:
        raise ValueError(_said(str(error))) from error


def _said(error: str) -> str:
    """What DuckDB says, on one line and with the file it says it of."""
    file = re.search(r"^ *file *= *(.+)$", error, re.MULTILINE)
    start = f"{file[1] if file else 'the log'} cannot be read"
    if "state machine" in error:
        return (
            f"{start}: its lines end in different ways, or a quote is out of place; make all lines end in a line feed"
        )
    return f"{start}: {error.splitlines()[0]}"


@contextmanager
def watched(connection: Any, title: str, progress: bool | None) -> Iterator[None]:
    """Report the progress of the statements executed inside, by asking the connection from another thread."""
    if progress is False:
        yield
        return
    over = Event()
    connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
    with progress_bar(title, 100, progress) as report:
        watcher = Thread(target=_watch, args=(connection, report, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _watch(connection: Any, report: Report, over: Event) -> None:
    reported = 0
    while not over.wait(0.1):
        now = max(reported, int(connection.query_progress()))
        try:
            report(now - reported)
        except KeyboardInterrupt:  # it was swallowed elsewhere; the statement is still running
            connection.interrupt()
            return
        reported = now


def literal(value: object) -> str:
    """A value as SQL writes it.

    >>> literal("it's"), literal(3), literal(["a", "b"])
    ("'it''s'", '3', "['a', 'b']")
    """
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def among(values: Sequence[object]) -> str:
    """Values as the right side of IN; none of them if there are none.

    >>> among(["a", "b"]), among([])
    ("('a', 'b')", '(NULL)')
    """
    return f"({', '.join(map(literal, values)) or 'NULL'})"


def pattern(path: str) -> str:
    """A path as DuckDB takes it, which looks for other files if there are stars and brackets in it.

    >>> pattern("log[1].csv")
    'log[[]1].csv'
    """
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in path)


def made_rows(connection: Any, log: Log, heads: tuple[Head, ...] | None = None, numbered: bool = False) -> str:
    """SQL for the rows of some files, all of the log's if none are named, with the number of the first check failed.

    Columns: those of the layout, NULL where the file lacks them; ``spaced``, whether there were spaces around a name;
    ``reason``; and, if ``numbered``, the place of the
    row in its file from 0 up and the columns as they were written, as ``raw_item`` and so on.
    """
    heads = heads or log.heads
    if heads[0].kind == "memory":
        connection.register("in_memory", heads[0].table)
    alike: dict[Any, list[Head]] = {}
    for head in heads:
        alike.setdefault((head.compression, head.delimiter, head.blank), []).append(head)
    scan = " UNION ALL BY NAME ".join(f"SELECT * FROM {_scan(group, log)}" for group in alike.values())
    parquet, ndjson, columns = heads[0].kind == "parquet", heads[0].kind == "ndjson", log.columns
    parts = _made_columns(columns, _kinds(connection, log, scan))
    if numbered:
        parts.append(f"{'file_row_number' if parquet else 'row_number() OVER () - 1'} AS number")
        parts += [f"{column(name)}::VARCHAR AS raw_{role}" for role, name in columns.items()]
    elif parquet:
        parts.append("file_row_number")
    if ndjson:
        parts.append(" AND ".join(f"{column(name)} IS NULL" for name in columns.values()) + " AS nothing")
        parts.append(" OR ".join(_late(log)) + " AS late")
    return f"SELECT *, {checks(columns, ndjson, log.clip)} AS reason FROM (SELECT {', '.join(parts)} FROM ({scan}))"


def _made_columns(columns: dict[str, str], kinds: dict[str, str]) -> list[str]:
    """The columns of a layout, each made from what is in the file; NULL for some that it may lack."""
    makers = {"position": whole, "impressions": whole, "clicks": whole, "click": clicks, "learn": clicks}
    makers["propensity"] = propensities
    made = [f"{makers.get(role, label)(name, kinds[role])} AS {role}" for role, name in columns.items()]
    made.append(f"{spaced({name: kinds[role] for role, name in columns.items() if role in NAMES})} AS spaced")
    missing = [role for role in ("event", "query", "timestamp", "propensity") if role not in columns]
    return made + [f"NULL::VARCHAR AS {role}" for role in missing]


def _spellings(log: Log) -> dict[str, str]:
    """The spellings of columns that the first lines of a log lack, with the roles that they would play."""
    assert isinstance(log.form, TableLayout)
    here = {name.lower() for head in log.heads for name in head.columns}
    return {name: role for role, names in log.form.roles.items() for name in names if name not in here}


def _late(log: Log) -> list[str]:
    """Conditions on a row of JSON that has what the first lines lack, and would lose it."""
    chosen = {role: f" AND {column(name)} IS NULL" for role, name in log.columns.items()}
    return [f"({column(name)} IS NOT NULL{chosen.get(role, '')})" for name, role in _spellings(log).items()] or [
        "false"
    ]


def _scan(heads: list[Head], log: Log) -> str:
    """The reader of DuckDB for files of one kind."""
    files, first = literal([pattern(str(head.path)) for head in heads]), heads[0]
    if first.kind == "memory":
        return "in_memory"
    if first.kind == "parquet":
        return f"read_parquet({files}, union_by_name = true, file_row_number = true, {FOLDERS})"
    packed = literal(first.compression or "none")
    names = [*log.columns.values(), *_spellings(log)] if first.kind == "ndjson" else _once(first.columns)
    text = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    if first.kind == "ndjson":
        return (
            f"read_json({files}, format = 'newline_delimited', columns = {{{text}}}, ignore_errors = true, "
            f"compression = {packed}, {FOLDERS})"
        )
    return (
        f"read_csv({files}, auto_detect = false, header = true, skip = {first.blank}, "
        f"delim = {literal(first.delimiter)}, quote = '\"', escape = '\"', columns = {{{text}}}, store_rejects = true, "
        f"rejects_limit = 0, compression = {packed}, {FOLDERS})"
    )


def _once(names: Sequence[str]) -> list[str]:
    """Names of columns with others for those that are there already, whatever the case of their letters."""
    lower = [name.lower() for name in names]
    return [f"{name}, column {k + 1}" if lower[k] in lower[:k] else name for k, name in enumerate(names)]


def _kinds(connection: Any, log: Log, scan: str) -> dict[str, str]:
    """The type of the column of every role."""
    if log.heads[0].kind not in ("parquet", "memory"):
        return dict.fromkeys(log.columns, "VARCHAR")
    described = run(connection, f"DESCRIBE {scan}")
    types = {name: kind for name, kind, *_ in described}
    return {role: types[name] for role, name in log.columns.items()}
