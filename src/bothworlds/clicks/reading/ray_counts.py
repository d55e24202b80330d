"""Counting on several machines: the reductions of one machine as Ray Data tasks, put together at the end.

Text is cut into spans of whole sessions. Tables are counted part by part; pages, whose rows may lie in several parts,
are shared out by the hash of their event. Tasks send back partial counts only, and these are added up by DuckDB here,
so that neither the log nor its pages ever have to fit into one memory.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

from ...progress import progress_bar
from ..counts import Counts
from ..log import Log
from .count import accepted, add_partial, collect, keep_of, notes_of, start_partial, top_items
from .duckdb_counts import (
    Chosen,
    Pages,
    choose,
    complain,
    count_rows,
    find_pages,
    gaps,
    keep_chosen,
    several_surfaces,
    skipped_pages,
)
from .duckdb_relations import connect, made_rows, run
from .file_format import Head, needs
from .layouts import LAYOUTS, TextLayout
from .row_errors import Rejected, rejected_lines, together
from .text_chunks import Found, Keep, Span, partial_counts, spans, total

__all__ = ["counts"]

SPAN = 1 << 28  # bytes of text to a task
ROWS = 1 << 24  # rows of a Parquet file to a task


def counts(connection: Any, log: Log, progress: bool | None = None) -> Counts:
    """Count a log on the Ray cluster this process is connected to, or on this machine if there is none."""
    with nullcontext() if needs("ray", "ray").is_initialized() else _own_cluster():
        context = needs("ray.data", "ray").DataContext.get_current()
        context.enable_progress_bars = False
        count = _count_text if isinstance(log.form, TextLayout) else _count_table
        return count(connection, log, progress)


@contextmanager
def _own_cluster() -> Iterator[None]:
    """A Ray cluster of this machine alone, shut down afterwards.

    An interrupt kills its workers, which then cannot remove their temporary files: they keep them in a folder that is
    removed here.
    """
    ray = needs("ray", "ray")
    with TemporaryDirectory(prefix="bothworlds-", ignore_cleanup_errors=True) as folder:
        try:
            ray.init(
                log_to_driver=False,
                include_dashboard=False,
                logging_level="ERROR",
                runtime_env={"env_vars": {"TMPDIR": folder}},
            )
            needs("ray.data", "ray")  # which sets up its logger, and reports every dataset to standard error
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            yield
        finally:
            ray.shutdown()


def _tasks(work: Callable[[Any], Any], orders: list[Any], progress: bool | None) -> Iterator[tuple[int, Any]]:
    """Do the work for every order somewhere on the cluster; answers come with the order's number, as they come."""

    def answer(batch: dict[str, Any]) -> dict[str, list[Any]]:
        done = [pickle.dumps(_attempt(work, pickle.loads(order))) for order in batch["order"]]
        return {"index": list(batch["index"]), "answer": done}

    data = needs("ray.data", "ray")
    rows = [{"index": index, "order": pickle.dumps(order)} for index, order in enumerate(orders)]
    dataset = data.from_items(rows, override_num_blocks=len(rows)).map_batches(answer, batch_size=1)
    refused: dict[int, str] = {}
    with progress_bar("counting on Ray", len(orders), progress) as report:
        report(0)
        for row in dataset.iter_rows():
            made, complaint = pickle.loads(row["answer"])
            report(1)
            if complaint is None:
                yield int(row["index"]), made
            else:
                refused[int(row["index"])] = complaint
    if refused:
        raise ValueError(refused[min(refused)])


def _attempt(work: Callable[[Any], Any], order: Any) -> tuple[Any, str | None]:
    """The answer, or the complaint about bad input that takes its place: Ray would wrap an error in its own."""
    try:
        return work(order), None
    except ValueError as error:
        return None, str(error)


def _count_text(connection: Any, log: Log, progress: bool | None) -> Counts:
    keep = keep_of(log)
    if log.top_items is not None:
        _scan_text(connection, log, keep, progress)
        keep = replace(keep, items=top_items(connection, log.top_items))
    found = _scan_text(connection, log, keep, progress)
    return collect(connection, log, "partial", found.pages, notes_of(log, found))


def _scan_text(connection: Any, log: Log, keep: Keep, progress: bool | None) -> Found:
    """Scan all spans of all files into the table ``partial``."""
    layout = log.form
    assert isinstance(layout, TextLayout)
    cut = [
        (head, span) for head in log.heads for span in spans(head.path, head.compression, layout.last_boundary, SPAN)
    ]

    def work(span: Span) -> Any:
        form = LAYOUTS[layout.name]
        assert isinstance(form, TextLayout)
        return partial_counts(span, form, keep)

    start_partial(connection)
    found: dict[int, Found] = {}
    for index, (one, partial) in _tasks(work, [span for _, span in cut], progress):
        found[index] = one
        for some in partial:
            add_partial(connection, some)
    return accepted(log, [total(found[k] for k, (of, _) in enumerate(cut) if of == head) for head in log.heads])


def _count_table(connection: Any, log: Log, progress: bool | None) -> Counts:
    """Count parts of tables, choose, and then check and count pages by shares of the events."""
    parts = [(log, *part) for head in log.heads for part in _parts(head)]
    rejected: list[Rejected] = _gather(connection, "counted", _count_part, parts, progress)
    notes = complain(connection, log, "counted", together(rejected))
    chosen = choose(connection, log, "counted")
    table, kept = "counted", None
    if log.has_pages:
        shares = max(1, int(needs("ray", "ray").cluster_resources().get("CPU", 1)))
        orders = [(log, chosen, f"hash(event) % {shares} = {share}") for share in range(shares)]
        pages: list[Pages] = _gather(connection, "shared", _count_share, orders, progress)
        kept = sum(share.kept for share in pages)
        first_bad = [page for share in pages for page in share.first_bad]
        notes += skipped_pages(connection, log, sum(share.bad for share in pages), first_bad)
        table = "shared" if _recounts(log) else "counted"
    keep_chosen(connection, table, chosen, log.has_pages)
    notes += several_surfaces(connection, log, made_rows(connection, log)) + gaps(connection, table)
    return collect(connection, log, table, kept, notes)


def _recounts(log: Log) -> bool:
    """Whether it may be that not all pages are kept."""
    return log.top_items is not None or log.skip_bad


def _parts(head: Head) -> Iterator[tuple[Head, str]]:
    """A file cut into conditions on its rows; only Parquet can be cut without reading all of it."""
    if head.kind != "parquet":
        yield head, "true"
        return
    rows = needs("pyarrow.parquet").read_metadata(head.path).num_rows
    for start in range(0, max(rows, 1), ROWS):
        yield head, f"file_row_number BETWEEN {start} AND {start + ROWS - 1}"


def _count_part(order: tuple[Log, Head, str]) -> tuple[Rejected, Any]:
    """One task: the lines of a part that are no rows, and its counts."""
    log, head, where = order
    part = replace(log, heads=(head,))
    with connect() as connection:
        table = count_rows(connection, part, made_rows(connection, part), where)
        return rejected_lines(connection, part), _fetch(connection, table)


def _count_share(order: tuple[Log, Chosen, str]) -> tuple[Pages, Any]:
    """One task: the pages of a share that are kept and that are bad, and the counts of those kept, where needed."""
    log, chosen, where = order
    with connect() as connection:
        rows = made_rows(connection, log)
        pages = find_pages(connection, log, rows, chosen, where)
        counted = None
        if _recounts(log):
            counted = _fetch(connection, count_rows(connection, log, rows, where, pages.table))
        return pages, counted


def _fetch(connection: Any, table: str) -> Any:
    """A table of counts as it travels: names as text, whatever they are in a file."""
    names = "query::VARCHAR AS query, item::VARCHAR AS item, position, reason, shown, clicked, number, clipped, spaced"
    return connection.sql(f"SELECT {names} FROM {table}").to_arrow_table()


def _gather(
    connection: Any, table: str, work: Callable[[Any], Any], orders: list[Any], progress: bool | None
) -> list[Any]:
    """Have all orders done, with their counts in a new table here; what else they answer, in order."""
    run(
        connection,
        f"CREATE OR REPLACE TEMP TABLE {table} (query VARCHAR, item VARCHAR, position BIGINT, reason INTEGER, "
        "shown BIGINT, clicked BIGINT, number BIGINT, clipped BIGINT, spaced BIGINT)",
    )
    answers = {}
    for index, (answer, counted) in _tasks(work, orders, progress):
        answers[index] = answer
        if counted is not None:
            connection.register("arriving", counted)
            run(connection, f"INSERT INTO {table} FROM arriving")
            connection.unregister("arriving")
    return [answers[index] for index in sorted(answers)]
