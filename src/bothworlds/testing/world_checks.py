"""The requirements on worlds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import click, expected_reward
from ..kernels import Floats, Ints, kernel
from ..worlds import World, resolve
from ..worlds.base import first_difference
from .failure import CheckFailed, require, standard_errors

LISTS = 3  # random lists that are checked in a round
DRAWS = 1500  # clicks on each list
COMPILED_DRAWS = 20_000  # the same if users are compiled
SIGMAS = 5.0

Lists = NDArray[np.int64]  # (count, m)


def check_world(world: str | World, rounds: int = 1000) -> None:
    """Check a world; raises CheckFailed at the first requirement that fails.

    Clicks are 0 or 1 and depend on the list, the round and ``rng`` alone, their mean is ``expected_reward``, at five
    standard errors, and ``users``, ``spans``, ``first_round_like``, ``first_change`` and ``best_list`` agree with it.
    Click probabilities, where there is a table, have the right shape, are from 0 to 1 and the same in every call.

    >>> check_world("paper/periodic-both")
    """
    resolved = resolve(world).honest
    rng = np.random.default_rng(0)
    lists = np.array([rng.permutation(resolved.n_items)[: resolved.n_positions] for _ in range(LISTS)])
    try:
        steady = not resolved.has_table and resolved.first_change() is None
        played = (0,) if steady else (0, 1, rounds // 2, rounds)
        for t in played if resolved.has_table else ():
            _check_table(world, resolved, t)
        _check_spans(world, resolved, lists, rounds)
        _check_first_change(world, resolved, lists, rounds)
        for t in played:
            values = _check_values(world, resolved, lists, t)
            _check_clicks(world, resolved, lists, values, t)
            _check_users(world, resolved, lists, values, t)
            _check_best_list(world, resolved, lists, values, t)
    except ValueError as error:
        raise CheckFailed(f"{world}: {error}") from error


def _seen(resolved: World, lists: Lists, t: int) -> NDArray[np.float64]:
    """What tells the users of one round from those of another: their table, or what they give for a few lists."""
    return np.array(resolved.click_probabilities(t)) if resolved.has_table else resolved.expected_rewards(t, lists)


def _check_table(world: Any, resolved: World, t: int) -> None:
    """Click probabilities are a table of probabilities, and the same in every call."""
    p, shape = np.asarray(resolved.click_probabilities(t)), (resolved.n_items, resolved.n_positions)
    require(p.shape == shape, world, f"click_probabilities({t}) must have shape {shape}, got {p.shape}")
    require(bool(((p >= 0.0) & (p <= 1.0)).all()), world, f"click_probabilities({t}) must be from 0 to 1")
    again = np.array_equal(p, resolved.click_probabilities(t))
    require(again, world, f"click_probabilities({t}) must be the same in every call")


def _check_spans(world: Any, resolved: World, lists: Lists, rounds: int) -> None:
    """Parts of the rounds go forward to the end, and users are the same within each."""
    done = 3
    for end in resolved.spans(3, rounds):
        require(done < end <= rounds, world, f"spans must go forward from 3 to {rounds}; got {end} after {done}")
        like = resolved.first_round_like(done)
        require(0 <= like <= done, world, f"first_round_like must be a round up to {done}; got {like}")
        first = _seen(resolved, lists, done)
        for t in {like, end - 1} - {done}:
            same = np.array_equal(first, _seen(resolved, lists, t))
            require(same, world, f"rounds {done} and {t} have the same users by spans, but rewards differ")
        done = end
    require(done == rounds, world, f"spans must cover the rounds up to {rounds}; they end at {done}")


def _check_first_change(world: Any, resolved: World, lists: Lists, rounds: int) -> None:
    """Users before ``first_change`` are those of round 0; those of a table are others in that round."""
    change = resolved.first_change()
    require(change is None or change >= 1, world, f"first_change must be a round after the first or None; got {change}")
    if resolved.has_table and change is not None:
        actual, stated = first_difference(resolved, min(change + 1, rounds)), change if change < rounds else None
        sentence = f"first_change must be the first round with other probabilities; it is {change}, not {actual}"
        require(actual == stated, world, sentence)
    until = rounds if change is None else min(change, rounds)
    first = _seen(resolved, lists, 0)
    for t in set() if resolved.has_table else {1, until // 2, until - 1} - {0}:
        same = np.array_equal(first, _seen(resolved, lists, t))
        require(same, world, f"first_change is {change}, but rewards of round {t} differ from those of round 0")


def _check_values(world: Any, resolved: World, lists: Lists, t: int) -> NDArray[np.float64]:
    """Expected rewards are from 0 to the number of positions, and the same in every call."""
    values = np.array([resolved.expected_reward(t, ranking) for ranking in lists])
    again = np.array([resolved.expected_reward(t, ranking) for ranking in lists[::-1]])[::-1]
    require(np.array_equal(values, again), world, f"expected_reward must be the same in every call, in round {t}")
    possible = bool(((values >= 0.0) & (values <= resolved.n_positions + 1e-9)).all())
    require(possible, world, f"expected_reward must be from 0 to {resolved.n_positions} clicks, got {values}")
    together = np.allclose(resolved.expected_rewards(t, lists), values, rtol=0.0, atol=1e-12)
    require(together, world, "expected_rewards must equal expected_reward of every list")
    return values


def _check_clicks(world: Any, resolved: World, lists: Lists, values: NDArray[np.float64], t: int) -> None:
    """Clicks are 0 or 1, depend on list, round and rng alone, and have the expected reward as their mean."""
    m = resolved.n_positions
    users = resolved.users(t)
    draws, alike = (DRAWS, 200) if users is None else (COMPILED_DRAWS, 20)
    for ranking, value in zip(lists, values.tolist()):
        rng = np.random.default_rng(1)
        first = [np.asarray(resolved.click(t, ranking, rng), np.float64) for _ in range(alike)]
        for clicks in first:
            sound = clicks.shape == (m,) and bool(((clicks == 0.0) | (clicks == 1.0)).all())
            require(sound, world, f"click must return {m} entries that are 0 or 1, got {clicks!r}")
        resolved.click(t, lists[0], np.random.default_rng(2))  # another page in between changes nothing
        rng = np.random.default_rng(1)
        same = all(np.array_equal(np.asarray(resolved.click(t, ranking, rng)), clicks) for clicks in first)
        require(same, world, "click must depend on the list, the round and rng alone; the same rng gave other clicks")
        counts = np.empty(draws)
        if users is None:
            counts[:] = [np.asarray(resolved.click(t, ranking, rng)).sum() for _ in range(draws)]
        else:
            _count_clicks(users, np.ascontiguousarray(ranking), rng, np.empty(m), counts)
        apart = abs(counts.mean() - value) / (counts.std() / np.sqrt(draws) + 1.0 / draws)
        sentence = f"expected_reward must be the mean of the clicks; it differs by {standard_errors(apart)}"
        require(bool(apart <= SIGMAS), world, f"{sentence} in round {t}")


@kernel
def _count_clicks(users: Any, ranking: Ints, rng: np.random.Generator, clicks: Floats, counts: Floats) -> None:
    for k in range(counts.size):
        click(users, ranking, rng, clicks)
        counts[k] = 0.0
        for j in range(clicks.size):
            counts[k] += clicks[j]


def _check_users(world: Any, resolved: World, lists: Lists, values: NDArray[np.float64], t: int) -> None:
    """The compiled users click as the world does, whatever the order of the items."""
    labels = np.random.default_rng(3).permutation(resolved.n_items)
    users = resolved.users(t, labels)
    require((users is None) == (resolved.users(0) is None), world, "users must be compiled in all rounds or in none")
    if users is None:
        return
    clicks = np.empty(resolved.n_positions)
    for ranking, value in zip(np.argsort(labels)[lists], values.tolist()):
        same = abs(expected_reward(users, ranking) - value) <= 1e-12
        require(same, world, "users must have the expected reward of the world, for items in another order")
        one, other = (np.random.default_rng(4) for _ in range(2))
        for _ in range(20):
            click(users, ranking, one, clicks)
            theirs = np.asarray(resolved.click(t, labels[ranking], other))
            require(np.array_equal(clicks, theirs), world, "users must click as the world does")


def _check_best_list(world: Any, resolved: World, lists: Lists, values: NDArray[np.float64], t: int) -> None:
    """The best list has its value, no list is above its bound, and none of a few others is better."""
    best = resolved.best_list(t)
    value = resolved.expected_reward(t, best.ranking)
    require(abs(value - best.value) <= 1e-9, world, f"the best list must have its value; it has {value}")
    require(best.bound >= best.value, world, "the bound of the best list must not be below its value")
    require(bool(values.max() <= best.bound + 1e-9), world, f"no list may be above the bound {best.bound} of the best")
    exchanged = np.repeat(best.ranking[None], best.ranking.size, axis=0)
    for k in range(1, best.ranking.size):
        exchanged[k, [0, k]] = exchanged[k, [k, 0]]
    better = float(resolved.expected_rewards(t, exchanged).max()) - value
    require(better <= 1e-9, world, f"the best list must not gain by an exchange with its first item; it gains {better}")
