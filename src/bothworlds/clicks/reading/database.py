"""A DuckDB database for a log, its statements with progress bars, and values as SQL."""

from __future__ import annotations

import re
import shutil
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from tempfile import mkdtemp
from threading import Event, Thread
from typing import Any

from ...extras import import_extra
from ...progress import ReportProgress, progress_bar

INTERRUPTED = "Query interrupted"  # the message of the RuntimeError that DuckDB raises on Ctrl+C


class Database:
    """A database in memory that spills to a temporary folder, which is removed with it."""

    def __init__(self) -> None:
        folder = mkdtemp(prefix="bothworlds-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.connection = import_extra("duckdb").connect(config={"temp_directory": folder})
        _set(self.connection, "enable_progress_bar_print = false")  # DuckDB prints its own bar to standard output
        self.connection.execute("SET TimeZone = 'UTC'")  # dates without a zone are the same on every machine


@contextmanager
def interrupts() -> Iterator[None]:
    """Turn the errors of DuckDB for an interrupted query into KeyboardInterrupt."""
    try:
        yield
    except import_extra("duckdb").InterruptException as error:
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
        with interrupts(), report_progress(connection, title, progress if title else False):
            return connection.execute(sql).fetchall()  # all rows: a partly read result would block the connection
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        raise ValueError(_read_error(str(error))) from error


def rejects(connection: Any, paths: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the lines that were rejected when these texts were read: file, byte offset, type of error, text."""
    return run(
        connection,
        "SELECT scans.file_path, errors.line_byte_position, min(errors.error_type)::VARCHAR, "
        "any_value(errors.csv_line) FROM reject_errors errors JOIN reject_scans scans USING (scan_id, file_id) "
        f"WHERE scans.file_path IN {in_list(paths)} GROUP BY 1, 2 ORDER BY 1, 2",
    )


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
        try:
            now = max(reported, int(connection.query_progress()))
        except import_extra("duckdb").ConnectionException:  # closed, since an interrupt came while this was joined
            return
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


def quoted(name: str) -> str:
    """Return the name of a column as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def glob_pattern(path: str) -> str:
    """Return a path as a glob pattern that matches only this path, since DuckDB expands stars and brackets.

    >>> glob_pattern("log[1].csv")
    'log[[]1].csv'
    """
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in path)
