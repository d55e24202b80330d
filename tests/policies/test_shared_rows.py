"""Policies in which items share a row until they have learned something, against the same policies without."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds import Ranker
from bothworlds.core import Decision, Shape, copy_state
from bothworlds.geometry.item_rows import MANY_ITEMS
from bothworlds.policies import policy
from tests.policies.by_hand import expected_estimate

NAMES = ["ftrl-pbm", "hybrid"]
SAME = 1e-6  # the tolerance of the policies


def twins(name, n, m, **settings):
    """The policy, its state with a shared row, and its state with a row for every item."""
    made = policy(name, **settings)
    return made, made.start(Shape(n, m), sharing=True), made.start(Shape(n, m), sharing=False)


def rounds_of_both(name, n, m, rounds, seed=0, **settings):
    """Play the state with a shared row; the other learns the same. Yields the round and both states."""
    made, state, dense = twins(name, n, m, **settings)
    rng = np.random.default_rng(seed)
    p = np.outer(np.linspace(0.9, 0.1, n), np.linspace(1.0, 0.5, m))
    for t in range(rounds):
        decision = made.decide(state, rng)
        clicks = (rng.random(m) < p[decision.ranking, np.arange(m)]).astype(float)
        yield t, made, state, dense, decision
        made.learn(state, decision, clicks)
        made.learn(dense, decision, clicks)


def check_rows(state, n):
    """Places and items are inverse to each other, and every item counted once in the leader of these losses."""
    rows, own = state.leading.rows, int(state.leading.rows.own[0])
    assert (rows.item[rows.place] == np.arange(n)).all()
    assert not state.loss[rows.item[own:]].any()
    if own > 0:  # of the first leader, and of that after a restart, no row is computed
        copies = state.leading.work.copies[: min(own + 1, n)]
        assert (copies[:own] == 1.0).all()
        assert copies.sum() == n


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("n", "m"), [(30, 4), (12, 1), (6, 5), (5, 5), (200, 3)])
def test_the_marginals_are_those_of_a_row_for_every_item(name, n, m):
    shared = []
    for _, made, state, dense, decision in rounds_of_both(name, n, m, 150):
        x = made.marginals(state)
        np.testing.assert_allclose(x, made.marginals(dense), rtol=0, atol=SAME)
        assert (decision.propensity == x[decision.ranking, np.arange(m)]).all()
        assert (state.loss == dense.loss).all()
        check_rows(state, n)
        shared.append(n - state.leading.rows.own[0])
    assert shared[0] == n
    assert shared[-1] < n


def test_a_shared_row_that_counts_too_often_is_caught():
    made, state, dense = twins("ftrl-pbm", 100, 4)
    for first in range(0, 20, 4):
        decision = Decision(np.arange(first, first + 4), np.full(4, 0.01))
        made.learn(state, decision, np.zeros(4))
        made.learn(dense, decision, np.zeros(4))
    np.testing.assert_allclose(made.marginals(state), made.marginals(dense), rtol=0, atol=SAME)
    rows = state.leading.rows
    more_items = rows._replace(item=np.append(rows.item, np.arange(10)))  # ten of them are counted twice
    crowded = state._replace(leading=state.leading._replace(rows=more_items))
    for either in (crowded, dense):
        made.learn(either, decision, np.ones(4))
    with pytest.raises(AssertionError, match="Not equal"):
        np.testing.assert_allclose(made.marginals(crowded), made.marginals(dense), rtol=0, atol=SAME)


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_loss_estimates_are_unbiased_by_enumeration(rounds):
    p = np.array([[0.9, 0.3], [0.5, 0.6], [0.2, 0.1], [0.4, 0.4]])
    for t, made, state, _, _ in rounds_of_both("ftrl-pbm", 4, 2, 4):
        if t == rounds:
            np.testing.assert_allclose(expected_estimate(made, copy_state(state), p), 1.0 - p, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_from_a_restart_on_all_items_share_a_row_again(name):
    for t, made, state, dense, _ in rounds_of_both(name, 20, 3, 45, restart=20):
        np.testing.assert_allclose(made.marginals(state), made.marginals(dense), rtol=0, atol=SAME)
        if t in (20, 40):
            assert state.leading.rows.own[0] == 0
        check_rows(state, 20)


@pytest.mark.parametrize("name", NAMES)
def test_late_feedback_separates_an_item(name):
    made, state, dense = twins(name, 10, 2)
    early = Decision(np.array([7, 3]), np.array([0.1, 0.1]))
    for late in (Decision(np.array([1, 2]), np.array([0.1, 0.1])), early):
        made.learn(state, late, [0, 1])
        made.learn(dense, late, [0, 1])
    assert set(state.leading.rows.item[: state.leading.rows.own[0]].tolist()) == {1, 7}
    np.testing.assert_allclose(made.marginals(state), made.marginals(dense), rtol=0, atol=SAME)


@pytest.mark.parametrize("name", NAMES)
def test_losses_of_many_items_give_the_same_leader(name):
    rng, n, m = np.random.default_rng(3), MANY_ITEMS, 3
    loss = np.zeros((n, m))
    seen = rng.permutation(n)[:40]
    loss[seen] = 3.0 * rng.random((40, m))
    made = policy(name)
    state = made.init(n, m)
    state.epochs.rounds[0] = 60
    state.loss[:] = loss
    state = made.refreshed(state)
    dense = made.start(Shape(n, m), sharing=False)
    dense.epochs.rounds[0] = 60
    dense.loss[:] = loss
    assert state.leading.rows.own[0] == 40
    decision = made.decide(state, rng)
    for either in (state, dense):
        made.learn(either, decision, [0.0] * m)
    np.testing.assert_allclose(made.marginals(state), made.marginals(dense), rtol=0, atol=SAME)


def test_only_many_items_share_a_row():
    few, many = (policy("ftrl-pbm").init(n, 2) for n in (MANY_ITEMS - 1, MANY_ITEMS))
    assert few.leading.rows.own[0] == MANY_ITEMS - 1
    assert many.leading.rows.own[0] == 0


def test_a_ranker_with_many_items_is_saved_and_continues(tmp_path):
    ranker = Ranker(range(MANY_ITEMS), slots=3, seed=4)
    for _ in range(30):
        ranker.feedback(ranker.rank().id, [])
    ranker.save(tmp_path / "ranker")
    twin = Ranker.load(tmp_path / "ranker")
    assert twin.rank() == ranker.rank()
    assert (np.asarray(twin.learned()) == np.asarray(ranker.learned())).all()
