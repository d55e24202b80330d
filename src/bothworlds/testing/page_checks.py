"""The checks of policies whose items can be changed, excluded and pinned: those with parts, see ``policies.pages``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import Decision, Shape
from ..kernels import Floats
from ..policies import Policy, configured_for
from ..policies.marginals import frequencies, known_marginals
from ..policies.pages import Page, Part, has_parts, part_for, rank_page, resized
from ..worlds import stochastic
from .failure import require

PAGES = 200
ATTRACTION, EXAMINATION = np.array([0.9, 0.7, 0.4, 0.2, 0.1]), np.array([0.9, 0.6, 0.3])
DRAWS = 500  # to estimate marginals that are not known
MOST_APART = 0.1  # clicks per page: five standard errors of such an estimate, and what predicted losses change
ABSENT, LOW_RATES = 0.8, np.array([0.6, 0.4, 0.2, 0.0])  # an item that is absent so often has less loss than the best
REUSED, RUNS = 20, 3
LONG = 1000  # pages, of which so few have the item that is absent: enough for a policy that waits until it is certain


def check_a_part_is_a_smaller_problem(policy: Policy) -> None:
    """A part of the state ranks like a policy that knows no other items and positions and has learned the same."""
    if not has_parts(policy) or not policy.adaptive:
        return
    items, positions, shape = np.array([0, 2, 3, 4]), np.array([0, 2]), Shape(5, 3)
    whole_policy = configured_for(policy, PAGES, stochastic(ATTRACTION, EXAMINATION))
    small_policy = whole_policy.part(items, positions)
    whole, small = whole_policy.init(*shape), small_policy.init(len(items), len(positions))
    rng, users, page = np.random.default_rng(0), np.random.default_rng(1), Page(items, {1: 1})
    for _ in range(PAGES):
        decision = rank_page(Part(small_policy, small, items, positions), page, shape, rng)
        rates = ATTRACTION[decision.ranking] * EXAMINATION
        clicks = (users.random(shape.n_positions) < rates).astype(np.float64)
        clicks[1] = 0.0  # a click at a position that the smaller problem does not have would end a cascade
        ranking = np.searchsorted(items, decision.ranking[positions])
        small_policy.learn(small, Decision(ranking, decision.propensity[positions]), clicks[positions])
        whole_policy.learn(whole, decision, clicks)
    part = resized(whole_policy, whole, items, positions)
    rates = np.outer(ATTRACTION[items], EXAMINATION[positions])
    difference = _marginals(part.policy, part.state) - _marginals(small_policy, small)
    apart = float((difference * rates).sum())
    sentence = f"a part must rank like a smaller problem that has learned the same; its clicks differ by {apart:+.2f}"
    require(abs(apart) <= MOST_APART, policy, sentence)


def check_an_absent_item_does_not_gain(policy: Policy) -> None:
    """An item that is never clicked and is excluded from most pages does not come to look best."""
    if not has_parts(policy) or not policy.adaptive:
        return
    n, rounds, shown = len(LOW_RATES), LONG, np.zeros(len(LOW_RATES))
    informed = configured_for(policy, rounds, stochastic(LOW_RATES, np.ones(1)))
    pages = Page(np.arange(n), {}), Page(np.arange(n - 1), {})
    for seed in range(RUNS):
        state, rng = informed.init(n, 1), np.random.default_rng(seed)
        for k in range(rounds):
            if k % REUSED == 0:
                parts = [part_for(informed, state, page) for page in pages]
            excluded = rng.random() < ABSENT
            decision = rank_page(parts[excluded], pages[excluded], Shape(n, 1), rng)
            informed.learn(state, decision, (rng.random(1) < LOW_RATES[decision.ranking]).astype(np.float64))
            if not excluded and k >= rounds // 2:
                shown[decision.ranking] += 1.0
    *_, worst = shares = shown / shown.sum()
    sentence = f"an item must not gain by absence; the worst is on {worst:.2f} of other pages, the best {shares[0]:.2f}"
    require(bool(worst < shares[0]), policy, sentence)


def _marginals(policy: Any, state: Any) -> Floats:
    known = known_marginals(policy, state)
    if known is not None:
        return known
    return frequencies(policy.sample_rankings(state, DRAWS, np.random.default_rng(5)), tuple(state.shape))
