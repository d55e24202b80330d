"""The checks of a row of a table, as SQL: columns converted from text or numbers, and the first check that fails."""

from __future__ import annotations

from collections.abc import Mapping

from .database import quoted

INTEGER_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")

MORE_CLICKS = 9
LAST_POSITION = 10_000  # a larger number is more likely a mistake than a position

# Number of a check -> (role of the checked column, the requirement).
ROW_CHECKS: dict[int, tuple[str, str]] = {
    1: ("", "the line is not a JSON object with the columns of this format"),
    2: ("item", "must not be missing"),
    3: ("position", "must be a whole number from 0 up"),
    4: ("click", "must be 0 or 1"),
    5: ("propensity", "must be above 0 and at most 1"),
    6: ("event", "must not be missing"),
    7: ("impressions", "must be a whole number from 0 up"),
    8: ("clicks", "must be a whole number from 0 up"),
    9: ("clicks", "must not be more than impressions"),
    10: ("learn", "must be true or false"),
    11: ("position", f"must be at most {LAST_POSITION:,}"),
}


def label_sql(name: str, kind: str) -> str:
    """SQL for a label, NULL if it is missing. Text is stripped of spaces; in columns of numbers, 5.0 becomes 5.

    :func:`bothworlds.clicks.reading.memory.label_text` does the same for labels given in Python.
    """
    given = quoted(name)
    if kind == "VARCHAR":
        return f"nullif(trim({given}), '')"
    if kind in ("DOUBLE", "FLOAT") or kind.startswith("DECIMAL"):
        short = f"CASE WHEN {given} = floor({given}) THEN try_cast({given} AS HUGEINT)::VARCHAR END"
        return f"CASE WHEN isfinite({given}::DOUBLE) THEN coalesce({short}, {given}::VARCHAR) END"
    return given


def integer_sql(name: str, kind: str) -> str:
    """SQL for a whole number, NULL otherwise: a cast alone would round 1.5, and the text 1.000 may mean a thousand."""
    if kind in INTEGER_TYPES:
        return f"{quoted(name)}::BIGINT"
    # DuckDB pushes the bare cast of a text column into its CSV reader, which rejects the whole line if the cast fails.
    # The cast of a trimmed column is not pushed down, so that the row fails the check of this column instead.
    given = f"trim({quoted(name)})" if kind == "VARCHAR" else quoted(name)
    number = f"try_cast({given} AS DOUBLE)"
    clear = f" AND NOT (ends_with({given}, '.000') AND length({given}) <= 7)" if kind == "VARCHAR" else ""
    # Beyond 2^53 a double loses digits, so the text itself is cast.
    return f"CASE WHEN {number} = floor({number}){clear} THEN try_cast({given} AS BIGINT) END"


def click_sql(name: str, kind: str) -> str:
    """SQL for clicks as 0 and 1, from numbers or booleans."""
    if kind in INTEGER_TYPES:
        return quoted(name)
    if kind == "BOOLEAN":
        return f"{quoted(name)}::TINYINT"
    text = f"trim({quoted(name)}::VARCHAR)"
    words = f"CASE lower({text}) WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"
    numbers = f"CASE try_cast({text} AS DOUBLE) WHEN 0 THEN 0 WHEN 1 THEN 1 ELSE {words} END"
    return f"CASE {text} WHEN '0' THEN 0 WHEN '1' THEN 1 ELSE {numbers} END"


def propensity_sql(name: str, kind: str) -> str:
    """SQL for propensities as numbers; an unreadable value becomes 0, which fails the check of propensities."""
    if kind == "DOUBLE":
        # Parquet statistics ignore NaN, and DuckDB uses them to conclude that comparisons hold and isnan is false.
        return f"CASE WHEN NOT isfinite({quoted(name)}) THEN 0 ELSE {quoted(name)} END"
    given = f"nullif(trim({quoted(name)}::VARCHAR), '')"
    return f"CASE WHEN {given} IS NOT NULL THEN coalesce(try_cast({given} AS DOUBLE), 0) END"


def failed_check_sql(columns: Mapping[str, str], ndjson: bool, clip: bool) -> str:
    """SQL for the number of the first check that a row of converted columns fails, NULL if it passes all."""
    cases = {
        2: "item IS NULL",
        3: "position IS NULL OR position < 0",
        11: f"position > {LAST_POSITION}",
        4: "click IS NULL OR click NOT BETWEEN 0 AND 1",
        5: "propensity IS NOT NULL AND NOT (propensity > 0 AND propensity <= 1)",
        6: "event IS NULL",
        7: "impressions IS NULL OR impressions < 0",
        8: "clicks IS NULL OR clicks < 0",
        MORE_CLICKS: "false" if clip else "clicks > impressions",
        10: "learn IS NULL OR learn NOT BETWEEN 0 AND 1",
    }
    wanted = {number: case for number, case in cases.items() if ROW_CHECKS[number][0] in columns}
    if ndjson:
        wanted = {1: "nothing", **wanted}
    return "CASE " + " ".join(f"WHEN {case} THEN {number}" for number, case in wanted.items()) + " END"
