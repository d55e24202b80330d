"""What is wrong with a table, where, and why; looked up only once it is known that something is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...kernels import kernel
from ..log import Log
from .bad_input import FEW, BadInput, Example, refusal
from .duckdb_relations import among, literal, made_rows, run
from .file_format import BOM, Head, needs
from .row_checks import REASONS

__all__ = ["BadPage", "Rejected", "bad_pages", "bad_rows", "must", "rejected_lines", "together", "why_rejected"]

QUOTE, NEWLINE, RETURN = 34, 10, 13
BLOCK = 1 << 22
THOUSANDS = re.compile(r"\s*\d{1,3}([.,' ]\d{3})+\s*")
REJECTED = {
    "MISSING COLUMNS": "fewer columns than the table",
    "TOO MANY COLUMNS": "more columns than the table",
    "UNQUOTED VALUE": "a quote out of place or not closed",
    "INVALID ENCODING": "letters that are not UTF-8",
    "LINE SIZE OVER MAXIMUM": "more letters than a line may",
}
MORE_CLICKS = 9  # the check that clicks are not more than impressions
CLIP = {"clip": "counts as many clicks as impressions"}


class Rejected(NamedTuple):
    """Lines that are no rows of the table: how many, by what DuckDB calls it, and the first, as (file, line, kind)."""

    kinds: Mapping[str, int]
    first: tuple[tuple[str, int, str], ...] = ()


class BadPage(NamedTuple):
    """A page, the event of a query, that has a position or an item twice."""

    event: str
    query: str
    what: str  # "position" or "item"
    which: str


def must(log: Log, reason: int) -> str:
    """What must be so, of which column."""
    role, what = REASONS[reason]
    return f"{log.columns[role]} {what}" if role else what


def bad_rows(connection: Any, log: Log, reasons: Mapping[int, int], rejected: Rejected) -> ValueError:
    """The error for rows that fail checks, as many as ``reasons`` says of each, and for lines that are no rows."""
    number = sum(reasons.values())
    found = [(file, line, f"the line has {why_rejected(kind)}") for file, line, kind in rejected.first]
    found += _first_rows(connection, log, min(number, FEW), rejected)
    if not found:
        return ValueError("a bad row was found and could not be found again: is the log being written to?")
    files = {path: k for k, path in enumerate(log.paths)}
    found.sort(key=lambda one: (files[one[0]], one[1]))
    word = "row" if log.heads[0].kind in ("parquet", "memory") else "line"
    examples = [Example(file, f"{word} {place}", wrong) for file, place, wrong in found]
    options = CLIP if MORE_CLICKS in reasons else {}
    return refusal(examples, number + sum(rejected.kinds.values()), "rows", options)


def _first_rows(connection: Any, log: Log, number: int, rejected: Rejected) -> list[tuple[str, int, str]]:
    """The first rows that fail a check, so many: their files, places and what is wrong."""
    names = ["reason", "number", *(f"raw_{role}" for role in log.columns)]
    found: list[tuple[str, int, str]] = []
    for head in log.heads:
        left = number - len(found)
        if left <= 0:
            break
        rows = made_rows(connection, log, (head,), numbered=True)
        first = f"SELECT {', '.join(names)} FROM ({rows}) WHERE reason IS NOT NULL ORDER BY number LIMIT {left}"
        for row in run(connection, first):
            cells = dict(zip(names, row))
            found.append((str(head.path), _place_among(head, cells["number"], rejected), _wrong(log, cells)))
    return found


def _place_among(head: Head, row: int, rejected: Rejected) -> int:
    """The line of a row in a file some of whose lines are no rows, and were not counted as such."""
    line = place(head, row)
    for before, bad in enumerate(sorted(line for file, line, _ in rejected.first if file == str(head.path)), 1):
        if bad <= line:
            line = place(head, row + before)
    return line


def _wrong(log: Log, cells: Mapping[str, Any]) -> str:
    """What is wrong with a row, and what its column holds."""
    role = REASONS[cells["reason"]][0]
    raw = cells.get(f"raw_{role}")
    got = f"; got {raw!r}" if raw is not None else ""
    if role in ("position", "click", "impressions", "clicks") and not got:
        got = "; it is missing"
    if role in ("position", "impressions", "clicks") and THOUSANDS.fullmatch(raw or ""):
        got += "; write numbers without thousands separators"
    if cells["reason"] == MORE_CLICKS:
        got += f" and {cells['raw_impressions']!r}"
    return f"{must(log, cells['reason'])}{got}"


def bad_pages(connection: Any, log: Log, first: Sequence[BadPage], number: int) -> BadInput:
    """The error for pages that have a position or an item twice; ``first`` are those to show."""
    places: list[list[tuple[str, int]]] = [[] for _ in first]
    for head in log.heads:
        for k, row in _rows_of(connection, log, head, first):
            places[k].append((str(head.path), place(head, row)))
    word = "row" if log.heads[0].kind in ("parquet", "memory") else "line"
    examples = []
    for page, ((file, one), (other_file, other)) in zip(first, (two[:2] for two in places)):
        second = f"{other_file}, {word} {other}" if other_file != file else f"{word} {other}"
        wrong = f"event {page.event!r} has {log.columns[page.what]} {page.which!r} twice"
        examples.append(Example(file, f"{word} {one} and {second}", wrong))
    return refusal(examples, number, "pages")


def _rows_of(connection: Any, log: Log, head: Head, pages: Sequence[BadPage]) -> Iterator[tuple[int, int]]:
    """The first two rows in a file of what each page has twice, as (number of the page, row)."""
    cases = " ".join(
        f"WHEN event::VARCHAR = {literal(page.event)} AND coalesce(query::VARCHAR, '') = {literal(page.query)} "
        f"AND {page.what}::VARCHAR = {literal(page.which)} THEN {k}"
        for k, page in enumerate(pages)
    )
    rows = made_rows(connection, log, (head,), numbered=True)
    found = f"SELECT CASE {cases} END AS page, number FROM ({rows}) WHERE reason IS NULL"
    yield from run(
        connection,
        f"SELECT page, number FROM ({found}) WHERE page IS NOT NULL "
        "QUALIFY row_number() OVER (PARTITION BY page ORDER BY number) <= 2 ORDER BY page, number",
    )


def place(head: Head, row: int) -> int:
    """The line of a row that is counted from 0; of a table that has no lines, the row from 1 up."""
    if head.kind in ("parquet", "memory"):
        return row + 1
    quote, header = (0, 0) if head.kind == "ndjson" else (QUOTE, 1)
    state = np.array([row + header, 1, 0, 1, 1], np.int64)
    with needs("pyarrow").input_stream(str(head.path), compression=head.compression) as stream:
        block = stream.read(BLOCK).removeprefix(BOM)
        while block and not find_record(np.frombuffer(block, np.uint8), quote, ord(head.delimiter), state):
            block = stream.read(BLOCK)
    return int(state[1])


@kernel
def find_record(text: Any, quote: int, delimiter: int, state: Any) -> bool:
    """Go on counting records and lines up to a wanted record; empty lines are no records, quoted ones do not end one.

    ``state`` holds the records still to pass, the line, whether inside quotes, and whether at the start of a line and
    of a value: a quote within a value, as in 5" screen, is a letter.
    """
    for byte in text:
        if state[3] and byte != NEWLINE and byte != RETURN:
            if state[0] == 0:
                return True
            state[3] = 0
        if byte == quote and (state[2] or state[4]):
            state[2] = 1 - state[2]
            state[4] = 1  # another quote right here goes on with the value
        else:
            state[4] = not state[2] and byte in (delimiter, NEWLINE)
        if byte == NEWLINE:
            state[1] += 1
            if not state[2] and not state[3]:
                state[0] -= 1
                state[3] = 1
    return False


def why_rejected(kind: str) -> str:
    """What lines have that DuckDB rejects, in words."""
    return REJECTED.get(kind, f"something that cannot be read ({kind.lower()})")


def rejected_lines(connection: Any, log: Log) -> Rejected:
    """The lines that DuckDB did not take for rows when it read the log."""
    if log.heads[0].kind != "text":
        return Rejected({})
    lines = (
        "(SELECT scans.file_path AS file, errors.line_byte_position AS place, "
        "min(errors.error_type)::VARCHAR AS kind "
        "FROM reject_errors errors JOIN reject_scans scans USING (scan_id, file_id) "
        f"WHERE scans.file_path IN {among(log.paths)} GROUP BY 1, 2)"
    )
    kinds = dict(run(connection, f"SELECT kind, count(*) FROM {lines} GROUP BY 1 ORDER BY 1"))
    if not kinds or log.skip_bad:
        return Rejected(kinds)
    rank = "row_number() OVER (PARTITION BY file ORDER BY place)"
    first = run(connection, f"SELECT file, place, kind FROM {lines} QUALIFY {rank} <= {FEW}")
    heads = {str(head.path): head for head in log.heads}
    return Rejected(kinds, tuple((file, _line_at(heads[file], offset), kind) for file, offset, kind in first))


def together(parts: Iterable[Rejected]) -> Rejected:
    """What was rejected in several parts of a log."""
    kinds: Counter[str] = Counter()
    first: list[tuple[str, int, str]] = []
    for part in parts:
        kinds.update(part.kinds)
        first += part.first
    return Rejected(kinds, tuple(first))


def _line_at(head: Head, offset: int) -> int:
    """The number of the line at an offset of the text."""
    line, left = 1, offset
    with needs("pyarrow").input_stream(str(head.path), compression=head.compression) as stream:
        while left > 0 and (block := stream.read(min(left, BLOCK))):
            line, left = line + block.count(b"\n"), left - len(block)
    return line
