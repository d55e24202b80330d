"""Logs of simulated users with a known truth: position-based, trust bias, cascade and DBN users; five ways to rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bothworlds.clicks.pages import Pages

WORLDS = ("pbm", "trust", "cascade", "dbn")
LOGS = ("uniform", "eps", "weekly", "pinned", "constant", "demand")


@dataclass
class Users:
    """Users of Q queries, n items, m positions: attraction (Q, n), and how they read."""

    kind: str
    attraction: np.ndarray
    m: int
    satisfaction: np.ndarray | None = None

    @property
    def examination(self):
        return 1.0 / np.arange(1, self.m + 1) ** 0.7

    def click(self, rng, query, lists, level):
        """Draw clicks (P, m) on lists (P, m)."""
        a = self.attraction[query[:, None], lists]
        u = rng.random(lists.shape)
        if self.kind == "pbm":
            return u < a * self.examination * level[:, None]
        if self.kind == "trust":
            return u < _trust(a, self.examination) * level[:, None]
        clicks, reads = np.zeros(lists.shape, bool), np.ones(len(lists), bool)
        for k in range(self.m):
            hit = reads & (u[:, k] < a[:, k] * level)
            clicks[:, k] = hit
            left = rng.random(len(lists)) < self.satisfaction[query, lists[:, k]]
            stop = hit if self.kind == "cascade" else hit & left
            reads &= ~stop
            if self.kind == "dbn":
                reads &= rng.random(len(lists)) < 0.9
        return clicks

    def value(self, query, lists):
        """Expected clicks (P,) of lists at level 1."""
        a = self.attraction[np.asarray(query)[:, None], lists]
        if self.kind == "pbm":
            return (a * self.examination).sum(axis=1)
        if self.kind == "trust":
            return _trust(a, self.examination).sum(axis=1)
        total, reads = np.zeros(len(lists)), np.ones(len(lists))
        for k in range(self.m):
            hit = reads * a[:, k]
            total += hit
            if self.kind == "cascade":
                reads = reads - hit
            else:
                reads = 0.9 * (reads - hit * self.satisfaction[np.asarray(query), lists[:, k]])
        return total


def _trust(a, beta):
    """Users trust the first results: irrelevant ones are clicked more there."""
    return beta * (a + (1.0 - a) * 0.15 * beta)


@dataclass
class Simulated:
    pages: Pages
    users: Users
    traffic: np.ndarray  # (Q, W) share of pages times level
    shown: np.ndarray  # (W, Q, m) the list of every window
    logged: float  # expected clicks per page of the lists of the log

    def truth(self, target):
        """Expected clicks per page of target lists (Q, m), on the traffic of the log."""
        return float(self.traffic.sum(axis=1) @ self.users.value(np.arange(len(target)), target))


def users(kind, rng, queries=20, items=8, m=5, low=0.05, high=0.5):
    return Users(kind, rng.uniform(low, high, (queries, items)), m, rng.uniform(0.3, 0.9, (queries, items)))


def simulate(kind, log, seed, pages=20_000, queries=20, items=8, m=5, weeks=8, drift=None, high=0.5):
    """A log: lists of every (week, query) are new random ones, but for ``log``; ``drift`` are the levels of weeks."""
    rng = np.random.default_rng([seed, WORLDS.index(kind), LOGS.index(log)])
    people = users(kind, rng, queries, items, m, high=high)
    level = np.ones(weeks) if drift is None else np.asarray(drift, float)
    first = np.array([rng.permutation(items)[:m] for _ in range(queries)])
    shown = np.array([[rng.permutation(items)[:m] for _ in range(queries)] for _ in range(weeks)])
    if log in ("constant", "uniform", "eps"):
        shown[:] = first
    if log == "pinned":  # the first position always shows the same item
        shown[:, :, 0] = first[:, 0]
        for w in range(weeks):
            for q in range(queries):
                shown[w, q, 1:] = rng.permutation(np.setdiff1d(np.arange(items), first[q, 0]))[: m - 1]
    share = rng.dirichlet(np.full(queries, 20.0))
    query, week = rng.choice(queries, pages, p=share), rng.integers(weeks, size=pages)
    if log == "demand":
        return _demand(people, rng, query, week, level)
    lists = shown[week, query]
    if log in ("uniform", "eps"):
        random = np.argsort(rng.random((pages, items)), axis=1)[:, :m]
        lists = np.where((rng.random(pages) < (1.0 if log == "uniform" else 0.2))[:, None], random, lists)
    return _result(people, rng, query, week, lists, level, shown)


def _demand(people, rng, query, week, level):
    """The demand for items differs from week to week, and lists follow it."""
    base, mean = people.attraction.copy(), np.zeros_like(people.attraction)
    lists, clicks, shown = np.zeros((query.size, people.m), np.int64), np.zeros((query.size, people.m), bool), []
    for w in range(level.size):
        people.attraction = np.clip(base * np.exp(rng.normal(0.0, 0.4, base.shape)), 0.01, 0.95)
        mean += people.attraction / level.size
        order = np.argsort(-people.attraction, axis=1)[:, : people.m]
        own = week == w
        lists[own] = order[query[own]]
        clicks[own] = people.click(rng, query[own], lists[own], level[week[own]])
        shown.append(order)
    people.attraction = mean
    return _simulated(people, query, week, lists, clicks, level, np.array(shown))


def _result(people, rng, query, week, lists, level, shown):
    return _simulated(people, query, week, lists, people.click(rng, query, lists, level[week]), level, shown)


def _simulated(people, query, week, lists, clicks, level, shown):
    queries, items = people.attraction.shape
    m, weeks = people.m, level.size
    traffic = np.bincount(query * weeks + week, minlength=queries * weeks).reshape(queries, weeks)
    rows = np.column_stack([query, week, lists, clicks])
    unique, count = np.unique(rows, axis=0, return_counts=True)
    size = len(unique)
    pages = Pages(
        items=tuple(map(str, range(items))),
        queries=tuple(map(str, range(queries))),
        positions=tuple(range(1, m + 1)),
        query=unique[:, 0].copy(),
        starts=np.arange(size + 1) * m,
        item=unique[:, 2 : 2 + m].astype(np.int32).ravel(),
        position=np.tile(np.arange(m, dtype=np.int16), size),
        click=unique[:, 2 + m :].astype(np.uint8).ravel(),
        count=count,
        windows=tuple(f"2026-01-{w + 1:02}" for w in range(weeks)) if weeks > 1 else (),
        window=unique[:, 1].copy() if weeks > 1 else None,
    )
    logged = float((people.value(query, lists) * level[week]).mean())
    return Simulated(pages, people, traffic * level / query.size, shown, logged)


def target_of(lists):
    return {str(q): [str(i) for i in row] for q, row in enumerate(lists.tolist())}


def far_target(people):
    """The best items first."""
    return np.argsort(-people.attraction, axis=1)[:, : people.m]


def near_target(found):
    """The list of the last week, with its first two items swapped."""
    lists = found.shown[-1].copy()
    lists[:, [0, 1]] = lists[:, [1, 0]]
    return lists


def made_target(found, judge):
    """The items of every query in the order of the attraction that the log says they have."""
    fit, (queries, items) = judge.fit("pbm"), found.users.attraction.shape
    row = fit.rows(np.repeat(np.arange(queries), items), np.tile(np.arange(items), queries))
    effect = np.where(row >= 0, fit.fitted.row_effect[row], -np.inf).reshape(queries, items)
    return np.argsort(-effect, axis=1)[:, : found.users.m]
