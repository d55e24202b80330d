"""Policies that, with many items, compute only what a round has changed, against the same policies that compute all."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bothworlds import Ranker
from bothworlds.core import Decision, Shape, copy_state
from bothworlds.geometry.item_rows import MANY_ITEMS, fill_rows
from bothworlds.kernels import kernel
from bothworlds.policies import policy
from bothworlds.policies.pages import resized
from bothworlds.policies.parts.counts import lacking_list
from bothworlds.policies.parts.position_based import fit_examination
from bothworlds.policies.parts.random_stream import make_stream

N, M = 40, 3
P = np.outer(np.linspace(0.9, 0.1, N), [0.9, 0.6, 0.3])
NAMES = ["pbm-ucb", "pbm-ucb-mle"]
SIGNIFICANT = 1e-4


def upper_bounds(name):
    return policy(name, examination=[0.9, 0.6, 0.3]) if name == "pbm-ucb" else policy(name)


def rounds_of(made, rounds, shape=(N, M), **given):
    """Play; yields the round and the state before every decision."""
    state, rng = made.start(Shape(*shape), **given), np.random.default_rng(0)
    for t in range(rounds):
        yield t, state
        decision = made.decide(state, rng)
        made.learn(state, decision, (rng.random(M) < P[decision.ranking, np.arange(M)]).astype(float))


@kernel
def lacking(counts, rng, ranking):
    return lacking_list(counts, 0.0, rng, ranking)


def sums_are_right(state):
    examination = state.examined.positions.examination
    sums = state.counts.clicked.sum(axis=1), state.counts.shown.sum(axis=1), state.counts.shown @ examination
    return all(np.allclose(kept, expected, rtol=1e-12) for kept, expected in zip(state.totals, sums))


@pytest.mark.parametrize(
    "made",
    [
        upper_bounds("pbm-ucb"),
        upper_bounds("pbm-ucb-mle"),
        *(policy("pbm-ucb-mle", **forget) for forget in ({"window": 30}, {"discount": 0.9}, {"detect": True})),
    ],
    ids=lambda made: made.label,
)
def test_sums_that_are_kept_from_round_to_round_are_those_of_the_counts(made):
    for _, state in rounds_of(made, 200):
        assert sums_are_right(state)
    state.totals.clicks[0] -= 1.0
    assert not sums_are_right(state)


def test_the_first_fit_follows_the_cyclic_lists_and_fits_are_those_of_the_counts():
    made, fits, last = upper_bounds("pbm-ucb-mle"), 0, np.ones(M)
    twin = made.start(Shape(N, M)).examined
    for t, state in rounds_of(made, 300, sharing=True):
        examination = state.examined.positions.examination
        if t < N:
            assert (examination == 1.0).all()
        elif (examination != last).any():
            fit_examination(state.counts, twin)
            np.testing.assert_allclose(examination, twin.positions.examination, rtol=1e-5)
            last, fits = examination.copy(), fits + 1
    assert 30 < fits < 150


def test_lists_that_are_due_are_those_with_a_pair_that_was_never_shown():
    made, rng, ranking = upper_bounds("pbm-ucb-mle"), np.random.default_rng(1), np.empty(M, np.int64)
    for t, state in rounds_of(made, N + 5, sharing=True):
        due = lacking(state.counts, rng, ranking)
        assert due == max(0, N - t)
        decision = made.decide(state, rng)
        if due:
            assert (decision.propensity == 1.0 / due).all()
            assert not state.counts.shown[decision.ranking, np.arange(M)].any()
            assert (np.diff(decision.ranking) % N == 1).all()


def test_lists_that_others_have_shown_are_not_due():
    made = upper_bounds("pbm-ucb-mle")
    state, rng = made.start(Shape(N, M), sharing=True), np.random.default_rng(2)
    for k in range(61):  # lists that are not cyclic, so that pairs of a list are shown in different rounds
        made.learn(state, Decision(rng.permutation(N)[:M], np.full(M, np.nan)), (rng.random(M) < 0.3).astype(float))
        if k % 20 == 0:
            expected = lacking(state.counts, rng, np.empty(M, np.int64))
            assert N - state.complete.own[0] == expected
    assert 0 < expected < N


@pytest.mark.parametrize("name", NAMES)
def test_counts_give_the_sums_and_the_complete_lists(name):
    made, rng = upper_bounds(name), np.random.default_rng(3)
    shown = rng.integers(1, 9, (MANY_ITEMS, M)).astype(float)
    clicked = rng.binomial(shown.astype(int), 0.3).astype(float)
    state = made.init(MANY_ITEMS, M)
    state.counts.shown[:], state.counts.clicked[:] = shown, clicked
    state.counts.rounds[0] = state.counts.learned[0] = 2_000
    resumed = resized(made, state, np.arange(MANY_ITEMS), np.arange(M)).state
    assert sums_are_right(resumed)
    decision = made.decide(resumed, np.random.default_rng(4))
    assert np.isnan(decision.propensity).all()  # no list is due


@pytest.mark.parametrize("settings", [{"window": 50}, {"discount": 0.99}, {"detect": True}])
def test_complete_lists_are_not_remembered_where_counts_fall(settings):
    assert not policy("pbm-ucb-mle", **settings).init(MANY_ITEMS, 2).complete.item.size
    assert policy("pbm-ucb-mle").init(MANY_ITEMS, 2).complete.item.size
    assert not policy("pbm-ucb-mle").init(MANY_ITEMS - 1, 2).complete.item.size


# Gibbs-TS: its chain leaves out items that were never shown.

PAGES = [([0, 1], [1.0, 0.0]), ([2, 0], [0.0, 1.0]), ([1, 2], [0.0, 0.0]), ([0, 2], [1.0, 1.0])]


def drawn_lists(sharing, replications, broken=False):
    """How often every list of 2 of 6 items is drawn, after the same pages; every replication has its own chain."""
    made, rng, seen = policy("gibbs-ts"), np.random.default_rng(int(sharing)), np.zeros((6, 6))
    start = made.start(Shape(6, 2), sharing=sharing)
    for k in range(replications):
        state = copy_state(start)._replace(stream=make_stream(k, int(sharing)))
        for ranking, clicks in PAGES:
            made.learn(state, Decision(np.array(ranking), np.full(2, np.nan)), np.array(clicks))
        if broken:
            fill_rows(state.rows, np.isin(np.arange(6), [0, 2]))  # item 1 was shown, and is taken for one that was not
        seen[tuple(made.decide(state, rng).ranking)] += 1
    return seen[~np.eye(6, dtype=bool)]


def differ(one, other):
    """The probability of such a difference if both have the same distribution."""
    return stats.chi2_contingency(np.array([one, other])).pvalue


@pytest.mark.slow
def test_lists_have_the_same_distribution_without_items_that_were_never_shown():
    every, shared = drawn_lists(False, 4_000), drawn_lists(True, 4_000)
    assert differ(every, shared) > SIGNIFICANT
    assert differ(every, drawn_lists(True, 4_000, broken=True)) < SIGNIFICANT


def test_the_first_list_of_many_items_is_uniform():
    made, rng, seen = policy("gibbs-ts"), np.random.default_rng(5), np.zeros(6)
    state = made.start(Shape(6, 6), sharing=True)
    for _ in range(1_000):
        ranking = made.decide(state, rng).ranking
        assert sorted(ranking) == list(range(6))
        seen[ranking[0]] += 1
    assert stats.chisquare(seen).pvalue > SIGNIFICANT


def test_the_chain_contains_the_items_that_were_shown():
    made, rng = policy("gibbs-ts"), np.random.default_rng(6)
    state, shown = made.init(MANY_ITEMS, M), set()
    for _ in range(30):
        decision = made.decide(state, rng)
        shown |= set(decision.ranking.tolist())
        made.learn(state, decision, (rng.random(M) < 0.5).astype(float))
        assert set(state.rows.item[: state.rows.own[0]].tolist()) == shown
    resumed = resized(made, state, np.arange(MANY_ITEMS), np.arange(M)).state
    assert set(resumed.rows.item[: resumed.rows.own[0]].tolist()) == shown
    lists = made.sample_rankings(resumed, 40, rng)
    assert all(len(set(ranking)) == M for ranking in lists.tolist())
    assert not set(lists.ravel().tolist()) <= shown


def test_with_another_prior_or_few_items_the_chain_contains_all():
    assert policy("gibbs-ts", prior=2.0).init(MANY_ITEMS, 2).rows.own[0] == MANY_ITEMS
    assert policy("gibbs-ts").init(MANY_ITEMS - 1, 2).rows.own[0] == MANY_ITEMS - 1
    assert policy("gibbs-ts").init(MANY_ITEMS, 2).rows.own[0] == 0


@pytest.mark.parametrize("name", ["gibbs-ts", "pbm-ucb-mle"])
def test_a_ranker_with_many_items_is_saved_and_continues(name, tmp_path):
    ranker = Ranker(range(MANY_ITEMS), slots=3, policy=name, seed=4)
    for _ in range(20):
        page = ranker.rank()
        ranker.feedback(page.id, [page.items[0]])
    ranker.save(tmp_path / "ranker.npz")
    again = Ranker.load(tmp_path / "ranker.npz")
    for _ in range(10):
        one, other = ranker.rank(), again.rank()
        assert one.items == other.items
        ranker.feedback(one.id, [one.items[0]])
        again.feedback(other.id, [other.items[0]])
