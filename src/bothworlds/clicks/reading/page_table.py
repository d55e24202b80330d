"""Tables of the different pages that scanners of text have met.

A page is the list of the code of its query key and, for every result, twice the code of its url, plus 1 if it was
clicked. Codes belong to one table. The digest of a page is that of its results, each twice its url, plus 1 if it was
clicked, so that a page has the same digest in every table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...kernels import Ints, inner_kernel, kernel
from ...statistics.list_counts import (
    EMPTY_DIGEST,
    ListTable,
    close_list,
    digest_with,
    list_count,
    make_list_table,
    make_room,
    next_value,
    settle,
    without_index,
)
from .label_codes import LabelCodes, code_of, known_labels, make_code_room, make_label_codes


class PageTable(NamedTuple):
    """Different pages, and how often each occurred."""

    lists: ListTable
    queries: LabelCodes
    urls: LabelCodes


def make_page_table() -> PageTable:
    """Return an empty table without room; scanners do not use it."""
    return PageTable(make_list_table(), make_label_codes(), make_label_codes())


def make_page_room(table: PageTable, pages: int, results: int, growth: float) -> PageTable:
    """Return a table with the same pages and room for more pages with so many results in all; none may wait.

    The given table must not be used any more. ``growth`` is that of :func:`make_room`.
    """
    return PageTable(
        make_room(table.lists, pages + results, pages, growth),
        make_code_room(table.queries, pages),
        make_code_room(table.urls, results),
    )


@inner_kernel
def add_page(table: PageTable, query: int, urls: Any, hits: Any, start: int, stop: int) -> None:
    """Add a page to a table with room. It waits until the lists of the table are settled."""
    lists = table.lists
    at = next_value(lists)
    lists.values[at] = code_of(table.queries, query)
    digest = EMPTY_DIGEST
    for k in range(start, stop):
        lists.values[at + 1 + k - start] = 2 * code_of(table.urls, urls[k]) + hits[k]
        digest = digest_with(digest, 2 * urls[k] + hits[k])
    close_list(lists, 1 + stop - start, 1, digest)


def packed_table(table: PageTable) -> PageTable:
    """Return the pages of a table without what is only needed to add more: what a Ray task returns."""
    lists = table.lists
    held = list_count(lists)
    packed = without_index(lists)._replace(digests=lists.digests[:held])
    none = make_label_codes()
    return PageTable(
        ListTable(*(array.copy() for array in packed)),
        none._replace(labels=known_labels(table.queries).copy(), fill=table.queries.fill),
        none._replace(labels=known_labels(table.urls).copy(), fill=table.urls.fill),
    )


def merged_tables(table: PageTable, more: PageTable) -> PageTable:
    """Return the different pages of two tables, of which the first must not be used any more."""
    lists = list_count(more.lists)
    table = PageTable(
        make_room(table.lists, int(more.lists.starts[lists]), lists),
        make_code_room(table.queries, known_labels(more.queries).size),
        make_code_room(table.urls, known_labels(more.urls).size),
    )
    _merge(more.lists, more.queries.labels, more.urls.labels, table)
    return table


@kernel
def _merge(more: ListTable, queries: Ints, urls: Ints, table: PageTable) -> None:
    into = table.lists
    for number in range(more.fill[0]):
        start, stop = more.starts[number], more.starts[number + 1]
        at = next_value(into)
        into.values[at] = code_of(table.queries, queries[more.values[start]])
        for k in range(start + 1, stop):
            packed = more.values[k]
            into.values[at + k - start] = 2 * code_of(table.urls, urls[packed >> 1]) + (packed & 1)
        close_list(into, stop - start, more.weights[number], more.digests[number])
    settle(into)
