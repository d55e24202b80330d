"""What is wrong with a table, where, and why; looked up only once it is known that something is."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ..kernels import kernel
from .checking import REASONS
from .heads import BOM, Head, needs
from .log import Log
from .sources import among, literal, made_rows, run

__all__ = ["bad_page", "bad_row", "must", "rejected_lines", "why_rejected"]

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


def must(log: Log, reason: int) -> str:
    """What must be so, of which column."""
    role, what = REASONS[reason]
    return f"{log.columns[role]} {what}" if role else what


def bad_row(connection: Any, log: Log) -> str:
    """Where the first bad row is and what is wrong with it."""
    for head in log.heads:
        rows = made_rows(connection, log, (head,), numbered=True)
        names = ["reason", "number", *(f"raw_{role}" for role in log.columns)]
        for row in run(connection, f"SELECT {', '.join(names)} FROM ({rows}) WHERE reason IS NOT NULL LIMIT 1"):
            cells = dict(zip(names, row))
            role = REASONS[cells["reason"]][0]
            got = f"; got {cells[f'raw_{role}']!r}" if role and cells[f"raw_{role}"] is not None else ""
            if role in ("position", "click", "impressions", "clicks") and not got:
                got = "; it is missing"
            if role in ("position", "impressions", "clicks") and THOUSANDS.fullmatch(cells[f"raw_{role}"] or ""):
                got += "; write numbers without thousands separators"
            if cells["reason"] == 9:
                got += f" and {(most := cells['raw_impressions'])!r}; with clip, {most} are counted"
            return f"{place(head, cells['number'])}: {must(log, cells['reason'])}{got}"
    return "a bad row was found and could not be found again: is the log being written to?"


def bad_page(connection: Any, log: Log, event: str, query: str | None, what: str, which: str) -> str:
    """Where the rows are that give one page, the event of a query, a position or an item twice."""
    places = []
    for head in log.heads:
        rows = made_rows(connection, log, (head,), numbered=True)
        same = f"event::VARCHAR = {literal(event)} AND {what}::VARCHAR = {literal(which)}"
        same += f" AND coalesce(query::VARCHAR, '') = {literal(query or '')} AND reason IS NULL"
        found = run(connection, f"SELECT number FROM ({rows}) WHERE {same} ORDER BY number LIMIT 2")
        places += [place(head, number) for (number,) in found]
    return f"{' and '.join(places[:2])}: event {event!r} has {log.columns[what]} {which!r} twice"


def place(head: Head, row: int) -> str:
    """The file and the line of a row, counted from 0; of a table that has no lines, the row from 1 up."""
    if head.kind in ("parquet", "memory"):
        return f"{head.path}, row {row + 1}"
    quote, header = (0, 0) if head.kind == "ndjson" else (QUOTE, 1)
    state = np.array([row + header, 1, 0, 1, 1], np.int64)
    with needs("pyarrow").input_stream(str(head.path), compression=head.compression) as stream:
        block = stream.read(BLOCK).removeprefix(BOM)
        while block and not find_record(np.frombuffer(block, np.uint8), quote, ord(head.delimiter), state):
            block = stream.read(BLOCK)
    return f"{head.path}, line {state[1]}"


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


def rejected_lines(connection: Any, log: Log) -> dict[str, int]:
    """How many lines are no rows of the table, by what DuckDB calls it; the first is refused unless to be skipped."""
    if log.heads[0].kind != "text":
        return {}
    lines = (
        "(SELECT scans.file_path AS file, errors.line_byte_position AS place, "
        "min(errors.error_type)::VARCHAR AS kind "
        "FROM reject_errors errors JOIN reject_scans scans USING (scan_id, file_id) "
        f"WHERE scans.file_path IN {among(log.paths)} GROUP BY 1, 2)"
    )
    kinds = dict(run(connection, f"SELECT kind, count(*) FROM {lines} GROUP BY 1 ORDER BY 1"))
    number = sum(kinds.values())
    if number and not log.skip_bad:
        file, at, kind = run(connection, f"SELECT file, place, kind FROM {lines} ORDER BY 1, 2 LIMIT 1")[0]
        head = next(head for head in log.heads if str(head.path) == file)
        more = f" ({number - 1:,} more lines are bad)" if number > 1 else ""
        raise ValueError(f"{file}, line {_line_at(head, at)}: the line has {why_rejected(kind)}{more}")
    return kinds


def _line_at(head: Head, offset: int) -> int:
    """The number of the line at an offset of the text."""
    line, left = 1, offset
    with needs("pyarrow").input_stream(str(head.path), compression=head.compression) as stream:
        while left > 0 and (block := stream.read(min(left, BLOCK))):
            line, left = line + block.count(b"\n"), left - len(block)
    return line
