"""What it costs and saves to start from the page's own order, for policies as the service runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..policies import Policy, policy
from ..worlds import World
from .delayed_all_weather import DelayedAllWeather
from .delayed_policy import DelayedFtrl
from .question import Game
from .result_lookup import Results
from .verdict import Estimate, estimate

__all__ = ["BASELINE_ROUNDS", "Served", "allowed_cost", "baseline_games", "page_orders", "regret_added", "table_rows"]

BASELINE_ROUNDS = 1000

Served = DelayedFtrl | DelayedAllWeather


def page_orders(world: World) -> dict[str, tuple[int, ...]]:
    """Return orders that a page may have had, of a world whose items are listed from the best to the worst."""
    best = tuple(range(world.n_items))
    return {
        "second and third swapped": (best[0], best[2], best[1], *best[3:]),
        "third item first": (best[2], *best[:2], *best[3:]),
        "worst first": best[::-1],
    }


def started(served: Served, order: tuple[int, ...]) -> Policy:
    """Return a policy that starts from the page's own order."""
    return replace(served, baseline=order, baseline_rounds=BASELINE_ROUNDS)


def baseline_games(served: Mapping[Served, int], worlds: list[World], rounds: int) -> list[Game]:
    """Return policies with a start from every order, and the orders themselves, in every world.

    ``served`` maps policies to numbers of replications.
    """
    games = []
    for world in worlds:
        for order in page_orders(world).values():
            games += [Game(started(one, order), world, rounds, seeds) for one, seeds in served.items()]
            games.append(Game(_shown(order, world), world, rounds, max(served.values())))
    return games


def _shown(order: tuple[int, ...], world: World) -> Policy:
    return policy("fixed", ranking=list(order[: world.n_positions]))


def regret_added(results: Results, served: Served, world: World, order: tuple[int, ...], *, early: bool) -> Estimate:
    """Estimate how much regret the start adds: in the first ``BASELINE_ROUNDS`` rounds (``early``), or in all."""
    plain, own = results[served, world], results[started(served, order), world]
    last = int(np.searchsorted(plain.rounds, BASELINE_ROUNDS)) if early else -1
    last = min(last, plain.rounds.size - 1)
    return estimate(own.regret()[:, last] - plain.regret()[:, last])


def allowed_cost(results: Results, world: World, order: tuple[int, ...]) -> float:
    """Return what ``BASELINE_ROUNDS`` / 2 pages in the page's own order lose against the best order."""
    shown = results[_shown(order, world), world]
    return 0.5 * BASELINE_ROUNDS * float(shown.regret()[:, -1].mean()) / int(shown.rounds[-1])


def table_rows(results: Results, served: Served, world: World) -> dict[str, Estimate]:
    """Return the regret that a start from every order adds, early and in all."""
    return {
        f"{name}, {'at first' if early else 'in all'}": regret_added(results, served, world, order, early=early)
        for name, order in page_orders(world).items()
        for early in (True, False)
    }
