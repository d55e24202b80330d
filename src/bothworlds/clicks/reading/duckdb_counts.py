"""Counting logs that are tables, with DuckDB: rows and pages are checked, filters applied, and clicks counted.

Rows are counted first, which yields the positions, the most frequent items and the number of bad rows. If the log has
pages, rows are then grouped into pages, and counted again if not all pages are kept. Both steps take a condition on
rows, by which Ray tasks share them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from ..counts import Counts
from .bad_input import MAX_EXAMPLES, plural, skipped
from .duckdb_relations import checked_rows_sql, in_list, literal, run
from .layouts import TextLayout
from .log_spec import LogSpec
from .row_errors import BadPage, RejectedLines, bad_pages, bad_rows, describe_rejection, rejected_lines, requirement
from .text_kernels import REGIONS

_table_numbers = count()


class Selection(NamedTuple):
    """The positions and items that the filters keep; None means all."""

    positions: list[int] | None
    items: list[str] | None


class KeptPages(NamedTuple):
    """The pages that the filters keep: the name of a table that lists them, or None if all pages are kept."""

    table: str | None
    kept: int
    bad: int  # pages with a position or an item twice; they are not kept
    first_bad: tuple[BadPage, ...] = ()


@dataclass(frozen=True)
class TableCounts:
    """The counts of a log, in a DuckDB table of the given name, with the selection of the filters and notes."""

    table: str
    selection: Selection
    pages: KeptPages | None
    notes: tuple[str, ...]


def count_selected(
    connection: Any, log: LogSpec, progress: bool | None = False, check_pages: bool = True
) -> TableCounts:
    """Check the rows and pages of a table, apply the filters, and count.

    Without ``check_pages``, a page with a position or an item twice is not noticed, and the filter by the most frequent
    items is not applied. Raises ValueError for bad rows and pages, unless they are to be skipped.
    """
    rows = checked_rows_sql(connection, log)
    counted = count_rows(connection, log, rows, progress=progress)
    notes = report_bad_rows(connection, log, counted, rejected_lines(connection, log))
    selection = select(connection, log, counted)
    pages = None
    if log.has_pages and check_pages:
        pages = select_pages(connection, log, rows, selection, progress=progress)
        if pages.table is not None:
            counted = count_rows(connection, log, rows, pages=pages.table, progress=progress)
        notes += report_bad_pages(connection, log, pages.bad, pages.first_bad)
    apply_selection(connection, counted, selection, log.has_pages)
    notes += surface_notes(connection, log, rows) + position_gap_notes(connection, counted)
    return TableCounts(counted, selection, pages, notes)


def count_table(connection: Any, log: LogSpec, progress: bool | None) -> Counts:
    """Count a log that is a table. Raises ValueError for bad rows and pages, unless they are to be skipped."""
    counted = count_selected(connection, log, progress)
    pages = None if counted.pages is None else counted.pages.kept
    return labelled_counts(connection, log, counted.table, pages, counted.notes)


def selected_rows(log: LogSpec, connection: Any, progress: bool | None = False) -> tuple[Any, tuple[str, ...]]:
    """Return a relation of the rows that pass the checks and the filters, and notes. See :meth:`Log.rows`."""
    counted = count_selected(connection, log, progress)
    return connection.sql(_selected_sql(connection, log, counted)), counted.notes


def _selected_sql(connection: Any, log: LogSpec, counted: TableCounts) -> str:
    """SQL for the rows that pass the checks and the filters, with the columns of :meth:`Log.rows`."""
    propensity = "CASE WHEN learn = 1 THEN propensity END" if "learn" in log.columns else "propensity"
    return (
        "SELECT event::VARCHAR AS event, coalesce(query::VARCHAR, '') AS query, item::VARCHAR AS item, "
        f"position::INTEGER AS position, click::TINYINT AS click, ({propensity})::DOUBLE AS propensity, timestamp "
        f"FROM {selection_sql(connection, log, counted)}"
    )


def selection_sql(connection: Any, log: LogSpec, counted: TableCounts, joins: str = "", where: str = "true") -> str:
    """SQL after FROM for the rows that pass the checks and the filters, with further ``joins`` and a condition."""
    wanted = [_query_condition(log), "reason IS NULL", where]
    if counted.selection.positions is not None:
        wanted.append(f"position IN {in_list(counted.selection.positions)}")
    if counted.selection.items is not None and not log.has_pages:
        wanted.append(f"item IN {in_list(counted.selection.items)}")
    semi = _semi_join(counted.pages.table if counted.pages else None)
    return f"({checked_rows_sql(connection, log)}) rows {semi} {joins} WHERE {' AND '.join(wanted)}"


def count_rows(
    connection: Any,
    log: LogSpec,
    rows: str,
    where: str = "true",
    pages: str | None = None,
    progress: bool | None = False,
) -> str:
    """Count good rows per (query, item, position), and bad rows per reason, into a new table; return its name.

    ``rows`` is SQL of :func:`checked_rows_sql`, ``where`` a condition on rows, and ``pages`` a table of the pages to
    count. Columns: query, item, position, reason, shown, clicked, number (of rows), clipped (rows with too many clicks)
    and spaced (rows with spaces around a label).
    """
    table = f"counted_{next(_table_numbers)}"
    shown, clicked, clipped = "count(*)", "sum(click)", "0"
    if log.layout == "counts":
        shown, clicked = "sum(impressions)", "sum(least(clicks, impressions))"
        clipped = "count_if(clicks > impressions)"
    keys = ", ".join(f"CASE WHEN reason IS NULL THEN {key} END AS {key}" for key in ("query", "item", "position"))
    run(
        connection,
        f"CREATE TEMP TABLE {table} AS SELECT {keys}, reason, {shown}::BIGINT AS shown, {clicked}::BIGINT AS clicked, "
        f"count(*) AS number, {clipped} AS clipped, count_if(spaced) AS spaced FROM ({rows}) rows {_semi_join(pages)} "
        f"WHERE ({_query_condition(log)}) AND {where} GROUP BY 1, 2, 3, 4",
        "counting rows",
        progress,
    )
    return table


def report_bad_rows(connection: Any, log: LogSpec, counted: str, rejected: RejectedLines) -> tuple[str, ...]:
    """Raise ValueError for bad rows; if they are to be skipped, return notes with their numbers."""
    reasons = run(
        connection, f"SELECT reason, sum(number)::BIGINT FROM {counted} WHERE reason IS NOT NULL GROUP BY 1 ORDER BY 1"
    )
    if (reasons or rejected.kinds) and not log.skip_bad:
        raise bad_rows(connection, log, dict(reasons), rejected)
    suffix = whole_log_suffix(log)
    notes = tuple(
        f"{skipped(number, 'line')}{suffix}: {'it has' if number == 1 else 'they have'} {describe_rejection(kind)}"
        for kind, number in sorted(rejected.kinds.items())
    )
    notes += tuple(f"{skipped(number, 'row')}{suffix}: {requirement(log, reason)}" for reason, number in reasons)
    changed = f"SELECT sum(clipped)::BIGINT, sum(spaced)::BIGINT FROM {counted} WHERE reason IS NULL"
    clipped, spaced = run(connection, changed)[0]
    if clipped:
        have, whose = ("has", "its") if clipped == 1 else ("have", "their")
        notes += (
            f"{plural(clipped, 'row')} {have} more clicks than impressions; {whose} clicks were clipped to impressions",
        )
    if spaced:
        have = "has" if spaced == 1 else "have"
        notes += (f"{plural(spaced, 'row')} {have} spaces around the name of an item or a query; they were removed",)
    return notes


def whole_log_suffix(log: LogSpec) -> str:
    """Return what notes add to the number of bad rows: it includes all queries, since a bad row may have none."""
    return " (in the whole log, for all queries)" if log.queries else ""


def report_bad_pages(connection: Any, log: LogSpec, bad: int, first: Iterable[BadPage]) -> tuple[str, ...]:
    """Raise ValueError for pages with a position or an item twice; if skipped, return a note with their number."""
    if bad and not log.skip_bad:
        shown = sorted(first, key=lambda page: (len(page.event), page))[:MAX_EXAMPLES]
        raise bad_pages(connection, log, shown, bad)
    return (f"{skipped(bad, 'page')}: a position or an item is there twice",) if bad else ()


def position_gap_notes(connection: Any, counted: str) -> tuple[str, ...]:
    """Return a note if positions have a gap, since those after it may be mistakes."""
    shown = (
        f"SELECT position, sum(shown)::BIGINT FROM {counted} WHERE reason IS NULL AND shown > 0 GROUP BY 1 ORDER BY 1"
    )
    rows = run(connection, shown)
    for k in range(1, len(rows)):
        before, after = rows[k - 1][0], rows[k][0]
        if after > before + 1:
            beyond = sum(impressions for _, impressions in rows[k:])
            return (
                f"positions jump from {before} to {after}, with {beyond:,} impressions from {after} on; the model has "
                "no positions in between: check that this is not a mistake",
            )
    return ()


def surface_notes(connection: Any, log: LogSpec, rows: str) -> tuple[str, ...]:
    """Return a note if an export of the service has several surfaces."""
    if "surface" not in log.columns:
        return ()
    number = run(connection, f"SELECT count(DISTINCT surface) FROM ({rows}) WHERE {_query_condition(log)}")[0][0]
    return (f"{number:,} surfaces are counted together; export them one by one to separate them",) if number > 1 else ()


def select(connection: Any, log: LogSpec, counted: str) -> Selection:
    """Return the first positions of the log, and the most frequent items there, as far as the filters ask for them."""
    positions = items = None
    if log.positions is not None:
        statement = f"SELECT DISTINCT position FROM {counted} WHERE reason IS NULL ORDER BY 1 LIMIT {log.positions}"
        positions = [position for (position,) in run(connection, statement)]
    if log.top_items is not None:
        where = "" if positions is None else f"AND position IN {in_list(positions)}"
        statement = (
            f"SELECT item::VARCHAR FROM {counted} WHERE reason IS NULL {where} GROUP BY 1 "
            f"ORDER BY sum(shown) DESC, 1 LIMIT {log.top_items}"
        )
        items = [item for (item,) in run(connection, statement)]
    return Selection(positions, items)


def apply_selection(connection: Any, counted: str, selection: Selection, has_pages: bool) -> None:
    """Delete counts that are not selected. If the log has pages, the pages have been selected by item already."""
    if selection.positions is not None:
        run(connection, f"DELETE FROM {counted} WHERE position NOT IN {in_list(selection.positions)}")
    if selection.items is not None and not has_pages:
        run(connection, f"DELETE FROM {counted} WHERE item NOT IN {in_list(selection.items)}")


def select_pages(
    connection: Any, log: LogSpec, rows: str, selection: Selection, where: str = "true", progress: bool | None = False
) -> KeptPages:
    """Group rows into pages, drop pages with a position or an item twice, and select those that the filters keep.

    Every page has four bit masks of its items, by different bits of their hash, and one of its positions. A page is
    checked row by row only if all masks of items, or that of positions, have fewer bits set than the page has rows.
    """
    table = f"pages_{next(_table_numbers)}"
    seen = "true" if selection.positions is None else f"position IN {in_list(selection.positions)}"
    kept = "true" if selection.items is None else f"bool_and(item IN {in_list(selection.items)}) FILTER ({seen})"
    masks = [f"bit_or(1::UBIGINT << ((hash(item) >> {shift}) & 63)::INTEGER)" for shift in (0, 6, 12, 18)]
    suspect = " AND ".join(f"bit_count({mask}) < count(*)" for mask in masks)
    run(
        connection,
        f"CREATE TEMP TABLE {table} AS SELECT event, query, coalesce({kept} AND bool_or({seen}), false) AS kept, "
        f"bit_count(bit_or(1::UBIGINT << (position & 63)::INTEGER)) < count(*) OR ({suspect}) AS suspect "
        f"FROM ({rows}) WHERE reason IS NULL AND ({_query_condition(log)}) AND {where} GROUP BY event, query",
        "checking pages",
        progress,
    )
    bad, first = _drop_bad_pages(connection, rows, table)
    total, kept_pages = run(connection, f"SELECT count(*), count(*) FILTER (kept) FROM {table}")[0]
    if selection.items is None and not bad:
        run(connection, f"DROP TABLE {table}")
        return KeptPages(None, kept_pages, 0)
    if kept_pages < total:
        run(connection, f"DELETE FROM {table} WHERE NOT kept")
    return KeptPages(table, kept_pages, bad, first)


def _drop_bad_pages(connection: Any, rows: str, pages: str) -> tuple[int, tuple[BadPage, ...]]:
    """Delete pages with a position or an item twice; return their number and the first of them."""
    if not run(connection, f"SELECT count_if(suspect) FROM {pages}")[0][0]:
        return 0, ()
    bad = f"bad_{next(_table_numbers)}"
    suspects = f"({rows}) rows SEMI JOIN (FROM {pages} WHERE suspect) pages {_same_page('rows', 'pages')}"
    twice = " UNION ".join(
        f"SELECT event, query, {role!r} AS role, {role}::VARCHAR AS value FROM {suspects} "
        f"WHERE reason IS NULL GROUP BY event, query, {role} HAVING count(*) > 1"
        for role in ("position", "item")
    )
    one_each = f"SELECT DISTINCT ON (event, query) * FROM ({twice}) ORDER BY event, query, role DESC, value"
    run(connection, f"CREATE TEMP TABLE {bad} AS {one_each}")
    run(connection, f"DELETE FROM {pages} WHERE EXISTS (FROM {bad} WHERE {_same_page(pages, bad)[3:]})")
    names = "event::VARCHAR, coalesce(query::VARCHAR, ''), role, value"
    first = run(connection, f"SELECT {names} FROM {bad} ORDER BY length(event::VARCHAR), 1, 2 LIMIT {MAX_EXAMPLES}")
    return int(run(connection, f"SELECT count(*) FROM {bad}")[0][0]), tuple(BadPage(*page) for page in first)


def _same_page(one: str, other: str) -> str:
    return f"ON {one}.event = {other}.event AND {one}.query IS NOT DISTINCT FROM {other}.query"


def _semi_join(pages: str | None) -> str:
    return "" if pages is None else f"SEMI JOIN {pages} {_same_page('rows', pages)}"


def _query_condition(log: LogSpec) -> str:
    """SQL condition for rows of the requested queries. Bad rows are always included, so that they are reported."""
    if not log.queries:
        return "true"
    return f"(reason IS NOT NULL OR coalesce(query::VARCHAR, '') IN {in_list(log.queries)})"


def labelled_counts(connection: Any, log: LogSpec, table: str, pages: int | None, notes: tuple[str, ...]) -> Counts:
    """Return the counts in a table of DuckDB, summed per (query, item, position).

    Labels are sorted: numbers by value, then text. Raises ValueError if nothing is left of the log.
    """
    text = isinstance(log.form, TextLayout)
    query = f"(query // {REGIONS}) || '_' || (query % {REGIONS})" if text else "coalesce(query::VARCHAR, '')"
    where = "" if text else "WHERE reason IS NULL"
    run(
        connection,
        f"CREATE OR REPLACE TEMP TABLE summed AS SELECT {query} AS query, item::VARCHAR AS item, "
        "position::BIGINT AS position, sum(shown)::BIGINT AS shown, sum(clicked)::BIGINT AS clicked "
        f"FROM {table} {where} GROUP BY 1, 2, 3 HAVING sum(shown) > 0",
    )
    labels = {name: _labels(connection, name) for name in ("query", "item", "position")}
    if not labels["item"]:
        raise ValueError(nothing_left(log))
    arrays = connection.sql(
        "SELECT q.code AS query, i.code AS item, p.code AS position, shown, clicked FROM summed "
        "JOIN codes_query q USING (query) JOIN codes_item i USING (item) JOIN codes_position p USING (position)"
    ).fetchnumpy()
    codes: dict[str, Any] = {name: arrays[name] for name in ("query", "item", "position", "shown", "clicked")}
    named: dict[str, Any] = {"items": labels["item"], "queries": labels["query"], "positions": labels["position"]}
    return Counts(**named, **codes, origin=log.origin, pages=pages, notes=notes)


def _labels(connection: Any, name: str) -> tuple[Any, ...]:
    """The sorted values of a column of the table ``summed``; their indices go into a table of codes."""
    order = name if name == "position" else f"try_cast({name} AS HUGEINT) NULLS LAST, {name}"
    run(
        connection,
        f"CREATE OR REPLACE TEMP TABLE codes_{name} AS SELECT {name}, row_number() OVER (ORDER BY {order}) - 1 AS code "
        f"FROM (SELECT DISTINCT {name} FROM summed)",
    )
    return tuple(value for (value,) in run(connection, f"SELECT {name} FROM codes_{name} ORDER BY code"))


def nothing_left(log: LogSpec) -> str:
    """Return the error message for a log of which the filters keep nothing."""
    if log.queries:
        queries = literal(log.queries)[1:-1]
        return f"nothing is left of {log.origin}: there is no query {queries}, or the filters remove all its pages"
    skipped = ", or all of them were skipped" if log.skip_bad else ""
    return f"nothing is left of {log.origin}: it has no rows, or its filters remove them all{skipped}"
