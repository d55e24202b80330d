"""All-weather: exact marginals, unbiased estimates, a plain implementation round by round, and what it earns."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import bothworlds
from bothworlds import Ranker, play
from bothworlds.arena.loop import play_compiled
from bothworlds.core import NO_NOTE, NONE_ABSENT, Decision, copy_state, streams
from bothworlds.geometry import sampling
from bothworlds.policies import all_weather, policy
from bothworlds.policies.parts import predicted_losses
from bothworlds.worlds import matrix, periodic, stochastic
from bothworlds.worlds.users import new_answer
from tests.policies.by_hand import rounds_of, trained
from tests.policies.test_ftrl_va import CLICKS, law_of_clicks
from tests.reference.all_weather import AllWeatherTwin
from tests.reference.rational import all_outcomes, exact_array, with_exact

AW = policy("all-weather")
PRODUCT = stochastic([0.9, 0.7, 0.4, 0.2], [0.5, 0.9])
TURNED = stochastic([0.2, 0.4, 0.7, 0.9], [0.9, 0.5])
BENT = matrix([[0.1, 0.8], [0.7, 0.1], [0.2, 0.6], [0.6, 0.2]])


# Unbiased, in rational arithmetic


@pytest.fixture
def interpreted(monkeypatch):
    policy("all-weather", pool=len(LISTS)).init(3, 2)  # compiled first: compiled code cannot call what replaces kernels
    for module in (sampling, predicted_losses, all_weather):
        for name, value in list(vars(module).items()):
            if hasattr(value, "py_func"):
                monkeypatch.setattr(module, name, value.py_func)
    monkeypatch.setattr(sampling, "TINY", 0)


X = [[Fraction(1, 2), Fraction(1, 5)], [Fraction(3, 10), Fraction(3, 5)], [Fraction(1, 5), Fraction(1, 5)]]
ALPHA = Fraction(4, 5)
LISTS = [(0, 1), (0, 1), (2, 1), (2, 0)]


def exact_state(w):
    """A state with rational marginals, some counts, and these lists in the pool."""
    state = policy("all-weather", pool=len(LISTS)).init(3, 2)
    x, urn = exact_array(X), with_exact(state.leading.urn, "packed", "weight", "work.mass")
    sampling.prepare(x, urn)
    counts = state.counts._replace(
        shown=exact_array([[9, 4], [2, 3], [0, 6]]), clicked=exact_array([[8, 1], [1, 3], [0, 2]])
    )
    s = np.full((3, 2), Fraction(0), dtype=object)
    for ranking in LISTS:
        s[list(ranking), [0, 1]] += Fraction(1, len(LISTS))
    sampler = state.sampler._replace(lists=np.array(LISTS), marginals=exact_array(s))
    comparison = state.comparison._replace(
        difference=exact_array([0]), variance=exact_array([0]), ratio=exact_array([ALPHA])
    )
    state = state._replace(
        settings=state.settings._replace(share=Fraction(1, 50)),
        counts=counts,
        sampler=sampler,
        loss=exact_array(np.zeros((3, 2))),
        spread=exact_array([7]),
        leading=state.leading._replace(marginals=x, urn=urn),
        comparison=comparison,
        weight=exact_array([w]),
    )
    return state


def expectations(w, propensity_of=lambda state, ranking, propensity: propensity):
    """The expected increments of the losses and of D, over all decisions and clicks, and the law of placements."""
    loss, frequency = np.full((2, 3, 2), Fraction(0), dtype=object)
    difference = Fraction(0)
    state = exact_state(w)

    def experiment(chooser):
        ranking, propensity = np.zeros(2, np.int64), exact_array([0, 0])
        all_weather.decide(state, chooser, ranking, propensity)
        return ranking, propensity

    for chance, (ranking, propensity) in all_outcomes(experiment):
        frequency[ranking, [0, 1]] += chance
        for likely, clicks in law_of_clicks(ranking):
            fresh = exact_state(w)
            given = ranking, propensity_of(fresh, ranking, propensity), exact_array(clicks)
            x, s, w_now = fresh.leading.marginals, fresh.sampler.marginals, fresh.weight[0]
            all_weather.add_losses(fresh.loss, fresh.spread, fresh.counts, x, s, w_now, w_now, *given, NONE_ABSENT)
            all_weather.compare(fresh, s, *given, NO_NOTE, NONE_ABSENT)
            loss += chance * likely * np.array([[entry.value for entry in row] for row in fresh.loss])
            difference += chance * likely * fresh.comparison.difference[0].value
    return loss, difference, frequency, state


def plain(array):
    return np.array([[entry.value for entry in row] for row in array])


@pytest.mark.parametrize("w", [Fraction(1, 4), Fraction(1, 50), Fraction(1)], ids=["awake", "least share", "asleep"])
def test_both_estimates_are_unbiased_in_rational_arithmetic(interpreted, w):
    loss, difference, frequency, state = expectations(w)
    x, s = plain(state.leading.marginals), plain(state.sampler.marginals)
    p = w * x + (1 - w) * s
    assert (frequency == p).all()
    assert (p >= w * x).all()
    assert (p.sum(axis=0) == 1).all()
    assert (p.sum(axis=1) <= 1).all()
    assert (loss == 1 - CLICKS).all()
    if w < 1:
        assert difference == ALPHA * ((s - x) * (1 - CLICKS)).sum()


def test_dividing_by_the_marginals_of_the_leader_is_biased(interpreted):
    def of_the_leader(state, ranking, propensity):
        return exact_array([state.leading.marginals[i, j] for j, i in enumerate(ranking)])

    loss, difference, _, state = expectations(Fraction(1, 4), of_the_leader)
    x, s = plain(state.leading.marginals), plain(state.sampler.marginals)
    assert (loss != 1 - CLICKS).any()
    assert difference != ALPHA * ((s - x) * (1 - CLICKS)).sum()


# Round by round


def agrees_with_the_twin(world, rounds, settings=None, **wrong):
    """Whether the policy has the state of the plain implementation after every round; returns the implementation."""
    given = settings or {}
    names = {"share": "q", "width": "c"}
    learner = policy("all-weather", tolerance=1e-10, **given)
    twin = AllWeatherTwin(world.n_items, world.n_positions, **({names.get(k, k): v for k, v in given.items()} | wrong))
    least = 0.0
    for _, state, decision, clicks in rounds_of(learner, world, rounds):
        close = (
            math.isclose(state.weight[0], twin.w, abs_tol=1e-6)
            and np.allclose(learner.marginals(state), twin.p, rtol=0, atol=1e-6)
            and np.allclose(state.loss, twin.L, rtol=1e-6, atol=1e-4)
            and math.isclose(state.spread[0], twin.R, rel_tol=1e-9)
            and math.isclose(state.comparison.difference[0], twin.D, rel_tol=1e-5, abs_tol=1e-3)
            and math.isclose(state.comparison.variance[0], twin.V, rel_tol=1e-5, abs_tol=1e-3)
            and (state.counts.shown == twin.N).all()
            and (state.counts.clicked == twin.C).all()
            and (state.counts.learned[0], state.counts.rounds[0]) == (twin.t, len(twin.memory.rounds))
            and (not twin.lists or {*map(tuple, state.sampler.lists.tolist())} == {*map(tuple, np.array(twin.lists))})
            and (state.sampler.attraction == twin.alpha).all()
            and state.comparison.asleep_until[0] == twin.asleep_until
            and state.spread[0] >= least
        )
        if not close:
            return None
        least = state.spread[0]
        twin.learn(decision.ranking, decision.propensity, clicks)
    return twin


@pytest.mark.slow
def test_every_round_agrees_with_a_plain_implementation():
    twin = agrees_with_the_twin(PRODUCT, 300)
    assert twin is not None
    assert twin.w < 0.6


@pytest.mark.slow
def test_it_agrees_when_users_change():
    twin = agrees_with_the_twin(periodic([PRODUCT, TURNED], 400), 1600)
    assert twin is not None
    assert (twin.alarms, twin.recalls) == (3, 2)


@pytest.mark.slow
def test_it_agrees_when_the_sampler_sleeps_and_clicks_are_no_product():
    twin = agrees_with_the_twin(BENT, 1600, {"width": 0.2, "grace": 1.0, "share": 0.03, "pool": 3, "sweeps": 1})
    assert twin is not None
    assert twin.sleeps > 1
    assert twin.rejections > 0


@pytest.mark.parametrize("wrong", [{"q": 0.05}, {"sampler_width": 1.4}, {"grace": 4000.0}, {"pool": 15}, {"sweeps": 1}])
def test_another_setting_is_noticed_by_that_comparison(wrong):
    assert agrees_with_the_twin(PRODUCT, 300, **wrong) is None


@pytest.mark.slow
@pytest.mark.parametrize("recall", [0, 2])
def test_it_recalls_earlier_habits_if_it_is_told_to(recall):
    made = policy("all-weather", recall=recall)
    state, rng = made.init(PRODUCT.n_items, PRODUCT.n_positions), np.random.default_rng(2)
    for k in range(1600):
        rates = (TURNED if k // 400 % 2 else PRODUCT).click_probabilities(0)
        decision = made.decide(state, rng)
        chances = rates[decision.ranking, np.arange(PRODUCT.n_positions)]
        made.learn(state, decision, (rng.random(chances.size) < chances).astype(float))
    assert state.detector.changes[0] == 3
    assert state.regimes.recalls[0] == (2 if recall else 0)
    assert (state.counts.rounds[0] > 600) == bool(recall)  # of both phases of the same habits


@pytest.mark.slow
def test_with_many_pairs_the_leader_has_a_smaller_share():
    shares = [AW.init(n, m).settings.share for n, m in ((4, 2), (10, 5), (50, 10))]
    assert shares == [0.02, 0.02, pytest.approx(0.02 / 10**0.75)]
    wide = stochastic(np.linspace(0.9, 0.1, 16), [1.0, 0.8, 0.6, 0.4, 0.2])
    assert agrees_with_the_twin(wide, 150) is not None


@pytest.mark.slow
def test_while_the_sampler_sleeps_it_is_the_leader_alone():
    """From the same state, with the same decisions: the losses are those of ftrl-va."""
    ours = trained(AW, 5, 3, 300)
    ours.comparison.asleep_until[0], ours.weight[0] = 10_000, 1.0
    alone = policy("ftrl-va")
    theirs = alone.init(5, 3)
    theirs.loss[:], theirs.rule.spread[:] = ours.loss, ours.spread
    theirs.rule.counts.shown[:], theirs.rule.counts.clicked[:] = ours.counts.shown, ours.counts.clicked
    for name in ("marginals", "lam", "mu"):
        getattr(theirs.leading, name)[:] = getattr(ours.leading, name)
    rng, rates = np.random.default_rng(1), np.outer(np.linspace(0.9, 0.2, 5), np.linspace(1.0, 0.5, 3))
    for _ in range(300):
        decision = AW.decide(ours, rng)
        clicks = (rng.random(3) < rates[decision.ranking, [0, 1, 2]]).astype(float)
        AW.learn(ours, decision, clicks)
        alone.learn(theirs, decision, clicks)
        assert (ours.loss == theirs.loss).all()
        assert (AW.marginals(ours) == theirs.leading.marginals).all()
    assert ours.weight[0] == 1.0
    assert ours.counts.learned[0] == 600


def test_the_marginals_are_those_of_the_next_decision():
    state, rng = trained(AW, 5, 3, 200), np.random.default_rng(0)
    p = AW.marginals(state)
    assert 0.0 < state.weight[0] < 1.0
    np.testing.assert_allclose(p.sum(axis=0), 1.0, atol=1e-12)
    assert (p.sum(axis=1) <= 1.0 + 1e-12).all()
    assert (p >= state.weight[0] * state.leading.marginals).all()
    for _ in range(20):
        decision = AW.decide(state, rng)
        assert (decision.propensity == p[decision.ranking, np.arange(3)]).all()


@pytest.mark.slow
def test_a_comparison_of_equals_has_mean_zero():
    """Lists of S drawn from the marginals of A: D moves by chance only."""
    total, variance, rng = 0.0, 0.0, np.random.default_rng(3)
    start = trained(AW, 4, 2, 100)
    for _ in range(300):
        state = copy_state(start)
        for ranking in state.sampler.lists:
            sampling.draw(state.leading.marginals, rng, state.leading.urn, ranking)
        state.sampler.marginals[:] = 0.0
        for ranking in state.sampler.lists:
            state.sampler.marginals[ranking, [0, 1]] += 1.0 / 16.0
        state.weight[0] = 0.5
        decision = AW.decide(state, rng)
        before = state.comparison.difference[0]
        AW.learn(state, decision, (rng.random(2) < [0.6, 0.3]).astype(float))
        step = state.comparison.difference[0] - before
        total += step
        variance += step * step
    assert abs(total) < 4.0 * math.sqrt(variance)


def test_late_feedback_with_a_tiny_propensity_moves_the_comparison_by_a_bounded_amount():
    state = trained(AW, 4, 2, 100)
    assert state.weight[0] < 1.0
    before = state.comparison.difference[0]
    AW.learn(state, Decision(np.array([0, 1]), np.array([1e-9, 1e-9])), [1, 0])
    assert abs(state.comparison.difference[0] - before) <= 2.0 * 50.0 + 4.0


# Changes


def state_after(world, rounds, seed):
    forgetting = policy("all-weather", recall=0)
    source, state, done = streams(seed, 0), forgetting.init(world.n_items, world.n_positions), 0
    for end in world.spans(0, rounds):
        play_compiled(forgetting, state, end - done, world.users(done), source, new_answer(world.n_positions))
        done = end
    return state


@pytest.mark.slow
@pytest.mark.parametrize("name", ["paper/stochastic", "yandex/stochastic"])
def test_steady_users_cause_no_alarm(name):
    for seed in range(2):
        state = state_after(bothworlds.world(name), 50_000, seed)
        assert state.detector.changes[0] == 0
        assert state.counts.rounds[0] == 50_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["paper/periodic-items", "paper/periodic-both"])
def test_every_season_causes_one_alarm(name):
    """A season begins with a bucket; a bucket with both seasons in it may cause a second alarm.

    At least half of the block that is remembered is of the new season.
    """
    for seed in range(2):
        state = state_after(bothworlds.world(name, phase=9_600), 28_800, seed)
        late = state.detector.detected[0] - 19_200
        assert state.detector.changes[0] == 2
        assert 0 < late <= 1_000
        assert state.counts.rounds[0] <= 9_600 + late


# Nearly a product


def bent_worlds(count, seed):
    """A product of attraction and examination, times a lognormal factor for every pair."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n, m = [(10, 5), (12, 4), (8, 4)][rng.integers(3)]
        p = np.outer(rng.uniform(0.05, 0.9, n), rng.uniform(0.1, 1.0, m))
        yield matrix(np.clip(p * rng.lognormal(0.0, rng.uniform(0.2, 0.4), (n, m)), 0.001, 0.999))


def regret_of(learner, world, rounds=20_000):
    return float(play(learner, world, rounds, replications=2, progress=False).regret("fixed")[:, -1].max()) / rounds


@pytest.mark.slow
def test_worlds_that_are_nearly_a_product_do_not_lock_it_in():
    """The worst of two runs is no worse than that of FTRL-PBM; Thompson sampling alone is lost in some of them."""
    alone = []
    for world in bent_worlds(3, seed=20):
        ours, theirs = (regret_of(name, world) for name in ("all-weather", "ftrl-pbm"))
        assert ours < theirs + 0.002
        alone.append(regret_of("gibbs-ts", world) / theirs)
    assert max(alone) > 2.0


# In a ranker


def test_a_ranker_learns_with_it_and_states_its_marginals():
    rng, rates = np.random.default_rng(0), {"a": 0.9, "b": 0.6, "c": 0.3, "d": 0.1}
    ranker = Ranker(list(rates), slots=2, policy="all-weather", seed=3)
    for _ in range(400):
        shown = ranker.rank()
        ranker.feedback(shown.id, [item for item in shown.items if rng.random() < rates[item]])
    learned = np.array(ranker.learned().probabilities)
    np.testing.assert_allclose(learned.sum(axis=0), 1.0, atol=1e-9)
    assert learned[0].sum() > 0.8
