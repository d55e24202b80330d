"""Sample ratio mismatch: the evidence against exact arithmetic, its martingale property, and false alarms."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.statistics.sample_ratio import ALARM, CONCENTRATION, log_evidence

COUNTS = st.integers(0, 400)
SHARES = st.sampled_from([0.01, 0.05, 0.1, 0.5, 0.9])


def evidence_by_prediction(first: int, second: int, share: Fraction) -> Fraction:
    """The product over units of predicted probability over share, as in an urn of Polya."""
    a, b = CONCENTRATION_EXACT * share, CONCENTRATION_EXACT * (1 - share)
    product = Fraction(1)
    for k in range(first):
        product *= (a + k) / (a + b + k) / share
    for k in range(second):
        product *= (b + k) / (a + b + first + k) / (1 - share)
    return product


CONCENTRATION_EXACT = Fraction(int(CONCENTRATION))


@pytest.mark.slow
@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from([Fraction(1, 20), Fraction(1, 2), Fraction(9, 10)]))
def test_the_evidence_is_the_product_of_predictions(first, second, share):
    exact = evidence_by_prediction(first, second, share)
    assert log_evidence((first, second), (float(share), 1.0 - float(share))) == pytest.approx(math.log(exact), abs=1e-8)


@given(COUNTS, COUNTS, SHARES)
def test_the_evidence_is_a_martingale_under_the_share(first, second, share):
    now = log_evidence((first, second), (share, 1.0 - share))
    one, other = (log_evidence(n, (share, 1.0 - share)) for n in ((first + 1, second), (first, second + 1)))
    assert share * math.exp(one - now) + (1.0 - share) * math.exp(other - now) == pytest.approx(1.0, abs=1e-8)


@given(COUNTS, COUNTS, SHARES, st.floats(0.0, 0.2))
def test_with_a_tolerance_the_evidence_is_the_smallest_over_tolerated_shares(first, second, share, tolerance):
    odds = share / (1.0 - share)
    prior = log_evidence((first, second), (share, 1.0 - share))  # the prior belongs to the share itself

    def against(other):
        moved = first * math.log(share / other) + second * math.log((1.0 - share) / (1.0 - other))
        return prior + moved

    tolerated = odds * np.exp(np.linspace(-1.0, 1.0, 201) * math.log1p(tolerance))
    least = min(against(o / (1.0 + o)) for o in tolerated.tolist())
    found = log_evidence((first, second), (share, 1.0 - share), tolerance=tolerance)
    assert least - 0.01 <= found <= least + 1e-9


def test_an_impossible_share_is_refused():
    for share in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="shares must be"):
            log_evidence((1, 1), (share, 1.0 - share))


def alarms(rng, share, decides, runs=1000, looks=200, step=100, kept=1.0):
    """The share of runs with an alarm at some look; of the first arm, only ``kept`` of the units are counted."""
    first = rng.binomial(step, share, (runs, looks))
    second = (step - first).cumsum(axis=1)
    first = rng.binomial(first, kept).cumsum(axis=1)
    return np.mean([any(map(decides, a, b)) for a, b in zip(first.tolist(), second.tolist())])


@pytest.mark.slow
def test_a_thousand_surfaces_without_a_mismatch_raise_no_alarm_and_a_mismatch_does(rng):
    share = 0.1

    def martingale(a, b):
        return log_evidence((a, b), (share, 1.0 - share)) > ALARM

    def chi_squared(a, b):  # the broken twin: a test of level 1/1000 at every look
        n = a + b
        return (a - n * share) ** 2 / (n * share * (1.0 - share)) > 10.83

    assert alarms(rng, share, martingale) <= 0.004  # 1/1000 by theory, three standard errors
    assert alarms(rng, share, chi_squared) > 0.01
    assert alarms(rng, share, martingale, runs=50, kept=0.7) == 1.0


THIRDS = (0.1, 0.3, 0.6)


@given(COUNTS, COUNTS, COUNTS)
def test_the_evidence_of_three_arms_is_a_martingale_under_their_shares(first, second, third):
    counts = [first, second, third]
    now = log_evidence(counts, THIRDS)
    after = [log_evidence([n + (j == k) for j, n in enumerate(counts)], THIRDS) for k in range(3)]
    assert sum(share * math.exp(one - now) for share, one in zip(THIRDS, after)) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.slow
@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 300), st.floats(0.01, 0.2))
def test_with_a_tolerance_the_evidence_of_three_arms_is_the_smallest_over_tolerated_shares(a, b, c, tolerance):
    counts = np.array([a, b, c])
    prior = log_evidence(counts.tolist(), THIRDS)
    factors = np.exp(np.linspace(0.0, math.log1p(tolerance), 21))
    f = np.stack(np.meshgrid(factors, factors, factors), axis=-1).reshape(-1, 3) * np.array(THIRDS)
    moved = (counts * np.log(np.array(THIRDS) * f.sum(axis=1, keepdims=True) / f)).sum(axis=1)
    found = log_evidence(counts.tolist(), THIRDS, tolerance=tolerance)
    assert prior + moved.min() - 0.05 <= found <= prior + moved.min() + 1e-9


def test_shares_of_arms_that_do_not_add_up_are_refused():
    for shares in ((0.5, 0.4), (1.0, 0.0), (0.5, 0.5, math.nan)):
        with pytest.raises(ValueError, match="shares must be"):
            log_evidence([1] * len(shares), shares)


@pytest.mark.slow
def test_a_thousand_surfaces_with_three_arms_raise_no_alarm_and_a_lost_arm_does(rng):
    counts = rng.multinomial(200, THIRDS, (1000, 100)).cumsum(axis=1)
    looks = counts[:, ::4].tolist()
    assert sum(any(log_evidence(look, THIRDS) > ALARM for look in run) for run in looks) <= 4
    lost = counts[:20, -1] * np.array([1.0, 0.85, 1.0])
    assert all(log_evidence(one, THIRDS) > ALARM for one in lost.astype(int).tolist())
