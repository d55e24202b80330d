"""Rankers with some experience, and what they do next."""

from __future__ import annotations

import numpy as np

from bothworlds import Ranker
from tests.policies.plain import EpsilonGreedy, Stranger

PAGES = ["news", "sport", "weather", "music", "chess"]
PLAYERS = ["ftrl-pbm", "uniform", EpsilonGreedy(), Stranger()]


def future(ranker, rounds=20):
    """What a ranker does next, with visitors who like the first page best."""
    seen = []
    for _ in range(rounds):
        shown = ranker.rank()
        seen.append((shown.id, shown.items, np.nan_to_num(shown.propensities, nan=-1.0).tolist()))
        ranker.feedback(shown.id, [item for item in shown.items if item == ranker.items[0]])
    return seen


def experienced(rounds=30, **settings):
    ranker = Ranker(PAGES, 3, **({"seed": 1} | settings))
    future(ranker, rounds)
    return ranker


def visited(ranker, visits):
    """The ids of pages that were shown, one a visit, and on which the first item was clicked."""
    ids = []
    for _ in visits:
        shown = ranker.rank()
        ranker.feedback(shown.id, shown.items[:1])
        ids.append(shown.id)
    return ids
