"""Synthetic logs: pages of uniformly random items, clicked as in a world, written in any layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..core import replacing
from ..kernels import Floats, Ints, kernel
from ..progress import progress_bar
from ..worlds import World, resolve
from ..worlds.settings import whole
from .reading.file_format import needs
from .reading.layouts import TableLayout, TextLayout, layout_of
from .reading.layouts.base import Batch
from .text_writers import room_for

__all__ = ["generate"]

BATCH = 20_000  # pages
KINDS = {".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".parquet": "parquet"}
PACKING = {".gz": "gzip", ".zst": "zstd"}
OWN_ENDING = {".tsv": "relpred", ".yandex": "yandex"}


def generate(
    path: str | Path,
    world: str | World = "paper/stochastic",
    pages: int = 10_000,
    *,
    format: str | None = None,
    queries: int = 1,
    seed: int = 0,
    progress: bool | None = None,
) -> Path:
    """Write a log of result pages with uniformly random lists, clicked as in a world; propensities are 1/n, exactly.

    The format is ``tidy`` unless named, ``relpred`` for names that end in .tsv and ``yandex`` for those in .yandex. The
    ending also says whether tables are CSV, NDJSON or Parquet, and whether they are packed (.gz, .zst). With several
    ``queries``, each has items of its own, with the same attractions in another order.

    >>> import tempfile, bothworlds.clicks
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = generate(Path(folder) / "log.parquet", "paper/stochastic", pages=100)
    ...     counts = bothworlds.clicks.counts(path)
    >>> counts.pages, int(counts.shown.sum())
    (100, 500)
    """
    place, users = Path(path), resolve(world)
    pages, queries, seed = whole(pages, "pages", 1), whole(queries, "queries", 1), whole(seed, "seed", 0)
    kind, compression = _ending(place)
    layout = layout_of(format or OWN_ENDING.get(_suffixes(place)[0], "tidy"))
    if isinstance(layout, TableLayout) and kind is None:
        raise ValueError(
            f"{place.name} must end in one of {', '.join(KINDS)}, or in these and .gz or .zst; "
            "text in the format relpred ends in .tsv"
        )
    if isinstance(layout, TextLayout) and kind is not None:
        raise ValueError(f"the format {layout.name} is text; {place.name} must not end in {_suffixes(place)[0]}")
    place.parent.mkdir(parents=True, exist_ok=True)
    with progress_bar(f"writing {place.name}", pages, progress) as report, replacing(place) as file:
        temporary = Path(file.name)  # pyarrow would close a file that is handed to it
        batches = _reported(draw(users, pages, queries, seed), report)
        if isinstance(layout, TextLayout):
            _write_text(temporary, compression, batches, layout)
        elif isinstance(layout, TableLayout):
            tables = map(layout.table, batches) if layout.table is not None else iter([_counted(batches)])
            _write_tables(temporary, kind or "csv", compression, tables)
    return place


def draw(world: World, pages: int, queries: int, seed: int) -> Iterator[Batch]:
    """Pages drawn from a world, batch by batch; what is drawn depends on the seed alone."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x109]))
    n, m = world.n_items, world.n_positions
    labels = np.arange(n)[None] if queries == 1 else np.array([rng.permutation(n) for _ in range(queries)])
    deck = np.arange(n)
    for start in range(0, pages, BATCH):
        size = min(BATCH, pages - start)
        query, item, click = np.empty(size, np.int64), np.empty((size, m), np.int64), np.empty((size, m), np.uint8)
        begin = 0
        for end, probabilities in world.pieces(start, start + size):
            stop = end - start
            _draw(
                rng,
                np.ascontiguousarray(probabilities),
                labels,
                deck,
                query[begin:stop],
                item[begin:stop],
                click[begin:stop],
            )
            begin = stop
        yield Batch(start, query, item, click, queries, n)


@kernel
def _draw(rng: Any, p: Floats, labels: Ints, deck: Ints, query: Ints, item: Ints, click: Any) -> None:
    """Draw pages: a query, the first m of its n items in random order, and clicks on them.

    ``labels[q, i]`` is the item of the world that item i of query q is; ``deck`` holds 0, ..., n - 1 in any order.
    """
    n = deck.size
    for t in range(query.size):
        q = int(rng.random() * labels.shape[0])
        query[t] = q + 1
        for j in range(item.shape[1]):
            k = j + int(rng.random() * (n - j))
            deck[j], deck[k] = deck[k], deck[j]
            item[t, j] = q * n + deck[j]
            click[t, j] = rng.random() < p[labels[q, deck[j]], j]


def _counted(batches: Iterator[Batch]) -> Any:
    """All batches as one table of counts."""
    shown: Any = 0
    clicked: Any = 0
    queries = n = m = 0
    for batch in batches:
        queries, n, m = batch.n_queries, batch.n_items, batch.item.shape[1]
        cell = (batch.item * m + np.arange(m)).ravel()
        shown = shown + np.bincount(cell, minlength=queries * n * m)
        clicked = clicked + np.bincount(cell, weights=batch.click.ravel(), minlength=queries * n * m).astype(np.int64)
    cells = np.flatnonzero(shown)
    columns = {"item": cells // m, "position": cells % m + 1, "impressions": shown[cells], "clicks": clicked[cells]}
    return needs("pyarrow").table({"query": cells // (n * m) + 1, **columns} if queries > 1 else columns)


def _write_text(path: Path, compression: str | None, batches: Iterator[Batch], layout: TextLayout) -> None:
    with needs("pyarrow").output_stream(str(path), compression=compression) as stream:
        room = np.empty(0, np.uint8)
        for batch in batches:
            if room.size < room_for(*batch.item.shape):
                room = np.empty(room_for(*batch.item.shape), np.uint8)
            length = layout.write(batch.first, batch.query, batch.item, batch.click, room)
            stream.write(room[:length])


def _write_tables(path: Path, kind: str, compression: str | None, tables: Iterator[Any]) -> None:
    pyarrow = needs("pyarrow")
    first = next(tables)
    if kind == "parquet":
        with needs("pyarrow.parquet").ParquetWriter(path, first.schema, compression="zstd") as writer:
            for table in _gathered(first, tables):
                writer.write_table(table)
        return
    with pyarrow.output_stream(str(path), compression=compression) as stream:
        if kind == "csv":
            with needs("pyarrow.csv").CSVWriter(stream, first.schema) as writer:
                for table in _with(first, tables):
                    writer.write_table(table)
        else:
            for table in _with(first, tables):
                stream.write(_json_lines(table))


def _with(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from others


def _gathered(first: Any, others: Iterator[Any], rows: int = 1_000_000) -> Iterator[Any]:
    """Tables put together until they are worth a row group of their own."""
    pyarrow, waiting = needs("pyarrow"), []
    for table in _with(first, others):
        waiting.append(table)
        if sum(map(len, waiting)) >= rows:
            yield pyarrow.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pyarrow.concat_tables(waiting)


def _json_lines(table: Any) -> Any:
    """A table as NDJSON."""
    pyarrow, compute = needs("pyarrow"), needs("pyarrow.compute")
    parts: list[Any] = []
    for k, (name, column) in enumerate(zip(table.column_names, table.columns)):
        text = pyarrow.types.is_string(column.type) or pyarrow.types.is_timestamp(column.type)
        mark = '"' if text else ""
        parts += [f'{", " if k else "{"}"{name}": {mark}', column.cast("string"), mark]
    lines = compute.binary_join_element_wise(*parts, "}\n", "").combine_chunks()
    return "".join(lines.to_pylist()).encode() if lines.offset else _bytes_of(lines)


def _bytes_of(lines: Any) -> Any:
    """The text of an array of strings, end to end, as it lies in memory."""
    _, offsets, text = lines.buffers()
    ends = np.frombuffer(offsets, np.int32, len(lines) + 1)
    return text.slice(int(ends[0]), int(ends[-1] - ends[0]))


def _reported(batches: Iterator[Batch], report: Any) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        report(len(batch.query))


def _suffixes(path: Path) -> tuple[str, str]:
    """The ending that says what a file is, and the one that says how it is packed."""
    if path.suffix in PACKING:
        return Path(path.stem).suffix, path.suffix
    return path.suffix, ""


def _ending(path: Path) -> tuple[str | None, str | None]:
    """The kind of a table and its packing, by the ending of its name."""
    suffix, packed = _suffixes(path)
    if suffix == ".parquet" and packed:
        raise ValueError(f"Parquet is packed already; leave out {packed} in {path.name}")
    return KINDS.get(suffix), PACKING.get(packed)
