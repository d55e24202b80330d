"""Text logs in chunks that end between sessions, scanned by a thread per core into partial counts."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...extras import import_extra
from ...kernels import Ints
from ...progress import ReportProgress
from .bad_input import MAX_EXAMPLES
from .file_format import BOM, decompression_errors
from .layouts import TextLayout
from .page_table import PageTable, make_page_room, make_page_table, packed_table
from .text_kernels import (
    BAD,
    EARLY,
    FILLED,
    LARGEST_QUERY,
    LARGEST_REGION,
    LINES,
    N_TOTALS,
    PAGES,
    RECORD_ERRORS,
    REGIONS,
    SHOWN,
    STRAY,
    TOO_LARGE,
    TWICE,
    count_separators,
)

CHUNK = 1 << 22  # bytes scanned at a time
SLOTS = 1 << 20  # initial size of a hash table
MOST_GROWTH = 256.0  # room that a table of pages reserves, relative to what it needs
PartialCounts = NDArray[np.int64]  # (K, 5): query, item, position, shown, clicked


class Span(NamedTuple):
    """A byte range of a file that holds complete sessions; ``stop`` is None for the end of the file."""

    path: str
    compression: str | None
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class ScanFilters:
    """The filters as the sorted numbers that a scanner compares; empty means all."""

    queries: tuple[int, ...] = ()
    items: tuple[int, ...] = ()
    positions: int | None = None


class ScanSummary(NamedTuple):
    """What a scan reports besides counts."""

    lines: int = 0
    pages: int = 0
    stray: int = 0  # clicks on urls that no page of their session shows, if the page before them is kept
    early: int = 0  # clicks before any page of their session
    twice: int = 0  # pages that show a url twice
    bad: int = 0  # records that were skipped
    examples: tuple[tuple[int, str], ...] = ()  # line, from 1, and problem of the first bad records


def query_key(query: str) -> int:
    """Return the key of a query, its number and its region in one, that scanners use.

    >>> query_key("9982_0") // REGIONS, query_key("9982_3") % REGIONS
    (9982, 3)
    """
    number, _, region = query.partition("_")
    if not (number.isdecimal() and region.isdecimal()):
        raise ValueError(f"queries of this format are named QUERY_REGION, like 9982_0; got {query!r}")
    if int(number) > LARGEST_QUERY or int(region) > LARGEST_REGION:
        raise ValueError(f"there is no query {query!r}: {RECORD_ERRORS[TOO_LARGE]}")
    return int(number) * REGIONS + int(region)


def chunks(span: Span, cut: Callable[[bytes], int], report: ReportProgress | None = None) -> Iterator[bytes]:
    """Yield the text of a span in chunks that end between sessions.

    ``cut`` returns the offset of the last session of a text; ``report`` receives the bytes read since its last call.
    """
    pyarrow = import_extra("pyarrow")
    with decompression_errors(span.path), pyarrow.OSFile(span.path) as file:
        file.seek(span.start)
        stream = pyarrow.CompressedInputStream(file, span.compression) if span.compression else file
        carried, reported, left = b"", span.start, span.stop - span.start if span.stop is not None else None
        at_start = span.start == 0
        while block := stream.read(CHUNK if left is None else min(CHUNK, left)):
            left = None if left is None else left - len(block)
            text = carried + (block.removeprefix(BOM) if at_start else block)
            at_start = False
            boundary = cut(text)
            carried = text[boundary:]
            if boundary:
                yield text[:boundary]
            if report is not None:
                report(file.tell() - reported)
                reported = file.tell()
        if carried:
            yield carried


def spans(path: Path, compression: str | None, cut: Callable[[bytes], int], size: int) -> list[Span]:
    """Cut a file into spans of about ``size`` bytes, without reading all of it; a compressed file is one span."""
    ends = [0]
    with path.open("rb") as file:
        total = file.seek(0, os.SEEK_END)
        for offset in [] if compression else range(size, total, size):
            if (end := _boundary_before(file, offset, cut)) > ends[-1]:
                ends.append(end)
    stops: list[int | None] = [*ends[1:], None]
    return [Span(str(path), compression, start, stop) for start, stop in zip(ends, stops)]


def _boundary_before(file: Any, offset: int, cut: Callable[[bytes], int]) -> int:
    """The last boundary between sessions before an offset, or 0."""
    window = 1 << 14
    while True:
        start = max(offset - window, 0)
        file.seek(start)
        text = file.read(offset - start)
        first = text.find(b"\n") + 1 if start else 0  # skips the first line, which may be cut
        boundary = cut(text[first:])
        if boundary or not start:
            return start + first + boundary if boundary else 0
        window *= 8


class Scanner:
    """The hash table and work arrays of one thread.

    With ``pages``, different pages are counted instead of triples. ``expected`` is how many bytes it will scan, if that
    is known: a table of pages that is moved gets room for the pages that they will have.
    """

    def __init__(
        self, layout: TextLayout, filters: ScanFilters, pages: bool = False, expected: float | None = None
    ) -> None:
        self.layout = layout
        self.expected, self.scanned = expected, 0
        self.queries, self.items = np.array(filters.queries, np.int64), np.array(filters.items, np.int64)
        self.cut = filters.positions if filters.positions is not None else 1 << 40
        self.totals, self.bad = np.zeros(N_TOTALS, np.int64), np.zeros((MAX_EXAMPLES, 3), np.int64)
        self.capacity = 0  # results that the work arrays can hold
        self.with_pages, self.pages = pages, make_page_table()
        self._grow(0 if pages else SLOTS)

    def _grow(self, slots: int) -> None:
        self.slots, self.used = np.zeros((slots, 5), np.int64), np.empty(slots, np.int64)

    def scan(self, text: bytes) -> tuple[ScanSummary, PartialCounts | None]:
        """Scan a chunk; return a summary, and the counts so far if the hash table had to be emptied to make room."""
        array = np.frombuffer(text, np.uint8)
        most = count_separators(array) + 2  # results of this chunk
        drained = None
        if self.with_pages:
            pages = text.count(b"\n") + text.count(b";") + 1  # at most
            self.pages = make_page_room(self.pages, pages, most, self._growth(len(text)))
        elif self.totals[FILLED] + most > 0.6 * len(self.used):
            drained = self.drain()
            while most > 0.6 * len(self.used):
                self._grow(2 * len(self.used))
        if most > self.capacity:
            self.capacity = 2 * most
            self.urls, self.hits = np.empty(self.capacity, np.int64), np.empty(self.capacity, np.uint8)
            self.starts, self.keys, self.strays = (np.zeros(self.capacity, np.int64) for _ in range(3))
        self.totals[LINES:] = 0
        self.layout.scan(
            array, self.queries, self.items, self.cut, self.urls, self.hits, self.starts, self.keys, self.strays,
            self.slots, self.used, self.totals, self.bad, self.pages,
        )  # fmt: skip
        numbers = (int(self.totals[k]) for k in (LINES, PAGES, STRAY, EARLY, TWICE, BAD))
        return ScanSummary._make([*numbers, self._examples(text)]), drained

    def _growth(self, size: int) -> float:
        """The factor by which a table of pages grows if this text, of some size, needs more room than it has."""
        self.scanned += size
        if self.expected is None:
            return 2.0
        return float(np.clip(1.2 * self.expected / self.scanned, 1.2, MOST_GROWTH))

    def _examples(self, text: bytes) -> tuple[tuple[int, str], ...]:
        """Line and problem of the first bad records of the chunk that was scanned last."""
        examples = []
        for start, line, reason in self.bad[: self.totals[BAD]].tolist():
            excerpt = text[start : start + 200].partition(b"\n")[0].decode(errors="replace")[:60]
            examples.append((line, f"{RECORD_ERRORS[reason]}, in {excerpt!r}"))
        return tuple(examples)

    def drain(self) -> PartialCounts:
        """Remove all counts from the hash table and return them."""
        used: Ints = self.used[: self.totals[FILLED]]
        taken: PartialCounts = self.slots[used]
        self.slots[used, SHOWN] = 0
        self.totals[FILLED] = 0
        return taken


def scan_all(
    texts: Iterable[bytes],
    layout: TextLayout,
    filters: ScanFilters,
    take: Callable[[PartialCounts], None],
    jobs: int | None = None,
    scanners: list[Scanner] | None = None,
) -> Generator[ScanSummary, None, None]:
    """Scan chunks in ``jobs`` threads, by default one per core, and yield their summaries in order.

    With ``scanners``, each of them gets a thread; their tables of pages are then complete when the generator is
    exhausted.

    Counts are passed to ``take``, in the thread of the caller; the last of them when the generator is exhausted.
    """
    jobs = len(scanners) if scanners else jobs or os.cpu_count() or 1
    scanners = scanners or [Scanner(layout, filters) for _ in range(jobs)]
    free: SimpleQueue[Scanner] = SimpleQueue()
    for scanner in scanners:
        free.put(scanner)

    def scan(text: bytes) -> tuple[ScanSummary, PartialCounts | None]:
        scanner = free.get()
        try:
            return scanner.scan(text)
        finally:
            free.put(scanner)

    def finish(done: Future[tuple[ScanSummary, PartialCounts | None]]) -> ScanSummary:
        summary, drained = done.result()
        if drained is not None:
            take(drained)
        return summary

    waiting: deque[Future[tuple[ScanSummary, PartialCounts | None]]] = deque()
    with ThreadPoolExecutor(jobs) as pool:
        for text in texts:
            waiting.append(pool.submit(scan, text))
            if len(waiting) > jobs:
                yield finish(waiting.popleft())
        while waiting:
            yield finish(waiting.popleft())
    for scanner in scanners:
        take(scanner.drain())


def partial_counts(span: Span, layout: TextLayout, filters: ScanFilters) -> tuple[ScanSummary, list[PartialCounts]]:
    """Scan one span, in one thread, and return its summary and counts: the work of one Ray task."""
    partial: list[PartialCounts] = []
    summaries = list(scan_all(chunks(span, layout.last_boundary), layout, filters, partial.append, jobs=1))
    return sum_summaries(summaries), partial


def partial_pages(span: Span, layout: TextLayout, filters: ScanFilters) -> tuple[ScanSummary, PageTable]:
    """Scan one span, in one thread, and return its summary and its different pages: the work of one Ray task."""
    expected = None if span.stop is None else span.stop - span.start
    scanner = Scanner(layout, filters, pages=True, expected=expected)
    texts = chunks(span, layout.last_boundary)
    summary = sum_summaries(scan_all(texts, layout, filters, lambda counts: None, scanners=[scanner]))
    return summary, packed_table(scanner.pages)


def sum_summaries(summaries: Iterable[ScanSummary]) -> ScanSummary:
    """Add up the summaries of consecutive chunks, whose lines are numbered consecutively."""
    added = ScanSummary()
    for one in summaries:
        numbers = map(sum, zip(added[:6], one[:6]))
        examples = added.examples + tuple((added.lines + line, problem) for line, problem in one.examples)
        added = ScanSummary._make([*numbers, examples[:MAX_EXAMPLES]])
    return added
