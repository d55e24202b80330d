"""Error messages for bad rows, lines and pages of tables: the file, the line and the reason of the first ones.

Places are looked up only after a count has reported that there are bad rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...extras import import_extra
from ...kernels import kernel
from .bad_input import MAX_EXAMPLES, Example, bad_input_error
from .duckdb_relations import checked_rows_sql, in_list, literal, run
from .file_format import BOM, LogSource
from .log_spec import LogSpec
from .row_checks import ROW_CHECKS

QUOTE, NEWLINE, RETURN = 34, 10, 13
BLOCK = 1 << 22  # bytes read at a time
# The state of `find_record`: records still to pass, current line, and whether it is inside quotes, at the start of a
# line, and at the start of a value.
PENDING, LINE, IN_QUOTES, LINE_START, VALUE_START = range(5)
THOUSANDS = re.compile(r"\s*\d{1,3}([.,' ]\d{3})+\s*")
DECIMAL_COMMA = re.compile(r"\s*\d*,\d+\s*")
NUMBERS = ("position", "click", "propensity", "impressions", "clicks")
NOT_UTF8, WITH_COMMA = "characters that are not UTF-8", "which has a decimal comma"
CURES = {  # problems of a whole file, with their cures
    NOT_UTF8: (
        "the file seems to be in Latin-1 (Windows-1252): convert it, as in iconv -f WINDOWS-1252 -t UTF-8 log.csv > "
        "utf-8.csv, or give the table that pandas.read_csv(..., encoding='cp1252') returns"
    ),
    WITH_COMMA: (
        "write numbers with a decimal point, or give the table that pandas.read_csv(..., sep=';', decimal=',') returns"
    ),
}
REJECTED = {
    "MISSING COLUMNS": "fewer columns than the table",
    "TOO MANY COLUMNS": "more columns than the table",
    "UNQUOTED VALUE": "a quote out of place or not closed",
    "INVALID ENCODING": NOT_UTF8,
    "LINE SIZE OVER MAXIMUM": "more characters than a line may have",
}
MORE_CLICKS = 9  # the check that clicks are not more than impressions
CLIP = {"clip": "counts as many clicks as impressions"}


class RejectedLines(NamedTuple):
    """Lines that DuckDB cannot parse: their number by error type of DuckDB, and the first, as (file, line, type)."""

    kinds: Mapping[str, int]
    first: tuple[tuple[str, int, str], ...] = ()


class BadPage(NamedTuple):
    """A page (an event of a query) that has a position or an item twice."""

    event: str
    query: str
    role: str  # "position" or "item": what is there twice
    value: str


def requirement(log: LogSpec, reason: int) -> str:
    """Return the requirement of a check, with the name of the column."""
    role, text = ROW_CHECKS[reason]
    return f"{log.columns[role]} {text}" if role else text


def bad_rows(connection: Any, log: LogSpec, reasons: Mapping[int, int], rejected: RejectedLines) -> ValueError:
    """Return the error for rows that fail checks (``reasons`` maps checks to numbers of rows) and rejected lines."""
    number = sum(reasons.values())
    located = [(file, line, f"the line has {describe_rejection(kind)}") for file, line, kind in rejected.first]
    located += _first_rows(connection, log, min(number, MAX_EXAMPLES), rejected)
    if not located:
        return ValueError("a bad row was counted but cannot be located; the log may have changed while it was read")
    files = {path: k for k, path in enumerate(log.paths)}
    located.sort(key=lambda one: (files[one[0]], one[1]))
    unit = "row" if log.sources[0].kind in ("parquet", "memory") else "line"
    examples = [Example(file, f"{unit} {place}", problem) for file, place, problem in located]
    options = CLIP if MORE_CLICKS in reasons else {}
    cure = next((text for problem, text in CURES.items() if any(problem in one.problem for one in examples)), "")
    return bad_input_error(examples, number + sum(rejected.kinds.values()), "rows", options, cure)


def _first_rows(connection: Any, log: LogSpec, number: int, rejected: RejectedLines) -> list[tuple[str, int, str]]:
    """The first ``number`` rows that fail a check: file, line and problem of each."""
    names = ["reason", "number", *(f"raw_{role}" for role in log.columns)]
    located: list[tuple[str, int, str]] = []
    for source in log.sources:
        left = number - len(located)
        if left <= 0:
            break
        rows = checked_rows_sql(connection, log, (source,), numbered=True)
        first = f"SELECT {', '.join(names)} FROM ({rows}) WHERE reason IS NOT NULL ORDER BY number LIMIT {left}"
        for row in run(connection, first):
            cells = dict(zip(names, row))
            located.append(
                (str(source.path), _line_among_rejected(source, cells["number"], rejected), _problem(log, cells))
            )
    return located


def _line_among_rejected(source: LogSource, row: int, rejected: RejectedLines) -> int:
    """The line of a row in a file that also has rejected lines, which DuckDB does not number as rows."""
    line = line_number(source, row)
    for before, bad in enumerate(sorted(line for file, line, _ in rejected.first if file == str(source.path)), 1):
        if bad <= line:
            line = line_number(source, row + before)
    return line


def _problem(log: LogSpec, cells: Mapping[str, Any]) -> str:
    """The requirement that a row fails, and the value of the column."""
    role = ROW_CHECKS[cells["reason"]][0]
    raw = cells.get(f"raw_{role}")
    got = f"; got {raw!r}" if raw is not None else ""
    if role in ("position", "click", "impressions", "clicks") and not got:
        got = "; it is missing"
    if role in ("position", "impressions", "clicks") and THOUSANDS.fullmatch(raw or ""):
        got += "; write numbers without thousands separators"
    elif role in NUMBERS and DECIMAL_COMMA.fullmatch(raw or ""):
        got += f", {WITH_COMMA}"
    if cells["reason"] == MORE_CLICKS:
        got += f" and {cells['raw_impressions']!r}"
    return f"{requirement(log, cells['reason'])}{got}"


def bad_pages(connection: Any, log: LogSpec, first: Sequence[BadPage], number: int) -> ValueError:
    """Return the error for ``number`` pages that have a position or an item twice; ``first`` are those to show."""
    places: list[list[tuple[str, int]]] = [[] for _ in first]
    for source in log.sources:
        for k, row in _rows_of(connection, log, source, first):
            places[k].append((str(source.path), line_number(source, row)))
    unit = "row" if log.sources[0].kind in ("parquet", "memory") else "line"
    examples = []
    for page, ((file, one), (other_file, other)) in zip(first, (two[:2] for two in places)):
        second = f"{other_file}, {unit} {other}" if other_file != file else f"{unit} {other}"
        problem = f"event {page.event!r} has {log.columns[page.role]} {page.value!r} twice"
        examples.append(Example(file, f"{unit} {one} and {second}", problem))
    return bad_input_error(examples, number, "pages")


def _rows_of(connection: Any, log: LogSpec, source: LogSource, pages: Sequence[BadPage]) -> Iterator[tuple[int, int]]:
    """For each page, the first two rows in a file of what it has twice, as (index of the page, row)."""
    cases = " ".join(
        f"WHEN event::VARCHAR = {literal(page.event)} AND coalesce(query::VARCHAR, '') = {literal(page.query)} "
        f"AND {page.role}::VARCHAR = {literal(page.value)} THEN {k}"
        for k, page in enumerate(pages)
    )
    rows = checked_rows_sql(connection, log, (source,), numbered=True)
    matching = f"SELECT CASE {cases} END AS page, number FROM ({rows}) WHERE reason IS NULL"
    yield from run(
        connection,
        f"SELECT page, number FROM ({matching}) WHERE page IS NOT NULL "
        "QUALIFY row_number() OVER (PARTITION BY page ORDER BY number) <= 2 ORDER BY page, number",
    )


def line_number(source: LogSource, row: int) -> int:
    """Return the line, from 1, of a row, from 0; for Parquet and tables in memory, the number of the row from 1."""
    if source.kind in ("parquet", "memory"):
        return row + 1
    quote, header = (0, int(source.has_header)) if source.kind == "ndjson" else (QUOTE, 1)
    state = np.array([row + header, 1, 0, 1, 1], np.int64)
    with import_extra("pyarrow").input_stream(str(source.path), compression=source.compression) as stream:
        block = stream.read(BLOCK).removeprefix(BOM)
        while block and not find_record(np.frombuffer(block, np.uint8), quote, ord(source.delimiter), state):
            block = stream.read(BLOCK)
    return int(state[LINE])


@kernel
def find_record(text: Any, quote: int, delimiter: int, state: Any) -> bool:
    """Count records and lines up to a given record; return whether it was reached in this block of text.

    Empty lines are not records, and a line end inside quotes does not end a record. ``state`` carries over between
    blocks; the constants PENDING to VALUE_START name its entries. A quote within a value, as in 5" screen, is an
    ordinary character.
    """
    for byte in text:
        if state[LINE_START] and byte != NEWLINE and byte != RETURN:
            if state[PENDING] == 0:
                return True
            state[LINE_START] = 0
        if byte == quote and (state[IN_QUOTES] or state[VALUE_START]):
            state[IN_QUOTES] = 1 - state[IN_QUOTES]
            state[VALUE_START] = 1  # an immediately following quote continues the value
        else:
            state[VALUE_START] = not state[IN_QUOTES] and byte in (delimiter, NEWLINE)
        if byte == NEWLINE:
            state[LINE] += 1
            if not state[IN_QUOTES] and not state[LINE_START]:
                state[PENDING] -= 1
                state[LINE_START] = 1
    return False


def describe_rejection(kind: str) -> str:
    """Return the description of an error type of DuckDB, for "the line has ..."."""
    return REJECTED.get(kind, f"something that cannot be read ({kind.lower()})")


def rejected_lines(connection: Any, log: LogSpec) -> RejectedLines:
    """Return the lines that DuckDB rejected when it read the log with this connection."""
    if log.sources[0].kind != "text":
        return RejectedLines({})
    lines = (
        "(SELECT scans.file_path AS file, errors.line_byte_position AS place, "
        "min(errors.error_type)::VARCHAR AS kind "
        "FROM reject_errors errors JOIN reject_scans scans USING (scan_id, file_id) "
        f"WHERE scans.file_path IN {in_list(log.paths)} GROUP BY 1, 2)"
    )
    kinds = dict(run(connection, f"SELECT kind, count(*) FROM {lines} GROUP BY 1 ORDER BY 1"))
    if not kinds or log.skip_bad:
        return RejectedLines(kinds)
    rank = "row_number() OVER (PARTITION BY file ORDER BY place)"
    first = run(connection, f"SELECT file, place, kind FROM {lines} QUALIFY {rank} <= {MAX_EXAMPLES}")
    sources = {str(source.path): source for source in log.sources}
    return RejectedLines(kinds, tuple((file, _line_at(sources[file], offset), kind) for file, offset, kind in first))


def merge_rejected(parts: Iterable[RejectedLines]) -> RejectedLines:
    """Merge the rejected lines of several parts of a log."""
    kinds: Counter[str] = Counter()
    first: list[tuple[str, int, str]] = []
    for part in parts:
        kinds.update(part.kinds)
        first += part.first
    return RejectedLines(kinds, tuple(first))


def _line_at(source: LogSource, offset: int) -> int:
    """The number of the line at a byte offset of the text."""
    line, left = 1, offset
    with import_extra("pyarrow").input_stream(str(source.path), compression=source.compression) as stream:
        while left > 0 and (block := stream.read(min(left, BLOCK))):
            line, left = line + block.count(b"\n"), left - len(block)
    return line
