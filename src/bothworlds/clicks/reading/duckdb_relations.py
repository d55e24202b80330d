"""DuckDB connections and statements, and the SQL that reads any kind of table as one relation of checked rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

from ...export_format import EXPORT_FORMAT
from ...extras import import_extra
from ...progress import ReportProgress, progress_bar
from .file_format import LogSource
from .layouts import TableLayout
from .log_spec import LogSpec
from .row_checks import click_sql, failed_check_sql, has_spaces_sql, integer_sql, label_sql, propensity_sql, quoted

HEADER_COLUMN = "format"  # of the first line of an export
NAME_ROLES = ("item", "query")  # roles for which a note reports removed spaces
INTERRUPTED = "Query interrupted"  # the message of the RuntimeError that DuckDB raises on Ctrl+C
NO_PARTITIONS = "hive_partitioning = false"  # a folder named query=tea would replace the column


@contextmanager
def connect() -> Iterator[Any]:
    """Open a database in memory that spills to a temporary folder, which is removed afterwards.

    DuckDB's errors for an interrupted query become KeyboardInterrupt.
    """
    duckdb = import_extra("duckdb")
    with (
        TemporaryDirectory(prefix="bothworlds-") as folder,
        duckdb.connect(config={"temp_directory": folder}) as opened,
    ):
        _set(opened, "enable_progress_bar_print = false")  # DuckDB prints its own bar to standard output
        try:
            yield opened
        except duckdb.InterruptException as error:
            raise KeyboardInterrupt from error
        except RuntimeError as error:
            if str(error) == INTERRUPTED:
                raise KeyboardInterrupt from error
            raise


def _set(connection: Any, progress_setting: str) -> None:
    """Change a setting of progress bars; in a notebook without ipywidgets DuckDB has none, and refuses all settings."""
    with suppress(import_extra("duckdb").InvalidInputException):
        connection.execute(f"SET {progress_setting}")


def run(connection: Any, sql: str, title: str = "", progress: bool | None = False) -> list[Any]:
    """Execute a statement and return its rows, with a progress bar if ``title`` is given.

    Raises ValueError where DuckDB cannot read a file.
    """
    duckdb = import_extra("duckdb")
    try:
        with report_progress(connection, title, progress if title else False):
            return connection.execute(sql).fetchall()  # all rows: a partly read result would block the connection
    except (duckdb.OutOfMemoryException, duckdb.InterruptException):
        raise
    except duckdb.Error as error:
        raise ValueError(_read_error(str(error))) from error


def _read_error(error: str) -> str:
    """An error of DuckDB on one line, starting with the file."""
    file = re.search(r"^ *file *= *(.+)$", error, re.MULTILINE)
    start = f"{file[1] if file else 'the log'} cannot be read"
    if "state machine" in error:
        return f"{start}: its line endings differ, or a quote is out of place; end all lines with a line feed"
    return f"{start}: {error.splitlines()[0]}"


@contextmanager
def report_progress(connection: Any, title: str, progress: bool | None) -> Iterator[None]:
    """Show the progress of the statements executed inside; another thread polls the connection."""
    if progress is False:
        yield
        return
    finished = Event()
    _set(connection, "enable_progress_bar = true")
    _set(connection, "enable_progress_bar_print = false")
    with progress_bar(title, 100, progress) as report:
        poller = Thread(target=_poll_progress, args=(connection, report, finished), daemon=True)
        poller.start()
        try:
            yield
        finally:
            finished.set()
            poller.join()


def _poll_progress(connection: Any, report: ReportProgress, finished: Event) -> None:
    reported = 0
    while not finished.wait(0.1):
        now = max(reported, int(connection.query_progress()))
        try:
            report(now - reported)
        except KeyboardInterrupt:  # raised in this thread, while the statement still runs in the other
            connection.interrupt()
            return
        reported = now


def literal(value: object) -> str:
    """Return a value as an SQL literal.

    >>> literal("it's"), literal(3), literal(["a", "b"])
    ("'it''s'", '3', "['a', 'b']")
    """
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def in_list(values: Sequence[object]) -> str:
    """Return values as the right side of IN; without values, nothing is IN it.

    >>> in_list(["a", "b"]), in_list([])
    ("('a', 'b')", '(NULL)')
    """
    return f"({', '.join(map(literal, values)) or 'NULL'})"


def glob_pattern(path: str) -> str:
    """Return a path as a glob pattern that matches only this path, since DuckDB expands stars and brackets.

    >>> glob_pattern("log[1].csv")
    'log[[]1].csv'
    """
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in path)


def checked_rows_sql(
    connection: Any, log: LogSpec, sources: tuple[LogSource, ...] | None = None, numbered: bool = False
) -> str:
    """Return SQL for the rows of some sources, by default all sources of the log.

    Columns: those of the layout, NULL where the file lacks them; ``spaced``, whether there were spaces around a label;
    ``reason``, the number of the first check that the row fails, NULL if it passes all; and, if ``numbered``,
    ``number``, the index of the row in its file from 0, and the unconverted columns as ``raw_item`` and so on.
    """
    sources = sources or log.sources
    if sources[0].kind == "memory":
        connection.register("in_memory", sources[0].table)
    alike: dict[Any, list[LogSource]] = {}
    for source in sources:
        alike.setdefault((source.compression, source.delimiter, source.blank_lines), []).append(source)
    scan = " UNION ALL BY NAME ".join(f"SELECT * FROM {_scan(group, log)}" for group in alike.values())
    parquet, ndjson, columns = sources[0].kind == "parquet", sources[0].kind == "ndjson", log.columns
    parts = _converted_columns(columns, _column_types(connection, log, scan))
    if numbered:
        parts.append(f"{'file_row_number' if parquet else 'row_number() OVER () - 1'} AS number")
        parts += [f"{quoted(name)}::VARCHAR AS raw_{role}" for role, name in columns.items()]
    elif parquet:
        parts.append("file_row_number")
    if ndjson:
        parts.append(" AND ".join(f"{quoted(name)} IS NULL" for name in columns.values()) + " AS nothing")
        parts.append(" OR ".join(_late_key_conditions(log)) + " AS late")
    reason = failed_check_sql(columns, ndjson, log.clip)
    return f"SELECT *, {reason} AS reason FROM (SELECT {', '.join(parts)} FROM ({scan}))"


def _converted_columns(columns: dict[str, str], kinds: dict[str, str]) -> list[str]:
    """SQL for the columns of a layout, converted from those of the file; optional columns that it lacks are NULL."""
    converters = {"position": integer_sql, "impressions": integer_sql, "clicks": integer_sql, "click": click_sql}
    converters |= {"learn": click_sql, "propensity": propensity_sql}
    converted = [f"{converters.get(role, label_sql)(name, kinds[role])} AS {role}" for role, name in columns.items()]
    names = {name: kinds[role] for role, name in columns.items() if role in NAME_ROLES}
    converted.append(f"{has_spaces_sql(names)} AS spaced")
    missing = [role for role in ("event", "query", "timestamp", "propensity") if role not in columns]
    return converted + [f"NULL::VARCHAR AS {role}" for role in missing]


def _absent_names(log: LogSpec) -> dict[str, str]:
    """Column names of the layout that the inspected lines lack, with their roles."""
    assert isinstance(log.form, TableLayout)
    here = {name.lower() for source in log.sources for name in source.columns}
    return {name: role for role, names in log.form.roles.items() for name in names if name not in here}


def _late_key_conditions(log: LogSpec) -> list[str]:
    """SQL conditions for a row of JSON with a key that the inspected lines lack, whose value would be ignored."""
    chosen = {role: f" AND {quoted(name)} IS NULL" for role, name in log.columns.items()}
    return [f"({quoted(name)} IS NOT NULL{chosen.get(role, '')})" for name, role in _absent_names(log).items()] or [
        "false"
    ]


def _scan(sources: list[LogSource], log: LogSpec) -> str:
    """The table function of DuckDB that reads files of one kind."""
    files, first = literal([glob_pattern(str(source.path)) for source in sources]), sources[0]
    if first.kind == "memory":
        return "in_memory"
    if first.kind == "parquet":
        return f"read_parquet({files}, union_by_name = true, file_row_number = true, {NO_PARTITIONS})"
    compression = literal(first.compression or "none")
    names = [*log.columns.values(), *_absent_names(log)] if first.kind == "ndjson" else _unique_names(first.columns)
    has_header = any(source.has_header for source in sources) and HEADER_COLUMN not in names
    text = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in [*names, *([HEADER_COLUMN] if has_header else [])])
    if first.kind == "ndjson":
        rows = (
            f"read_json({files}, format = 'newline_delimited', columns = {{{text}}}, ignore_errors = true, "
            f"compression = {compression}, {NO_PARTITIONS})"
        )
        kept = f"{quoted(HEADER_COLUMN)} IS DISTINCT FROM {literal(EXPORT_FORMAT)}"
        return f"(SELECT * EXCLUDE ({quoted(HEADER_COLUMN)}) FROM {rows} WHERE {kept})" if has_header else rows
    return (
        f"read_csv({files}, auto_detect = false, header = true, skip = {first.blank_lines}, "
        f"delim = {literal(first.delimiter)}, quote = '\"', escape = '\"', columns = {{{text}}}, store_rejects = true, "
        f"rejects_limit = 0, compression = {compression}, {NO_PARTITIONS})"
    )


def _unique_names(names: Sequence[str]) -> list[str]:
    """Names of columns, with a new name for each that repeats an earlier one, ignoring case."""
    lower = [name.lower() for name in names]
    return [f"{name}, column {k + 1}" if lower[k] in lower[:k] else name for k, name in enumerate(names)]


def _column_types(connection: Any, log: LogSpec, scan: str) -> dict[str, str]:
    """The SQL type of the column of every role."""
    if log.sources[0].kind not in ("parquet", "memory"):
        return dict.fromkeys(log.columns, "VARCHAR")
    described = run(connection, f"DESCRIBE {scan}")
    types = {name: kind for name, kind, *_ in described}
    return {role: types[name] for role, name in log.columns.items()}
