"""Counting on a Ray cluster: the steps of the other engines as Ray Data tasks, whose counts are summed at the end.

Text is cut into spans of complete sessions. Tables are counted part by part; pages, whose rows may lie in several
parts, are partitioned by the hash of their event. Tasks return partial counts only, which DuckDB sums in this process,
so that neither the log nor its pages have to fit into the memory of one machine. If pages are to be counted, tasks
return different pages with their numbers, and the different pages of the log have to fit into the memory of this one.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...extras import import_extra, ray_connection
from ...progress import progress_bar
from ..counts import Counts
from ..pages import Pages, sorted_pages
from .duckdb_counts import (
    KeptPages,
    Selection,
    TableCounts,
    apply_selection,
    count_rows,
    labelled_counts,
    position_gap_notes,
    report_bad_pages,
    report_bad_rows,
    select,
    select_pages,
    surface_notes,
)
from .duckdb_pages import count_different_pages
from .duckdb_relations import checked_rows_sql, connect, run
from .file_format import LogSource
from .layouts import LAYOUTS, TextLayout
from .log_spec import LogSpec
from .page_table import PageTable, make_page_table, merged_tables
from .row_errors import RejectedLines, merge_rejected, rejected_lines
from .text_chunks import (
    PartialCounts,
    ScanFilters,
    ScanSummary,
    Span,
    partial_counts,
    partial_pages,
    spans,
    sum_summaries,
)
from .text_counts import (
    append_partial,
    check_records,
    create_partial_table,
    labelled_pages,
    scan_filters,
    scan_notes,
    top_items,
)

SPAN = 1 << 28  # bytes of text per task
ROWS = 1 << 24  # rows of a Parquet file per task


def count_on_ray(connection: Any, log: LogSpec, progress: bool | None = None) -> Counts:
    """Count a log on the Ray cluster that this process is connected to, or on a temporary local cluster."""
    with _cluster():
        count = _count_text if isinstance(log.form, TextLayout) else _count_table
        return count(connection, log, progress)


def count_pages_on_ray(connection: Any, log: LogSpec, progress: bool | None = None) -> Pages:
    """Count the different pages of a log on a Ray cluster, as :func:`count_on_ray` counts its results."""
    with _cluster():
        count = _count_text_pages if isinstance(log.form, TextLayout) else _count_table_pages
        return count(connection, log, progress)


@contextmanager
def _cluster() -> Iterator[None]:
    connected = import_extra("ray", "ray").is_initialized()
    with ray_connection():
        import_extra("ray.data", "ray").DataContext.get_current().enable_progress_bars = False
        if not connected:
            logging.getLogger("ray.data").setLevel(logging.ERROR)  # it reports every dataset to standard error
        yield


def _tasks(work: Callable[[Any], Any], inputs: list[Any], progress: bool | None) -> Iterator[tuple[int, Any]]:
    """Run ``work`` on every task of ``inputs`` on the cluster; yield (index, result) in order of completion.

    Raises the ValueError of the first task that raised one, after all tasks have ended.
    """

    def run_batch(batch: dict[str, Any]) -> dict[str, list[Any]]:
        results = [pickle.dumps(_result_or_error(work, pickle.loads(given))) for given in batch["input"]]
        return {"index": list(batch["index"]), "result": results}

    data = import_extra("ray.data", "ray")
    rows = [{"index": index, "input": pickle.dumps(given)} for index, given in enumerate(inputs)]
    dataset = data.from_items(rows, override_num_blocks=len(rows)).map_batches(run_batch, batch_size=1)
    errors: dict[int, str] = {}
    with progress_bar("counting on Ray", len(inputs), progress) as report:
        report(0)
        for row in dataset.iter_rows():
            result, error = pickle.loads(row["result"])
            report(1)
            if error is None:
                yield int(row["index"]), result
            else:
                errors[int(row["index"])] = error
    if errors:
        raise ValueError(errors[min(errors)])


def _result_or_error(work: Callable[[Any], Any], given: Any) -> tuple[Any, str | None]:
    """The result, or the message of a ValueError, which Ray would wrap in an error of its own."""
    try:
        return work(given), None
    except ValueError as error:
        return None, str(error)


def _count_text(connection: Any, log: LogSpec, progress: bool | None) -> Counts:
    summary = _scan_text(connection, log, _all_filters(connection, log, progress), progress)
    return labelled_counts(connection, log, "partial", summary.pages, scan_notes(log, summary))


def _count_text_pages(connection: Any, log: LogSpec, progress: bool | None) -> Pages:
    pages = make_page_table()

    def take(table: PageTable) -> None:
        nonlocal pages
        pages = merged_tables(pages, table)

    filters = _all_filters(connection, log, progress)
    summary = _scan_spans(log, filters, partial_pages, take, progress)
    return labelled_pages(log, [pages], scan_notes(log, summary))


def _all_filters(connection: Any, log: LogSpec, progress: bool | None) -> ScanFilters:
    """The filters of a log, for which it is scanned if only its most frequent items are kept."""
    filters = scan_filters(log)
    if log.top_items is None:
        return filters
    _scan_text(connection, log, filters, progress)
    return replace(filters, items=top_items(connection, log.top_items))


def _scan_text(connection: Any, log: LogSpec, filters: ScanFilters, progress: bool | None) -> ScanSummary:
    """Scan all spans of all files; their counts go into the table ``partial``."""

    def take(partial: list[PartialCounts]) -> None:
        for some in partial:
            append_partial(connection, some)

    create_partial_table(connection)
    return _scan_spans(log, filters, partial_counts, take, progress)


def _scan_spans(
    log: LogSpec,
    filters: ScanFilters,
    scan: Callable[[Span, TextLayout, ScanFilters], tuple[ScanSummary, Any]],
    take: Callable[[Any], None],
    progress: bool | None,
) -> ScanSummary:
    """Scan all spans of all files on the cluster; what each yields is passed to ``take``, in order of completion."""
    layout = log.form
    assert isinstance(layout, TextLayout)
    cut = [
        (source, span)
        for source in log.sources
        for span in spans(source.path, source.compression, layout.last_boundary, SPAN)
    ]

    def work(span: Span) -> Any:
        form = LAYOUTS[layout.name]
        assert isinstance(form, TextLayout)
        return scan(span, form, filters)

    summaries: dict[int, ScanSummary] = {}
    for index, (one, found) in _tasks(work, [span for _, span in cut], progress):
        summaries[index] = one
        take(found)
    return check_records(
        log, [sum_summaries(summaries[k] for k, (of, _) in enumerate(cut) if of == source) for source in log.sources]
    )


def _count_table(connection: Any, log: LogSpec, progress: bool | None) -> Counts:
    return _count_parts(connection, log, False, progress)[0]


def _count_table_pages(connection: Any, log: LogSpec, progress: bool | None) -> Pages:
    return _merged_pages(*_count_parts(connection, log, True, progress))


def _count_parts(connection: Any, log: LogSpec, with_pages: bool, progress: bool | None) -> tuple[Counts, list[Pages]]:
    """Count the parts of tables, apply the filters, and then check and count pages by partitions of the events.

    Returns the counts and, if they are asked for, the different pages of every partition.
    """
    parts = [(log, *part) for source in log.sources for part in _parts(source)]
    rejected: list[RejectedLines] = _collect(connection, "counted", _count_part, parts, progress)
    notes = report_bad_rows(connection, log, "counted", merge_rejected(rejected))
    selection = select(connection, log, "counted")
    table, kept, different = "counted", None, []
    if log.has_pages:
        partitions = max(1, int(import_extra("ray", "ray").cluster_resources().get("CPU", 1)))
        inputs = [(log, selection, f"hash(event) % {partitions} = {k}", with_pages) for k in range(partitions)]
        found: list[_Partition] = _collect(connection, "counted_pages", _count_partition, inputs, progress)
        kept = sum(partition.checked.kept for partition in found)
        first_bad = [page for partition in found for page in partition.checked.first_bad]
        notes += report_bad_pages(connection, log, sum(partition.checked.bad for partition in found), first_bad)
        different = [partition.pages for partition in found if partition.pages is not None]
        table = "counted_pages" if _recounts(log) else "counted"
    apply_selection(connection, table, selection, log.has_pages)
    notes += surface_notes(connection, log, checked_rows_sql(connection, log)) + position_gap_notes(connection, table)
    return labelled_counts(connection, log, table, kept, notes), different


def _merged_pages(counts: Counts, parts: list[Pages]) -> Pages:
    """The different pages of all partitions, with the labels of all of them; equal pages are counted together."""
    names = "items", "queries", "positions"
    places = [{label: code for code, label in enumerate(getattr(counts, name))} for name in names]
    codes: list[list[Any]] = [[], [], []]
    for part in parts:
        coded: tuple[Any, ...] = part.item, part.query, part.position
        for name, place, code, into in zip(names, places, coded, codes):
            into.append(np.array([place[label] for label in getattr(part, name)], code.dtype)[code])
    item, query, position = map(np.concatenate, codes)
    sizes = np.concatenate([np.diff(part.starts) for part in parts])
    return sorted_pages(
        Pages(
            items=counts.items,
            queries=counts.queries,
            positions=counts.positions,
            query=query,
            starts=np.concatenate([[0], np.cumsum(sizes)]),
            item=item,
            position=position,
            click=np.concatenate([part.click for part in parts]),
            count=np.concatenate([part.count for part in parts]),
            origin=counts.origin,
            notes=counts.notes,
        )
    )


def _recounts(log: LogSpec) -> bool:
    """Whether pages may be left out, so that rows have to be counted again."""
    return log.top_items is not None or log.skip_bad


def _parts(source: LogSource) -> Iterator[tuple[LogSource, str]]:
    """Cut a file into conditions on its rows; only Parquet can be cut without reading all of it."""
    if source.kind != "parquet":
        yield source, "true"
        return
    rows = import_extra("pyarrow.parquet").read_metadata(source.path).num_rows
    for start in range(0, max(rows, 1), ROWS):
        yield source, f"file_row_number BETWEEN {start} AND {start + ROWS - 1}"


def _count_part(given: tuple[LogSpec, LogSource, str]) -> tuple[RejectedLines, Any]:
    """One task: the rejected lines and the counts of a part of a file."""
    log, source, where = given
    part = replace(log, sources=(source,))
    with connect() as connection:
        table = count_rows(connection, part, checked_rows_sql(connection, part), where)
        return rejected_lines(connection, part), _fetch(connection, table)


class _Partition(NamedTuple):
    """The result of a task: which pages of a partition are kept, and the different ones, if they are asked for."""

    checked: KeptPages
    pages: Pages | None


def _count_partition(given: tuple[LogSpec, Selection, str, bool]) -> tuple[_Partition, Any]:
    """One task: the kept and the bad pages of a partition and, if pages may be left out, the counts of those kept."""
    log, selection, where, with_pages = given
    with connect() as connection:
        rows = checked_rows_sql(connection, log)
        kept = select_pages(connection, log, rows, selection, where)
        if not _recounts(log) and not with_pages:
            return _Partition(kept, None), None
        table = count_rows(connection, log, rows, where, kept.table)
        counted = _fetch(connection, table) if _recounts(log) else None
        if not with_pages or not kept.kept:
            return _Partition(kept, None), counted
        apply_selection(connection, table, selection, log.has_pages)
        pages = count_different_pages(connection, log, TableCounts(table, selection, kept, ()), where)
        return _Partition(kept, pages), counted


def _fetch(connection: Any, table: str) -> Any:
    """A table of counts for the result of a task, with labels as text for all types of columns."""
    names = "query::VARCHAR AS query, item::VARCHAR AS item, position, reason, shown, clicked, number, clipped, spaced"
    return connection.sql(f"SELECT {names} FROM {table}").to_arrow_table()


def _collect(
    connection: Any, table: str, work: Callable[[Any], Any], inputs: list[Any], progress: bool | None
) -> list[Any]:
    """Run all tasks, append their counts to a new table, and return their other results in order."""
    run(
        connection,
        f"CREATE OR REPLACE TEMP TABLE {table} (query VARCHAR, item VARCHAR, position BIGINT, reason INTEGER, "
        "shown BIGINT, clicked BIGINT, number BIGINT, clipped BIGINT, spaced BIGINT)",
    )
    results = {}
    for index, (result, counted) in _tasks(work, inputs, progress):
        results[index] = result
        if counted is not None:
            connection.register("arriving", counted)
            run(connection, f"INSERT INTO {table} FROM arriving")
            connection.unregister("arriving")
    return [results[index] for index in sorted(results)]
