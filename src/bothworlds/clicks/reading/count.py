"""Counting a log: from files to impressions and clicks per (query, item, position), on one machine or on several."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from ...progress import progress_bar
from ..counts import Counts
from ..log import Log, read
from .bad_input import Example, refusal
from .duckdb_counts import in_the_whole_log, reduce_table
from .duckdb_relations import connect, literal, run
from .file_format import needs
from .frames import as_pair
from .layouts import TextLayout
from .text_chunks import Found, Keep, Partial, Span, chunks, query_key, scan_all, total
from .text_kernels import REGIONS

__all__ = ["counts"]

ENGINES = ("duckdb", "ray")


def counts(log: Any, *, engine: str = "duckdb", progress: bool | None = None, **options: Any) -> Counts:
    """Count a log, given as :func:`read` gives it, or as what :func:`read` takes, with its options.

    A pair of tables (shown, clicked) of shape (n_items, n_positions) has been counted already, as counts have.
    Memory stays bounded whatever the size of the log. ``engine="ray"`` shares the work over the machines of a Ray
    cluster, with the same result.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "log.csv"
    ...     _ = path.write_text("event,position,item,click\\n1,1,tea,0\\n1,2,milk,1\\n2,1,tea,1\\n")
    ...     counted = counts(path)
    >>> counted.items, counted.shown.tolist(), counted.clicked.tolist(), counted.pages
    (('milk', 'tea'), [1, 2], [1, 1], 2)
    """
    if engine not in ENGINES:
        raise ValueError(f"there is no engine {engine!r}; there are {' and '.join(ENGINES)}")
    pair = as_pair(log)
    if options and (pair is not None or isinstance(log, (Counts, Log))):
        raise ValueError(f"{next(iter(options))} says how to read a log, and this one has been read already")
    if isinstance(log, Counts):
        return log
    if pair is not None:
        return Counts.from_tables(pair.shown, pair.clicked, items=pair.items, positions=pair.positions)
    if not isinstance(log, Log):
        log = read(log, **options)
    with connect() as connection:
        if engine == "ray":
            from . import ray_counts

            return ray_counts.counts(connection, log, progress)
        if isinstance(log.form, TextLayout):
            return count_text(connection, log, progress)
        reduced = reduce_table(connection, log, progress)
        pages = None if reduced.pages is None else reduced.pages.kept
        return collect(connection, log, reduced.table, pages, reduced.notes)


def count_text(connection: Any, log: Log, progress: bool | None) -> Counts:
    """Count a log of text, twice if only its most frequent items are wanted."""
    keep = keep_of(log)
    if log.top_items is not None:
        scan_text(connection, log, keep, progress)
        keep = replace(keep, items=top_items(connection, log.top_items))
    found = scan_text(connection, log, keep, progress)
    return collect(connection, log, "partial", found.pages, notes_of(log, found))


def scan_text(connection: Any, log: Log, keep: Keep, progress: bool | None) -> Found:
    """Scan all files of a log into the table ``partial``."""
    assert isinstance(log.form, TextLayout)
    start_partial(connection)
    all_found = []
    with progress_bar("counting", sum(head.path.stat().st_size for head in log.heads), progress) as report:
        for head in log.heads:
            texts = chunks(Span(str(head.path), head.compression), log.form.last_boundary, report)
            # Closed here, also when it is interrupted: its threads must not be left to the garbage collector.
            with closing(scan_all(texts, log.form, keep, lambda counts: add_partial(connection, counts))) as scanned:
                all_found.append(total(scanned))
    return accepted(log, all_found)


def accepted(log: Log, found: Sequence[Found]) -> Found:
    """What was found in all files, one entry for each; bad records are refused unless they are to be skipped."""
    number = sum(one.bad for one in found)
    if number and not log.skip_bad:
        examples = [
            Example(path, f"line {line}", wrong) for path, one in zip(log.paths, found) for line, wrong in one.examples
        ]
        raise refusal(examples, number, "records")
    return total(found)


def keep_of(log: Log) -> Keep:
    """The filters of a log as scanners take them, before the most frequent items are known."""
    return Keep(tuple(sorted(map(query_key, log.queries))), (), log.positions)


def start_partial(connection: Any) -> None:
    """Make an empty table for partial counts."""
    run(
        connection,
        "CREATE OR REPLACE TEMP TABLE partial "
        "(query BIGINT, item BIGINT, position BIGINT, shown BIGINT, clicked BIGINT)",
    )


def add_partial(connection: Any, counts: Partial) -> None:
    """Append partial counts; DuckDB writes them to disk when there are too many."""
    names = ("query", "item", "position", "shown", "clicked")
    table = needs("pyarrow").table({name: counts[:, k].copy() for k, name in enumerate(names)})
    connection.register("arriving", table)
    run(connection, "INSERT INTO partial FROM arriving")
    connection.unregister("arriving")


def top_items(connection: Any, n: int) -> tuple[int, ...]:
    """The most frequent items of the partial counts, by number."""
    most = f"SELECT item FROM partial GROUP BY 1 ORDER BY sum(shown) DESC, item::VARCHAR LIMIT {n}"
    return tuple(sorted(item for (item,) in run(connection, most)))


def notes_of(log: Log, found: Found) -> tuple[str, ...]:
    """What has to be said about a scan. Where a query was chosen, what has no query is counted in the whole log."""
    notes, everywhere = [], in_the_whole_log(log)
    if found.stray:
        notes.append(f"{found.stray:,} clicks on urls that their page does not show were ignored")
    if found.early:
        notes.append(
            f"{found.early:,} clicks before any page of their session were ignored{everywhere}; if sessions take turns "
            "in the log, sort it by session"
        )
    if found.twice:
        notes.append(f"{found.twice:,} pages show a url twice; it is counted wherever it is, and clicked at the first")
    if found.bad:
        notes.append(f"{found.bad:,} bad records were skipped{everywhere}")
    return tuple(notes)


def collect(connection: Any, log: Log, table: str, pages: int | None, notes: tuple[str, ...]) -> Counts:
    """Counts from a table of them, added up, with labels in order: numbers by value, then text."""
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
        raise ValueError(_nothing_left(log))
    arrays = connection.sql(
        "SELECT q.code AS query, i.code AS item, p.code AS position, shown, clicked FROM summed "
        "JOIN codes_query q USING (query) JOIN codes_item i USING (item) JOIN codes_position p USING (position)"
    ).fetchnumpy()
    codes: dict[str, Any] = {name: arrays[name] for name in ("query", "item", "position", "shown", "clicked")}
    named: dict[str, Any] = {"items": labels["item"], "queries": labels["query"], "positions": labels["position"]}
    return Counts(**named, **codes, origin=log.origin, pages=pages, notes=notes)


def _labels(connection: Any, name: str) -> tuple[Any, ...]:
    """All values of a column in order, numbered in a table of codes."""
    order = name if name == "position" else f"try_cast({name} AS HUGEINT) NULLS LAST, {name}"
    run(
        connection,
        f"CREATE OR REPLACE TEMP TABLE codes_{name} AS SELECT {name}, row_number() OVER (ORDER BY {order}) - 1 AS code "
        f"FROM (SELECT DISTINCT {name} FROM summed)",
    )
    return tuple(value for (value,) in run(connection, f"SELECT {name} FROM codes_{name} ORDER BY code"))


def _nothing_left(log: Log) -> str:
    if log.queries:
        return f"nothing is left of {log.origin}: there is no query {literal(log.queries)[1:-1]}, or all its pages go"
    skipped = ", or all of it was skipped" if log.skip_bad else ""
    return f"nothing is left of {log.origin}: it has no rows, or its filters keep none{skipped}"
