"""Text logs in chunks: cut between sessions, scanned by all cores, reduced to partial counts."""

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

from ...kernels import Ints
from ...progress import Report
from .bad_input import FEW
from .file_format import BOM, needs, unpacking
from .layouts import TextLayout
from .text_kernels import (
    BAD,
    EARLY,
    FILLED,
    LARGEST_QUERY,
    LARGEST_REGION,
    LINES,
    PAGES,
    REASONS,
    REGIONS,
    STRAY,
    TALLIED,
    TOO_LARGE,
    TWICE,
    count_separators,
)

__all__ = ["Found", "Keep", "Partial", "Span", "chunks", "partial_counts", "query_key", "scan_all", "spans"]

CHUNK = 1 << 22  # bytes scanned at a time
SLOTS = 1 << 20  # of a table to start with
Partial = NDArray[np.int64]  # (K, 5): query, item, position, shown, clicked


class Span(NamedTuple):
    """A stretch of a file that holds whole sessions; ``stop`` is None for the end of the file."""

    path: str
    compression: str | None
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class Keep:
    """The filters in the numbers that a scanner compares, sorted; nothing means everything."""

    queries: tuple[int, ...] = ()
    items: tuple[int, ...] = ()
    positions: int | None = None


class Found(NamedTuple):
    """What a scan of some text found, other than counts."""

    lines: int = 0
    pages: int = 0
    stray: int = 0  # clicks on what no page of their session shows, where the page before them is kept
    early: int = 0  # clicks before any page of their session
    twice: int = 0  # pages that show something twice
    bad: int = 0  # records that were passed over
    examples: tuple[tuple[int, str], ...] = ()  # the lines of the first of them, from 1 up, and what is wrong there


def query_key(query: str) -> int:
    """The number by which scanners know a query.

    >>> query_key("9982_0") // REGIONS, query_key("9982_3") % REGIONS
    (9982, 3)
    """
    number, _, region = query.partition("_")
    if not (number.isdecimal() and region.isdecimal()):
        raise ValueError(f"queries of this format are named QUERY_REGION, like 9982_0; got {query!r}")
    if int(number) > LARGEST_QUERY or int(region) > LARGEST_REGION:
        raise ValueError(f"there is no query {query!r}: {REASONS[TOO_LARGE]}")
    return int(number) * REGIONS + int(region)


def chunks(span: Span, cut: Callable[[bytes], int], report: Report | None = None) -> Iterator[bytes]:
    """The text of a span, in pieces that end between sessions."""
    pyarrow = needs("pyarrow")
    with unpacking(span.path), pyarrow.OSFile(span.path) as file:
        file.seek(span.start)
        stream = pyarrow.CompressedInputStream(file, span.compression) if span.compression else file
        carried, told, left = b"", span.start, span.stop - span.start if span.stop is not None else None
        starting = span.start == 0
        while block := stream.read(CHUNK if left is None else min(CHUNK, left)):
            left = None if left is None else left - len(block)
            text = carried + (block.removeprefix(BOM) if starting else block)
            starting = False
            boundary = cut(text)
            carried = text[boundary:]
            if boundary:
                yield text[:boundary]
            if report is not None:
                report(file.tell() - told)
                told = file.tell()
        if carried:
            yield carried


def spans(path: Path, compression: str | None, cut: Callable[[bytes], int], size: int) -> list[Span]:
    """Cut a file into spans of about that many bytes, without reading it all; a compressed one cannot be cut."""
    ends = [0]
    with path.open("rb") as file:
        total = file.seek(0, os.SEEK_END)
        for offset in [] if compression else range(size, total, size):
            if (end := _boundary_before(file, offset, cut)) > ends[-1]:
                ends.append(end)
    stops: list[int | None] = [*ends[1:], None]
    return [Span(str(path), compression, start, stop) for start, stop in zip(ends, stops)]


def _boundary_before(file: Any, offset: int, cut: Callable[[bytes], int]) -> int:
    """The last boundary between sessions before an offset, 0 if there is none."""
    window = 1 << 14
    while True:
        start = max(offset - window, 0)
        file.seek(start)
        text = file.read(offset - start)
        first = text.find(b"\n") + 1 if start else 0  # the line it starts in may be cut
        boundary = cut(text[first:])
        if boundary or not start:
            return start + first + boundary if boundary else 0
        window *= 8


class Scanner:
    """A table of counts and the room to scan with, for one thread."""

    def __init__(self, layout: TextLayout, keep: Keep) -> None:
        self.layout, self.keep = layout, keep
        self.filters = np.array(keep.queries, np.int64), np.array(keep.items, np.int64)
        self.cut = keep.positions if keep.positions is not None else 1 << 40
        self.tally, self.bad = np.zeros(TALLIED, np.int64), np.zeros((FEW, 3), np.int64)
        self.room = 0
        self._grow(SLOTS)

    def _grow(self, slots: int) -> None:
        self.slots, self.used = np.zeros((slots, 5), np.int64), np.empty(slots, np.int64)

    def scan(self, text: bytes) -> tuple[Found, Partial | None]:
        """Scan a chunk; counts come back only if the table had to make room."""
        array = np.frombuffer(text, np.uint8)
        most = count_separators(array) + 2
        drained = None
        if self.tally[FILLED] + most > 0.6 * len(self.used):
            drained = self.drain()
            while most > 0.6 * len(self.used):
                self._grow(2 * len(self.used))
        if most > self.room:
            self.room = 2 * most
            self.urls, self.hits = np.empty(self.room, np.int64), np.empty(self.room, np.uint8)
            self.starts, self.keys, self.strays = (np.zeros(self.room, np.int64) for _ in range(3))
        self.tally[LINES:] = 0
        self.layout.scan(
            array, *self.filters, self.cut, self.urls, self.hits, self.starts, self.keys, self.strays,
            self.slots, self.used, self.tally, self.bad,
        )  # fmt: skip
        numbers = (int(self.tally[k]) for k in (LINES, PAGES, STRAY, EARLY, TWICE, BAD))
        return Found._make([*numbers, self._examples(text)]), drained

    def _examples(self, text: bytes) -> tuple[tuple[int, str], ...]:
        """The first bad records of a chunk that has been scanned."""
        found = []
        for start, line, reason in self.bad[: self.tally[BAD]].tolist():
            excerpt = text[start : start + 200].partition(b"\n")[0].decode(errors="replace")[:60]
            found.append((line, f"{REASONS[reason]}, in {excerpt!r}"))
        return tuple(found)

    def drain(self) -> Partial:
        """Take all counts out of the table."""
        used: Ints = self.used[: self.tally[FILLED]]
        taken: Partial = self.slots[used]
        self.slots[used, 3] = 0
        self.tally[FILLED] = 0
        return taken


def scan_all(
    texts: Iterable[bytes], layout: TextLayout, keep: Keep, take: Callable[[Partial], None], jobs: int | None = None
) -> Generator[Found, None, None]:
    """Scan chunks in threads and yield what was found in the order of the chunks; counts go to ``take``."""
    jobs = jobs or os.cpu_count() or 1
    scanners = [Scanner(layout, keep) for _ in range(jobs)]
    free: SimpleQueue[Scanner] = SimpleQueue()
    for scanner in scanners:
        free.put(scanner)

    def scan(text: bytes) -> tuple[Found, Partial | None]:
        scanner = free.get()
        try:
            return scanner.scan(text)
        finally:
            free.put(scanner)

    def settle(done: Future[tuple[Found, Partial | None]]) -> Found:
        found, drained = done.result()
        if drained is not None:
            take(drained)
        return found

    waiting: deque[Future[tuple[Found, Partial | None]]] = deque()
    with ThreadPoolExecutor(jobs) as pool:
        for text in texts:
            waiting.append(pool.submit(scan, text))
            if len(waiting) > jobs:
                yield settle(waiting.popleft())
        while waiting:
            yield settle(waiting.popleft())
    for scanner in scanners:
        take(scanner.drain())


def partial_counts(span: Span, layout: TextLayout, keep: Keep) -> tuple[Found, list[Partial]]:
    """Reduce one span in this thread: the work of one task where many machines share a log."""
    partial: list[Partial] = []
    found = list(scan_all(chunks(span, layout.last_boundary), layout, keep, partial.append, jobs=1))
    return total(found), partial


def total(found: Iterable[Found]) -> Found:
    """What consecutive scans of one file found, or of several files, whose lines are then numbered on."""
    added = Found()
    for one in found:
        numbers = map(sum, zip(added[:6], one[:6]))
        examples = added.examples + tuple((added.lines + line, wrong) for line, wrong in one.examples)
        added = Found._make([*numbers, examples[:FEW]])
    return added
