"""What a row of a table must be, in SQL: columns made out of text or numbers, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["REASONS", "checks", "clicks", "column", "propensities", "whole"]

WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")

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
}


def column(name: str) -> str:
    """A column's name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def whole(name: str, kind: str) -> str:
    """A whole number, NULL where it is none: a cast alone would round 1.5."""
    if kind in WHOLE:
        return f"{column(name)}::BIGINT"
    # The bare cast of a column of text would move into DuckDB's CSV reader, which takes what it cannot cast for a line
    # to reject; trimmed, it stays here, and the row keeps its own reason.
    given = f"trim({column(name)})" if kind == "VARCHAR" else column(name)
    number = f"try_cast({given} AS DOUBLE)"
    return f"CASE WHEN {number} = floor({number}) THEN try_cast({number} AS BIGINT) END"


def clicks(name: str, kind: str) -> str:
    """Clicks as 0 and 1, from numbers or truth values."""
    if kind in WHOLE:
        return column(name)
    if kind == "BOOLEAN":
        return f"{column(name)}::TINYINT"
    text = f"{column(name)}::VARCHAR"
    return f"CASE {text} WHEN '0' THEN 0 WHEN '1' THEN 1 WHEN '0.0' THEN 0 WHEN '1.0' THEN 1 " + (
        f"ELSE CASE lower({text}) WHEN 'true' THEN 1 WHEN 'false' THEN 0 END END"
    )


def propensities(name: str, kind: str) -> str:
    """Propensities as numbers; what cannot be read becomes 0, which no propensity may be."""
    if kind == "DOUBLE":
        return column(name)
    given = f"nullif({column(name)}::VARCHAR, '')"
    return f"CASE WHEN {given} IS NOT NULL THEN coalesce(try_cast({given} AS DOUBLE), 0) END"


def checks(columns: Mapping[str, str], ndjson: bool, clip: bool) -> str:
    """The number of the first check that a row fails, NULL if it passes all, from columns already made."""
    cases = {
        2: "item IS NULL",
        3: "position IS NULL OR position NOT BETWEEN 0 AND 2147483647",
        4: "click IS NULL OR click NOT BETWEEN 0 AND 1",
        5: "propensity IS NOT NULL AND NOT (propensity > 0 AND propensity <= 1)",
        6: "event IS NULL",
        7: "impressions IS NULL OR impressions < 0",
        8: "clicks IS NULL OR clicks < 0",
        9: "false" if clip else "clicks > impressions",
    }
    wanted = {number: case for number, case in cases.items() if REASONS[number][0] in columns}
    if ndjson:
        wanted = {1: "nothing", **wanted}
    return "CASE " + " ".join(f"WHEN {case} THEN {number}" for number, case in wanted.items()) + " END"
