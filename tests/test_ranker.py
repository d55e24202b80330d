"""The ranker: rankings, feedback, learned probabilities, threads, and invalid arguments."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

import bothworlds
from bothworlds import Ranker, policy
from tests.policies.plain import EpsilonGreedy, Stranger, called
from tests.rankers import PAGES, PLAYERS, future, visited

# Ranking


@pytest.mark.parametrize("player", PLAYERS, ids=called)
def test_a_ranking_has_an_id_items_and_propensities(player):
    shown = Ranker(PAGES, 3, policy=player, seed=0).rank()
    assert len(shown.items) == len(shown.propensities) == 3
    assert len(set(shown.items)) == 3
    assert set(shown.items) <= set(PAGES)
    assert shown.id is not None


def test_the_first_ranking_is_uniform():
    assert Ranker(PAGES, 3, seed=0).rank().propensities == (0.2, 0.2, 0.2)


def test_every_ranking_has_an_id_of_its_own():
    ranker = Ranker(PAGES, 2, seed=0)
    assert len({ranker.rank().id for _ in range(100)}) == 100
    assert ranker.pending == 100


def test_a_shown_list_is_immutable():
    shown = Ranker(PAGES, 2, seed=0).rank()
    with pytest.raises(AttributeError):
        shown.items = ()


def test_a_seed_makes_rankings_reproducible():
    one, same, other = (Ranker(PAGES, 3, seed=seed) for seed in (4, 4, 5))
    first = future(one)
    assert future(same) == first
    assert future(other) != first


def test_without_a_seed_two_rankers_differ():
    assert future(Ranker(PAGES, 3)) != future(Ranker(PAGES, 3))


def test_a_ranker_is_the_policy_with_names():
    learner = policy("ftrl-pbm")
    state, rng = learner.init(5, 3), np.random.default_rng(6)
    ranker = Ranker(PAGES, 3, policy="ftrl-pbm", seed=6)
    for _ in range(40):
        decision, shown = learner.decide(state, rng), ranker.rank()
        assert shown.items == tuple(PAGES[i] for i in decision.ranking)
        assert shown.propensities == tuple(decision.propensity)
        learner.learn(state, decision, [1, 0, 1])
        ranker.feedback(shown.id, [shown.items[0], shown.items[2]])


@pytest.mark.parametrize("player", ["ftrl-pbm", EpsilonGreedy(), Stranger()], ids=called)
def test_clicked_items_are_shown_more_often(player):
    ranker = Ranker(PAGES, 2, policy=player, seed=2)
    for _ in range(400):
        shown = ranker.rank()
        ranker.feedback(shown.id, [item for item in shown.items if item == "chess"])
    assert sum("chess" in ranker.rank().items for _ in range(100)) > 80


@pytest.mark.parametrize("items", [range(5), ("a", "b"), iter(["a", "b"]), {"a": {}, "b": {}}, [("a", 1), ("b", 2)]])
def test_items_may_be_any_hashable_names(items):
    ranker = Ranker(items, 2, seed=0)
    assert set(ranker.rank().items) <= set(ranker.items)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"items": ["a", "b", "a"]}, "items must be different; 'a' occurs twice"),
        ({"items": [["a"], ["b"]]}, "items must be"),
        ({"items": None}, "items must be"),
        ({"items": 5}, "items must be"),
        ({"slots": 0}, "slots must be a whole number of at least 1; got 0"),
        ({"slots": 6}, "slots must be from 1 to the number of items, 5; got 6"),
        ({"slots": -1}, "slots must be"),
        ({"slots": 2.5}, "slots must be"),
        ({"slots": True}, "slots must be"),
        ({"slots": "2"}, "slots must be"),
        ({"items": ["a"], "slots": 1}, "at least 2"),
        ({"items": []}, "number of items, 0"),
        ({"max_pending": 0}, "max_pending must be"),
        ({"max_pending": 2.5}, "max_pending must be"),
        ({"max_pending": None}, "max_pending must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": "x"}, "seed must be"),
        ({"seed": 1.5}, "seed must be"),
        ({"policy": "nobody"}, "no policy named 'nobody'"),
        ({"policy": 3}, "policy must be a name or an object"),
    ],
    ids=str,
)
def test_invalid_arguments_raise_value_error(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        Ranker(**({"items": PAGES, "slots": 2} | arguments))


def test_options_are_keyword_only():
    with pytest.raises(TypeError):
        Ranker(PAGES, 2, "uniform")


# Feedback


def test_feedback_may_be_any_collection_of_shown_items():
    ranker = Ranker(PAGES, 3, seed=0)
    for kind in (list, tuple, set, frozenset, iter):
        shown = ranker.rank()
        assert ranker.feedback(shown.id, kind(shown.items[:2])) is None
    assert ranker.pending == 0


def test_a_click_is_a_reward_of_1():
    one, other = (Ranker(PAGES, 3, seed=0) for _ in range(2))
    for _ in range(30):
        shown = one.rank()
        assert other.rank() == shown
        one.feedback(shown.id, shown.items[:1])
        other.feedback(shown.id, rewards={shown.items[0]: 1, shown.items[1]: 0.0})
    many = Ranker(PAGES, 3, seed=0)
    waiting = [many.rank() for _ in range(2)]
    many.feedback_many([(waiting[0].id, waiting[0].items[:1]), (waiting[1].id, {waiting[1].items[2]: 0.5})])
    assert many.pending == 0


@pytest.mark.parametrize("policy", ["all-weather", "ftrl-pbm", "comb-ucb"])
def test_larger_rewards_are_preferred(policy):
    """Every item is rewarded each time it is shown, so that only the size of rewards tells them apart."""
    ranker = Ranker(["a", "b", "c"], 1, policy=policy, seed=0)
    worth = {"a": 0.2, "b": 0.9, "c": 0.5}
    for _ in range(400):
        (item,) = ranker.rank().items
        ranker.feedback(ranker._last_id, rewards={item: worth[item]})
    shown = [ranker.rank().items[0] for _ in range(100)]
    assert shown.count("b") > 60


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"rewards": {"news": 1.5}}, "rewards must be numbers from 0 to 1; got 1.5 for 'news'"),
        ({"rewards": {"news": -0.1}}, "rewards must be numbers from 0 to 1"),
        ({"rewards": {"news": float("nan")}}, "rewards must be numbers from 0 to 1"),
        ({"rewards": {"news": True}}, "rewards must be numbers from 0 to 1"),
        ({"rewards": {"news": "1"}}, "rewards must be numbers from 0 to 1"),
        ({"rewards": ["news"]}, "rewards must map items to numbers"),
        ({"clicked": [], "rewards": {}}, "give one of the two"),
        ({}, "give one of the two"),
    ],
    ids=str,
)
def test_impossible_rewards_are_refused(given, sentence):
    ranker = Ranker(["news", "sport"], 2, seed=0)
    shown = ranker.rank()
    with pytest.raises(ValueError, match=sentence):
        ranker.feedback(shown.id, **given)
    assert ranker.pending == 1


def test_feedback_without_a_click_is_learned_from():
    ranker = Ranker(PAGES, 3, seed=0)
    shown = ranker.rank()
    ranker.feedback(shown.id, [])
    assert ranker.rank().propensities != shown.propensities


def test_an_item_clicked_twice_is_clicked():
    once, twice = (Ranker(PAGES, 3, seed=0) for _ in range(2))
    for ranker, times in ((once, 1), (twice, 5)):
        shown = ranker.rank()
        ranker.feedback(shown.id, [shown.items[1]] * times)
    assert future(once) == future(twice)


@pytest.mark.parametrize("player", PLAYERS, ids=called)
def test_feedback_may_come_late_and_in_any_order(player):
    ranker = Ranker(PAGES, 3, policy=player, seed=0)
    waiting = [ranker.rank() for _ in range(50)]
    for k in np.random.default_rng(1).permutation(50):
        ranker.feedback(waiting[k].id, waiting[k].items[:1])
        ranker.rank()
    assert ranker.pending == 50


def test_the_order_of_feedback_hardly_matters_to_a_policy_of_sums():
    rankers = [Ranker(PAGES, 3, policy="ftrl-pbm", seed=0) for _ in range(2)]
    for ranker, step in zip(rankers, (1, -1)):
        for shown in [ranker.rank() for _ in range(40)][::step]:
            ranker.feedback(shown.id, [item for item in shown.items if item == "news"])
    one, other = (ranker.rank() for ranker in rankers)
    assert one.items == other.items
    assert one.propensities == pytest.approx(other.propensities, abs=1e-5)


def test_a_batch_is_the_same_as_one_after_the_other():
    single, batched = (Ranker(PAGES, 3, seed=0) for _ in range(2))
    shown = [single.rank() for _ in range(10)]
    assert [batched.rank() for _ in range(10)] == shown
    for one in shown:
        single.feedback(one.id, one.items[:1])
    batched.feedback_many((one.id, one.items[:1]) for one in shown)
    assert batched.pending == 0
    assert future(single) == future(batched)


def test_an_empty_batch_changes_nothing():
    ranker = Ranker(PAGES, 3, seed=0)
    ranker.feedback_many([])
    assert future(ranker) == future(Ranker(PAGES, 3, seed=0))


def test_whole_numbers_of_numpy_are_ids():
    ranker = Ranker(PAGES, 3, seed=0)
    ranker.feedback(np.int64(ranker.rank().id), [])
    assert ranker.pending == 0


@pytest.mark.parametrize("id", [0, -1, 2, 99, 1.0, 1.5, "1", None, True, (1,), [1], {}, np.nan], ids=repr)
def test_an_unknown_id_is_refused(id):
    ranker = Ranker(PAGES, 3, seed=0)
    ranker.rank()
    with pytest.raises(ValueError, match="id must be one that rank"):
        ranker.feedback(id, [])
    assert ranker.pending == 1


def test_repeated_feedback_is_refused():
    ranker = Ranker(PAGES, 3, seed=0)
    shown = ranker.rank()
    ranker.feedback(shown.id, [])
    with pytest.raises(ValueError, match=f"id {shown.id} had its feedback already"):
        ranker.feedback(shown.id, [])


def shown_and_not(ranker):
    shown = ranker.rank()
    return shown, next(item for item in PAGES if item not in shown.items)


@pytest.mark.parametrize(
    ("clicked", "sentence"),
    [
        (["politics"], "clicked must be items of this ranker; got 'politics'"),
        ([None], "clicked must be items of this ranker; got None"),
        ([0], "clicked must be items of this ranker; got 0"),
        ([["news"]], "clicked must be items of this ranker"),
        ("news", "clicked must be a list of items; got .*'news'"),
        ("", "clicked must be a list of items"),
        (b"news", "clicked must be a list of items"),
        (None, "feedback needs clicked items or rewards"),
        (3, "clicked must be a list of items"),
    ],
    ids=repr,
)
def test_impossible_clicks_are_refused(clicked, sentence):
    ranker = Ranker(PAGES, 3, seed=0)
    shown = ranker.rank()
    with pytest.raises(ValueError, match=sentence):
        ranker.feedback(shown.id, clicked)
    ranker.feedback(shown.id, [])


def test_a_click_on_an_item_that_was_not_shown_is_refused():
    ranker = Ranker(PAGES, 3, seed=0)
    shown, hidden = shown_and_not(ranker)
    with pytest.raises(ValueError, match=f"'{hidden}' was not shown with id {shown.id}"):
        ranker.feedback(shown.id, [shown.items[0], hidden])


def test_refused_feedback_changes_nothing():
    ranker, untouched = (Ranker(PAGES, 3, seed=0) for _ in range(2))
    untouched.rank()
    shown, hidden = shown_and_not(ranker)
    for id, clicked in ((shown.id, [hidden]), (shown.id, ["politics"]), (shown.id, "news"), (77, [])):
        with pytest.raises(ValueError, match=r"must be|was not shown"):
            ranker.feedback(id, clicked)
    assert ranker.pending == 1
    assert future(ranker) == future(untouched)


def test_a_batch_is_learned_as_a_whole_or_not_at_all():
    ranker, untouched = (Ranker(PAGES, 3, seed=0) for _ in range(2))
    first, second = ranker.rank(), ranker.rank()
    untouched.rank(), untouched.rank()
    for wrong in ((77, []), (second.id, ["politics"]), (first.id, [])):
        with pytest.raises(ValueError, match=r"must be|twice"):
            ranker.feedback_many([(first.id, first.items), wrong])
    assert ranker.pending == 2
    assert future(ranker) == future(untouched)


def test_the_oldest_of_too_many_rankings_is_dropped():
    ranker = Ranker(PAGES, 3, seed=0, max_pending=3)
    shown = [ranker.rank() for _ in range(5)]
    assert ranker.pending == 3
    for dropped in shown[:2]:
        with pytest.raises(ValueError, match=f"id {dropped.id} .*was dropped: at most 3 wait"):
            ranker.feedback(dropped.id, [])
    for kept in shown[2:]:
        ranker.feedback(kept.id, [])
    assert ranker.pending == 0


def test_feedback_frees_places_for_pending_rankings():
    ranker = Ranker(PAGES, 3, seed=0, max_pending=2)
    early = ranker.rank()
    for _ in range(100):
        ranker.feedback(ranker.rank().id, [])
    ranker.feedback(early.id, [])
    assert ranker.pending == 0


@pytest.mark.slow
def test_a_ranker_may_be_used_from_several_threads():
    ranker = Ranker(PAGES, 3, seed=0)
    with ThreadPoolExecutor(8) as threads:
        ids = [id for some in threads.map(lambda _: visited(ranker, range(150)), range(8)) for id in some]
    assert len(set(ids)) == 8 * 150
    assert ranker.pending == 0


class Alone(EpsilonGreedy):
    """Notices when somebody else comes in."""

    room = threading.Lock()

    def decide(self, state, rng):
        with self.alone():
            return super().decide(state, rng)

    def learn(self, state, decision, clicks):
        with self.alone():
            return super().learn(state, decision, clicks)

    @contextmanager
    def alone(self):
        assert self.room.acquire(blocking=False), "two at a time"
        try:
            time.sleep(0.0005)
            yield
        finally:
            self.room.release()


def test_a_policy_is_never_used_by_two_threads_at_a_time():
    ranker = Ranker(PAGES, 3, policy=Alone(), seed=0)
    with ThreadPoolExecutor(4) as threads:
        assert len(list(threads.map(lambda _: visited(ranker, range(20)), range(4)))) == 4


def test_the_ranker_is_importable_from_the_package():
    assert bothworlds.Ranker is Ranker


# What it has learned


def taught(player, rounds=200):
    ranker = Ranker(PAGES, 2, policy=player, seed=2)
    for _ in range(rounds):
        shown = ranker.rank()
        ranker.feedback(shown.id, [item for item in shown.items if item == "chess"])
    return ranker


def test_repr_names_items_slots_and_policy():
    ranker = Ranker(PAGES, 2, policy=policy("ftrl-pbm", rate=0.25), seed=0)
    ranker.feedback(ranker.rank().id, [])
    ranker.rank()
    assert repr(ranker) == "<Ranker: 5 items, 2 slots, ftrl-pbm(rate=0.25), 2 shown, 1 pending>"
    assert "Stranger" in repr(Ranker(PAGES, 2, policy=Stranger()))


@pytest.mark.parametrize("player", PLAYERS, ids=called)
def test_learned_is_a_table_of_probabilities(player):
    learned = taught(player, 50).learned()
    assert learned.items == tuple(PAGES)
    assert np.asarray(learned).shape == (5, 2)
    np.testing.assert_allclose(np.asarray(learned).sum(axis=0), 1.0)
    assert learned.to_dict() == {item: learned[item].tolist() for item in PAGES}
    with pytest.raises(KeyError):
        learned["nothing"]


@pytest.mark.parametrize("player", ["ftrl-pbm", "tsallis-rv"])
def test_probabilities_are_exact_where_the_policy_knows_them(player):
    ranker = taught(player)
    learned = ranker.learned()
    assert learned.exact
    for _ in range(50):
        shown = ranker.rank()
        assert shown.propensities == tuple(learned[item][slot] for slot, item in enumerate(shown.items))


@pytest.mark.parametrize("player", ["pbm-ts", EpsilonGreedy(), Stranger()], ids=called)
def test_other_probabilities_are_the_shares_of_many_decisions(player):
    if player == "pbm-ts":
        player = policy("pbm-ts", examination=[1.0, 0.5])
    ranker = taught(player)
    learned = ranker.learned()
    assert not learned.exact
    drawn = [ranker.rank().items for _ in range(4000)]
    seen = np.array([[sum(items[slot] == item for items in drawn) for slot in range(2)] for item in PAGES]) / 4000
    error = np.sqrt(0.25 / 1000 + 0.25 / 4000)
    assert np.abs(np.asarray(learned) - seen).max() < 4.5 * error
    assert "estimated from 1,000 decisions" in repr(learned)


@pytest.mark.parametrize("player", PLAYERS, ids=called)
def test_learned_changes_nothing(player):
    one, other = taught(player, 20), taught(player, 20)
    first = one.learned()
    assert np.array_equal(np.asarray(first), np.asarray(one.learned()))
    assert future(one) == future(other)


def test_learned_is_a_snapshot():
    ranker = taught("ftrl-pbm", 10)
    learned = ranker.learned()
    before = np.array(learned)
    ranker.feedback(ranker.rank().id, [])
    assert np.array_equal(np.asarray(learned), before)
    assert not np.array_equal(np.asarray(ranker.learned()), before)


def test_repr_of_learned_is_a_table():
    lines = repr(taught("ftrl-pbm", 400).learned()).splitlines()
    assert lines[0].split() == ["item", "slot", "1", "slot", "2"]
    assert len(lines) == 6
    assert lines[1].startswith("chess")
    assert len({len(line) for line in lines}) == 1


def test_repr_of_learned_has_the_most_likely_items():
    learned = Ranker(range(1000), 3, seed=0).learned()
    lines = repr(learned).splitlines()
    assert len(lines) == 22
    assert lines[-1] == "and 980 more items"
