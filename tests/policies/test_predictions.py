"""Predictions that stay in force for many decisions: how large they may be, and when they are renewed."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds import policies
from bothworlds.core import Block, Ledger
from bothworlds.policies.predictions import (
    GROWTH,
    UNITS,
    Predictions,
    exceeds_limit,
    in_units,
    needs_renewal,
    next_renewal,
)

RATES = np.outer([0.9, 0.6, 0.3, 0.1], [1.0, 0.5])


def a_ledger(rounds: int, spread: float = 0.0) -> Ledger:
    shown = np.full(RATES.shape, rounds / 4.0)
    block = Block(0.0, 1.0, rounds, shown, shown * RATES, spread)
    return Ledger(rounds, rounds * (1.0 - RATES), shown, shown * RATES, (block,))


def predicted(name: str, ledger: Ledger) -> tuple[object, Predictions]:
    policy = policies.policy(name)
    state = policy.resumed(ledger)
    made = policy.predictions(state)
    assert made is not None
    return state, made


@pytest.mark.parametrize("name", ["ftrl-va", "all-weather"])
@pytest.mark.parametrize("rounds", [10, 1000, 100_000])
def test_predictions_keep_the_margin_of_the_leader(name, rounds):
    state, made = predicted(name, a_ledger(rounds))
    w = state.weight[0] if name == "all-weather" else 1.0
    x, R = state.leading.marginals, (state if name == "all-weather" else state.rule).spread[0]
    # The cap of the policy itself is p sqrt(R) / (4 sqrt(x)), and p is at least w x.
    assert (made.limit <= w * x * np.sqrt(R) / (4.0 * np.sqrt(x)) * (1.0 + 1e-12)).all()
    assert (made.used <= made.limit / 2.0).all()
    assert (made.used <= made.expected).all()
    assert not exceeds_limit(in_units(made.used), made)
    assert exceeds_limit(in_units(made.used), made._replace(limit=made.used / 3.0))


def test_clicks_are_predicted_from_the_pairs_own_clicks():
    _, made = predicted("ftrl-va", a_ledger(10**6))
    assert made.expected == pytest.approx(1.0 - RATES, abs=1e-4)
    assert made.used[0, 0] == pytest.approx(1.0 - RATES[0, 0], abs=1e-4)


def test_without_predictions_the_leader_is_that_of_ftrl_pbm():
    ledger = a_ledger(5000)
    one, other = (policies.policy(name) for name in ("ftrl-va", "ftrl-pbm"))
    assert np.allclose(one.marginals(one.resumed(ledger)), other.marginals(other.resumed(ledger)), atol=1e-5)


def test_small_errors_of_predictions_make_the_leader_faster():
    policy = policies.policy("ftrl-va")
    slow, fast = (policy.marginals(policy.resumed(a_ledger(500, spread))) for spread in (0.0, -3.9 * 500))
    assert fast[0, 0] > slow[0, 0] + 0.05


def test_tsallis_rv_predicts_a_half_for_likely_pairs_only():
    state, made = predicted("tsallis-rv", a_ledger(400))
    likely = state.leading.marginals >= 16.0 / 401.0
    assert 0 < likely.sum() < likely.size
    assert (made.used == np.where(likely, 0.5, 0.0)).all()


@pytest.mark.slow
def test_the_number_of_renewals_grows_with_the_logarithm_of_rounds():
    made = Predictions(*np.full((3, 2, 2), 0.5), memory=0.0)
    used, made_at, renew_at, count = in_units(made.used), 0, 1, 0
    for rounds in range(1, 100_001):
        if needs_renewal(used, made_at, renew_at, rounds, made):
            made_at, renew_at, count = rounds, next_renewal(rounds, float(rounds)), count + 1
    assert count < 10 + 4 * np.log(10) / np.log(1.0 + GROWTH)


def test_predictions_above_the_limit_are_renewed_but_not_in_every_round():
    low = Predictions(*np.full((3, 2, 2), 0.1), memory=1000.0)
    used = np.full((2, 2), UNITS // 2, np.uint8)
    due = [rounds for rounds in range(1000, 1100) if needs_renewal(used, 1000, 1100, rounds, low)]
    assert due == list(range(1010, 1100))
    assert needs_renewal(used, 1000, 1100, 999, low)  # a reset
