"""Logs of whole pages that follow a known click model."""

from __future__ import annotations

import numpy as np

from bothworlds.clicks import Pages
from bothworlds.statistics import browsing
from bothworlds.statistics.chain import recursions
from bothworlds.statistics.chain.families import CCM, DBN, DCM, SDBN, Core

CHAINS = {family.name: family for family in (DCM, SDBN, DBN, CCM)}
SHARED = {"dcm": [0.8, 0.6, 0.4, 0.3], "sdbn": [], "dbn": [0.8], "ccm": [0.8, 0.3, 0.7]}


def truth(name, n, m, seed):
    """The parameters of the items (p, n), and the shared ones."""
    rng = np.random.default_rng([seed, 1])
    items = np.array([rng.uniform(0.15, 0.7, n), rng.uniform(0.2, 0.8, n)])
    if name == "ubm":
        ranks = [browsing.ranks_of_column(column) for column in range(m * (m + 1) // 2)]
        return items[:1], np.array([1.0 / (1.0 + 0.4 * (rank - 1 - last)) for rank, last in ranks])
    if name == "pbm":
        return items[:1], 1.0 / np.arange(1, m + 1) ** 0.7
    if name == "trust":
        return items[:1], np.array([np.linspace(0.9, 0.4, m), np.linspace(0.3, 0.02, m)])
    if name == "cascade":
        return items[:1], np.zeros(0)
    return items[: len(CHAINS[name].items)], np.array(SHARED[name])[:m]


def simulated(name, pages=4_000, n=8, m=4, queries=1, seed=0):
    """Pages of uniformly random lists, clicked as in a model; every query has its own items with the same truth."""
    rng = np.random.default_rng(seed)
    items, shared = truth(name, n, m, seed)
    lists = np.argsort(rng.random((pages, n)), axis=1)[:, :m]
    row, rank = lists.ravel(), np.tile(np.arange(m), pages)
    starts, click = np.arange(pages + 1) * m, np.zeros(pages * m, np.uint8)
    if name == "ubm":
        browsing.simulate(rng, starts, row, rank, items[0], shared, click)
    elif name in ("pbm", "trust"):
        alpha = items[0][row]
        p = alpha * shared[rank] if name == "pbm" else alpha * shared[0][rank] + (1.0 - alpha) * shared[1][rank]
        click = (rng.random(row.size) < p).astype(np.uint8)
    else:
        core = Core(items[0], np.zeros(n), 1.0) if name == "cascade" else CHAINS[name].core(items, shared)
        recursions.simulate(rng, starts, row, rank, *core, name == "dcm", click)
    query = rng.integers(queries, size=pages)
    names = np.array([[f"{q}-{i}" for i in range(n)] for q in range(queries)])
    return Pages.from_arrays(
        names[query[:, None], lists], click.reshape(pages, m), query=np.array([f"q{q}" for q in query])
    )
