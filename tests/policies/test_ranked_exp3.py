"""RankedExp3 against its definition: intended and shown items, credit, exploration, restarts."""

from __future__ import annotations

from itertools import permutations
from math import e, log, sqrt

import numpy as np
import pytest

from bothworlds.core import Decision, copy_state
from bothworlds.policies import policy
from bothworlds.policies.ranked_exp3 import intended_probability

NAN = float("nan")


def exp3(**settings):
    return policy("ranked-exp3", **({"horizon": 1000} | settings))


def softmax(weights, gamma):
    odds = np.exp(weights - weights.max(axis=1, keepdims=True))
    return (1.0 - gamma) * odds / odds.sum(axis=1, keepdims=True) + gamma / weights.shape[1]


def rounds_of(learner, n, m, rounds, seed=0, p=0.5):
    state, rng = learner.init(n, m), np.random.default_rng(seed)
    for _ in range(rounds):
        decision = learner.decide(state, rng)
        clicks = (rng.random(m) < p / (1.0 + decision.ranking)).astype(float)
        yield state, decision, clicks
        learner.learn(state, decision, clicks)


def trained(n=3, m=2, **settings):
    for state, _, _ in rounds_of(exp3(**settings), n, m, 200, p=1.0):
        last = state
    return copy_state(last)


@pytest.mark.parametrize("horizon", [1, 50, 10**6])
def test_exploration_is_the_published_share(horizon):
    state = exp3(horizon=horizon).init(10, 5)
    assert state.gamma[0] == pytest.approx(min(1.0, sqrt(10 * log(10) / ((e - 1) * horizon))))


def test_chances_are_those_of_exp3_and_sum_to_one():
    for state, _, _ in rounds_of(exp3(), 6, 4, 300):
        np.testing.assert_allclose(state.chances, softmax(state.weights, state.gamma[0]), rtol=1e-12)
        np.testing.assert_allclose(state.chances.sum(axis=1), 1.0, rtol=1e-12)


def law_of_list_and_intentions(chances, m):
    """P(list, which positions show what was intended), by enumerating what the learners draw."""
    n = chances.shape[1]
    law = {((), ()): 1.0}
    for j in range(m):
        grown = {}
        for (shown, meant), weight in law.items():
            unused = [i for i in range(n) if i not in shown]
            for h in range(n):
                outcomes = [(h, True, 1.0)] if h in unused else [(i, False, 1.0 / len(unused)) for i in unused]
                for item, intended, share in outcomes:
                    key = ((*shown, item), (*meant, intended))
                    grown[key] = grown.get(key, 0.0) + weight * chances[j, h] * share
        law = grown
    return law


def test_lists_and_intentions_are_jointly_distributed_as_published():
    state = trained()
    law = law_of_list_and_intentions(state.chances, 2)
    assert sum(law.values()) == pytest.approx(1.0)
    assert state.chances.max() > 0.5  # far from uniform, or the test shows little
    for shown in permutations(range(3), 2):
        likely = sum(weight for (ranking, _), weight in law.items() if ranking == shown)
        for j in range(2):
            meant = sum(weight for (ranking, m), weight in law.items() if ranking == shown and m[j])
            py = getattr(intended_probability, "py_func", intended_probability)
            assert py(state.chances, np.array(shown), j) == pytest.approx(meant / likely)


@pytest.mark.slow
def test_lists_are_drawn_from_that_distribution():
    state, rng, draws = trained(), np.random.default_rng(5), 30_000
    seen = {}
    for _ in range(draws):
        ranking = tuple(exp3().decide(state, rng).ranking.tolist())
        seen[ranking] = seen.get(ranking, 0) + 1
    law = law_of_list_and_intentions(state.chances, 2)
    for shown in permutations(range(3), 2):
        likely = sum(weight for (ranking, _), weight in law.items() if ranking == shown)
        assert abs(seen.get(shown, 0) / draws - likely) < 5.0 * sqrt(likely / draws)


@pytest.mark.slow
def test_learning_draws_intentions_with_their_probability():
    state, learner = trained(credit="all-clicks"), exp3(credit="all-clicks")
    ranking = np.argsort(-state.chances[0])[:2]
    likely = state.chances[1, ranking[1]]
    likely /= likely + state.chances[1, ranking[0]] / 2.0
    assert 0.05 < likely < 0.95
    rng, earned = np.random.default_rng(0), 0
    for _ in range(4000):
        twin = copy_state(state)
        twin.stream.words[:] = rng.integers(1, 2**63, size=2, dtype=np.uint64)
        learner.learn(twin, Decision(ranking, np.full(2, NAN)), [0, 1])
        earned += bool((twin.weights != state.weights).any())
    assert abs(earned / 4000 - likely) < 5.0 * sqrt(likely * (1 - likely) / 4000)


def test_a_duplicate_draw_never_earns():
    """Where the learner surely drew the item above, what is shown was not intended, and no click pays."""
    state = exp3(credit="all-clicks").init(4, 2)
    state.chances[1] = [1.0, 0.0, 0.0, 0.0]
    before = state.weights[1].copy()
    for item in (1, 2, 3):
        exp3().learn(state, Decision(np.array([0, item]), np.full(2, NAN)), [0, 1])
    assert (state.weights[1] == before).all()


def test_the_intended_item_earns_its_weighted_click():
    state = trained()
    ranking = np.array([2, 0])
    before, p = state.weights.copy(), state.chances[0, 2]
    exp3().learn(state, Decision(ranking, np.array([p, NAN])), [1, 0])
    change = state.weights - before
    assert change[0, 2] == pytest.approx(state.gamma[0] / (3 * p))
    change[0, 2] = 0.0
    assert not change.any()


def test_a_late_click_is_weighted_with_the_probability_it_was_decided_with():
    state = trained()
    before = state.weights.copy()
    exp3().learn(state, Decision(np.array([2, 0]), np.full(2, NAN), np.array([0.9, 0.4])), [1, 0])
    assert (state.weights - before)[0, 2] == pytest.approx(state.gamma[0] / (3 * 0.9))


@pytest.mark.parametrize(("credit", "most"), [("first-click", 1), ("all-clicks", 4)])
def test_how_many_learners_are_rewarded_in_a_round(credit, most):
    rewarded, before = [], np.zeros((4, 6))
    for state, _, _ in rounds_of(exp3(credit=credit), 6, 4, 300, p=1.0):
        rewarded.append(int((state.weights != before).any(axis=1).sum()))
        before = state.weights.copy()
    assert max(rewarded) <= most
    assert (max(rewarded) > 1) == (most > 1)


def test_under_the_first_click_rule_only_the_topmost_click_counts():
    state = trained(4, 3)
    before = state.weights.copy()
    for ranking in permutations(range(4), 3):
        exp3().learn(state, Decision(np.array(ranking), np.full(3, NAN)), [0, 1, 1])
    assert (state.weights[0] == before[0]).all()
    assert (state.weights[1] != before[1]).any()
    assert (state.weights[2] == before[2]).all()


def test_with_one_position_it_is_exp3():
    weights = np.zeros((1, 5))
    for state, decision, clicks in rounds_of(exp3(), 5, 1, 300):
        np.testing.assert_allclose(state.weights, weights, rtol=1e-12)
        chances = softmax(weights, state.gamma[0])
        item = decision.ranking[0]
        assert decision.propensity[0] == pytest.approx(chances[0, item])
        weights[0, item] += state.gamma[0] / 5 * clicks[0] / chances[0, item]


def test_only_the_first_position_states_a_propensity():
    for state, decision, _ in rounds_of(exp3(), 5, 3, 20):
        assert decision.propensity[0] == state.chances[0, decision.ranking[0]]
        assert np.isnan(decision.propensity[1:]).all()


def test_it_plans_again_when_an_epoch_is_over():
    fresh = exp3(restart=50).init(4, 2)
    for t, (state, _, _) in enumerate(rounds_of(exp3(restart=50), 4, 2, 101, p=1.0)):
        if t % 50 == 0:
            assert (state.chances == fresh.chances).all()
            assert not state.weights.any()
        elif t % 50 > 20:
            assert state.weights.any()
    for state, _, _ in rounds_of(policy("ranked-exp3"), 4, 2, 1030):
        last = state.gamma[0]
    assert last == pytest.approx(sqrt(4 * log(4) / ((e - 1) * 2048)))
