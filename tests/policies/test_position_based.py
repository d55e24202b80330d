"""PBM-UCB, PBM-PIE, PBM-TS and the policies that fit examination, against slow references in NumPy."""

from __future__ import annotations

import json
from math import floor, inf, log, sqrt

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

import bothworlds
from bothworlds.core import Decision
from bothworlds.policies import configured_for, policy
from bothworlds.statistics import kl, kl_upper
from bothworlds.statistics.rank_one.fit import fit_newton
from bothworlds.worlds import stochastic
from tests.cases import case
from tests.reference.posterior import draw_many

TOLD = ["pbm-ucb", "pbm-pie", "pbm-ts"]
FITTED = ["pbm-ucb-mle", "pbm-pie-mle"]
WORLDS = {
    "paper": bothworlds.world("paper/stochastic"),
    "yandex": bothworlds.world("yandex/stochastic"),
    "reversed": stochastic([0.9, 0.6, 0.5, 0.3, 0.2], [0.2, 0.5, 0.9]),
    "one position": stochastic([0.5, 0.4, 0.2], [0.7]),
    "all shown": stochastic([0.5, 0.4, 0.2], [0.4, 0.8, 0.6]),
    "no clicks": stochastic([0.0, 0.0, 0.0, 0.0], [1.0, 0.5]),
}
ALL_WORLDS = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())


def rounds_of(learner, world, rounds, seed=0):
    """Play by hand; yield the round, the state before its decision, the decision and the clicks."""
    state, rng = learner.init(world.n_items, world.n_positions), np.random.default_rng(seed)
    for t in range(1, rounds + 1):
        decision = learner.decide(state, rng)
        p = world.click_probabilities(t - 1)[decision.ranking, np.arange(world.n_positions)]
        clicks = (rng.random(p.size) < p).astype(float)
        yield t, state, decision, clicks
        learner.learn(state, decision, clicks)


def trained(learner, world, rounds, seed=0):
    *_, (_, state, _, _) = rounds_of(learner, world, rounds, seed)
    return state


def tables(world):
    """The counts, kept by hand: call with a decision and its clicks."""
    shown, clicked = np.zeros((2, world.n_items, world.n_positions))

    def count(decision, clicks):
        where = decision.ranking, np.arange(world.n_positions)
        shown[where] += 1
        clicked[where] += clicks

    return shown, clicked, count


def upper_bounds(shown, clicked, beta, t, epsilon=0.0):
    """The card's index, factor by factor."""
    impressions, exposure = shown.sum(axis=1), shown @ np.asarray(beta)
    bounds = np.full(len(shown), inf)
    k = impressions > 0
    width = np.sqrt(impressions[k] / exposure[k]) * np.sqrt((1.0 + epsilon) * log(t) / (2.0 * exposure[k]))
    bounds[k] = clicked.sum(axis=1)[k] / exposure[k] + width
    return bounds


def in_order(ranking, beta):
    return np.asarray(ranking)[np.argsort(-np.asarray(beta), kind="stable")]


# PBM-UCB


@ALL_WORLDS
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_the_kth_largest_bound_is_at_the_kth_most_examined_position(world, epsilon):
    learner = policy("pbm-ucb", examination=world.examination, epsilon=epsilon)
    shown, clicked, count = tables(world)
    for t, _, decision, clicks in rounds_of(learner, world, 300):
        bounds = upper_bounds(shown, clicked, world.examination, t, epsilon)
        best = np.sort(bounds)[::-1][: world.n_positions]
        np.testing.assert_allclose(bounds[in_order(decision.ranking, world.examination)], best, rtol=1e-12)
        assert np.isnan(decision.propensity).all()
        count(decision, clicks)


def test_with_full_examination_it_is_ucb1_with_several_plays():
    world = stochastic([0.8, 0.5, 0.3, 0.1], [1.0, 1.0])
    shown, clicked, count = tables(world)
    for t, _, decision, clicks in rounds_of(policy("pbm-ucb", examination=[1, 1]), world, 200):
        if t > 4:
            n, s = shown.sum(axis=1), clicked.sum(axis=1)
            ucb1 = s / n + np.sqrt(log(t) / (2 * n))
            np.testing.assert_allclose(ucb1[decision.ranking], np.sort(ucb1)[::-1][:2])
        count(decision, clicks)


@pytest.mark.parametrize("name", TOLD)
def test_listing_the_positions_in_another_order_changes_nothing(name):
    """The k-th position of the one is the ``turn[k]``-th of the other: the same items, positions turned."""
    world, turn = WORLDS["paper"], np.array([3, 0, 4, 2, 1])
    beta = np.array(world.examination)
    ours = policy(name, examination=beta)
    theirs = policy(name, examination=beta[turn])
    states, rngs = [p.init(10, 5) for p in (ours, theirs)], [np.random.default_rng(1) for _ in range(2)]
    users = np.random.default_rng(2)
    for t in range(300):
        one = ours.decide(states[0], rngs[0])
        other = theirs.decide(states[1], rngs[1])
        if name != "pbm-pie" or t >= 10:
            assert (other.ranking == one.ranking[turn]).all()
        else:
            # The cyclic lists go by the positions as they are listed.
            other = Decision(one.ranking[turn], other.propensity)
            rngs = [np.random.default_rng(t) for _ in range(2)]
        clicks = (users.random(5) < world.click_probabilities(t)[one.ranking, np.arange(5)]).astype(float)
        ours.learn(states[0], one, clicks)
        theirs.learn(states[1], other, clicks[turn])


# PBM-PIE


def phi(q, shown, clicked, beta):
    return sum(n * kl(s / n, b * q) for n, s, b in zip(shown, clicked, beta) if n > 0)


def rivals_by_root_finding(shown, clicked, beta, level):
    """Leaders in order, and B: U_i found as the root it is defined as."""
    beta = np.asarray(beta)
    theta = clicked.sum(axis=1) / (shown @ beta)
    leaders = np.argsort(-theta, kind="stable")[: beta.size]
    threshold, rivals = theta[leaders[-1]], set()
    for i in sorted(set(range(len(theta))) - set(leaders.tolist())):
        high = 1.0 / beta.max()

        def excess(q, i=i):
            return phi(q, shown[i], clicked[i], beta) - level

        lowest = minimize_scalar(excess, bounds=(0.0, high), method="bounded", options={"xatol": 1e-12}).x
        lowest = lowest if excess(lowest) < excess(1e-12) else 1e-12
        upper = lowest
        if excess(lowest) < 0.0:
            upper = brentq(excess, lowest, high) if excess(high) > 0.0 else high
        if upper >= threshold:
            rivals.add(i)
    return leaders, rivals, theta


@pytest.mark.slow
def test_explored_items_are_those_whose_upper_bound_by_root_finding_is_large_enough():
    """All that is ever shown at the last position, with its propensity, against the definition."""
    for seed in range(40):
        with case(seed=seed):
            rng = np.random.default_rng(seed)
            n, m, horizon = 8, 3, int(10 ** rng.uniform(1, 5))
            beta = rng.uniform(0.2, 1.0, m)
            learner = policy("pbm-pie", examination=beta, horizon=horizon)
            state = learner.init(n, m)
            state.counts.shown[:] = rng.integers(1, 200, (n, m))
            state.counts.clicked[:] = rng.binomial(
                state.counts.shown.astype(int), np.outer(rng.uniform(0.3, 0.6, n), beta)
            )
            state = learner.refreshed(state)
            leaders, rivals, theta = rivals_by_root_finding(*state.counts[:2], beta, log(horizon))
            assert len(set(theta.tolist())) == n
            order = np.argsort(-beta)
            stated = {}
            for _ in range(400):
                decision = learner.decide(state, rng)
                assert (decision.ranking[order[:-1]] == leaders[:-1]).all()
                assert (decision.propensity[order[:-1]] == 1.0).all()
                stated[int(decision.ranking[order[-1]])] = decision.propensity[order[-1]]
            assert stated.keys() == rivals | {leaders[-1]}
            for item, propensity in stated.items():
                expected = 0.5 / len(rivals) if item != leaders[-1] else 0.5 if rivals else 1.0
                assert propensity == pytest.approx(expected)


def test_with_one_position_it_is_pie():
    world = stochastic([0.6, 0.5, 0.45, 0.2, 0.1], [1.0])
    learner = policy("pbm-pie", examination=[1.0], horizon=5000, epsilon=0.2)
    shown, clicked, count = tables(world)
    for t, _, decision, clicks in rounds_of(learner, world, 600):
        if t > 5:
            mean = (clicked / shown)[:, 0]
            best = mean.max()
            upper = [kl_upper(p, n, 1.2 * log(5000)) for p, n in zip(mean, shown[:, 0])]
            item = decision.ranking[0]
            assert mean[item] == best or upper[item] >= best - 1e-12
        count(decision, clicks)


@pytest.mark.parametrize("name", ["pbm-pie", *FITTED])
@ALL_WORLDS
def test_it_begins_with_every_item_once_at_every_position(name, world):
    n = world.n_items
    learner = configured_for(policy(name), 1000, world)
    state = trained(learner, world, n)
    assert (state.counts.shown == 1).all()
    first = learner.decide(learner.init(n, world.n_positions), np.random.default_rng(0))
    assert first.propensity == pytest.approx(1.0 / n)


@pytest.mark.slow
def test_a_wider_bound_explores_more_items():
    world = WORLDS["paper"]
    seen = []
    for epsilon in (0.0, 20.0):
        learner = policy("pbm-pie", examination=world.examination, horizon=1000, epsilon=epsilon)
        state, rng = trained(learner, world, 3000), np.random.default_rng(0)
        seen.append(len({learner.decide(state, rng).ranking[-1] for _ in range(300)}))
    assert seen[0] < seen[1]


def test_equal_items_have_equal_chances():
    """All estimates are zero: any of four items leads, and who is left over is a rival."""
    learner = policy("pbm-pie", examination=[1.0, 0.5], horizon=100)
    state, rng = trained(learner, WORLDS["no clicks"], 4), np.random.default_rng(0)
    seen = np.zeros((4, 2))
    for _ in range(4000):
        decision = learner.decide(state, rng)
        seen[decision.ranking, [0, 1]] += 1
        assert decision.propensity[0] == 0.25
        assert np.isnan(decision.propensity[1])
    assert np.abs(seen / 4000 - 0.25).max() < 0.035


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pbm-pie", "pbm-pie-mle"])
def test_without_a_horizon_it_plans_for_twice_as_long_and_keeps_its_counts(name):
    world = WORLDS["reversed"]
    settings = {"examination": world.examination} if name == "pbm-pie" else {}
    state = trained(policy(name, **settings), world, 3500)
    assert state.epochs.horizon[0] == 4096
    assert state.counts.rounds[0] == 3500
    assert state.counts.shown.sum() == 3500 * 3


# The twins that fit examination


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("share", [0.02, 0.3])
def test_examination_is_fitted_again_when_rounds_have_grown_by_the_share(name, share):
    world = WORLDS["reversed"]
    last, at = np.ones(3), 1
    for t, state, _, _ in rounds_of(configured_for(policy(name, refit=share), 400, world), world, 400):
        done = t - 1
        if done >= max(at * (1 + share), at + 1) or done == 1:
            if done > 5:  # all pairs have been seen
                fit = fit_newton(state.counts.shown, state.counts.clicked, prior=0.1)
                np.testing.assert_allclose(state.examined.positions.examination, fit.examination, rtol=1e-4)
            last, at = state.examined.positions.examination.copy(), done
        assert (state.examined.positions.examination == last).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", FITTED)
def test_they_place_by_the_fitted_order(name):
    world = WORLDS["reversed"]
    learner = configured_for(policy(name), 4000, world)
    state = trained(learner, world, 4000)
    assert (np.diff(state.examined.positions.examination) > 0).all()
    assert state.examined.positions.order.tolist() == [2, 1, 0]
    decision = learner.decide(state, np.random.default_rng(0))
    assert decision.ranking[2] == 0


def test_a_fitted_twin_follows_the_rule_with_what_it_has_fitted():
    world = WORLDS["paper"]
    for t, state, decision, _ in rounds_of(policy("pbm-ucb-mle"), world, 400):
        if t > 10:
            beta = state.examined.positions.examination
            bounds = upper_bounds(state.counts.shown, state.counts.clicked, beta, t)
            best = np.sort(bounds)[::-1][:5]
            np.testing.assert_allclose(bounds[in_order(decision.ranking, beta)], best, rtol=1e-12)


@pytest.mark.slow
@ALL_WORLDS
def test_pie_mle_shows_every_pair_root_log_t_times(world):
    learner = policy("pbm-pie-mle", horizon=3000)
    for t, state, _, _ in rounds_of(learner, world, 3000):
        if t > world.n_items + 1 and t % 50 == 0:
            # Pairs fall short one list at a time, and are caught up within n rounds.
            assert state.counts.shown.min() >= floor(sqrt(log(t - world.n_items)))


# PBM-TS


@pytest.mark.slow
def test_ts_draws_every_attraction_from_its_posterior():
    """How often every item is first, against draws made one by one."""
    world = WORLDS["reversed"]
    learner = policy("pbm-ts", examination=world.examination)
    state, rng = trained(learner, world, 12), np.random.default_rng(0)
    n, draws = world.n_items, 20_000
    first = np.bincount([learner.decide(state, rng).ranking[2] for _ in range(draws)], minlength=n) / draws
    counts = state.counts
    samples = [draw_many(counts.shown[i], counts.clicked[i], world.examination, draws, rng) for i in range(n)]
    expected = np.bincount(np.argmax(samples, axis=0), minlength=n) / draws
    assert (expected > 0.02).sum() >= 2
    assert np.abs(first - expected).max() < 5.0 * sqrt(0.5 / draws)


@pytest.mark.parametrize("forget", [{"window": 25}, {"discount": 0.9}, {}])
def test_the_hats_of_ts_are_always_those_of_its_counts(forget):
    world = WORLDS["reversed"]
    learner = policy("pbm-ts", examination=world.examination, **forget)
    state = trained(learner, world, 90)
    i, rng = 4, np.random.default_rng(0)
    counts = state.counts
    samples = draw_many(counts.shown[i], counts.clicked[i], world.examination, 4000, rng)
    ours = []
    for _ in range(4000):
        learner.decide(state, rng)
        ours.append(state.work.score[i])
    assert abs(np.mean(ours) - samples.mean()) < 5.0 * samples.std() * sqrt(2 / 4000)


# All of them


@pytest.mark.parametrize("name", TOLD)
def test_examination_is_required(name):
    twin = "pbm-pie-mle" if name == "pbm-pie" else "pbm-ucb-mle"
    with pytest.raises(ValueError, match=f"{name} needs examination=...; if it is not known, use {twin}"):
        policy(name).init(5, 3)
    with pytest.raises(ValueError, match="one entry for each of 3 positions"):
        policy(name, examination=[1.0, 0.5]).init(5, 3)
    for wrong in ([1.0, 0.0], [1.0, 1.2], [np.nan], [], "half", 0.5, [[0.5]]):
        with pytest.raises(ValueError, match="examination must be"):
            policy(name, examination=wrong)


@pytest.mark.parametrize("name", TOLD)
def test_examination_survives_json(name):
    learner = policy(name, examination=np.array([1.0, 0.5]))
    assert policy(name, **json.loads(json.dumps(learner.settings()))) == learner


@pytest.mark.slow
@pytest.mark.parametrize("name", TOLD + FITTED)
def test_a_window_makes_it_forget(name):
    """After as many rounds with other users as the window has, nothing is left of the first ones."""
    before, after = stochastic([0.9, 0.5, 0.3, 0.1], [0.9, 0.5]), stochastic([0.1, 0.3, 0.5, 0.9], [0.9, 0.5])
    rng = np.random.default_rng(0)
    learner = configured_for(policy(name, window=400), 2000, before)
    state = learner.init(4, 2)
    for world in (before, after):
        for _ in range(1200):
            decision = learner.decide(state, rng)
            clicks = (rng.random(2) < world.click_probabilities(0)[decision.ranking, [0, 1]]).astype(float)
            learner.learn(state, decision, clicks)
    assert state.counts.shown.sum() == pytest.approx(800)
    firsts = [learner.decide(state, rng).ranking[0] for _ in range(100)]
    assert np.mean(np.array(firsts) == 3) > 0.7


@pytest.mark.parametrize("name", ["pbm-pie", "pbm-pie-mle"])
def test_a_window_limits_the_horizon(name):
    world = WORLDS["reversed"]
    assert configured_for(policy(name, window=50), 10**6, world).init(5, 3).memory == 50
    assert configured_for(policy(name, discount=0.99), 10**6, world).init(5, 3).memory == pytest.approx(100)
    assert configured_for(policy(name), 10**6, world).init(5, 3).memory == inf
