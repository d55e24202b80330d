"""The setting ``every``: a new leader every so many rounds, and what is played in between stays unbiased."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.core import Shape, copy_state
from bothworlds.geometry import leader
from bothworlds.geometry.sampling import make_urn, prepare
from bothworlds.policies import policy
from tests.policies.by_hand import WORLDS, expected_estimate, rounds_of

NAMES = ["ftrl-pbm", "hybrid", "tsallis-rv", "lbinf", "lbinfv"]
WORLD = WORLDS["paper"]
PREPARED = ("n_rows", "bins", "packed", "head", "following", "shared", "first", "list", "weight")


def made(name, every, **settings):
    return policy(name, every=every, **({"horizon": 100} if name.startswith("lbinf") else {}), **settings)


def check_sampled_point(state):
    """The urn is prepared for the marginals that estimates are divided by."""
    x = state.leading.marginals[: state.leading.urn.n_rows[0]]
    fresh = make_urn(*state.shape)
    prepare(x, fresh)
    bins = int(fresh.bins[0])
    for name in PREPARED:
        old, new = getattr(state.leading.urn, name), getattr(fresh, name)
        size = bins if len(new) == len(fresh.head) else len(new)
        assert (old[:size] == new[:size]).all(), f"the urn was prepared for other marginals: {name}"


@pytest.mark.parametrize("name", NAMES)
def test_a_leader_is_computed_every_so_many_rounds(name):
    changed, before, rare = [], None, made(name, 7)
    for t, state, _, _ in rounds_of(rare, WORLD, 40):
        if before is not None and (state.leading.marginals != before).any():
            changed.append(t)
        before = state.leading.marginals.copy()
        check_sampled_point(state)
    assert changed == [8, 15, 22, 29, 36]


@pytest.mark.parametrize("name", NAMES)
def test_the_leader_is_that_of_all_losses_so_far(name):
    """A policy that learned the same rounds, and computes a leader after every one, has the same leader then."""
    rare, often = made(name, 5), made(name, 1)
    twin = often.init(10, 5)
    for t, state, decision, clicks in rounds_of(rare, WORLD, 30):
        if t % 5 == 1 and name != "tsallis-rv":  # its baseline depends on the leader of the round
            np.testing.assert_allclose(state.leading.marginals, twin.leading.marginals, rtol=0, atol=2e-6)
        often.learn(twin, decision, clicks)


@pytest.mark.parametrize("name", ["ftrl-pbm", "hybrid", "tsallis-rv"])
@pytest.mark.parametrize("rounds", [0, 1, 4, 5, 38, 40])
def test_loss_estimates_are_unbiased_by_enumeration(name, rounds):
    p = np.array([[0.9, 0.3], [0.5, 0.6], [0.2, 0.1]])
    rare = made(name, 5, **({"threshold": 0.0} if name == "tsallis-rv" else {}))
    state, rng = rare.init(3, 2), np.random.default_rng(1)
    for _ in range(rounds):
        decision = rare.decide(state, rng)
        rare.learn(state, decision, rng.random(2) < p[decision.ranking, [0, 1]])
    check_sampled_point(state)
    np.testing.assert_allclose(expected_estimate(rare, state, p), 1.0 - p, atol=1e-9)


def test_shared_rows_are_drawn_and_divided_by_the_last_leader():
    """Items get rows of their own between two leaders; until the next, they have the marginals of the shared row."""
    rare, n, m = policy("ftrl-pbm", every=6), 12, 3
    state, rng = rare.start(Shape(n, m), sharing=True), np.random.default_rng(2)
    own = set()
    for _ in range(40):
        before = rare.marginals(state)
        decision = rare.decide(state, rng)
        assert (decision.propensity == before[decision.ranking, np.arange(m)]).all()
        check_sampled_point(state)
        rare.learn(state, decision, rng.random(m) < 0.5)
        own.add((int(state.leading.rows.own[0]), int(state.leading.urn.n_rows[0])))
    assert any(rows > prepared for rows, prepared in own), "no item was separated between two leaders"
    counts, draws = np.zeros((n, m)), 4000
    for _ in range(draws):
        counts[rare.decide(state, rng).ranking, np.arange(m)] += 1
    x = rare.marginals(state)
    assert (np.abs(counts / draws - x) < 5.0 * np.sqrt(x / draws)).all()


def test_dividing_by_another_point_than_the_sampled_one_is_caught():
    rare = policy("ftrl-pbm", every=5)
    for _, state, _, _ in rounds_of(rare, WORLD, 13):
        check_sampled_point(state)
    broken = copy_state(state)
    broken.leading.marginals[:] = leader(broken.loss, 0.5 / np.sqrt(14.0)).marginals
    with pytest.raises(AssertionError, match="prepared for other marginals"):
        check_sampled_point(broken)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("every", [0, -1, 2.5, None, True])
def test_every_is_a_whole_number_of_at_least_one(name, every):
    with pytest.raises(ValueError, match="every must be a whole number from 1 to"):
        policy(name, every=every)
