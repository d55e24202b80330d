"""Pages: the state of a part, growth and shrinkage, constrained lists, and what is learned from them."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import bothworlds
from bothworlds.core import NONE_ABSENT, Decision, Shape, copy_state, leaves
from bothworlds.policies.marginals import known_marginals
from bothworlds.policies.pages import (
    NEW,
    Page,
    Part,
    grown,
    has_parts,
    learn_page,
    learned_leaves,
    part_for,
    rank_page,
    resized,
)
from tests.policies.informed import informed
from tests.policies.plain import EpsilonGreedy, Stranger, called

ATTRACTION, EXAMINATION = np.array([0.9, 0.7, 0.4, 0.2, 0.1]), np.array([0.9, 0.6, 0.3])
SHAPE = Shape(5, 3)
DIVISIBLE = [name for name in bothworlds.policies.names() if has_parts(bothworlds.policy(name))]
# These parts are not equal to the smaller problem that has learned the same pages. tsallis-rv, ftrl-va and all-weather
# predict losses, and how much of a prediction they use depends on the probabilities of all items: their losses differ
# by an error of mean zero. The rate of mw depends on the number of items, and osmd projects after every page. What is
# stated is the difference in clicks per page, of .93, after 200 pages.
# Policies with random numbers of their own are compared by what they have learned.
APART = {"all-weather": 0.05, "ftrl-va": 0.05, "tsallis-rv": 0.05, "mw": 0.05, "osmd": 0.01}
CHAINS = {"context-ts", "gibbs-ts", "pb-mhb"}


def policy_for(name):
    return informed(name, *SHAPE, rounds=400)


def clicks_on(ranking, rng):
    return (rng.random(len(ranking)) < ATTRACTION[ranking] * EXAMINATION[: len(ranking)]).astype(float)


def trained(policy, rounds=60, shape=SHAPE, seed=0):
    state, rng = policy.init(*shape), np.random.default_rng(seed)
    for _ in range(rounds):
        decision = policy.decide(state, rng)
        policy.learn(state, decision, clicks_on(decision.ranking, rng))
    return state


def same_state(one, other, paths):
    ours, theirs = dict(leaves(one)), dict(leaves(other))
    return all(np.array_equal(ours[path], theirs[path]) for path in paths if path in ours)


# The state of a part


def learned_by_both(policy, pages=200):
    """The part of a state that has learned pages of this part, and the smaller problem that has learned the same."""
    items, positions, page = np.array([0, 2, 3, 4]), np.array([0, 2]), Page(np.array([0, 2, 3, 4]), {1: 1})
    small_policy = policy.part(items, positions)
    whole, small = policy.init(*SHAPE), small_policy.init(4, 2)
    rng = np.random.default_rng(0)
    for _ in range(pages):
        decision = rank_page(Part(small_policy, small, items, positions), page, SHAPE, rng)
        clicks = clicks_on(decision.ranking, rng)
        clicks[1] = 0.0  # a click above would end a cascade, and the smaller problem would not know
        ranking = np.searchsorted(items, decision.ranking[positions])
        small_policy.learn(small, Decision(ranking, decision.propensity[positions]), clicks[positions])
        policy.learn(whole, decision, clicks)
    return resized(policy, whole, items, positions), Part(small_policy, small, items, positions)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIVISIBLE)
def test_a_part_is_the_smaller_problem_that_has_learned_the_same_pages(name):
    policy = policy_for(name)
    part, small = learned_by_both(policy)
    if name in APART:
        difference = known_marginals(part.policy, part.state) - known_marginals(small.policy, small.state)
        assert np.abs(difference).max() > 0.0
        assert abs((difference * np.outer(ATTRACTION[part.items], EXAMINATION[part.positions])).sum()) < APART[name]
    else:
        chain = {"attraction", "examination", "stream.words", "effects.stream.words"} if name in CHAINS else set()
        assert same_state(part.state, small.state, learned_leaves(policy).keys() - chain)
        rngs = [np.random.default_rng(1) for _ in range(2)]
        if name not in CHAINS:
            lists = [one.policy.decide(one.state, rng).ranking for one, rng in zip((part, small), rngs)]
            assert (lists[0] == lists[1]).all()


@pytest.mark.parametrize("name", DIVISIBLE)
def test_the_part_of_everything_is_the_state_itself(name):
    policy = policy_for(name)
    state = trained(policy)
    twin = copy_state(state)
    part = resized(policy, state, range(5), range(3))
    chain = {"attraction", "examination", "sampler.attraction", "sampler.examination", "sampler.stream.words"}
    ours, theirs = dict(leaves(part.state)), dict(leaves(state))
    for path in (learned_leaves(policy).keys() & ours.keys()) - chain - {"stream.words", "effects.stream.words"}:
        assert ours[path] == pytest.approx(theirs[path], rel=1e-6), path
    assert same_state(state, twin, theirs.keys())


@pytest.mark.parametrize("name", DIVISIBLE)
def test_a_state_grows_by_items_and_shrinks_again(name):
    policy = policy_for(name)
    state = trained(policy)
    larger = grown(policy, state, 7, 3)
    assert larger.shape == (7, 3)
    shrunk = resized(policy, larger, range(5), range(3)).state
    chain = {"attraction", "examination", "sampler.attraction", "sampler.examination", "sampler.stream.words"}
    ours, theirs = dict(leaves(shrunk)), dict(leaves(state))
    known = learned_leaves(policy).keys() & ours.keys()
    for path in known - chain - {"stream.words", "effects.stream.words", "comparison.ratio", "weight"}:
        assert ours[path] == pytest.approx(theirs[path], rel=1e-6), path
    rng = np.random.default_rng(0)
    for _ in range(30):
        decision = policy.decide(larger, rng)
        policy.learn(larger, decision, np.zeros(3))


@pytest.mark.parametrize("name", ["all-weather", "ftrl-pbm", "comb-ucb", "gibbs-ts", "cascade-ucb"])
def test_a_state_grows_by_a_position(name):
    policy = policy_for(name)
    state = trained(policy)
    assert grown(policy, state, 5, 3) is state
    larger = grown(policy, state, 5, 4)
    decision = policy.decide(larger, np.random.default_rng(0))
    assert sorted(set(decision.ranking)) == sorted(decision.ranking)
    assert len(decision.ranking) == 4


def test_a_new_position_of_unknown_examination_is_refused():
    policy = policy_for("pbm-ucb")
    with pytest.raises(ValueError, match=r"pbm-ucb.* cannot have a new position: its examination is not known"):
        grown(policy, policy.init(*SHAPE), 5, 4)


def test_a_new_item_has_the_median_of_the_losses_and_no_counts():
    leader, counting = bothworlds.policy("ftrl-va"), bothworlds.policy("comb-ucb")
    state = grown(leader, trained(leader), 6, 3)
    assert (state.loss[5] == np.median(state.loss[:5], axis=0)).all()
    assert not state.rule.counts.shown[5].any()
    assert not grown(counting, trained(counting), 6, 3).counts.shown[5].any()


def test_items_may_change_their_order():
    policy = bothworlds.policy("comb-ucb")
    state = trained(policy)
    part = resized(policy, state, [3, NEW, 0], [2, 1])
    assert (part.state.counts.shown[[0, 2]] == state.counts.shown[np.ix_([3, 0], [2, 1])]).all()
    assert not part.state.counts.shown[1].any()


@pytest.mark.parametrize("name", ["comb-ucb", "comb-ts", "gibbs-ts"])
def test_a_window_forgets_pages_of_items_that_were_removed_and_slots_that_were_added(name):
    policy = bothworlds.policy(name, window=20)
    state = trained(policy, rounds=33)
    part = resized(policy, state, [NEW, 4, 1, 0], [0, 1, NEW])
    counts, rng = part.state.counts, np.random.default_rng(0)
    assert (counts.shown[1:, :2] == state.counts.shown[np.ix_([4, 1, 0], [0, 1])]).all()
    ring = counts.past[:, :2]
    assert ring.min() == -1
    assert ring.max() == 3
    for k in range(1, 4):
        for j in range(2):
            assert (ring[:, j] == k).sum() == counts.shown[k, j]
            assert counts.past_clicks[:, j][ring[:, j] == k].sum() == counts.clicked[k, j]
    for _ in range(20):
        decision = part.policy.decide(part.state, rng)
        part.policy.learn(part.state, decision, np.zeros(3))
    assert counts.shown.sum() == 60.0  # nothing is left of the pages before
    assert counts.clicked.sum() == 0.0
    assert (counts.shown >= 0.0).all()


def test_the_documentation_says_which_policies_have_no_parts():
    text = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", text.partition("## Policies without parts")[2].partition("## ")[0], re.M)
    assert set(re.findall(r"`([a-z0-9-]+)`", " ".join(rows))) == set(bothworlds.policies.names()) - set(DIVISIBLE)


@pytest.mark.parametrize("policy", ["unirank", "batchrank", "grab", EpsilonGreedy(), Stranger()], ids=called)
def test_a_policy_without_parts_refuses_by_name(policy):
    policy = policy_for(policy) if isinstance(policy, str) else policy
    state, name = policy.init(*SHAPE), called(policy).split("(")[0]
    assert not has_parts(policy)
    assert learned_leaves(policy) == {}
    whole = part_for(policy, SimpleNamespace(shape=SHAPE), Page(np.arange(5), {}))
    assert whole.policy is policy
    for page in (Page(np.arange(4), {}), Page(np.arange(4), {1: 4})):
        with pytest.raises(ValueError, match=rf"with {name}.*: its state has no parts"):
            part_for(policy, SimpleNamespace(shape=SHAPE), page)
    decision = policy.decide(state, np.random.default_rng(0))
    policy.learn(state, decision, np.zeros(3))


# Drawing


def drawn(policy, state, page, rng):
    return rank_page(part_for(policy, state, page), page, state.shape, rng)


def test_a_page_of_everything_is_the_policys_own_decision():
    policy = bothworlds.policy("ftrl-pbm")
    state = trained(policy)
    ours = drawn(policy, state, Page(np.arange(5), {}), np.random.default_rng(3))
    theirs = policy.decide(state, np.random.default_rng(3))
    assert (ours.ranking == theirs.ranking).all()
    assert (ours.propensity == theirs.propensity).all()
    assert ours.absent.size == 0
    assert ours.learned is None


@pytest.mark.parametrize("name", DIVISIBLE)
def test_a_constrained_page_shows_what_it_may_and_says_what_it_could_not(name):
    policy, rng = policy_for(name), np.random.default_rng(0)
    state, page = trained(policy), Page(np.array([0, 2, 4]), {1: 3})
    for _ in range(40):
        decision = drawn(policy, state, page, rng)
        assert decision.ranking[1] == 3
        assert decision.propensity[1] == 1.0
        assert len(set(decision.ranking)) == 3
        assert set(decision.ranking[[0, 2]]) <= {0, 2, 4}
        assert decision.absent.tolist() == [1, 3]  # 3 is pinned: it could not be shown at the others
        assert decision.learned.tolist() == [True, False, True]
        policy.learn(state, decision, clicks_on(decision.ranking, rng))


def test_a_page_without_a_choice_is_not_learned_from():
    policy, rng = bothworlds.policy("all-weather"), np.random.default_rng(0)
    state = trained(policy)
    before = copy_state(state)
    for page in (Page(np.array([0, 1]), {0: 2, 1: 3, 2: 4}), Page(np.array([1]), {0: 2, 2: 4})):
        decision = drawn(policy, state, page, rng)
        assert not decision.learned.any()
        assert decision.propensity.tolist() == [1.0, 1.0, 1.0]
        policy.learn(state, decision, np.ones(3))
    assert decision.ranking.tolist() == [2, 1, 4]
    assert same_state(state, before, dict(leaves(state)))


def test_as_many_items_as_positions_are_put_in_order():
    policy, rng = bothworlds.policy("ftrl-pbm"), np.random.default_rng(0)
    state = trained(policy, rounds=200)
    lists = {tuple(drawn(policy, state, Page(np.array([0, 2, 4]), {}), rng).ranking) for _ in range(200)}
    assert all(set(ranking) == {0, 2, 4} for ranking in lists)
    assert len(lists) > 1


@pytest.mark.parametrize("name", ["all-weather", "ftrl-pbm", "hybrid", "mw"])
def test_propensities_of_constrained_pages_equal_frequencies(name):
    policy, rng = policy_for(name), np.random.default_rng(1)
    state, page, draws = trained(policy, rounds=100), Page(np.array([0, 1, 2, 4]), {2: 3}), 8000
    part = part_for(policy, state, page)
    counts, stated = np.zeros(SHAPE), np.zeros(SHAPE)
    for _ in range(draws):
        decision = rank_page(part, page, SHAPE, rng)
        counts[decision.ranking, np.arange(3)] += 1
        stated[decision.ranking, np.arange(3)] = decision.propensity
    error = np.sqrt(stated * (1.0 - stated) / draws) + 1.0 / draws
    assert (np.abs(counts / draws - stated) / error).max() < 5.0
    assert stated.sum(axis=0) == pytest.approx(1.0, abs=0.01)


# Learning


@pytest.mark.parametrize("name", DIVISIBLE)
def test_a_page_from_before_an_item_was_added_is_learned_from(name):
    policy, rng = policy_for(name), np.random.default_rng(0)
    state = trained(policy)
    early = [policy.decide(state, rng) for _ in range(10)]
    early += [drawn(policy, state, Page(np.array([0, 2, 4]), {1: 3}), rng) for _ in range(10)]
    state = grown(policy, state, 6, 3)
    for decision in early:
        assert learn_page(policy, state, decision, clicks_on(decision.ranking, rng), 5) is state
    decision = policy.decide(state, rng)
    assert learn_page(policy, state, decision, np.zeros(3), 6) is state


def test_an_item_that_was_added_later_is_charged_the_observed_loss():
    policy = bothworlds.policy("ftrl-pbm")
    state = grown(policy, policy.init(*SHAPE), 6, 3)
    decision = Decision(np.array([0, 1, 2]), np.full(3, 0.5))
    learn_page(policy, state, decision, np.array([0.0, 1.0, 0.25]), 5)
    assert state.loss[5].tolist() == [1.0, 0.0, 0.75]
    assert state.loss[0].tolist() == [2.0, 0.0, 0.0]
    assert decision.absent is NONE_ABSENT


@pytest.mark.parametrize(
    "name", sorted(set(DIVISIBLE) & {"ftrl-pbm", "hybrid", "lbinf", "lbinfv", "tsallis-rv", "ftrl-va"})
)
def test_an_absent_item_is_charged_the_loss_of_every_learned_position_and_nothing_else(name):
    policy = policy_for(name)
    state = trained(policy)
    before = state.loss.copy()
    decision = Decision(
        np.array([0, 1, 2]), np.full(3, 0.5), absent=np.array([3]), learned=np.array([True, False, True])
    )
    policy.learn(state, decision, np.array([0.0, 0.0, 0.25]))
    assert state.loss[3] - before[3] == pytest.approx([1.0, 0.0, 0.75])
    assert (state.loss[:, 1] == before[:, 1]).all()


@pytest.mark.parametrize(
    "absent", [np.array([5]), np.array([-1]), np.array([0, 7])], ids=lambda absent: str(absent.tolist())
)
def test_absent_items_must_exist(absent):
    policy = bothworlds.policy("ftrl-pbm")
    decision = Decision(np.array([0, 1, 2]), np.full(3, 0.5), absent=absent)
    with pytest.raises(ValueError, match=r"decision\.absent must be items from 0 to 4"):
        policy.learn(policy.init(*SHAPE), decision, np.zeros(3))


@pytest.mark.parametrize("name", ["ftrl-pbm", "toprank"])
def test_an_absent_item_may_be_on_the_page_only_where_it_was_pinned(name):
    policy = policy_for(name)
    decision = Decision(np.array([0, 1, 2]), np.full(3, 0.5), absent=np.array([1]))
    with pytest.raises(ValueError, match=r"decision\.absent has items that were shown; got \[1\] for \[0 1 2\]"):
        policy.learn(policy.init(*SHAPE), decision, np.zeros(3))
    policy.learn(policy.init(*SHAPE), decision._replace(learned=np.array([True, False, True])), np.zeros(3))


def test_a_note_of_another_size_is_refused():
    policy = policy_for("toprank")
    state = policy.init(*SHAPE)
    decision = policy.decide(state, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"decision\.note must have 3 entries; got 1"):
        policy.learn(state, decision._replace(note=np.zeros(1)), np.zeros(3))


def test_a_constrained_page_is_refused_by_a_policy_without_parts():
    policy = policy_for("unirank")
    state = policy.init(*SHAPE)
    decision = policy.decide(state, np.random.default_rng(0))
    for constrained in (
        decision._replace(absent=np.array([4])),
        decision._replace(learned=np.array([True, False, True])),
    ):
        with pytest.raises(ValueError, match=r"unirank.* cannot learn from a list with items that are absent"):
            policy.learn(state, constrained, np.zeros(3))


def test_all_weather_compares_its_learners_on_pages_of_a_part_only_with_a_note():
    policy, rng = bothworlds.policy("all-weather"), np.random.default_rng(0)
    state = trained(policy, rounds=100)
    assert state.weight[0] < 1.0
    decision = drawn(policy, state, Page(np.array([0, 2, 3, 4]), {}), rng)
    assert decision.note.size == 4
    assert 0.0 < decision.note[0] < 1.0
    with_note, without = copy_state(state), copy_state(state)
    policy.learn(with_note, decision, np.zeros(3))
    policy.learn(without, decision._replace(note=np.zeros(0)), np.zeros(3))
    assert without.comparison.variance[0] == state.comparison.variance[0]
    assert with_note.comparison.variance[0] >= state.comparison.variance[0]
    assert (with_note.loss - state.loss) == pytest.approx(without.loss - state.loss)
