"""Logs that are tables, reduced by DuckDB: rows checked, pages checked, filters applied, counts taken.

Rows are counted first: that alone says which positions there are, which items are most frequent and how many rows are
bad. Only then are rows grouped into pages, if the log has any, and counted again if not all pages are kept. Both steps
can be restricted by a condition, which is how several machines share them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from ..log import Log
from .bad_input import FEW
from .duckdb_relations import among, made_rows, run
from .row_errors import BadPage, Rejected, bad_pages, bad_rows, must, rejected_lines, why_rejected

__all__ = [
    "Chosen",
    "Pages",
    "checked_rows",
    "choose",
    "complain",
    "count_rows",
    "find_pages",
    "gaps",
    "in_the_whole_log",
    "keep_chosen",
    "reduce_table",
    "skipped_pages",
]

_names = count()


class Chosen(NamedTuple):
    """What the filters choose once rows are counted; None means everything."""

    positions: list[int] | None
    items: list[str] | None


class Pages(NamedTuple):
    """The pages that the filters keep, in a table of that name unless it is all of them."""

    table: str | None
    kept: int
    bad: int  # pages with a position or an item twice, which are not kept
    first_bad: tuple[BadPage, ...] = ()


@dataclass(frozen=True)
class Reduced:
    """A table reduced: its counts in a table of that name, what the filters chose, and what is to be said about it."""

    table: str
    chosen: Chosen
    pages: Pages | None
    notes: tuple[str, ...]


def reduce_table(connection: Any, log: Log, progress: bool | None = False) -> Reduced:
    """Count a log that is a table, in the connection's own memory."""
    rows = made_rows(connection, log)
    counted = count_rows(connection, log, rows, progress=progress)
    notes = complain(connection, log, counted, rejected_lines(connection, log))
    chosen = choose(connection, log, counted)
    pages = None
    if log.has_pages:
        pages = find_pages(connection, log, rows, chosen, progress=progress)
        if pages.table is not None:
            counted = count_rows(connection, log, rows, pages=pages.table, progress=progress)
        notes += skipped_pages(connection, log, pages.bad, pages.first_bad)
    keep_chosen(connection, counted, chosen, log.has_pages)
    notes += several_surfaces(connection, log, rows) + gaps(connection, counted)
    return Reduced(counted, chosen, pages, notes)


def checked_rows(log: Log, connection: Any, progress: bool | None = False) -> tuple[Any, tuple[str, ...]]:
    """The rows of a log that its filters keep, once all of them have been checked, and what is to be said of them."""
    reduced = reduce_table(connection, log, progress)
    wanted = [_wanted(log), "reason IS NULL"]
    if reduced.chosen.positions is not None:
        wanted.append(f"position IN {among(reduced.chosen.positions)}")
    if reduced.chosen.items is not None and not log.has_pages:
        wanted.append(f"item IN {among(reduced.chosen.items)}")
    join = _semi_join(reduced.pages.table if reduced.pages else None)
    propensity = "CASE WHEN learn = 1 THEN propensity END" if "learn" in log.columns else "propensity"
    rows = connection.sql(
        "SELECT event::VARCHAR AS event, coalesce(query::VARCHAR, '') AS query, item::VARCHAR AS item, "
        f"position::INTEGER AS position, click::TINYINT AS click, ({propensity})::DOUBLE AS propensity, timestamp "
        f"FROM ({made_rows(connection, log)}) rows {join} WHERE {' AND '.join(wanted)}"
    )
    return rows, reduced.notes


def count_rows(
    connection: Any, log: Log, rows: str, where: str = "true", pages: str | None = None, progress: bool | None = False
) -> str:
    """Count good rows per (query, item, position) and bad ones per reason, into a new table; its name.

    Columns: query, item, position, reason, shown, clicked, number (of rows), clipped (rows with too many clicks) and
    spaced (rows with spaces around a name).
    """
    table = f"counted_{next(_names)}"
    shown, clicked, clipped = "count(*)", "sum(click)", "0"
    if log.layout == "counts":
        shown, clicked = "sum(impressions)", "sum(least(clicks, impressions))"
        clipped = "count_if(clicks > impressions)"
    keys = ", ".join(f"CASE WHEN reason IS NULL THEN {key} END AS {key}" for key in ("query", "item", "position"))
    run(
        connection,
        f"CREATE TEMP TABLE {table} AS SELECT {keys}, reason, {shown}::BIGINT AS shown, {clicked}::BIGINT AS clicked, "
        f"count(*) AS number, {clipped} AS clipped, count_if(spaced) AS spaced FROM ({rows}) rows {_semi_join(pages)} "
        f"WHERE ({_wanted(log)}) AND {where} GROUP BY 1, 2, 3, 4",
        "counting rows",
        progress,
    )
    return table


def complain(connection: Any, log: Log, counted: str, rejected: Rejected) -> tuple[str, ...]:
    """Refuse bad rows, or say how many were skipped."""
    reasons = run(
        connection, f"SELECT reason, sum(number)::BIGINT FROM {counted} WHERE reason IS NOT NULL GROUP BY 1 ORDER BY 1"
    )
    if (reasons or rejected.kinds) and not log.skip_bad:
        raise bad_rows(connection, log, dict(reasons), rejected)
    everywhere = in_the_whole_log(log)
    notes = tuple(
        f"{number:,} lines were skipped{everywhere}: they have {why_rejected(kind)}"
        for kind, number in sorted(rejected.kinds.items())
    )
    notes += tuple(f"{number:,} rows were skipped{everywhere}: {must(log, reason)}" for reason, number in reasons)
    changed = f"SELECT sum(clipped)::BIGINT, sum(spaced)::BIGINT FROM {counted} WHERE reason IS NULL"
    clipped, spaced = run(connection, changed)[0]
    if clipped:
        notes += (f"{clipped:,} rows have more clicks than impressions; their clicks were clipped to impressions",)
    if spaced:
        notes += (f"{spaced:,} rows have spaces around the name of an item or a query; they were removed",)
    return notes


def in_the_whole_log(log: Log) -> str:
    """What to add to a number that is not only of the chosen queries: what is bad may have no query."""
    return " (in the whole log, whatever the query)" if log.queries else ""


def skipped_pages(connection: Any, log: Log, bad: int, first: Iterable[BadPage]) -> tuple[str, ...]:
    """Refuse pages with a position or an item twice, or say how many were skipped."""
    if bad and not log.skip_bad:
        shown = sorted(first, key=lambda page: (len(page.event), page))[:FEW]
        raise bad_pages(connection, log, shown, bad)
    return (f"{bad:,} pages with a position or an item that is there twice were skipped",) if bad else ()


def gaps(connection: Any, counted: str) -> tuple[str, ...]:
    """What has to be said about positions after a gap, which may be mistakes."""
    shown = (
        f"SELECT position, sum(shown)::BIGINT FROM {counted} WHERE reason IS NULL AND shown > 0 GROUP BY 1 ORDER BY 1"
    )
    rows = run(connection, shown)
    for k in range(1, len(rows)):
        before, after = rows[k - 1][0], rows[k][0]
        if after > before + 1:
            beyond = sum(impressions for _, impressions in rows[k:])
            return (
                f"positions jump from {before} to {after}, with {beyond:,} impressions from there on; those in between "
                "do not exist in the model: check that this is no mistake",
            )
    return ()


def several_surfaces(connection: Any, log: Log, rows: str) -> tuple[str, ...]:
    """What has to be said about an export of our service that mixes surfaces."""
    if "surface" not in log.columns:
        return ()
    number = run(connection, f"SELECT count(DISTINCT surface) FROM ({rows}) WHERE {_wanted(log)}")[0][0]
    return (
        (f"{number:,} surfaces are counted together; export them one by one to tell them apart",) if number > 1 else ()
    )


def choose(connection: Any, log: Log, counted: str) -> Chosen:
    """The first positions of the log, and the most frequent items there."""
    positions = items = None
    if log.positions is not None:
        found = f"SELECT DISTINCT position FROM {counted} WHERE reason IS NULL ORDER BY 1 LIMIT {log.positions}"
        positions = [position for (position,) in run(connection, found)]
    if log.top_items is not None:
        where = "" if positions is None else f"AND position IN {among(positions)}"
        found = (
            f"SELECT item::VARCHAR FROM {counted} WHERE reason IS NULL {where} GROUP BY 1 "
            f"ORDER BY sum(shown) DESC, 1 LIMIT {log.top_items}"
        )
        items = [item for (item,) in run(connection, found)]
    return Chosen(positions, items)


def keep_chosen(connection: Any, counted: str, chosen: Chosen, has_pages: bool) -> None:
    """Delete the counts that the filters do not choose; where there are pages, items have been seen to."""
    if chosen.positions is not None:
        run(connection, f"DELETE FROM {counted} WHERE position NOT IN {among(chosen.positions)}")
    if chosen.items is not None and not has_pages:
        run(connection, f"DELETE FROM {counted} WHERE item NOT IN {among(chosen.items)}")


def find_pages(
    connection: Any, log: Log, rows: str, chosen: Chosen, where: str = "true", progress: bool | None = False
) -> Pages:
    """Group rows into pages, find those with a position or an item twice, and those that the filters keep.

    Every page gets four masks of its items and one of its positions, with a bit for each by its hash. A page with
    fewer bits than rows in all of them is suspect, and only suspects are looked at row by row.
    """
    table = f"pages_{next(_names)}"
    seen = "true" if chosen.positions is None else f"position IN {among(chosen.positions)}"
    kept = "true" if chosen.items is None else f"bool_and(item IN {among(chosen.items)}) FILTER ({seen})"
    masks = [f"bit_or(1::UBIGINT << ((hash(item) >> {shift}) & 63)::INTEGER)" for shift in (0, 6, 12, 18)]
    suspect = " AND ".join(f"bit_count({mask}) < count(*)" for mask in masks)
    run(
        connection,
        f"CREATE TEMP TABLE {table} AS SELECT event, query, coalesce({kept} AND bool_or({seen}), false) AS kept, "
        f"bit_count(bit_or(1::UBIGINT << (position & 63)::INTEGER)) < count(*) OR ({suspect}) AS suspect "
        f"FROM ({rows}) WHERE reason IS NULL AND ({_wanted(log)}) AND {where} GROUP BY event, query",
        "checking pages",
        progress,
    )
    bad, first = _drop_bad_pages(connection, rows, table)
    total, keeping = run(connection, f"SELECT count(*), count(*) FILTER (kept) FROM {table}")[0]
    if chosen.items is None and not bad:
        run(connection, f"DROP TABLE {table}")
        return Pages(None, keeping, 0)
    if keeping < total:
        run(connection, f"DELETE FROM {table} WHERE NOT kept")
    return Pages(table, keeping, bad, first)


def _drop_bad_pages(connection: Any, rows: str, pages: str) -> tuple[int, tuple[BadPage, ...]]:
    """Drop pages with a position or an item twice: how many there were, and the first of them."""
    if not run(connection, f"SELECT count_if(suspect) FROM {pages}")[0][0]:
        return 0, ()
    bad = f"bad_{next(_names)}"
    suspects = f"({rows}) rows SEMI JOIN (FROM {pages} WHERE suspect) pages {_same_page('rows', 'pages')}"
    twice = " UNION ".join(
        f"SELECT event, query, {what!r} AS what, {what}::VARCHAR AS which FROM {suspects} "
        f"WHERE reason IS NULL GROUP BY event, query, {what} HAVING count(*) > 1"
        for what in ("position", "item")
    )
    one_each = f"SELECT DISTINCT ON (event, query) * FROM ({twice}) ORDER BY event, query, what DESC, which"
    run(connection, f"CREATE TEMP TABLE {bad} AS {one_each}")
    run(connection, f"DELETE FROM {pages} WHERE EXISTS (FROM {bad} WHERE {_same_page(pages, bad)[3:]})")
    names = "event::VARCHAR, coalesce(query::VARCHAR, ''), what, which"
    first = run(connection, f"SELECT {names} FROM {bad} ORDER BY length(event::VARCHAR), 1, 2 LIMIT {FEW}")
    return int(run(connection, f"SELECT count(*) FROM {bad}")[0][0]), tuple(BadPage(*page) for page in first)


def _same_page(one: str, other: str) -> str:
    return f"ON {one}.event = {other}.event AND {one}.query IS NOT DISTINCT FROM {other}.query"


def _semi_join(pages: str | None) -> str:
    return "" if pages is None else f"SEMI JOIN {pages} {_same_page('rows', pages)}"


def _wanted(log: Log) -> str:
    """Rows of the wanted queries, and bad ones whatever their query: they must not go unseen."""
    if not log.queries:
        return "true"
    return f"(reason IS NOT NULL OR coalesce(query::VARCHAR, '') IN {among(log.queries)})"
