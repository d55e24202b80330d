"""Error messages and notes for bad rows, records and pages of a log: file, line, reason, and what accepts them.

Lines are looked up only when an error is raised.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...extras import import_extra
from .rows import MORE_CLICKS, ROW_CHECKS
from .sources import Source

MAX_EXAMPLES = 3  # bad rows that an error shows
MAX_TEXT = 60  # characters of a line that an error shows
BLOCK = 1 << 22  # bytes read at a time
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
REJECTED = {  # error types of DuckDB
    "MISSING COLUMNS": "fewer columns than the table",
    "TOO MANY COLUMNS": "more columns than the table",
    "UNQUOTED VALUE": "a quote out of place or not closed",
    "INVALID ENCODING": NOT_UTF8,
    "LINE SIZE OVER MAXIMUM": "more than two million characters",
}
CLIP = {"clip": "counts as many clicks as impressions"}


def plural(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun.

    >>> plural(1, "row"), plural(1200, "row"), plural(2, "query", "queries")
    ('1 row', '1,200 rows', '2 queries')
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


class Example(NamedTuple):
    """One bad row: where it is and what is wrong with it."""

    file: str
    place: str  # "line 4"
    problem: str


def bad_input_error(
    examples: Sequence[Example], number: int, noun: str, options: Mapping[str, str] | None = None
) -> ValueError:
    """Return the error for ``number`` bad rows, records or pages (``noun``), which shows the first examples.

    ``options`` maps options that accept them to what they do.

    >>> examples = [Example("log.csv", "line 4", "click is missing"), Example("log.csv", "line 9", "item is missing")]
    >>> str(bad_input_error(examples, 12, "rows"))
    'log.csv, line 4: click is missing; line 9: item is missing; 12 rows are bad; skip_bad=True leaves them out'
    """
    shown = list(examples[:MAX_EXAMPLES])
    parts = []
    for before, (file, place, problem) in zip([None, *shown], shown):
        parts.append(f"{'' if before and before.file == file else f'{file}, '}{place}: {problem}")
    if number > 1:
        parts.append(f"{number:,} {noun} are bad")
    # Leaving out rows would leave out what they have in common.
    cure = next((text for problem, text in CURES.items() if any(problem in one.problem for one in examples)), "")
    skip = {"skip_bad": f"leaves {'them' if number > 1 else 'it'} out"}
    cures = [cure] if cure else [f"{name}=True {effect}" for name, effect in {**(options or {}), **skip}.items()]
    return ValueError("; ".join([*parts, *cures]))


class Rejected(NamedTuple):
    """A line that DuckDB cannot read as a row."""

    file: str
    line: int
    kind: str  # the error type of DuckDB
    text: str

    @property
    def problem(self) -> str:
        text = f", in {self.text[:MAX_TEXT]!r}" if describe_rejection(self.kind) != NOT_UTF8 else ""
        return f"the line has {describe_rejection(self.kind)}{text}"


def describe_rejection(kind: str) -> str:
    """Return the description of an error type of DuckDB, for "the line has ..."."""
    return REJECTED.get(kind, f"something that cannot be read ({kind.lower()})")


def rejected_lines(rejects: Sequence[tuple[Any, ...]], sources: Sequence[Source]) -> list[Rejected]:
    """Return the lines that DuckDB rejected when it read these files, in order; ``rejects`` as in ``database``."""
    paths = {str(source.path): source for source in sources}
    lines = {
        path: _lines_at(paths[path], [offset for file, offset, *_ in rejects if file == path])
        for path in {file for file, *_ in rejects}
    }
    return [Rejected(file, lines[file][offset], kind, text or "") for file, offset, kind, text in rejects]


def _lines_at(source: Source, offsets: Sequence[int]) -> dict[int, int]:
    """The numbers of the lines at increasing byte offsets of a text."""
    lines, line, passed = {}, 1, 0
    with _stream(source) as stream:
        for offset in offsets:
            while passed < offset and (block := stream.read(min(offset - passed, BLOCK))):
                line, passed = line + block.count(b"\n"), passed + len(block)
            lines[offset] = line
    return lines


def _stream(source: Source) -> Any:
    return import_extra("pyarrow").input_stream(str(source.path), compression=source.compression)


def rows_at(
    source: Source, columns: Mapping[str, str], wanted: Sequence[int], rejected: Sequence[Rejected]
) -> dict[int, tuple[int, dict[str, str | None]]]:
    """Return the line of some rows of a text, and their values by role; the role "" has the text of a line of JSON.

    Rows are counted from 0 and without lines that DuckDB rejected.
    """
    left, found = set(wanted), {}
    passed_over = {one.line for one in rejected if one.file == str(source.path)}
    with _stream(source) as stream:
        text = io.TextIOWrapper(io.BufferedReader(stream), "utf-8-sig", "replace", newline="")
        rows = _json_rows(text, source) if source.kind == "ndjson" else _csv_rows(text, source, passed_over)
        for index, (line, values) in enumerate(rows):
            if index in left:
                found[index] = line, {role: values.get(name) for role, name in [*columns.items(), ("", "")]}
                left.discard(index)
            if not left:
                break
    return found


def _csv_rows(text: Any, source: Source, passed_over: set[int]) -> Iterator[tuple[int, dict[str, str | None]]]:
    start = 0  # of the record; a record with quoted line breaks has several lines

    def lines() -> Iterator[str]:
        nonlocal start
        for number, line in enumerate(text, 1):
            if number not in passed_over:
                start = start or number
                yield line

    header = True
    for values in csv.reader(lines(), delimiter=source.delimiter):
        if values and not header:
            yield start, dict(zip(source.columns, values))
        header = header and not values
        start = 0


def _json_rows(text: Any, source: Source) -> Iterator[tuple[int, dict[str, str | None]]]:
    header = source.has_header
    for number, line in enumerate(text, 1):
        if line.strip() and not header:
            try:
                given = json.loads(line)
            except ValueError:
                given = None
            values = given if isinstance(given, dict) else {}
            texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in values.items()}
            yield number, {**{name: one for name, one in texts.items() if one != "null"}, "": line.rstrip()}
        header = header and not line.strip()


def requirement(columns: Mapping[str, str], reason: int) -> str:
    """Return the requirement of a check, with the name of the column."""
    role, text = ROW_CHECKS[reason]
    return f"{columns[role]} {text}" if role else text


def row_problem(columns: Mapping[str, str], reason: int, values: Mapping[str, str | None]) -> str:
    """Return the requirement that a row fails, and the value of the column; ``values`` maps roles to values."""
    role = ROW_CHECKS[reason][0]
    raw = values.get(role) or ""
    if "\ufffd" in raw:
        return f"the line has {NOT_UTF8}"
    got = f"; got {raw[:MAX_TEXT]!r}" if raw else ""
    if role in NUMBERS and role != "propensity" and not raw:
        got = "; it is missing"
    if role in ("position", "impressions", "clicks") and THOUSANDS.fullmatch(raw):
        got += "; write numbers without thousands separators"
    elif role in NUMBERS and DECIMAL_COMMA.fullmatch(raw):
        got += f", {WITH_COMMA}"
    if reason == MORE_CLICKS:
        got += f" and {values['impressions']!r}"
    return f"{requirement(columns, reason)}{got}"
