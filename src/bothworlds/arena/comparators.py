"""The comparators of regret: the rewards of the best rankings in hindsight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..geometry import best_ranking
from ..worlds import BestList, ContextualWorld, World
from ..worlds.best_list import ENUMERATED, search

KNOWN_USERS = 1000  # whose best value is kept


class Comparators(NamedTuple):
    """Cumulative expected rewards at the checkpoints, and how they were computed, by the name of the comparator."""

    fixed: NDArray[np.float64]
    dynamic: NDArray[np.float64]
    methods: dict[str, str]


def comparators(world: World, marks: NDArray[np.int64]) -> Comparators:
    """Return the cumulative expected reward of the best fixed ranking, and of the best ranking of each round.

    In a world with contexts they are those of each context. If an adversary attacks, they are the best rankings for the
    users. The fixed ranking is the best one for the rounds up to that checkpoint: R(t) is the regret of a game of t
    rounds.

    >>> from bothworlds.worlds import periodic, stochastic
    >>> world = periodic([stochastic([0.9, 0.1], [1.0]), stochastic([0.1, 0.9], [1.0])], phase=10)
    >>> fixed, dynamic, methods = comparators(world, np.array([10, 20]))
    >>> fixed.round(6).tolist(), dynamic.round(6).tolist()
    ([9.0, 10.0], [9.0, 18.0])
    >>> methods["fixed"]
    'exact, by assignment'
    """
    users = world.honest
    if isinstance(users, ContextualWorld):
        methods = dict.fromkeys(("fixed", "dynamic"), "exact, by assignment for each context")
        return Comparators(*users.best_by_context(marks.tolist()), methods)
    return _best_assignments(users, marks) if users.has_table else _best_lists(users, marks)


def _best_assignments(world: World, marks: NDArray[np.int64]) -> Comparators:
    fixed, dynamic = np.empty(len(marks)), np.empty(len(marks))
    summed = np.zeros((world.n_items, world.n_positions))
    best_so_far, done = 0.0, 0
    known: dict[int, float] = {}  # by the first round with these users
    for k, mark in enumerate(marks.tolist()):
        for end, probabilities in world.pieces(done, mark):
            alike = world.first_round_like(done)
            value = known[alike] if alike in known else _value(probabilities)
            if len(known) < KNOWN_USERS:
                known[alike] = value
            best_so_far += (end - done) * value
            summed += (end - done) * probabilities
            done = end
        fixed[k], dynamic[k] = _value(summed), best_so_far
    return Comparators(fixed, dynamic, dict.fromkeys(("fixed", "dynamic"), "exact, by assignment"))


def _value(scores: NDArray[np.float64]) -> float:
    return float(scores[best_ranking(scores), np.arange(scores.shape[1])].sum())


def _best_lists(world: World, marks: NDArray[np.int64]) -> Comparators:
    """The comparators in a world that answers a whole list, which has no table to add up.

    Rounds with the same users are counted. The best list of each kind of users comes from the world; the best fixed
    list maximises the weighted sum of their values.
    """
    fixed, dynamic = np.empty(len(marks)), np.empty(len(marks))
    best: dict[int, BestList] = {}
    rounds: dict[int, int] = {}  # by the first round with these users
    known: dict[tuple[float, ...], BestList] = {}
    done = 0
    for k, mark in enumerate(marks.tolist()):
        for end in world.spans(done, mark):
            t = world.first_round_like(done)
            if t not in best:
                best[t] = world.best_list(t)
            rounds[t] = rounds.get(t, 0) + end - done
            done = end
        dynamic[k] = sum(count * best[t].value for t, count in rounds.items())
        if len(rounds) == 1:
            fixed[k] = dynamic[k]
            continue
        shares = tuple(count / done for count in rounds.values())
        if shares not in known:
            known[shares] = _best_of_sum(world, dict(zip(rounds, shares)), best)
        fixed[k] = done * known[shares].value
    worst = max(best.values(), key=lambda found: found.bound / found.value if found.value else 1.0)
    methods = {"dynamic": worst.guarantee, "fixed": worst.guarantee}
    if known:
        methods["fixed"] = max(known.values(), key=lambda found: found.bound / found.value).guarantee
    return Comparators(fixed, dynamic, methods)


def _best_of_sum(world: World, shares: dict[int, float], best: dict[int, BestList]) -> BestList:
    """Return the list with the largest mean value over users, by enumeration or local search.

    No list is better than the best lists of all users, which bounds the result of a search.
    """

    def values(lists: NDArray[np.int64]) -> NDArray[np.float64]:
        total: NDArray[np.float64] = sum(
            (share * world.expected_rewards(t, lists) for t, share in shares.items()), np.zeros(len(lists))
        )
        return total

    bound = sum(share * best[t].bound for t, share in shares.items())
    return search(values, world.n_items, world.n_positions, ENUMERATED, bound)
