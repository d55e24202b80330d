"""Logs with a known truth, and the formulas of the estimators written out."""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import numpy as np

NAMES = np.array(list("abcdefghijklmnopqrstuvwxyz"))


class Logging(NamedTuple):
    """Lists (K, m), how likely each is, and the marginals (n, m) that follow."""

    lists: np.ndarray
    chances: np.ndarray
    marginals: np.ndarray


def logging_policy(n, m, rng=None):
    """Every list of m of n items: equally likely, or as likely as the generator says."""
    lists = np.array(list(permutations(range(n), m)))
    chances = np.full(len(lists), 1.0 / len(lists)) if rng is None else rng.dirichlet(np.full(len(lists), 2.0))
    marginals = np.zeros((n, m))
    for j in range(m):
        np.add.at(marginals[:, j], lists[:, j], chances)
    return Logging(lists, chances, marginals)


def pages(rng, logging, rates, count, mood=0.0):
    """Rankings and clicks (count, m) of users who click at these rates, more on some days and less on others."""
    ranking = logging.lists[rng.choice(len(logging.lists), size=count, p=logging.chances)]
    today = 1.0 + mood * rng.choice([-1.0, 1.0], size=(count, 1))
    clicks = rng.random(ranking.shape) < rates[ranking, np.arange(ranking.shape[1])] * today
    return ranking, clicks.astype(np.int64)


def as_log(ranking, clicks, marginals, *, paged=True, propensity=True, **more):
    """The log of these pages, an impression a row; positions count from 1."""
    count, m = ranking.shape
    columns = dict(
        item=NAMES[ranking.ravel()],
        position=np.tile(np.arange(1, m + 1), count),
        click=clicks.ravel(),
        propensity=marginals[ranking, np.arange(m)].ravel() if propensity else None,
        event=np.repeat(np.arange(count), m) if paged else None,
        timestamp=np.repeat(np.arange(count), m),
        **more,
    )
    return {name: column for name, column in columns.items() if column is not None}


def as_marginals(x):
    return {str(NAMES[i]): row.tolist() for i, row in enumerate(x)}


def by_the_formulas(ranking, clicks, marginals, x, clip):
    """Values and standard errors per position (m,) of ips, snips and clipped."""
    places = np.arange(ranking.shape[1])
    w, n = x[ranking, places] / marginals[ranking, places], len(ranking)
    snips = (w * clicks).sum(axis=0) / w.sum(axis=0)
    cut = np.minimum(w, clip)
    return {
        "logged": (clicks.mean(axis=0), clicks.std(axis=0, ddof=1) / np.sqrt(n)),
        "ips": ((w * clicks).mean(axis=0), (w * clicks).std(axis=0, ddof=1) / np.sqrt(n)),
        "snips": (snips, np.sqrt(((w * (clicks - snips)) ** 2).sum(axis=0) * n / (n - 1)) / w.sum(axis=0)),
        "clipped": ((cut * clicks).mean(axis=0), (cut * clicks).std(axis=0, ddof=1) / np.sqrt(n)),
    }
