"""The items of a ranker: added, paused, resumed and removed; excluded from one list, or pinned to its slots."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds import Ranker
from bothworlds.core import NONE_ABSENT
from tests.policies.plain import Divisible, EpsilonGreedy, called
from tests.rankers import PAGES, future

CHANGEABLE = ["all-weather", "ftrl-pbm", "tsallis-rv", "comb-ucb", "comb-ts", "gibbs-ts", "cascade-ucb", "uniform"]
RATES = {"best": 0.5, "good": 0.4, "fair": 0.3, "worst": 0.05}
EXAMINED = (1.0, 0.7)


def visit(ranker, rng, **constraints):
    shown = ranker.rank(**constraints)
    clicked = [item for slot, item in enumerate(shown.items) if rng.random() < RATES.get(item, 0.2) * EXAMINED[slot]]
    ranker.feedback(shown.id, clicked)
    return shown


# Policies as on the command line


def test_a_policy_may_have_settings_as_on_the_command_line():
    assert Ranker(PAGES, 2, policy="ftrl-pbm:rate=0.3").policy.rate == 0.3
    for text, sentence in (("ftrl-pbm:speed=1", "no setting 'speed'"), ("ftrl-pbm:rate", "cannot read the settings")):
        with pytest.raises(ValueError, match=sentence):
            Ranker(PAGES, 2, policy=text)


# One list


@pytest.mark.parametrize("policy", [*CHANGEABLE, Divisible()], ids=called)
def test_excluded_items_are_not_shown_and_pinned_items_are_at_their_slots(policy):
    ranker = Ranker(PAGES, 3, policy=policy, seed=0)
    for k in range(60):
        shown = ranker.rank(exclude=["news"], pins={1: "chess"})
        assert "news" not in shown.items
        assert shown.items[1] == "chess"
        assert shown.propensities[1] == 1.0
        assert len(set(shown.items)) == 3
        ranker.feedback(shown.id, shown.items[k % 3 : k % 3 + 1])
    assert set(ranker.rank(exclude=["news", "sport"]).items) == {"weather", "music", "chess"}
    assert ranker.rank(pins={0: "news", 1: "sport", 2: "music"}).items == ("news", "sport", "music")


@pytest.mark.parametrize(
    ("constraints", "sentence"),
    [
        ({"exclude": PAGES[:3]}, "3 slots need 3 items; 2 eligible"),
        ({"exclude": "news"}, "exclude must be a list"),
        ({"exclude": ["opera"]}, "must be items of this ranker; got 'opera'"),
        ({"pins": {3: "news"}}, "slot 3 does not exist"),
        ({"pins": {0: "news", 1: "news"}}, "pinned to two slots"),
        ({"pins": {0: "opera"}}, "must be items of this ranker; got 'opera'"),
        ({"pins": {0: "news"}, "exclude": ["news"]}, "both pinned and excluded"),
        ({"pins": ["news"]}, "pins must map slots to items"),
    ],
    ids=str,
)
def test_impossible_constraints_raise_value_error(constraints, sentence):
    ranker = Ranker(PAGES, 3, seed=0)
    with pytest.raises(ValueError, match=sentence):
        ranker.rank(**constraints)
    assert ranker.pending == 0


def test_exclusions_may_be_an_iterator():
    assert "news" not in Ranker(PAGES, 3, seed=0).rank(exclude=iter(["news", "sport"])).items


@pytest.mark.parametrize("policy", ["unirank:horizon=1000", "ftpl", EpsilonGreedy()], ids=called)
def test_a_policy_whose_state_has_no_parts_says_so_and_does_everything_else(policy):
    ranker = Ranker(PAGES, 3, policy=policy, seed=0)
    before = future(Ranker(PAGES, 3, policy=policy, seed=0))
    for change in (
        lambda: ranker.pause("news"),
        lambda: ranker.add("opera"),
        lambda: ranker.remove("news"),
        lambda: ranker.rank(exclude=["news"]),
        lambda: ranker.rank(pins={0: "news"}),
    ):
        with pytest.raises(ValueError, match=rf"with {called(ranker.policy).split('(')[0]}.*: its state has no parts"):
            change()
    assert ranker.items == tuple(PAGES)
    assert future(ranker) == before
    assert ranker.learned().probabilities.sum(axis=0) == pytest.approx(1.0)


def test_a_page_without_a_choice_teaches_nothing():
    ranker = Ranker(PAGES[:3], 2, seed=0)
    for _ in range(40):
        shown = ranker.rank()
        ranker.feedback(shown.id, shown.items[:1])
    before = np.asarray(ranker.learned())
    for pins in ({0: "news", 1: "sport"}, {0: "news"}):
        shown = ranker.rank(exclude=["weather"], pins=pins)
        assert shown.items == ("news", "sport")
        assert shown.propensities == (1.0, 1.0)
        ranker.feedback(shown.id, shown.items)
    assert (np.asarray(ranker.learned()) == before).all()


# Items that come and go


def test_paused_and_removed_items_are_not_shown():
    ranker = Ranker(PAGES, 3, seed=0)
    ranker.pause("news")
    ranker.remove("sport")
    assert ranker.items == ("news", "weather", "music", "chess")
    assert all({"news", "sport"}.isdisjoint(shown[1]) for shown in future(ranker))
    learned = ranker.learned()
    assert learned.items == ranker.items
    assert (learned["news"] == 0.0).all()
    assert learned.probabilities.sum(axis=0) == pytest.approx(1.0)
    ranker.resume("news")
    ranker.add("sport")
    assert ranker.items == tuple(PAGES)
    assert {item for _ in range(100) for item in ranker.rank().items} == set(PAGES)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda ranker: ranker.pause("opera"), "no item 'opera'"),
        (lambda ranker: ranker.resume("opera"), "no item 'opera'"),
        (lambda ranker: ranker.remove("opera"), "no item 'opera'"),
        (lambda ranker: ranker.resume("chess"), "'chess' was removed; add it again"),
        (lambda ranker: ranker.pause("chess"), "'chess' was removed; add it again"),
        (lambda ranker: ranker.pause("news"), "4 slots need 4 active items; there would be 3"),
        (lambda ranker: ranker.add(["opera"]), "items must be hashable"),
    ],
)
def test_impossible_changes_raise_value_error(change, sentence):
    ranker = Ranker(PAGES, 4, seed=0)
    ranker.remove("chess")
    with pytest.raises(ValueError, match=sentence):
        change(ranker)


def test_a_new_item_starts_at_the_median():
    ranker = Ranker(["a", "b", "c"], 1, policy="ftrl-pbm", seed=0)
    rng = np.random.default_rng(1)  # not the seed of the ranker, whose draws the clicks would follow
    for _ in range(300):
        shown = ranker.rank()
        ranker.feedback(shown.id, [item for item in shown.items if rng.random() < {"a": 0.8, "b": 0.5, "c": 0.1}[item]])
    before = ranker.learned()
    ranker.add("d")
    learned = ranker.learned()
    assert learned["d"][0] == pytest.approx(learned["b"][0], rel=1e-3)
    assert before["a"][0] > learned["a"][0] > learned["d"][0] > learned["c"][0]


@pytest.mark.parametrize("policy", CHANGEABLE)
def test_a_change_that_is_undone_changes_nothing(policy):
    one, other = (Ranker(PAGES, 3, policy=policy, seed=3) for _ in range(2))
    future(one, 100), future(other, 100)
    one.pause("music")
    one.resume("music")
    one.add("news")
    assert (np.asarray(one.learned()) == np.asarray(other.learned())).all()
    assert future(one) == future(other)


@pytest.mark.parametrize("policy", CHANGEABLE)
def test_late_feedback_on_lists_from_before_a_change_is_learned_from(policy):
    ranker = Ranker(PAGES, 2, policy=policy, seed=1)
    early = [ranker.rank() for _ in range(50)]
    ranker.add("opera")
    ranker.remove("news")
    late = [ranker.rank(exclude=["sport"]) for _ in range(50)]
    for shown in (*late, *early):
        ranker.feedback(shown.id, shown.items[:1])
    assert ranker.pending == 0
    if counts := getattr(ranker._state, "counts", None):
        assert counts.rounds[0] == 100
        if hasattr(counts, "shown"):
            assert counts.shown.sum() == 200
            assert counts.shown[5].sum() == sum("opera" in shown.items for shown in late)
    assert "news" not in ranker.rank().items


def test_an_item_is_charged_on_lists_that_were_drawn_before_it_was_added():
    ranker = Ranker(["a", "b"], 1, policy="ftrl-pbm", seed=0)
    early = [ranker.rank() for _ in range(40)]
    ranker.add("c")
    for shown in early:
        ranker.feedback(shown.id, [])
    assert ranker._state.loss[2].tolist() == [40.0]


def test_the_detector_goes_on_when_items_are_changed_and_excluded():
    """A ranker with changed items notices that users have changed, and does not start again."""
    ranker, rng = Ranker(["a", "b", "c"], 1, policy="all-weather", seed=0), np.random.default_rng(0)

    def visits(pages, rates):
        for k in range(pages):
            shown = ranker.rank(exclude=["c"] if k % 3 == 0 else [])
            ranker.feedback(shown.id, [item for item in shown.items if rng.random() < rates[item]])

    visits(400, {"a": 0.7, "b": 0.1, "c": 0.1})
    ranker.add("d")
    ranker.pause("b")
    visits(300, {"a": 0.7, "b": 0.1, "c": 0.1, "d": 0.1})
    assert ranker._state.detector.changes[0] == 0
    assert ranker._state.counts.rounds[0] == 700
    visits(300, {"a": 0.05, "b": 0.1, "c": 0.1, "d": 0.8})
    assert ranker._state.detector.changes[0] >= 1
    assert ranker.learned()["d"].sum() > 0.6


RESTRICTED = {
    "the worst item excluded on 60% of pages": lambda k: {"exclude": ["worst"]} if k % 5 < 3 else {},
    "the worst item pinned on half of the pages": lambda k: {"pins": {0: "worst"}} if k % 2 else {},
    "the best item excluded on half of the pages": lambda k: {"exclude": ["best"]} if k % 2 else {},
}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["all-weather", "ftrl-pbm", "gibbs-ts"])
@pytest.mark.parametrize("restriction", RESTRICTED.values(), ids=RESTRICTED)
def test_constraints_do_not_bias_what_is_learned(restriction, policy):
    ranker, rng = Ranker(list(RATES), 2, policy=policy, seed=5), np.random.default_rng(2)
    for k in range(2500):
        visit(ranker, rng, **restriction(k))
    learned = ranker.learned()
    assert learned["worst"].sum() < 0.25
    assert learned["best"].sum() > 0.75


@pytest.mark.slow
def test_without_the_charge_for_absence_the_worst_item_looks_best():
    ranker, rng = Ranker(list(RATES), 2, policy="ftrl-pbm", seed=5), np.random.default_rng(2)
    for k in range(2500):
        ranker.rank(**RESTRICTED["the worst item excluded on 60% of pages"](k))
        page = ranker._pending[ranker._last_id]
        ranker._pending[ranker._last_id] = page._replace(decision=page.decision._replace(absent=NONE_ABSENT))
        names = [list(RATES)[i] for i in page.decision.ranking]
        clicked = [item for slot, item in enumerate(names) if rng.random() < RATES[item] * EXAMINED[slot]]
        ranker.feedback(ranker._last_id, clicked)
    assert ranker.learned()["worst"].sum() > 0.25


def test_a_pinned_item_is_charged_at_the_other_slots():
    ranker = Ranker(["a", "b", "c"], 2, policy="ftrl-pbm", seed=0)
    for _ in range(10):
        ranker.feedback(ranker.rank(pins={0: "a"}).id, [])
    loss = ranker._state.loss
    assert loss[0].tolist() == [0.0, 10.0]
    assert loss[:, 0].tolist() == [0.0, 0.0, 0.0]


# Saving


@pytest.mark.parametrize("policy", CHANGEABLE)
def test_a_saved_ranker_keeps_items_and_constraints(tmp_path, policy):
    ranker, rng = Ranker(list(RATES), 2, policy=policy, seed=5), np.random.default_rng(2)
    for k in range(100):
        visit(ranker, rng, **({"exclude": ["worst"]} if k % 2 else {}))
    ranker.add("new")
    ranker.pause("fair")
    waiting = [ranker.rank(), ranker.rank(pins={1: "new"}), ranker.rank(exclude=["best"])]
    ranker.save(tmp_path / "ranker")
    twin = Ranker.load(tmp_path / "ranker")
    assert twin.items == ranker.items
    for one in (ranker, twin):
        for shown in waiting:
            one.feedback(shown.id, shown.items[:1])
        one.resume("fair")
    assert str([twin.rank(exclude=["good"]) for _ in range(5)]) == str(
        [ranker.rank(exclude=["good"]) for _ in range(5)]
    )
    assert future(twin) == future(ranker)
