"""Counting text logs: compiled scanners in threads, whose partial counts are summed by DuckDB."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from ...extras import import_extra
from ...progress import progress_bar
from ...statistics.list_counts import list_count
from ..counts import Counts
from ..pages import Pages
from .bad_input import Example, bad_input_error, plural, skipped
from .duckdb_counts import labelled_counts, nothing_left, whole_log_suffix
from .duckdb_relations import run
from .layouts import TextLayout
from .log_spec import LogSpec
from .page_table import PageTable
from .text_chunks import (
    PartialCounts,
    ScanFilters,
    Scanner,
    ScanSummary,
    Span,
    chunks,
    query_key,
    scan_all,
    sum_summaries,
)
from .text_pages import sorted_text_pages


def count_text(connection: Any, log: LogSpec, progress: bool | None) -> Counts:
    """Count a text log; it is scanned twice if only its most frequent items are kept.

    Raises ValueError for bad records, unless they are to be skipped.
    """
    filters = scan_filters(log)
    if log.top_items is not None:
        _scan_text(connection, log, filters, progress)
        filters = replace(filters, items=top_items(connection, log.top_items))
    summary = _scan_text(connection, log, filters, progress)
    return labelled_counts(connection, log, "partial", summary.pages, scan_notes(log, summary))


def count_text_pages(connection: Any, log: LogSpec, progress: bool | None) -> Pages:
    """Count the different pages of a text log, as :func:`count_text` counts its results."""
    filters = scan_filters(log)
    if log.top_items is not None:
        _scan_text(connection, log, filters, progress)
        filters = replace(filters, items=top_items(connection, log.top_items))
    assert isinstance(log.form, TextLayout)
    threads = os.cpu_count() or 1
    compressed = any(source.compression for source in log.sources)
    expected = None if compressed else sum(source.path.stat().st_size for source in log.sources) / threads
    scanners = [Scanner(log.form, filters, pages=True, expected=expected) for _ in range(threads)]
    summary = _scan_text(connection, log, filters, progress, scanners)
    tables = [scanner.pages for scanner in scanners]
    del scanners  # so that nothing else holds the tables
    return labelled_pages(log, tables, scan_notes(log, summary))


def labelled_pages(log: LogSpec, tables: list[PageTable], notes: tuple[str, ...]) -> Pages:
    """Return the pages that scanners have counted, and empty the list; raises ValueError if there are none."""
    if not any(list_count(table.lists) for table in tables):
        raise ValueError(nothing_left(log))
    return sorted_text_pages(tables, log.origin, notes)


def _scan_text(
    connection: Any,
    log: LogSpec,
    filters: ScanFilters,
    progress: bool | None,
    scanners: list[Scanner] | None = None,
) -> ScanSummary:
    """Scan all files of a log; counts go into the table ``partial``, or pages into the tables of the scanners."""
    assert isinstance(log.form, TextLayout)
    create_partial_table(connection)
    summaries = []
    with progress_bar("counting", sum(source.path.stat().st_size for source in log.sources), progress) as report:
        for source in log.sources:
            texts = chunks(Span(str(source.path), source.compression), log.form.last_boundary, report)
            # Closed here also on an interrupt, so that its threads end now and not when it is garbage collected.
            with closing(
                scan_all(texts, log.form, filters, lambda counts: append_partial(connection, counts), None, scanners)
            ) as scanned:
                summaries.append(sum_summaries(scanned))
    return check_records(log, summaries)


def check_records(log: LogSpec, summaries: Sequence[ScanSummary]) -> ScanSummary:
    """Return the sum of the summaries of all files; raise ValueError for bad records, unless they are to be skipped."""
    number = sum(one.bad for one in summaries)
    if number and not log.skip_bad:
        examples = [
            Example(path, f"line {line}", problem)
            for path, one in zip(log.paths, summaries)
            for line, problem in one.examples
        ]
        raise bad_input_error(examples, number, "records")
    return sum_summaries(summaries)


def scan_filters(log: LogSpec) -> ScanFilters:
    """Return the filters of a log for a scanner, before the most frequent items are known."""
    return ScanFilters(tuple(sorted(map(query_key, log.queries))), (), log.positions)


def create_partial_table(connection: Any) -> None:
    """Create the empty table ``partial`` for partial counts, or empty it."""
    run(
        connection,
        "CREATE OR REPLACE TEMP TABLE partial "
        "(query BIGINT, item BIGINT, position BIGINT, shown BIGINT, clicked BIGINT)",
    )


def append_partial(connection: Any, counts: PartialCounts) -> None:
    """Append counts to the table ``partial``, which DuckDB spills to disk if it grows large."""
    names = ("query", "item", "position", "shown", "clicked")
    table = import_extra("pyarrow").table({name: counts[:, k].copy() for k, name in enumerate(names)})
    connection.register("arriving", table)
    run(connection, "INSERT INTO partial FROM arriving")
    connection.unregister("arriving")


def top_items(connection: Any, n: int) -> tuple[int, ...]:
    """Return the ``n`` most frequent items of the table ``partial``."""
    most = f"SELECT item FROM partial GROUP BY 1 ORDER BY sum(shown) DESC, item::VARCHAR LIMIT {n}"
    return tuple(sorted(item for (item,) in run(connection, most)))


def scan_notes(log: LogSpec, summary: ScanSummary) -> tuple[str, ...]:
    """Return notes on clicks, pages and records that were ignored or are unusual."""
    notes, suffix = [], whole_log_suffix(log)
    if summary.stray:
        notes.append(f"{summary.stray:,} clicks on urls that their page does not show were ignored")
    if summary.early:
        notes.append(
            f"{summary.early:,} clicks before any page of their session were ignored{suffix}; if sessions "
            "alternate in the log, sort it by session"
        )
    if summary.twice:
        notes.append(
            f"{plural(summary.twice, 'page')} {'shows' if summary.twice == 1 else 'show'} a url twice; "
            "every impression of it is counted, and clicks count for the "
            "first"
        )
    if summary.bad:
        notes.append(f"{skipped(summary.bad, 'bad record')}{suffix}")
    return tuple(notes)
