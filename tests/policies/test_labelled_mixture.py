"""All-weather with labels: exact propensities, unbiased estimates, one leader for all visitors, and its insurance."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds import play, policy
from bothworlds.core import Labels, copy_state
from bothworlds.policies import one_for_all
from bothworlds.policies.marginals import frequencies
from bothworlds.worlds import ContextualWorld

POLICY = policy("all-weather")
LABELS = Labels(np.array([2]), np.array([2]), np.array([[0, 1, 0]]))
N, M = 3, 2
RATES = np.array([[[0.8, 0.4], [0.2, 0.1], [0.3, 0.2]], [[0.1, 0.1], [0.7, 0.3], [0.2, 0.1]]])


def played(rounds, seed=0):
    """A state that has learned from two contexts, each with its own rates."""
    state, rng = POLICY.init(N, M, LABELS), np.random.default_rng(seed)
    for _ in range(rounds):
        c = int(rng.random() < 0.4)
        decision = POLICY.decide(state, rng, [c])
        p = RATES[c][decision.ranking, range(M)]
        POLICY.learn(state, decision, (rng.random(M) < p).astype(float))
    return state


@pytest.mark.slow
def test_propensities_are_exact_in_every_context():
    state = played(300)
    for context in range(2):
        p, rng = POLICY.marginals(state, [context]), np.random.default_rng(1)
        seen = frequencies((POLICY.decide(state, rng, [context]).ranking for _ in range(10_000)), (N, M))
        assert (np.abs(seen - p) < 5.0 * np.sqrt(p * (1.0 - p) / 10_000) + 1e-4).all()
        assert p.sum(axis=0) == pytest.approx(np.ones(M))
    assert np.abs(POLICY.marginals(state, [0]) - POLICY.marginals(state, [1])).max() > 0.3


def expected_steps(state, wrong=False):
    """The mean change of the losses of the leader and of D over placements and contexts, and what it should be.

    The estimates are sums over positions, so that the placement at one position is enough: item i with its p.
    """
    losses, differences, truth_d = np.zeros((N, M)), 0.0, 0.0
    x = state.leading.marginals.copy()
    tables = [POLICY.marginals(state, [c]) for c in range(2)]
    w = state.weight[0]
    for c, share in enumerate((0.6, 0.4)):
        s = (tables[c] - w * x) / (1.0 - w)
        truth_d += share * ((s - x) * (1.0 - RATES[c])).sum()
        recorded = tables[1 - c] if wrong else tables[c]
        for j in range(M):
            for i in range(N):
                for click in (0.0, 1.0):
                    # An artificial page: the item at its position alone is learned from.
                    twin = copy_state(state)
                    twin.comparison.ratio[0] = 1.0
                    other = (i + 1) % N
                    ranking = np.array([i, other]) if j == 0 else np.array([other, i])
                    note = np.zeros(1 + M)
                    note[0], note[1 + j] = w, s[i, j] - x[i, j]
                    learned = np.arange(M) == j
                    propensity = np.where(learned, recorded[i, j], 1.0)
                    chance = RATES[c][i, j] if click else 1.0 - RATES[c][i, j]
                    decision = POLICY.decide(state, np.random.default_rng(0), [c])._replace(
                        ranking=ranking, propensity=propensity, note=note, learned=learned
                    )
                    POLICY.learn(twin, decision, np.where(learned, click, 0.0))
                    probability = share * tables[c][i, j] * chance
                    losses[:, j] += probability * (twin.loss - state.loss)[:, j]
                    differences += probability * (twin.comparison.difference - state.comparison.difference)[0]
    truth = np.tensordot([0.6, 0.4], 1.0 - RATES, 1)
    return losses, truth, differences, truth_d


def test_the_estimates_of_leader_and_comparison_are_unbiased_over_two_contexts():
    """By enumeration of contexts, placements and clicks; with the p of another context they are not."""
    state = played(300)
    losses, truth, differences, truth_d = expected_steps(state)
    assert losses == pytest.approx(truth, abs=1e-12)
    assert differences == pytest.approx(truth_d, abs=1e-12)
    losses, truth, differences, truth_d = expected_steps(state, wrong=True)
    assert np.abs(losses - truth).max() > 0.01
    assert abs(differences - truth_d) > 0.01


@pytest.mark.slow
@pytest.mark.nightly
def test_where_clicks_are_not_of_the_form_the_leader_insures():
    """Every item is clicked at one slot only: the product form and labels say nothing of it."""
    n = 4
    bend = np.where(np.eye(n), 1.0, 0.1)
    world = ContextualWorld([[0], [1]], np.zeros((n, 0), int), [0.5, 0.5], np.full((2, n), 0.8), np.ones(n), bend=bend)
    ours, blind = (play(one, world, 6000, replications=4, jobs=1) for one in ("all-weather", one_for_all("ftrl-va")))
    assert ours.final()[0] > blind.final()[0] - 0.05


@pytest.mark.slow
def test_a_change_of_taste_begins_the_comparison_again_and_a_swinging_mix_does_not():
    labels, rng = [[0], [1], [2]], np.random.default_rng(0)
    attraction = rng.uniform(0.1, 0.9, (3, 8))
    swing = [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]
    mix = ContextualWorld(labels, np.zeros((8, 0), int), swing, attraction, [1.0, 0.6, 0.4], phase=1000)
    changed = ContextualWorld(
        labels, np.zeros((8, 0), int), [0.4, 0.3, 0.3], [attraction, attraction[:, ::-1]], [1.0, 0.6, 0.4], phase=4000
    )
    assert alarm_of(mix, 8000) == 0
    assert 4000 < alarm_of(changed, 8000) <= 5000


def alarm_of(world, rounds):
    state, rng = POLICY.init(world.n_items, world.n_positions, world.labels(0)), np.random.default_rng(3)
    for t in range(rounds):
        c = int(rng.choice(3, p=world.share(t)))
        decision = POLICY.decide(state, rng, [c])
        p = world.click_table(t)[c][decision.ranking, range(world.n_positions)]
        POLICY.learn(state, decision, (rng.random(p.size) < p).astype(float))
    return int(state.effects.alarm[0])
