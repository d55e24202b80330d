"""Users as compiled loops know them, how they answer a list, and calls of their kernels from Python.

This module imports the compiler; worlds import it when their users are first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import click, clicks, expected_reward, expects
from ..kernels import Floats, Ints, kernel, register_kernels
from ..statistics.click_users import Users, draw_clicks, expected_clicks

if TYPE_CHECKING:
    from .base import World

TOTALS = 6  # expected reward, clicks, and the four scores of an attack


class Answer(NamedTuple):
    """What users did with a list, what is reported of it, and the sums over all rounds. It is filled in every round."""

    clicks: Floats  # (m,)
    reported: Floats  # (m,) what the policy learns: the same array as ``clicks``, unless there is an adversary
    totals: Floats  # (TOTALS,)


def new_answer(n_positions: int, adversary: Any = None) -> Answer:
    """Return an answer before the first round; if there is an adversary, its reports have an array of their own."""
    clicks = np.zeros(n_positions)
    return Answer(clicks, clicks if adversary is None else np.zeros(n_positions), np.zeros(TOTALS))


def arrive(users: Any, rng: np.random.Generator, context: Ints) -> None:
    """Draw the next visitor and fill in the context; users without contexts do nothing. Can be called compiled."""
    if type(users) in _ARRIVE:
        _ARRIVE[type(users)](users, rng, context)


def answer(users: Any, ranking: Ints, rng: np.random.Generator, to: Answer) -> None:
    """Let users click on a list, and add to the totals. Can be called from compiled code.

    Users without an implementation of their own answer with ``expected_reward`` and ``click``.
    """
    _ANSWER.get(type(users), answer_list)(users, ranking, rng, to)


# Not kernels: they are compiled as part of the loop.


def answer_list(users: Any, ranking: Ints, rng: np.random.Generator, to: Answer) -> None:
    to.totals[0] += expected_reward(users, ranking)
    click(users, ranking, rng, to.clicks)
    for j in range(ranking.size):
        to.totals[1] += to.clicks[j]


class TableUsers(NamedTuple):
    """Users with a table of click probabilities."""

    probabilities: Floats  # (n, m)


def answer_table(users: TableUsers, ranking: Ints, rng: np.random.Generator, to: Answer) -> None:
    for j in range(ranking.size):
        p = users.probabilities[ranking[j], j]
        to.totals[0] += p
        to.clicks[j] = 1.0 if rng.random() < p else 0.0
        to.totals[1] += to.clicks[j]


class PlainUsers:
    """The users of a world in plain Python, with item ``labels[i]`` as item i, from round ``t`` on."""

    def __init__(self, world: World, labels: NDArray[np.int64], t: int) -> None:
        self.world, self.labels, self.t = world, labels, t


def answer_plainly(users: PlainUsers, ranking: Ints, rng: np.random.Generator, to: Answer) -> None:
    """Let the users of the next round click on a list, as ``answer``."""
    shown = users.labels[ranking]
    to.totals[0] += float(users.world.expected_reward(users.t, shown))
    to.clicks[:] = users.world.click(users.t, shown, rng)
    to.totals[1] += to.clicks.sum()
    users.t += 1


class ContextUsers(NamedTuple):
    """Users of several contexts, each with its own attraction and examination."""

    contexts: Ints  # (contexts, visitor labels)
    until: Floats  # (contexts,) the share of the contexts up to this one
    attraction: Floats  # (contexts, n)
    examination: Floats  # (contexts, m)
    bend: Floats  # (n, m) factor of every click probability
    present: Ints  # (1,) the context of the visitor who has arrived


@kernel
def draw_context(users: ContextUsers, rng: np.random.Generator, context: Ints) -> None:
    c = min(int(np.searchsorted(users.until, rng.random(), "right")), users.until.size - 1)
    users.present[0] = c
    for k in range(context.size):
        context[k] = users.contexts[c, k]


@kernel
def chance_in(users: ContextUsers, c: int, i: int, j: int) -> float:
    return users.attraction[c, i] * users.examination[c, j] * users.bend[i, j]


def answer_in_context(users: ContextUsers, ranking: Ints, rng: np.random.Generator, to: Answer) -> None:
    for j in range(ranking.size):
        p = chance_in(users, users.present[0], ranking[j], j)
        to.totals[0] += p
        to.clicks[j] = 1.0 if rng.random() < p else 0.0
        to.totals[1] += to.clicks[j]


_ANSWER: dict[type, Any] = {TableUsers: answer_table, PlainUsers: answer_plainly, ContextUsers: answer_in_context}
_ARRIVE: dict[type, Any] = {ContextUsers: draw_context}
register_kernels(answer, _ANSWER, otherwise=answer_list)
register_kernels(arrive, _ARRIVE, otherwise=lambda users, rng, context: None)


@clicks(ContextUsers)
def click_of_a_visitor(state: ContextUsers, ranking: Ints, rng: np.random.Generator, clicks: Floats) -> None:
    draw_context(state, rng, ranking[:0])
    for j in range(ranking.size):
        clicks[j] = 1.0 if rng.random() < chance_in(state, state.present[0], ranking[j], j) else 0.0


@expects(ContextUsers)
def expected_of_visitors(state: ContextUsers, ranking: Ints) -> float:
    total, before = 0.0, 0.0
    for c in range(state.until.size):
        for j in range(ranking.size):
            total += (state.until[c] - before) * chance_in(state, c, ranking[j], j)
        before = state.until[c]
    return total


@clicks(TableUsers)
def click_independently(state: TableUsers, ranking: Ints, rng: np.random.Generator, clicks: Floats) -> None:
    for j in range(ranking.size):
        clicks[j] = 1.0 if rng.random() < state.probabilities[ranking[j], j] else 0.0


@expects(TableUsers)
def expected_of_table(state: TableUsers, ranking: Ints) -> float:
    total = 0.0
    for j in range(ranking.size):
        total += state.probabilities[ranking[j], j]
    return total


@clicks(Users)
def click_down_the_list(state: Users, ranking: Ints, rng: np.random.Generator, clicks: Floats) -> None:
    draw_clicks(state, rng, ranking, state.ranks, 0, ranking.size, clicks)


@expects(Users)
def expected_down_the_list(state: Users, ranking: Ints) -> float:
    return expected_clicks(state, ranking, state.ranks, 0, ranking.size)


def clicks_on(users: Any, ranking: ArrayLike, rng: np.random.Generator, n_positions: int) -> NDArray[np.float64]:
    """Draw the clicks (n_positions,) of users on a list."""
    drawn = np.empty(n_positions)
    click(users, np.ascontiguousarray(ranking, dtype=np.int64), rng, drawn)
    return drawn


def reward_of(users: Any, ranking: ArrayLike) -> float:
    """Return the expected number of clicks of users on a list."""
    return expected_reward(users, np.ascontiguousarray(ranking, dtype=np.int64))


def rewards_of(users: Any, rankings: ArrayLike) -> NDArray[np.float64]:
    """Return the expected number of clicks of users on each of several lists (count, n_positions)."""
    lists = np.array(rankings, np.int64, order="C")
    values = np.empty(len(lists))
    _fill_rewards(users, lists, values)
    return values


@kernel
def _fill_rewards(users: Any, rankings: Ints, values: Floats) -> None:
    for k in range(rankings.shape[0]):
        values[k] = expected_reward(users, rankings[k])
