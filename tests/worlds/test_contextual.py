"""Worlds with contexts: shares, phases, births, the best list of each context, and what is played there."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds import play, world
from bothworlds.policies import one_for_all, one_per_context
from bothworlds.worlds import ContextualWorld, from_description
from bothworlds.worlds.users import ContextUsers, arrive

TWO = {
    "labels": [[0], [1]],
    "item_labels": [[0], [1], [1], [0]],
    "share": [0.75, 0.25],
    "attraction": [[0.8, 0.2, 0.1, 0.4], [0.1, 0.6, 0.9, 0.2]],
    "examination": [1.0, 0.5],
}


def test_the_value_of_a_world_is_that_of_the_best_list_of_each_context():
    two = ContextualWorld(**TWO)
    assert two.best_lists(0).tolist() == [[0, 3], [2, 1]]
    assert two.best_value(0) == pytest.approx(0.75 * (0.8 + 0.5 * 0.4) + 0.25 * (0.9 + 0.5 * 0.6))
    best = two.best_list(0)  # for all together
    assert (best.ranking.tolist(), best.value) == ([0, 3], pytest.approx(0.75 * 1.0 + 0.25 * 0.2))
    result = play("uniform", two, 100, replications=1, checkpoints=4, jobs=1)
    assert result.best_dynamic == pytest.approx(two.best_value(0) * result.rounds)
    assert result.best_fixed == pytest.approx(result.best_dynamic)


def test_visitors_come_by_their_shares_and_bring_their_labels():
    users, row = ContextualWorld(**TWO).users(0), np.zeros(1, np.int64)
    assert isinstance(users, ContextUsers)
    rng, seen = np.random.default_rng(0), []
    for _ in range(4000):
        arrive(users, rng, row)
        seen.append(row[0])
    assert np.mean(seen) == pytest.approx(0.25, abs=5.0 * np.sqrt(0.25 * 0.75 / 4000))


def test_phases_come_again_and_the_regret_is_by_phase():
    turned = ContextualWorld(**TWO | {"attraction": [TWO["attraction"], TWO["attraction"][::-1]]}, phase=10)
    assert list(turned.spans(5, 35)) == [10, 20, 30, 35]
    assert [turned.first_round_like(t) for t in (3, 12, 25, 37)] == [0, 10, 0, 10]
    assert turned.first_change() == 10
    fixed, dynamic = turned.best_by_context([10, 20])
    assert dynamic == pytest.approx([10 * turned.best_value(0), 10 * (turned.best_value(0) + turned.best_value(10))])
    assert fixed[0] == pytest.approx(dynamic[0])
    assert fixed[1] < dynamic[1]


def test_items_that_are_born_take_the_place_of_the_oldest():
    young = ContextualWorld(**TWO, births=[0, 0, 7, 9])
    assert young.n_items == 2
    assert [young.living(t).tolist() for t in (6, 7, 9)] == [[0, 1], [2, 1], [2, 3]]
    assert (list(young.spans(0, 20)), young.first_change()) == ([7, 9, 20], 7)
    kept, labels = young.renewed(7, np.array([1, 0]))
    assert (kept.tolist(), labels.items.tolist()) == ([0, -1], [[1, 1]])


@pytest.mark.slow
def test_a_learner_meets_new_items_with_their_labels():
    rng = np.random.default_rng(1)
    n, births = 24, np.repeat([0, 400, 800, 1200], [12, 4, 4, 4])
    item_labels = rng.integers(3, size=(n, 1))
    attraction = np.where(np.arange(3)[:, None] == item_labels[:, 0], 0.6, 0.1)
    shop = ContextualWorld(np.arange(3)[:, None], item_labels, [0.4, 0.3, 0.3], attraction, [1.0, 0.6], births=births)
    ours, blind = (play(p, shop, 1600, replications=4, jobs=1) for p in ("context-ts", one_for_all("ftrl-pbm")))
    assert ours.final()[0] > blind.final()[0] + 0.3
    assert ours.final()[0] > 0.8 * ours.best_dynamic[-1] / 1600


@pytest.mark.slow
def test_old_policies_play_as_one_learner_for_all_and_as_one_for_each_context():
    """One learner earns at most the best list for all; learners of their own find what each context likes."""
    two = ContextualWorld(**TWO | {"share": [0.5, 0.5]})
    alone, together, labels = (
        play(p, two, 4000, replications=2, jobs=1)
        for p in (one_per_context("gibbs-ts"), one_for_all("gibbs-ts"), "context-ts")
    )
    assert together.final()[0] <= two.best_list(0).value
    assert min(alone.final()[0], labels.final()[0]) > 0.97 * two.best_value(0)
    plain = play("gibbs-ts", two, 4000, replications=2, jobs=1)  # knows no labels either
    assert (plain.reward == together.reward).all()


def test_births_need_policies_whose_state_has_parts():
    young = ContextualWorld(**TWO, births=[0, 0, 7, 9])
    with pytest.raises(ValueError, match="no parts"):
        play("batchrank", young, 10, replications=1, jobs=1)


def test_a_description_is_the_same_world():
    given = ContextualWorld(**TWO, phase=5, births=[0, 0, 3, 3], bend=np.full((4, 2), 0.9))
    again = from_description(given.description())
    assert again.best_value(4) == given.best_value(4)
    assert again.labels(4).items.tolist() == given.labels(4).items.tolist()
    named = world("context/labels", seed=3)
    assert from_description(named.description()).best_value(0) == named.best_value(0)


def test_registered_worlds_have_the_shape_of_the_shop():
    shop = world("context/labels")
    labels = shop.labels(0)
    assert (shop.n_items, shop.n_positions, len(shop.share(0))) == (60, 5, 144)
    assert (labels.visitor.tolist(), labels.item.tolist()) == ([3, 6, 8], [8, 3])
    silent = world("context/noise")
    assert silent.best_value(0) == pytest.approx(silent.best_list(0).value)
    assert world("context/change", phase=70).first_change() == 70
    assert world("context/segments", segments=200).labels(0).visitor.tolist() == [200]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"labels": [[0], [-1]]}, "labels must"),
        ({"share": [0.5, 0.6]}, "share must sum to 1"),
        ({"attraction": [[0.5] * 4]}, "attraction must be"),
        ({"attraction": [[[0.5] * 4] * 2] * 2}, "phase="),
        ({"births": [0, 0, 0]}, "births must be"),
        ({"births": [0, 1, 1, 1]}, "at least 2 items"),
        ({"bend": np.full((4, 2), 3.0)}, "bend must be"),
    ],
    ids=["label", "share", "shape", "phase", "births", "too few", "bend"],
)
def test_wrong_numbers_are_named(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        ContextualWorld(**TWO | wrong)
