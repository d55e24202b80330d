"""Logs of whole pages that follow a known click model."""

from __future__ import annotations

import numpy as np

from bothworlds.clicks import Pages
from bothworlds.statistics.chain import FAMILIES
from bothworlds.statistics.click_users import ranks_of_column, simulate, users_of

SHARED = {"cascade": [], "dcm": [0.8, 0.6, 0.4, 0.3], "sdbn": [], "dbn": [0.8], "ccm": [0.8, 0.3, 0.7]}


def truth(name, n, m, seed):
    """The parameters of the items (p, n), and the shared ones."""
    rng = np.random.default_rng([seed, 1])
    items = np.array([rng.uniform(0.15, 0.7, n), rng.uniform(0.2, 0.8, n)])
    if name == "ubm":
        ranks = [ranks_of_column(column) for column in range(m * (m + 1) // 2)]
        return items[:1], np.array([1.0 / (1.0 + 0.4 * (rank - 1 - last)) for rank, last in ranks])
    if name == "pbm":
        return items[:1], 1.0 / np.arange(1, m + 1) ** 0.7
    if name == "trust":
        return items[:1], np.array([np.linspace(0.9, 0.4, m), np.linspace(0.3, 0.02, m)])
    return items[: len(FAMILIES[name].items)], np.array(SHARED[name])[:m]


def true_users(name, n, m, seed):
    """The users with these parameters."""
    items, shared = truth(name, n, m, seed)
    named = dict(zip(("attraction", "satisfaction"), items))
    if name in ("ubm", "pbm"):
        return users_of(name, named, {"examination": shared}, n, m)
    if name == "trust":
        return users_of(name, named, {"slope": shared[0] - shared[1], "offset": shared[1]}, n, m)
    return users_of(name, named, {"shared": shared}, n, m)


def simulated(name, pages=4_000, n=8, m=4, queries=1, seed=0):
    """Pages of uniformly random lists, clicked as in a model; every query has its own items with the same truth."""
    rng = np.random.default_rng(seed)
    lists = np.argsort(rng.random((pages, n)), axis=1)[:, :m]
    click = np.zeros(pages * m, np.uint8)
    users = true_users(name, n, m, seed)
    simulate(users, rng, np.arange(pages + 1) * m, lists.ravel(), np.tile(np.arange(m), pages), click)
    query = rng.integers(queries, size=pages)
    names = np.array([[f"{q}-{i}" for i in range(n)] for q in range(queries)])
    return Pages.from_arrays(
        names[query[:, None], lists], click.reshape(pages, m), query=np.array([f"q{q}" for q in query])
    )
