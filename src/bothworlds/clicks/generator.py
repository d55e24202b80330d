"""Generating synthetic logs: pages of uniformly random items, clicked as in a world, written in any layout."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import whole
from ..core import click as answer
from ..extras import import_extra
from ..files import replacing
from ..kernels import Floats, Ints, kernel
from ..progress import progress_bar
from ..worlds import World, resolve
from .reading.layouts import TableLayout, TextLayout, layout_of
from .reading.layouts.base import GeneratedPages
from .text_writers import max_bytes

BATCH = 20_000  # pages drawn and written at a time
KINDS = {".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".parquet": "parquet"}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
TEXT_LAYOUTS = {".tsv": "relpred", ".yandex": "yandex"}


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
    """Write a log of ``pages`` uniformly random lists, clicked as in a world, and return its path.

    The world may be one whose clicks depend on each other, or a fitted model of any kind. If an adversary reports the
    clicks of a world, the log has those of the users.

    The format is ``relpred`` for names that end in .tsv, ``yandex`` for .yandex, and ``tidy`` otherwise, unless it is
    given. The ending also selects CSV, NDJSON or Parquet for tables, and compression (.gz, .zst). With several
    ``queries``, each has its own items, with the same attractions in another order. Propensities are exactly 1/n.

    The same arguments give the same log. The file appears under its name only when it is complete. Raises ValueError
    for an ending that does not match the format.

    >>> import tempfile, bothworlds.clicks
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = generate(Path(folder) / "log.parquet", "paper/stochastic", pages=100)
    ...     counts = bothworlds.clicks.read(path).counts()
    >>> counts.pages, int(counts.shown.sum())
    (100, 500)
    """
    target, users = Path(path), resolve(world)
    pages, queries, seed = whole(pages, "pages", 1), whole(queries, "queries", 1), whole(seed, "seed", 0)
    kind, compression = _kind_and_compression(target)
    layout = layout_of(format or TEXT_LAYOUTS.get(_suffixes(target)[0], "tidy"))
    if isinstance(layout, TableLayout) and kind is None:
        raise ValueError(
            f"{target.name} must end in one of {', '.join(KINDS)}, or in these and .gz or .zst; "
            "text of the format relpred ends in .tsv"
        )
    if isinstance(layout, TextLayout) and kind is not None:
        raise ValueError(f"the format {layout.name} is text; {target.name} must not end in {_suffixes(target)[0]}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with progress_bar(f"writing {target.name}", pages, progress) as report, replacing(target) as file:
        temporary = Path(file.name)  # pyarrow closes an open file that is passed to it
        batches = _report_pages(draw(users, pages, queries, seed), report)
        if isinstance(layout, TextLayout):
            _write_text(temporary, compression, batches, layout)
        elif isinstance(layout, TableLayout):
            tables = map(layout.table, batches) if layout.table is not None else iter([_count_table(batches)])
            _write_tables(temporary, kind or "csv", compression, tables)
    return target


def draw(world: World, pages: int, queries: int, seed: int) -> Iterator[GeneratedPages]:
    """Yield pages drawn from a world, in batches; the seed alone determines them."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x109]))
    n, m = world.n_items, world.n_positions
    labels = np.arange(n)[None] if queries == 1 else np.array([rng.permutation(n) for _ in range(queries)])
    deck = np.arange(n)
    users = world.honest
    fill = _fill_from_tables if users.has_table else _fill_from_lists
    for start in range(0, pages, BATCH):
        size = min(BATCH, pages - start)
        batch = np.empty(size, np.int64), np.empty((size, m), np.int64), np.empty((size, m), np.uint8)
        fill(users, start, rng, labels, deck, *batch)
        yield GeneratedPages(start, *batch, queries, n)


def _fill_from_tables(
    world: World, start: int, rng: np.random.Generator, labels: Ints, deck: Ints, query: Ints, item: Ints, click: Any
) -> None:
    """Fill a batch with pages of a world that has a table of click probabilities."""
    begin = 0
    for end, probabilities in world.pieces(start, start + query.size):
        part = slice(begin, end - start)
        _draw(rng, np.ascontiguousarray(probabilities), labels, deck, query[part], item[part], click[part])
        begin = part.stop


def _fill_from_lists(
    world: Any, start: int, rng: np.random.Generator, labels: Ints, deck: Ints, query: Ints, item: Ints, click: Any
) -> None:
    """Fill a batch with pages of a world that answers a whole list."""
    begin = 0
    ranking, clicks = np.empty(world.n_positions, np.int64), np.empty(world.n_positions)
    for end in world.spans(start, start + query.size):
        part = slice(begin, end - start)
        users = world.users(start + begin)
        if users is not None:
            _draw_lists(rng, users, labels, deck, query[part], item[part], click[part], ranking, clicks)
        for t in range(part.start, part.stop) if users is None else ():
            query[t] = _draw_list(rng, labels, deck, item[t], ranking)
            click[t] = world.click(start + t, ranking.copy(), rng)
        begin = part.stop


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


@kernel
def _draw_lists(
    rng: Any, users: Any, labels: Ints, deck: Ints, query: Ints, item: Ints, click: Any, ranking: Ints, clicks: Floats
) -> None:
    """Draw pages as :func:`_draw`, clicked by users who answer a whole list; ``ranking`` and ``clicks`` are work."""
    for t in range(query.size):
        query[t] = _draw_list(rng, labels, deck, item[t], ranking)
        answer(users, ranking, rng, clicks)
        for j in range(ranking.size):
            click[t, j] = clicks[j] > 0.5


@kernel
def _draw_list(rng: Any, labels: Ints, deck: Ints, item: Ints, ranking: Ints) -> int:
    """Draw a query and its list, as ``item`` of the log and as ``ranking`` of items of the world; return the query."""
    n = deck.size
    q = int(rng.random() * labels.shape[0])
    for j in range(ranking.size):
        k = j + int(rng.random() * (n - j))
        deck[j], deck[k] = deck[k], deck[j]
        item[j], ranking[j] = q * n + deck[j], labels[q, deck[j]]
    return q + 1


def _count_table(batches: Iterator[GeneratedPages]) -> Any:
    """One table of the counts of all batches."""
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
    return import_extra("pyarrow").table({"query": cells // (n * m) + 1, **columns} if queries > 1 else columns)


def _write_text(path: Path, compression: str | None, batches: Iterator[GeneratedPages], layout: TextLayout) -> None:
    with import_extra("pyarrow").output_stream(str(path), compression=compression) as stream:
        buffer = np.empty(0, np.uint8)
        for batch in batches:
            if buffer.size < max_bytes(*batch.item.shape):
                buffer = np.empty(max_bytes(*batch.item.shape), np.uint8)
            length = layout.write(batch.first, batch.query, batch.item, batch.click, buffer)
            stream.write(buffer[:length])


def _write_tables(path: Path, kind: str, compression: str | None, tables: Iterator[Any]) -> None:
    pyarrow = import_extra("pyarrow")
    first = next(tables)
    if kind == "parquet":
        with import_extra("pyarrow.parquet").ParquetWriter(path, first.schema, compression="zstd") as writer:
            for table in _row_groups(first, tables):
                writer.write_table(table)
        return
    with pyarrow.output_stream(str(path), compression=compression) as stream:
        if kind == "csv":
            with import_extra("pyarrow.csv").CSVWriter(stream, first.schema) as writer:
                for table in chain([first], tables):
                    writer.write_table(table)
        else:
            for table in chain([first], tables):
                stream.write(_json_lines(table))


def _row_groups(first: Any, others: Iterator[Any], rows: int = 1_000_000) -> Iterator[Any]:
    """Concatenate tables until each is large enough for a row group."""
    pyarrow, pending = import_extra("pyarrow"), []
    for table in chain([first], others):
        pending.append(table)
        if sum(map(len, pending)) >= rows:
            yield pyarrow.concat_tables(pending)
            pending = []
    if pending:
        yield pyarrow.concat_tables(pending)


def _json_lines(table: Any) -> Any:
    """The bytes of a table as NDJSON."""
    pyarrow, compute = import_extra("pyarrow"), import_extra("pyarrow.compute")
    parts: list[Any] = []
    for k, (name, column) in enumerate(zip(table.column_names, table.columns)):
        text = pyarrow.types.is_string(column.type) or pyarrow.types.is_timestamp(column.type)
        quote = '"' if text else ""
        parts += [f'{", " if k else "{"}"{name}": {quote}', column.cast("string"), quote]
    lines = compute.binary_join_element_wise(*parts, "}\n", "").combine_chunks()
    return "".join(lines.to_pylist()).encode() if lines.offset else _bytes_of(lines)


def _bytes_of(lines: Any) -> Any:
    """The concatenated text of an array of strings, without a copy."""
    _, offsets, text = lines.buffers()
    ends = np.frombuffer(offsets, np.int32, len(lines) + 1)
    return text.slice(int(ends[0]), int(ends[-1] - ends[0]))


def _report_pages(batches: Iterator[GeneratedPages], report: Any) -> Iterator[GeneratedPages]:
    for batch in batches:
        yield batch
        report(len(batch.query))


def _suffixes(path: Path) -> tuple[str, str]:
    """The suffixes of the kind of file and of its compression."""
    if path.suffix in COMPRESSIONS:
        return Path(path.stem).suffix, path.suffix
    return path.suffix, ""


def _kind_and_compression(path: Path) -> tuple[str | None, str | None]:
    """The kind and the compression of a table, by the suffixes of its name; None for other suffixes."""
    suffix, compressed = _suffixes(path)
    if suffix == ".parquet" and compressed:
        raise ValueError(f"Parquet is compressed already; leave out {compressed} in {path.name}")
    return KINDS.get(suffix), COMPRESSIONS.get(compressed)
