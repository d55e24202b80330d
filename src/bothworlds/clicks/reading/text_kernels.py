"""Compiled scanners of text logs: they count impressions and clicks per (query, item, position) in a hash table.

A record is a result page or a click. A page is counted once all its clicks have been read. The hash table ``slots`` is
open-addressed, with columns query, item, position, shown and clicked; a slot is empty if ``shown`` is 0. The caller
allocates all arrays, so that several threads can scan at the same time.

Arguments that the kernels share: ``urls`` and ``hits`` hold the results of the current session and whether they were
clicked; ``starts``, ``keys`` and ``strays`` its pages: where their results start, their query keys, and their clicks on
urls that no page of the session shows; ``used`` the indices of filled slots; ``totals`` the counters below; ``bad`` the
first bad records. ``queries``, ``items`` (sorted, empty for all) and ``cut`` (positions to keep) are the filters.

``table`` is a table of pages. If it has room, different pages are counted there instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels import inner_kernel, kernel
from ...statistics.list_counts import settle
from .page_table import add_page
from .row_checks import LAST_POSITION

TAB, NEWLINE, RETURN, SPACE, COMMA, COLON, SEMICOLON, UNDERSCORE = 9, 10, 13, 32, 44, 58, 59, 95
QUERY, CLICK = ord("Q"), ord("C")
REGIONS = 1 << 20  # a query and its region are one key: query * REGIONS + region
LARGEST_QUERY, LARGEST_REGION = 4_000_000_000_000, 1_000_000

# Columns of the hash table.
SLOT_QUERY, SLOT_ITEM, SLOT_POSITION, SHOWN, CLICKED = range(5)
# Counters in ``totals``: filled slots, lines read, pages kept, clicks on urls that no page of their session shows (only
# those after a kept page), clicks before any page of their session, pages that show a url twice, bad records.
FILLED, LINES, PAGES, STRAY, EARLY, TWICE, BAD = range(7)
N_TOTALS = 7
# Columns of ``bad``: offset of the record, its line from 1, index of the error in RECORD_ERRORS.
OFFSET, LINE, ERROR = range(3)
RECORD_ERRORS = (
    "",
    "a whole number of at most 18 digits is expected",
    "a tab is expected",
    "Q or C is expected after the second tab",
    "there is more on the line than expected",
    "a result page needs at least one result",
    "the query's number is above 4,000,000,000,000 or the region's above 1,000,000",
    "QUERY_REGION, with an underscore, is expected",
    "a comma or a colon is expected after a result",
    "a comma or the end of the record is expected after a click",
    f"a result page has at most {LAST_POSITION:,} results",
)
NUMBER, NO_TAB, NO_KIND, MORE, NO_RESULTS, TOO_LARGE, NO_REGION, NO_COLON, NO_COMMA, TOO_LONG = range(1, 11)


@inner_kernel
def _number(text: Any, at: int, stop: int) -> Any:
    """Read a whole number: its value, -1 if there is none or it is too long, and the offset after it."""
    value: Any = 0
    start = at
    while at < stop:
        digit = np.int64(text[at]) - 48
        if digit < 0 or digit > 9:
            break
        value = value * 10 + digit
        at += 1
    if at == start or at - start > 18:
        value = -1
    return value, at


@inner_kernel
def _contains(values: Any, wanted: int) -> bool:
    """Whether sorted values contain a value, by binary search."""
    low, high = 0, values.size
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low < values.size and values[low] == wanted


@inner_kernel
def _add(query: int, item: int, position: int, click: int, slots: Any, used: Any, totals: Any) -> None:
    """Add an impression to the hash table."""
    mask = slots.shape[0] - 1
    mixed = (np.uint64(query) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(item + (position << 40))
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    s = np.int64(mixed >> np.uint64(20)) & mask
    while slots[s, SHOWN] > 0 and (
        slots[s, SLOT_QUERY] != query or slots[s, SLOT_ITEM] != item or slots[s, SLOT_POSITION] != position
    ):
        s = (s + 1) & mask
    if slots[s, SHOWN] == 0:
        slots[s, SLOT_QUERY], slots[s, SLOT_ITEM], slots[s, SLOT_POSITION], slots[s, CLICKED] = query, item, position, 0
        used[totals[FILLED]] = s
        totals[FILLED] += 1
    slots[s, SHOWN] += 1
    slots[s, CLICKED] += click


@inner_kernel
def _repeats(urls: Any, start: int, stop: int) -> int:
    """Return 1 if a page shows a url twice, and 0 otherwise."""
    for k in range(start + 1, stop):
        for before in range(start, k):
            if urls[before] == urls[k]:
                return 1
    return 0


@inner_kernel
def _note_bad(at: int, line: int, reason: int, bad: Any, totals: Any) -> None:
    """Count a bad record, and store its offset, line and error while there is room in ``bad``."""
    if totals[BAD] < bad.shape[0]:
        bad[totals[BAD], OFFSET], bad[totals[BAD], LINE], bad[totals[BAD], ERROR] = at, line, reason
    totals[BAD] += 1


@inner_kernel
def _count_page(
    query: int, urls: Any, hits: Any, start: int, stop: int, stray: int, queries: Any, items: Any, cut: int,
    slots: Any, used: Any, totals: Any, table: Any,
) -> None:  # fmt: skip
    """Count a page if it is of a requested query and, after the cut, made only of requested items."""
    if queries.size > 0 and not _contains(queries, query):
        return
    stop = min(stop, start + cut)
    if items.size > 0:
        for k in range(start, stop):
            if not _contains(items, urls[k]):
                return
    totals[PAGES] += 1
    totals[STRAY] += stray
    totals[TWICE] += _repeats(urls, start, stop)
    if table.lists.index.size > 0:
        add_page(table, query, urls, hits, start, stop)
        return
    for k in range(start, stop):
        _add(query, urls[k], k - start + 1, hits[k], slots, used, totals)


@inner_kernel
def _click(url: int, urls: Any, hits: Any, starts: Any, pages: int) -> int:
    """Assign a click to the last page that shows the url, at its first position there; return 1 if no page shows it."""
    for p in range(pages - 1, -1, -1):
        for k in range(starts[p], starts[p + 1]):
            if urls[k] == url:
                hits[k] = 1
                return 0
    return 1


@inner_kernel
def _results(text: Any, at: int, stop: int, urls: Any, hits: Any, start: int) -> Any:
    """Read repeated TAB URL up to the end of a line; return the end of the results in ``urls``, and the error."""
    k = start
    while at < stop:
        if text[at] != TAB:
            return k, MORE
        url, at = _number(text, at + 1, stop)
        if url < 0:
            return k, NUMBER
        urls[k], hits[k] = url, 0
        k += 1
    if k - start > LAST_POSITION:
        return k, TOO_LONG
    return k, (NO_RESULTS if k == start else 0)


@inner_kernel
def _query(text: Any, at: int, stop: int, between: int) -> Any:
    """Read a query and its region; return the key of both, the offset after them, and the error."""
    query, at = _number(text, at, stop)
    if query < 0:
        return 0, at, NUMBER
    if at >= stop or text[at] != between:
        return 0, at, (NO_TAB if between == TAB else NO_REGION)
    region, at = _number(text, at + 1, stop)
    if region < 0:
        return 0, at, NUMBER
    if query > LARGEST_QUERY or region > LARGEST_REGION:
        return 0, at, TOO_LARGE
    return query * REGIONS + region, at, 0


@inner_kernel
def _start_of_line(text: Any, at: int, stop: int) -> Any:
    """Read SessionID TAB TimePassed TAB; return the session, the offset after them, and the error."""
    session, at = _number(text, at, stop)
    if session < 0:
        return session, at, NUMBER
    if at >= stop or text[at] != TAB:
        return session, at, NO_TAB
    passed, at = _number(text, at + 1, stop)
    if passed < 0:
        return session, at, NUMBER
    if at >= stop or text[at] != TAB:
        return session, at, NO_TAB
    return session, at + 1, 0


@inner_kernel
def _read_line(
    text: Any, at: int, stop: int, urls: Any, hits: Any, starts: Any, keys: Any, strays: Any, pages: int
) -> Any:
    """Read the rest of a line, from Q or C on; return the number of pages so far, of stray clicks, and the error."""
    kind = text[at] if at < stop else 0
    if kind not in (QUERY, CLICK):
        return pages, 0, NO_KIND
    if at + 1 >= stop or text[at + 1] != TAB:
        return pages, 0, NO_TAB
    if kind == CLICK:
        url, at = _number(text, at + 2, stop)
        if url < 0 or at < stop:
            return pages, 0, (NUMBER if url < 0 else MORE)
        return pages, _click(url, urls, hits, starts, pages), 0
    key, at, reason = _query(text, at + 2, stop, TAB)
    if reason == 0:
        end, reason = _results(text, at, stop, urls, hits, starts[pages])
        if reason == 0:
            keys[pages], strays[pages], starts[pages + 1] = key, 0, end
            pages += 1
    return pages, 0, reason


@inner_kernel
def _count_session(
    urls: Any, hits: Any, starts: Any, keys: Any, strays: Any, pages: int, queries: Any, items: Any, cut: int,
    slots: Any, used: Any, totals: Any, table: Any,
) -> None:  # fmt: skip
    """Count the pages of a session, after all its clicks have been read."""
    for p in range(pages):
        _count_page(
            keys[p], urls, hits, starts[p], starts[p + 1], strays[p], queries, items, cut, slots, used, totals, table
        )  # fmt: skip


@kernel
def scan_sessions(
    text: Any, queries: Any, items: Any, cut: int,
    urls: Any, hits: Any, starts: Any, keys: Any, strays: Any, slots: Any, used: Any, totals: Any, bad: Any,
    table: Any,
) -> None:  # fmt: skip
    """Scan complete sessions of the Relevance Prediction Challenge; bad lines are skipped and recorded in ``bad``.

    ``urls``, ``hits``, ``starts``, ``keys`` and ``strays`` must have at least as many entries as the text has tabs,
    plus two. A click on a url that no page of its session shows is a stray click of the last page before it.
    """
    at, current, pages = 0, -1, 0
    while at < text.size:
        start = at
        while at < text.size and text[at] != NEWLINE:
            at += 1
        stop = at - 1 if at > start and text[at - 1] == RETURN else at
        at += 1
        totals[LINES] += 1
        if stop == start:
            continue
        session, here, reason = _start_of_line(text, start, stop)
        if reason == 0 and session != current:
            _count_session(urls, hits, starts, keys, strays, pages, queries, items, cut, slots, used, totals, table)
            current, pages, starts[0] = session, 0, 0
        if reason == 0:
            pages, stray, reason = _read_line(text, here, stop, urls, hits, starts, keys, strays, pages)
            if pages > 0:
                strays[pages - 1] += stray
            else:
                totals[EARLY] += stray
        if reason != 0:
            _note_bad(start, totals[LINES], reason, bad, totals)
    _count_session(urls, hits, starts, keys, strays, pages, queries, items, cut, slots, used, totals, table)
    settle(table.lists)


@inner_kernel
def _skip_spaces(text: Any, at: int, stop: int) -> int:
    while at < stop and (text[at] == SPACE or text[at] == RETURN or text[at] == TAB):
        at += 1
    return at


@inner_kernel
def _read_results(text: Any, at: int, stop: int, urls: Any, hits: Any) -> Any:
    """Read the results url,...,url : of a page; return their number, the offset after them, and the error."""
    n = 0
    while True:
        url, at = _number(text, _skip_spaces(text, at, stop), stop)
        if url < 0:
            return n, at, NUMBER
        urls[n], hits[n] = url, 0
        n += 1
        at = _skip_spaces(text, at, stop)
        if at >= stop or (text[at] != COMMA and text[at] != COLON):
            return n, at, NO_COLON
        if text[at] == COLON:
            return n, at + 1, (TOO_LONG if n > LAST_POSITION else 0)
        at += 1


@inner_kernel
def _read_clicks(text: Any, at: int, stop: int, urls: Any, hits: Any, starts: Any) -> Any:
    """Read the clicks on a page; return the number of those on no result of it, and the error."""
    stray, at = 0, _skip_spaces(text, at, stop)
    while at < stop:
        url, at = _number(text, at, stop)
        if url < 0:
            return stray, NUMBER
        stray += _click(url, urls, hits, starts, 1)
        at = _skip_spaces(text, at, stop)
        if at < stop:
            if text[at] != COMMA:
                return stray, NO_COMMA
            at = _skip_spaces(text, at + 1, stop)
            if at >= stop:
                return stray, NUMBER
    return stray, 0


@kernel
def scan_pages(
    text: Any, queries: Any, items: Any, cut: int,
    urls: Any, hits: Any, starts: Any, keys: Any, strays: Any, slots: Any, used: Any, totals: Any, bad: Any,
    table: Any,
) -> None:  # fmt: skip
    """Scan records of the native Yandex format; bad ones are skipped and recorded, as in :func:`scan_sessions`."""
    at = 0
    while at < text.size:
        stop = at
        while stop < text.size and text[stop] != NEWLINE and text[stop] != SEMICOLON:
            stop += 1
        start = _skip_spaces(text, at, stop)
        if start < stop:
            n, stray = 0, 0
            key, here, reason = _query(text, start, stop, UNDERSCORE)
            if reason == 0 and (here >= stop or text[here] != TAB):
                reason = NO_TAB
            if reason == 0:
                n, here, reason = _read_results(text, here + 1, stop, urls, hits)
            if reason == 0:
                starts[0], starts[1] = 0, n
                stray, reason = _read_clicks(text, here, stop, urls, hits, starts)
            if reason == 0:
                _count_page(key, urls, hits, 0, n, stray, queries, items, cut, slots, used, totals, table)
            else:
                _note_bad(start, totals[LINES] + 1, reason, bad, totals)
        if stop < text.size and text[stop] == NEWLINE:
            totals[LINES] += 1
        at = stop + 1
    settle(table.lists)


@kernel
def count_separators(text: Any) -> int:
    """Count the tabs and commas, an upper bound on the number of results."""
    n = 0
    for byte in text:
        n += (byte == TAB) + (byte == COMMA)
    return n
