"""Counting the different pages of logs that are tables, with DuckDB.

Rows are grouped into pages by their event. Every result of a page has bits of its own, by its position, in one of a few
whole numbers, *words*, so that a page is a row of a table without a list. Pages with so many positions that there
would be too many words are counted as sorted lists of results.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...extras import import_extra
from ...kernels import Ints, kernel
from ..counts import Counts
from ..pages import Pages, sorted_pages
from .duckdb_counts import TableCounts, count_selected, labelled_counts, selection_sql
from .duckdb_relations import run
from .log_spec import LogSpec

BITS = 63  # of a word that are used, so that it is a positive BIGINT
MOST_WORDS = 16


class _Pages(NamedTuple):
    """Different pages: their results, as in :class:`Pages`, and whether one has a position twice."""

    query: Ints  # (P,)
    number: Ints  # (P,) how often each occurred
    starts: Ints  # (P + 1,)
    item: NDArray[np.int32]  # (K,)
    position: NDArray[np.int16]  # (K,)
    click: NDArray[np.uint8]  # (K,)
    position_twice: bool


def count_table_pages(connection: Any, log: LogSpec, progress: bool | None) -> Pages:
    """Count the different pages of a log that is a table, with the checks and filters of ``count_table``.

    Without filters, the pages themselves show whether one of them has a position or an item twice. With filters, rows
    that are not counted must be checked as well, and this is a step of its own.
    """
    filtered = log.top_items is not None or log.positions is not None
    counted = count_selected(connection, log, progress, check_pages=filtered)
    pages = count_different_pages(connection, log, counted, progress=progress)
    if pages is None:
        counted = count_selected(connection, log, progress)  # raises ValueError, or leaves out the bad pages
        pages = count_different_pages(connection, log, counted, progress=progress)
    assert pages is not None
    return pages


def count_different_pages(
    connection: Any, log: LogSpec, counted: TableCounts, where: str = "true", progress: bool | None = False
) -> Pages | None:
    """Return the different pages among the selected rows; None if one of them has a position or an item twice.

    ``where`` is a condition on rows, the one under which ``counted`` was counted.
    """
    counts = labelled_counts(connection, log, counted.table, None, counted.notes)
    # Labels are joined as they are in the rows; only different ones are converted to text.
    for name, text in (("item", "item::VARCHAR"), ("query", "coalesce(query::VARCHAR, '')")):
        run(
            connection,
            f"CREATE OR REPLACE TEMP TABLE raw_{name} AS SELECT raw, code FROM (SELECT DISTINCT {name} AS raw, {text} "
            f"AS {name} FROM {counted.table} WHERE reason IS NULL) JOIN codes_{name} USING ({name})",
        )
    joins = "JOIN raw_item i ON rows.item = i.raw JOIN raw_query q ON rows.query IS NOT DISTINCT FROM q.raw"
    selected = selection_sql(connection, log, counted, joins, where)
    bits = (2 * len(counts.items) + 1).bit_length()
    span = counts.positions[-1] - counts.positions[0] + 1
    short = span <= MOST_WORDS * (BITS // bits)
    found = (
        _as_words(connection, counts, selected, bits, progress)
        if short
        else _as_lists(connection, counts, selected, progress)
    )
    seen = np.full(len(counts.items), -1, np.int64)
    if found.position_twice or _has_item_twice(found.starts, found.item, seen):
        return None
    return sorted_pages(
        Pages(
            items=counts.items,
            queries=counts.queries,
            positions=counts.positions,
            query=found.query,
            starts=found.starts,
            item=found.item,
            position=found.position,
            click=found.click,
            count=found.number,
            origin=log.origin,
            notes=counts.notes,
        )
    )


def _as_words(connection: Any, counts: Counts, selected: str, bits: int, progress: bool | None) -> _Pages:
    """The different pages among the selected rows, by words.

    A result is a number of ``bits`` bits: twice the index of its item, from 1, plus its click. It is 0 where a page has
    no result.
    """
    per_word, first, last = BITS // bits, counts.positions[0], counts.positions[-1]
    starts = range(first, last + 1, per_word)
    words = [
        f"bit_or(CASE WHEN position BETWEEN {start} AND {start + per_word - 1} "
        f"THEN (2 * i.code + 2 + click)::BIGINT << ({bits} * (position - {start}))::INTEGER ELSE 0 END) AS word_{k}"
        for k, start in enumerate(starts)
    ]
    names = ["query", *(f"word_{k}" for k in range(len(words))), "results"]
    run(
        connection,
        f"CREATE OR REPLACE TEMP TABLE page_words AS SELECT {', '.join(names)}, count(*) AS number FROM (SELECT q.code "
        f"AS query, {', '.join(words)}, count(*) AS results FROM {selected} GROUP BY event, q.code) GROUP BY ALL",
        "counting pages",
        progress,
    )
    columns = connection.sql("FROM page_words").fetchnumpy()
    run(connection, "DROP TABLE page_words")
    results = columns["results"].astype(np.int64)
    total = int(results.sum())
    unpacked = (
        np.zeros(results.size + 1, np.int64),
        np.empty(total, np.int32),
        np.empty(total, np.int16),
        np.empty(total, np.uint8),
    )
    place = np.searchsorted(counts.positions, np.arange(first, first + per_word * len(words))).astype(np.int16)
    packed = np.array([columns[f"word_{k}"] for k in range(len(words))], np.int64)
    complete = _unpack(packed, results, bits, per_word, place, *unpacked)
    return _Pages(columns["query"].astype(np.int64), columns["number"].astype(np.int64), *unpacked, not complete)


@kernel
def _unpack(
    words: Ints, results: Ints, bits: int, per_word: int, place: Any, starts: Ints, item: Any, position: Any, click: Any
) -> bool:
    """Fill in the results of pages with words (W, P); False if a page has fewer of them than rows, and so one twice.

    ``place`` has the index of every position.
    """
    mask = (1 << bits) - 1
    for p in range(results.size):
        k = starts[p]
        starts[p + 1] = k + results[p]
        for w in range(words.shape[0]):
            word, slot = words[w, p], w * per_word
            while word > 0:
                result = word & mask
                if result > 0:
                    item[k], position[k], click[k] = (result >> 1) - 1, place[slot], result & 1
                    k += 1
                word >>= bits
                slot += 1
        if k < starts[p + 1]:
            return False
    return True


def _as_lists(connection: Any, counts: Counts, selected: str, progress: bool | None) -> _Pages:
    """The different pages among the selected rows, by sorted lists; a result is its position, item and click."""
    run(
        connection,
        "CREATE OR REPLACE TEMP TABLE page_lists AS SELECT query, results, count(*) AS number FROM (SELECT q.code AS "
        "query, list_sort(list((position::BIGINT << 40) | (i.code << 1) | click::BIGINT)) AS results "
        f"FROM {selected} GROUP BY event, q.code) GROUP BY 1, 2",
        "counting pages",
        progress,
    )
    # The only way to read Arrow that all supported releases of DuckDB share.
    pages = import_extra("pyarrow").RecordBatchReader.from_stream(connection.sql("FROM page_lists")).read_all()
    run(connection, "DROP TABLE page_lists")
    lists = pages.column("results").combine_chunks()
    packed, sizes = lists.flatten().to_numpy(), lists.value_lengths().to_numpy()
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    again = np.diff(packed >> 40) == 0
    again[starts[1:-1] - 1] = False  # the first results of pages
    return _Pages(
        query=pages.column("query").to_numpy().astype(np.int64),
        number=pages.column("number").to_numpy().astype(np.int64),
        starts=starts,
        item=((packed >> 1) & ((1 << 39) - 1)).astype(np.int32),
        position=np.searchsorted(counts.positions, (packed >> 40).astype(np.int16)).astype(np.int16),
        click=(packed & 1).astype(np.uint8),
        position_twice=bool(again.any()),
    )


@kernel
def _has_item_twice(starts: Ints, item: Any, seen: Ints) -> bool:
    """Whether a page has an item twice; ``seen`` (n_items,) holds the last page of each item, at first -1."""
    for p in range(starts.size - 1):
        for k in range(starts[p], starts[p + 1]):
            if seen[item[k]] == p:
                return True
            seen[item[k]] = p
    return False
