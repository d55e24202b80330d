"""What a row of a table must be, in SQL: columns made out of text or numbers, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["LAST_POSITION", "REASONS", "checks", "clicks", "column", "label", "propensities", "spaced", "whole"]

WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")

LAST_POSITION = 10_000  # beyond it, a number is more likely a mistake than a position

# Number of a check -> (role of the column it is about, what must be so).
REASONS: dict[int, tuple[str, str]] = {
    1: ("", "the line is not a JSON object with the columns of this format"),
    2: ("item", "must not be missing"),
    3: ("position", "must be a whole number from 0 up"),
    4: ("click", "must be 0 or 1"),
    5: ("propensity", "must be above 0 and at most 1"),
    6: ("event", "must not be missing"),
    7: ("impressions", "must be a whole number from 0 up"),
    8: ("clicks", "must be a whole number from 0 up"),
    9: ("clicks", "must not be more than impressions"),
    10: ("", "the line has a column of this format that the first lines lack; put it there too, as null if need be"),
    11: ("learn", "must be true or false"),
    12: ("position", f"must be at most {LAST_POSITION:,}"),
}


def column(name: str) -> str:
    """A column's name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def label(name: str, kind: str) -> str:
    """A name, NULL where it is missing. Spaces around text are not part of it; in columns of numbers, 5.0 is 5.

    :func:`bothworlds.clicks.reading.frames.name_of` does the same to names that are given in Python.
    """
    given = column(name)
    if kind == "VARCHAR":
        return f"nullif(trim({given}), '')"
    if kind in ("DOUBLE", "FLOAT") or kind.startswith("DECIMAL"):
        short = f"CASE WHEN {given} = floor({given}) THEN try_cast({given} AS HUGEINT)::VARCHAR END"
        return f"CASE WHEN isfinite({given}::DOUBLE) THEN coalesce({short}, {given}::VARCHAR) END"
    return given


def spaced(names: Mapping[str, str]) -> str:
    """Whether a row has spaces around a name; ``names`` are columns and their types."""
    text = [column(name) for name, kind in names.items() if kind == "VARCHAR"]
    return " OR ".join(f"coalesce({name} != trim({name}), false)" for name in text) or "false"


def whole(name: str, kind: str) -> str:
    """A whole number, NULL where it is none: a cast alone would round 1.5, and 1.000 in text may be a thousand."""
    if kind in WHOLE:
        return f"{column(name)}::BIGINT"
    # The bare cast of a column of text would move into DuckDB's CSV reader, which takes what it cannot cast for a line
    # to reject; trimmed, it stays here, and the row keeps its own reason.
    given = f"trim({column(name)})" if kind == "VARCHAR" else column(name)
    number = f"try_cast({given} AS DOUBLE)"
    clear = f" AND NOT (ends_with({given}, '.000') AND length({given}) <= 7)" if kind == "VARCHAR" else ""
    # Of numbers beyond 2^53, only the text has all digits.
    return f"CASE WHEN {number} = floor({number}){clear} THEN try_cast({given} AS BIGINT) END"


def clicks(name: str, kind: str) -> str:
    """Clicks as 0 and 1, from numbers or truth values."""
    if kind in WHOLE:
        return column(name)
    if kind == "BOOLEAN":
        return f"{column(name)}::TINYINT"
    text = f"trim({column(name)}::VARCHAR)"
    words = f"CASE lower({text}) WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"
    numbers = f"CASE try_cast({text} AS DOUBLE) WHEN 0 THEN 0 WHEN 1 THEN 1 ELSE {words} END"
    return f"CASE {text} WHEN '0' THEN 0 WHEN '1' THEN 1 ELSE {numbers} END"


def propensities(name: str, kind: str) -> str:
    """Propensities as numbers; what cannot be read becomes 0, which no propensity may be."""
    if kind == "DOUBLE":
        # Statistics of Parquet leave out NaN, and DuckDB draws from them that comparisons hold, and isnan does not.
        return f"CASE WHEN NOT isfinite({column(name)}) THEN 0 ELSE {column(name)} END"
    given = f"nullif(trim({column(name)}::VARCHAR), '')"
    return f"CASE WHEN {given} IS NOT NULL THEN coalesce(try_cast({given} AS DOUBLE), 0) END"


def checks(columns: Mapping[str, str], ndjson: bool, clip: bool) -> str:
    """The number of the first check that a row fails, NULL if it passes all, from columns already made."""
    cases = {
        2: "item IS NULL",
        3: "position IS NULL OR position < 0",
        12: f"position > {LAST_POSITION}",
        4: "click IS NULL OR click NOT BETWEEN 0 AND 1",
        5: "propensity IS NOT NULL AND NOT (propensity > 0 AND propensity <= 1)",
        6: "event IS NULL",
        7: "impressions IS NULL OR impressions < 0",
        8: "clicks IS NULL OR clicks < 0",
        9: "false" if clip else "clicks > impressions",
        11: "learn IS NULL OR learn NOT BETWEEN 0 AND 1",
    }
    wanted = {number: case for number, case in cases.items() if REASONS[number][0] in columns}
    if ndjson:
        wanted = {1: "nothing", 10: "late", **wanted}
    return "CASE " + " ".join(f"WHEN {case} THEN {number}" for number, case in wanted.items()) + " END"
