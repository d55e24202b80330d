"""Generating synthetic logs: pages of uniformly random items, clicked as in a world, as tidy tables."""

from __future__ import annotations

from collections.abc import Iterator
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
from .reading.database import Database, literal, run

BATCH = 20_000  # pages drawn and written at a time
# The ending of a file, and how DuckDB writes it.
KINDS = {".csv": "FORMAT csv", ".ndjson": "FORMAT json", ".parquet": "FORMAT parquet, COMPRESSION zstd"}


def generate(
    path: str | Path,
    world: str | World = "paper/stochastic",
    pages: int = 10_000,
    *,
    queries: int = 1,
    seed: int = 0,
    progress: bool | None = None,
) -> Path:
    """Write a log of ``pages`` uniformly random lists, clicked as in a world, and return its path.

    The world may be one whose clicks depend on each other, or a fitted model of any kind. If an adversary reports the
    clicks of a world, the log has those of the users.

    The log is a table with the columns event, query (if there are several), position, item, click and propensity, as
    .csv, .ndjson or .parquet. With several ``queries``, each has its own items, with the same attractions in another
    order. Propensities are exactly 1/n.

    The same arguments give the same log. The file appears under its name only when it is complete. Raises ValueError
    for another ending.

    >>> import tempfile, bothworlds.clicks
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = generate(Path(folder) / "log.parquet", "paper/stochastic", pages=100)
    ...     counts = bothworlds.clicks.read(path).counts()
    >>> counts.pages, int(counts.shown.sum())
    (100, 500)
    """
    target, users = Path(path), resolve(world)
    pages, queries, seed = whole(pages, "pages", 1), whole(queries, "queries", 1), whole(seed, "seed", 0)
    if target.suffix not in KINDS:
        raise ValueError(f"{target.name} must end in one of {', '.join(KINDS)}")
    target.parent.mkdir(parents=True, exist_ok=True)
    database = Database()
    connection, pyarrow = database.connection, import_extra("pyarrow")
    with progress_bar(f"writing {target.name}", pages, progress) as report, replacing(target) as file:
        for batch in draw(users, pages, queries, seed):
            connection.register("batch", pyarrow.table(batch))
            run(connection, "CREATE TABLE IF NOT EXISTS results AS FROM batch LIMIT 0")
            run(connection, "INSERT INTO results FROM batch")
            report(int(batch["event"][-1] - batch["event"][0]) + 1)
        run(connection, f"COPY results TO {literal(file.name)} ({KINDS[target.suffix]}, USE_TMP_FILE false)")
    return target


def draw(world: World, pages: int, queries: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the columns of pages drawn from a world, in batches; the seed alone determines them."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x109]))
    n, m = world.n_items, world.n_positions
    labels = np.arange(n)[None] if queries == 1 else np.array([rng.permutation(n) for _ in range(queries)])
    deck = np.arange(n)
    users = world.honest
    for start in range(0, pages, BATCH):
        size = min(BATCH, pages - start)
        query, item, click = np.empty(size, np.int64), np.empty((size, m), np.int64), np.empty((size, m), np.uint8)
        _fill(users, start, rng, labels, deck, query, item, click)
        columns = {
            "event": np.repeat(np.arange(start, start + size), m),
            "query": np.repeat(query, m),
            "position": np.tile(np.arange(1, m + 1, dtype=np.int32), size),
            "item": item.ravel(),
            "click": click.ravel().astype(np.int8),
            "propensity": np.full(size * m, 1.0 / n),
        }
        if queries == 1:
            del columns["query"]
        yield columns


def _fill(
    world: Any, start: int, rng: np.random.Generator, labels: Ints, deck: Ints, query: Ints, item: Ints, click: Any
) -> None:
    """Fill a batch with pages."""
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
def _draw_lists(
    rng: Any, users: Any, labels: Ints, deck: Ints, query: Ints, item: Ints, click: Any, ranking: Ints, clicks: Floats
) -> None:
    """Draw pages: a query, the first m of its n items in random order, and clicks; ``ranking`` and ``clicks`` are work.

    ``labels[q, i]`` is the item of the world that item i of query q is; ``deck`` holds 0, ..., n - 1 in any order.
    """
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
