"""Epochs: a known horizon, doubling, restarts."""

from __future__ import annotations

import math

import pytest

from bothworlds.kernels import kernel
from bothworlds.policies.parts.epochs import FIRST_HORIZON, make_epochs, new_epoch


@kernel
def tick(epochs):
    return new_epoch(epochs)


def ends(epochs, rounds):
    """The rounds after which a new epoch begins, and its horizon."""
    return [(t, epochs.horizon[0]) for t in range(1, rounds + 1) if tick(epochs)]


def test_a_known_horizon_is_one_epoch_and_goes_on_beyond_it():
    epochs = make_epochs(horizon=50)
    assert ends(epochs, 200) == []
    assert epochs.horizon[0] == 50


def test_an_unknown_horizon_doubles():
    found = ends(make_epochs(), 8 * FIRST_HORIZON)
    assert found == [(FIRST_HORIZON * (2**k - 1), FIRST_HORIZON * 2**k) for k in (1, 2, 3)]


@pytest.mark.parametrize("horizon", [None, 1000])
def test_restarts_come_at_their_interval_and_plan_for_it(horizon):
    assert ends(make_epochs(horizon, restart=30), 100) == [(30, 30), (60, 30), (90, 30)]


def test_the_horizon_of_an_epoch_is_at_most_the_whole_horizon():
    assert make_epochs(horizon=20, restart=30).horizon[0] == 20


def test_an_anytime_epoch_does_not_end():
    epochs = make_epochs(anytime=True)
    assert ends(epochs, 5000) == []
    assert epochs.horizon[0] == math.inf
