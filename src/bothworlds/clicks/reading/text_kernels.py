"""Scanners of text logs: bytes in, counts per (query, item, position) out, in a hash table that the caller keeps.

A record is a result page or a click. Numbers are read as they come, pages wait until all their clicks are known, and
then go into the table, which is empty where ``shown`` is 0. Nothing is allocated, so that threads can scan at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels import inline_kernel, inner_kernel, kernel
from .row_checks import LAST_POSITION

__all__ = [
    "BAD",
    "EARLY",
    "FILLED",
    "LARGEST_QUERY",
    "LARGEST_REGION",
    "LINES",
    "PAGES",
    "REASONS",
    "REGIONS",
    "STRAY",
    "TALLIED",
    "TOO_LARGE",
    "TWICE",
    "count_separators",
    "scan_pages",
    "scan_sessions",
]

TAB, NEWLINE, RETURN, SPACE, COMMA, COLON, SEMICOLON, UNDERSCORE = 9, 10, 13, 32, 44, 58, 59, 95
QUERY, CLICK = ord("Q"), ord("C")
REGIONS = 1 << 20  # a query and its region are one key: query * REGIONS + region
LARGEST_QUERY, LARGEST_REGION = 4_000_000_000_000, 1_000_000

# What a tally holds: slots in use, lines passed, pages kept, clicks on what no page of their session shows, of pages
# that are kept, clicks before any page of their session, pages that show something twice, bad records.
FILLED, LINES, PAGES, STRAY, EARLY, TWICE, BAD = range(7)
TALLIED = 7
REASONS = (
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


@inline_kernel
def _number(text: Any, at: int, stop: int) -> Any:
    """The whole number that starts here, -1 if there is none, and where it ends."""
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


@inline_kernel
def _contains(values: Any, wanted: int) -> bool:
    """Whether sorted values hold the wanted one."""
    low, high = 0, values.size
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low < values.size and values[low] == wanted


@inline_kernel
def _add(query: int, item: int, position: int, click: int, slots: Any, used: Any, tally: Any) -> None:
    """Add an impression to the open-addressed table of (query, item, position, shown, clicked)."""
    mask = slots.shape[0] - 1
    mixed = (np.uint64(query) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(item + (position << 40))
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    s = np.int64(mixed >> np.uint64(20)) & mask
    while slots[s, 3] > 0 and (slots[s, 0] != query or slots[s, 1] != item or slots[s, 2] != position):
        s = (s + 1) & mask
    if slots[s, 3] == 0:
        slots[s, 0], slots[s, 1], slots[s, 2], slots[s, 4] = query, item, position, 0
        used[tally[FILLED]] = s
        tally[FILLED] += 1
    slots[s, 3] += 1
    slots[s, 4] += click


@inner_kernel
def _repeats(urls: Any, start: int, stop: int) -> int:
    """1 if a page shows something twice, 0 if not."""
    for k in range(start + 1, stop):
        for before in range(start, k):
            if urls[before] == urls[k]:
                return 1
    return 0


@inner_kernel
def _note_bad(at: int, line: int, reason: int, bad: Any, tally: Any) -> None:
    """Count a bad record, and keep where it starts, its line and what is wrong as long as there is room."""
    if tally[BAD] < bad.shape[0]:
        bad[tally[BAD], 0], bad[tally[BAD], 1], bad[tally[BAD], 2] = at, line, reason
    tally[BAD] += 1


@inner_kernel
def _count_page(
    query: int, urls: Any, hits: Any, start: int, stop: int, stray: int, queries: Any, items: Any, cut: int,
    slots: Any, used: Any, tally: Any,
) -> None:  # fmt: skip
    """Count one page if the filters keep it: of a wanted query, and after the cut made of wanted items alone."""
    if queries.size > 0 and not _contains(queries, query):
        return
    stop = min(stop, start + cut)
    if items.size > 0:
        for k in range(start, stop):
            if not _contains(items, urls[k]):
                return
    tally[PAGES] += 1
    tally[STRAY] += stray
    tally[TWICE] += _repeats(urls, start, stop)
    for k in range(start, stop):
        _add(query, urls[k], k - start + 1, hits[k], slots, used, tally)


@inner_kernel
def _click(url: int, urls: Any, hits: Any, starts: Any, pages: int) -> int:
    """Give a click to the last page that shows the url, at its first position there; 1 if there is none."""
    for p in range(pages - 1, -1, -1):
        for k in range(starts[p], starts[p + 1]):
            if urls[k] == url:
                hits[k] = 1
                return 0
    return 1


@inner_kernel
def _results(text: Any, at: int, stop: int, urls: Any, hits: Any, start: int) -> Any:
    """Read TAB URL, over and over, up to the end of a line: where the results end, and what is wrong."""
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
    """Read a query and its region: the key of both, where they end, and what is wrong."""
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
    """Read SessionID TAB TimePassed TAB: the session, where they end, and what is wrong."""
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
def _take_line(
    text: Any, at: int, stop: int, urls: Any, hits: Any, starts: Any, keys: Any, strays: Any, pages: int
) -> Any:
    """Take the rest of a line, from Q or C on: how many pages there are now, clicks without one, what is wrong."""
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
    slots: Any, used: Any, tally: Any,
) -> None:  # fmt: skip
    """Count the pages of a session, all of whose clicks are known."""
    for p in range(pages):
        _count_page(
            keys[p], urls, hits, starts[p], starts[p + 1], strays[p], queries, items, cut, slots, used, tally
        )  # fmt: skip


@kernel
def scan_sessions(
    text: Any, queries: Any, items: Any, cut: int,
    urls: Any, hits: Any, starts: Any, keys: Any, strays: Any, slots: Any, used: Any, tally: Any, bad: Any,
) -> None:  # fmt: skip
    """Scan whole sessions of the Relevance Prediction Challenge; bad lines are passed over and noted.

    ``urls`` and ``hits`` hold the results of one session, ``starts``, ``keys`` and ``strays`` its pages; all of them
    must be as long as the text has tabs, and two more. A click on what no page of its session shows is a stray of the
    last page before it. ``bad`` (few, 3) gets the first bad records: where they start, their lines, from 1 up, and
    what is wrong with them.
    """
    at, current, pages = 0, -1, 0
    while at < text.size:
        start = at
        while at < text.size and text[at] != NEWLINE:
            at += 1
        stop = at - 1 if at > start and text[at - 1] == RETURN else at
        at += 1
        tally[LINES] += 1
        if stop == start:
            continue
        session, here, reason = _start_of_line(text, start, stop)
        if reason == 0 and session != current:
            _count_session(urls, hits, starts, keys, strays, pages, queries, items, cut, slots, used, tally)
            current, pages, starts[0] = session, 0, 0
        if reason == 0:
            pages, stray, reason = _take_line(text, here, stop, urls, hits, starts, keys, strays, pages)
            if pages > 0:
                strays[pages - 1] += stray
            else:
                tally[EARLY] += stray
        if reason != 0:
            _note_bad(start, tally[LINES], reason, bad, tally)
    _count_session(urls, hits, starts, keys, strays, pages, queries, items, cut, slots, used, tally)


@inline_kernel
def _past_spaces(text: Any, at: int, stop: int) -> int:
    while at < stop and (text[at] == SPACE or text[at] == RETURN or text[at] == TAB):
        at += 1
    return at


@inner_kernel
def _listed(text: Any, at: int, stop: int, urls: Any, hits: Any) -> Any:
    """Read url,...,url : as the results of a page: how many, where they end, and what is wrong."""
    n = 0
    while True:
        url, at = _number(text, _past_spaces(text, at, stop), stop)
        if url < 0:
            return n, at, NUMBER
        urls[n], hits[n] = url, 0
        n += 1
        at = _past_spaces(text, at, stop)
        if at >= stop or (text[at] != COMMA and text[at] != COLON):
            return n, at, NO_COLON
        if text[at] == COLON:
            return n, at + 1, (TOO_LONG if n > LAST_POSITION else 0)
        at += 1


@inner_kernel
def _clicked(text: Any, at: int, stop: int, urls: Any, hits: Any, starts: Any) -> Any:
    """Read the clicks on a page: how many of them are on no result of it, and what is wrong."""
    stray, at = 0, _past_spaces(text, at, stop)
    while at < stop:
        url, at = _number(text, at, stop)
        if url < 0:
            return stray, NUMBER
        stray += _click(url, urls, hits, starts, 1)
        at = _past_spaces(text, at, stop)
        if at < stop:
            if text[at] != COMMA:
                return stray, NO_COMMA
            at = _past_spaces(text, at + 1, stop)
            if at >= stop:
                return stray, NUMBER
    return stray, 0


@kernel
def scan_pages(
    text: Any, queries: Any, items: Any, cut: int,
    urls: Any, hits: Any, starts: Any, keys: Any, strays: Any, slots: Any, used: Any, tally: Any, bad: Any,
) -> None:  # fmt: skip
    """Scan records of the native Yandex layout; bad ones are passed over and noted, as in :func:`scan_sessions`."""
    at = 0
    while at < text.size:
        stop = at
        while stop < text.size and text[stop] != NEWLINE and text[stop] != SEMICOLON:
            stop += 1
        start = _past_spaces(text, at, stop)
        if start < stop:
            n, stray = 0, 0
            key, here, reason = _query(text, start, stop, UNDERSCORE)
            if reason == 0 and (here >= stop or text[here] != TAB):
                reason = NO_TAB
            if reason == 0:
                n, here, reason = _listed(text, here + 1, stop, urls, hits)
            if reason == 0:
                starts[0], starts[1] = 0, n
                stray, reason = _clicked(text, here, stop, urls, hits, starts)
            if reason == 0:
                _count_page(key, urls, hits, 0, n, stray, queries, items, cut, slots, used, tally)
            else:
                _note_bad(start, tally[LINES] + 1, reason, bad, tally)
        if stop < text.size and text[stop] == NEWLINE:
            tally[LINES] += 1
        at = stop + 1


@kernel
def count_separators(text: Any) -> int:
    """How many tabs and commas there are: at least as many as results."""
    n = 0
    for byte in text:
        n += (byte == TAB) + (byte == COMMA)
    return n
