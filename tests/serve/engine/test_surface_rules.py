"""Changes of surfaces, items and arms are refused with a reason, or give the next version; they delete nothing."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from bothworlds import policies
from bothworlds.serve.engine import surface_rules
from bothworlds.serve.engine.surface_rules import (
    change_item,
    change_settings,
    create_surface,
    policy_of,
    promote,
    served_names,
    update_surface,
)
from bothworlds.serve.model import Conflict, Invalid, StateConflict, TooMany, Unknown, learned_again

NOW = 1_000
ITEMS = ["a", "b", "c", "d", "e", "f"]
NEW, OLD = {"name": "new", "policy": "ftrl-pbm", "share": 0.5}, {"name": "old", "policy": "uniform", "share": 0.5}


def surface(**body):
    made = create_surface("home", {"slots": 2, "items": ["a", "b", "c"], "policy": "uniform", **body}, NOW).surface
    return msgspec.structs.replace(made, id=1)


def surface_with(*arms, **body):
    return surface(**({"slots": 3, "items": ITEMS, "arms": list(arms)} | body))


@pytest.mark.parametrize(
    ("body", "pointer", "message"),
    [
        ({"slots": 0}, "/slots", "from 1 to 50"),
        ({"slots": 51}, "/slots", "from 1 to 50"),
        ({"slots": "two"}, "/slots", "int"),
        ({"slots": 10**400}, "/slots", "from 1 to 50; got 1000"),
        ({"guard_after": 10**400}, "/guard_after", "from 1 to 1000000000; got 1000"),
        ({"policy": "pbm-ucb", "policy_settings": {"examination": [10**400]}}, "/policy_settings", "probabilities"),
        ({"policy": "gibbs-ts", "policy_settings": {"window": 10**400}}, "/policy_settings", "whole number"),
        ({"slots": 4}, "/items", "4 slots need 4 active items; there are 3"),
        ({"items": ["a", "a", "b"]}, "/items", "twice"),
        ({"items": ["a", "b", 3]}, "/items/2", "printable"),
        ({"items": ["a", "b", "x" * 129]}, "/items/2", "128"),
        ({"items": "abc"}, "/items", "list of names"),
        ({"floor": 0.0}, "/floor", "from 0.001 to 1"),
        ({"floor": float("nan")}, "/floor", "from 0.001"),
        ({"holdout": 1.0}, "/holdout", "0.99"),
        ({"feedback": "sometimes"}, "/feedback", "sometimes"),
        ({"minimum_exposure": -0.1}, "/minimum_exposure", "from 0 to 1"),
        ({"minimum_exposure": 0.8}, "/minimum_exposure", "with 3 items and 2 slots each item can be on 0.667"),
        ({"attribution_seconds": 1e9}, "/attribution_seconds", "from 1 to 2592000;"),
        ({"baseline": ["a", "z"]}, "/baseline", "'z' is not an item"),
        ({"baseline": ["a", "a"]}, "/baseline", "twice"),
        ({"colour": "red"}, "/colour", "colour"),
        ({"policy": "nobody"}, "/policy", "nobody"),
        ({"policy": "oracle"}, "/policy", "knows the world that it plays in"),
        ({"policy": "ftrl-pbm", "policy_settings": {"rate": -1}}, "/policy_settings", "rate must be"),
        ({"policy": "fixed", "policy_settings": {"ranking": [0, 10**13]}}, "/policy_settings", "that many items$"),
        ({"policy": "ftrl-pbm", "policy_settings": {"speed": 1}}, "/policy_settings", "speed"),
        ({"policy": "pbm-ucb"}, "/policy", "needs examination.*; the service can use all-weather, batchrank, bubble"),
        ({"policy": "pbm-ucb", "policy_settings": {"examination": [1.0]}}, "/policy_settings", "examination"),
    ],
)
def test_an_invalid_setting_is_refused_with_a_pointer(body, pointer, message):
    with pytest.raises(Invalid, match=message) as caught:
        surface(**body)
    assert caught.value.errors[0]["pointer"] == pointer


@pytest.mark.parametrize("name", ["", "a\tb", "x" * 129])
def test_invalid_names_of_surfaces_are_refused(name):
    with pytest.raises(Invalid):
        create_surface(name, {"slots": 1, "items": ["a"]}, NOW)


def test_what_pages_send_is_a_setting():
    assert surface().settings.feedback == "final"
    change = change_settings(surface(), {"feedback": "clicks"}, NOW)
    assert (change.surface.settings.feedback, change.detail) == ("clicks", 'feedback: "final" -> "clicks"')


# Policies


def test_every_policy_can_be_served_except_the_one_that_knows_the_world():
    assert set(served_names()) == set(policies.names()) - {"oracle"}


@pytest.mark.slow
def test_each_of_them_is_accepted():
    needed = {"examination": [1.0, 0.5]}
    for name in served_names():
        settings = {key: value for key, value in needed.items() if key in policies.describe(name).needs}
        assert surface(policy=name, policy_settings=settings).settings.policy == name
        policy_of(name, settings, 2)


def test_only_another_policy_other_settings_of_it_and_other_slots_mean_that_the_log_is_learned_again():
    before = surface_with(NEW | {"share": 0.3}, OLD | {"share": 0.3}, policy="ftrl-pbm")

    def again(**changes):
        return learned_again(before, change_settings(before, changes, NOW).surface)

    assert again(floor=0.1, holdout=0.1, feedback="clicks", arms=[NEW | {"share": 0.1}]) == set()
    assert again(policy="uniform") == again(policy_settings={"rate": 0.1}) == {0}
    assert again(arms=[NEW | {"share": 0.3, "policy": "ftpl"}, OLD | {"share": 0.3}]) == {1}
    assert again(slots=2) == {0, 1, 2}
    assert learned_again(before, promote(before, "new", NOW).surface) == set()


def test_items_of_a_policy_without_parts_cannot_be_changed():
    known = surface(policy="batchrank")
    for action in ("pause", "remove"):
        with pytest.raises(StateConflict, match="batchrank can only show all items, and the same ones for ever"):
            change_item(known, "c", action, NOW)
    for change in (lambda: change_item(known, "d", "add", NOW), lambda: update_surface(known, {"items": ["d"]}, NOW)):
        with pytest.raises(StateConflict):
            change()
    assert not update_surface(known, {"items": ["a"]}, NOW).action
    # Together with another policy they can.
    both = update_surface(known, {"items": ["d"], "policy": "uniform"}, NOW).surface
    assert [item.name for item in both.items] == ["a", "b", "c", "d"]
    paused = change_item(both, "a", "pause", NOW).surface
    for changes in ({"policy": "batchrank"}, {"arms": [{"name": "new", "policy": "batchrank", "share": 0.5}]}):
        with pytest.raises(StateConflict):
            change_settings(paused, changes, NOW)
    resumed = change_item(paused, "a", "resume", NOW).surface
    assert change_settings(resumed, {"policy": "batchrank"}, NOW).surface.settings.policy == "batchrank"


# Items


def test_there_are_limits_to_items():
    most = surface(items=[str(k) for k in range(surface_rules.MAX_ITEMS)])
    assert len(most.items) == 20_000
    with pytest.raises(TooMany):
        change_item(most, "one more", "add", NOW)
    with pytest.raises(TooMany):
        surface(items=[str(k) for k in range(surface_rules.MAX_ITEMS + 1)])


def test_thousands_of_items_are_added_by_one_change():
    known = surface(items=["a", "b", "c", "d"])
    known = change_item(change_item(known, "b", "pause", NOW).surface, "c", "remove", NOW).surface
    names = ["c", "b", *(f"new {k}" for k in range(10_000))]
    change = update_surface(known, {"items": names}, NOW)
    assert [item.state for item in change.surface.items[:3]] == ["active", "paused", "active"]
    assert [item.index for item in change.surface.items] == list(range(10_004))
    assert change.surface.version == known.version + 1


def test_removed_items_make_room_for_others(monkeypatch):
    monkeypatch.setattr(surface_rules, "MAX_ITEMS", 4)
    monkeypatch.setattr(surface_rules, "MAX_ITEMS_EVER", 6)
    known = surface(items=["a", "b", "c", "d"])
    with pytest.raises(TooMany, match="at most 4 items"):
        change_item(known, "e", "add", NOW)
    for old, new in (("c", "e"), ("d", "f")):
        known = change_item(change_item(known, old, "remove", NOW).surface, new, "add", NOW).surface
    with pytest.raises(TooMany, match="at most 4 items"):
        change_item(change_item(known, "a", "pause", NOW).surface, "g", "add", NOW)
    with pytest.raises(TooMany, match="6 items, including removed ones"):
        change_item(change_item(known, "a", "remove", NOW).surface, "g", "add", NOW)


def test_the_index_of_a_removed_item_is_not_reused():
    known = change_item(surface(), "c", "remove", NOW).surface
    known = change_item(change_item(known, "d", "add", NOW).surface, "c", "add", NOW).surface
    assert [(item.name, item.index, item.state) for item in known.items] == [
        ("a", 0, "active"),
        ("b", 1, "active"),
        ("c", 2, "active"),
        ("d", 3, "active"),
    ]


def test_a_removed_item_is_added_again_and_not_resumed():
    known = change_item(surface(), "c", "remove", NOW).surface
    with pytest.raises(StateConflict, match="removed; add it again"):
        change_item(known, "c", "resume", NOW)
    with pytest.raises(StateConflict, match="removed; add it again first"):
        change_item(known, "c", "pause", NOW)
    for action in ("pause", "remove", "resume"):
        with pytest.raises(Unknown, match="has no item 'nobody'"):
            change_item(known, "nobody", action, NOW)
    assert change_item(known, "c", "add", NOW).action == "resume item"


def test_a_surface_keeps_enough_active_items_for_its_slots():
    with pytest.raises(Invalid, match="2 slots need 2 active items; there are 1"):
        change_item(change_item(surface(), "a", "pause", NOW).surface, "b", "pause", NOW)


def test_a_change_without_effect_keeps_the_version():
    known = surface()
    assert change_settings(known, {"slots": 2}, NOW).surface is known
    assert change_item(known, "a", "add", NOW).surface is known
    assert update_surface(known, {"slots": 2, "items": ["b"]}, NOW).surface is known


def test_one_put_makes_one_version():
    known = surface()
    change = update_surface(known, {"items": ["x", "y"], "baseline": ["y"], "slots": 4}, NOW)
    assert change.surface.version == known.version + 1
    assert [item.name for item in change.surface.items] == ["a", "b", "c", "x", "y"]
    assert change.surface.settings.baseline == ("y",)
    assert change.detail == 'add item: x; add item: y; change settings: baseline: [] -> ["y"]; slots: 2 -> 4'


# Arms


@pytest.mark.parametrize(
    ("arms", "pointer", "message"),
    [
        ([NEW, NEW], "/arms/1/name", "twice"),
        ([NEW | {"name": "holdout"}], "/arms/0/name", "every surface has"),
        ([NEW | {"name": "learner"}], "/arms/0/name", "every surface has"),
        ([NEW | {"name": ""}], "/arms/0/name", "printable"),
        ([NEW | {"share": 0.0}], "/arms/0/share", "above 0"),
        ([NEW | {"share": float("nan")}], "/arms/0/share", "above 0"),
        ([NEW, OLD | {"share": 0.46}], "/arms", "add up to 1.01"),
        ([NEW | {"policy": "oracle"}], "/arms/0/policy", "only a simulation has"),
        ([NEW | {"policy_settings": {"rate": -1}}], "/arms/0/policy_settings", "rate must be"),
        ([{"name": "new"}], "/arms/0/share", "share"),
        ([NEW | {"colour": "red"}], "/arms/0/colour", "colour"),
        ([NEW | {"name": str(k), "share": 0.01} for k in range(9)], "/arms", "at most 8 arms"),
    ],
)
def test_arms_that_are_not_valid_are_refused(arms, pointer, message):
    with pytest.raises(Invalid, match=message) as refused:
        surface_with(*arms, holdout=0.05)
    assert refused.value.errors[0]["pointer"] == pointer


def test_other_arms_start_another_comparison_and_other_shares_do_not():
    before = surface_with(NEW, OLD)
    shares = change_settings(before, {"arms": [NEW | {"share": 0.4}, OLD]}, 9_000)
    assert shares.surface.compared_since == NOW
    assert shares.surface.compared_shares == {"holdout": 0.0, "new": 0.4, "old": 0.5}
    assert shares.surface.arm_learners == before.arm_learners == {"new": 1, "old": 2}
    other = change_settings(before, {"arms": [NEW | {"policy": "ftpl"}, OLD]}, 9_000).surface
    assert (other.compared_since, other.arm_learners) == (9_000, before.arm_learners)
    fewer = change_settings(before, {"arms": []}, 9_000).surface
    again = change_settings(fewer, {"arms": [OLD, NEW]}, 9_001).surface
    assert again.arm_learners == before.arm_learners
    more = change_settings(fewer, {"arms": [OLD | {"name": "third"}]}, 9_001).surface
    assert more.learner_of("third") == 3


def test_an_arm_is_promoted_with_its_learner_and_its_name_starts_anew():
    surface = surface_with(NEW | {"share": 0.4}, OLD | {"share": 0.4}, holdout=0.1)
    made = promote(surface, "new", 9_000)
    new = made.surface
    assert (new.settings.policy, new.settings.arms, new.learner, new.promoted) == ("ftrl-pbm", (), 1, "new")
    assert new.compared_shares == {"holdout": 0.1}
    assert not promote(new, "new", 9_001).action
    again = change_settings(new, {"arms": [NEW | {"share": 0.4}]}, 9_001).surface
    assert (again.learner_of("new"), again.learner) == (3, 1)


def test_what_cannot_be_promoted_is_refused():
    surface = surface_with(NEW | {"share": 0.4}, OLD | {"share": 0.4}, holdout=0.1, policy="ftpl")
    with pytest.raises(Unknown, match="'home' has no arm 'third'"):
        promote(surface, "third", 9)
    with pytest.raises(Conflict, match="the holdout shows the page's own order"):
        promote(surface, "holdout", 9)
    with pytest.raises(Conflict, match="the guard has replaced it"):
        promote(msgspec.structs.replace(surface, guarded={"new": 7}), "new", 9)
    own = promote(surface, "learner", 9).surface
    assert (own.settings.policy, own.settings.arms, own.learner) == ("ftpl", (), 0)
    assert not promote(own, "learner", 10).action
    new = promote(surface, "new", 9).surface
    with pytest.raises(Unknown):
        promote(new, "old", 10)
    another = change_settings(new, {"arms": [OLD]}, 11).surface
    with pytest.raises(Unknown):  # another comparison has begun
        promote(another, "new", 12)


# Starts and the guard


def test_the_guard_takes_all_but_the_exploration_share_and_a_person_restarts():
    known = surface_with(NEW | {"share": 0.4}, holdout=0.2, floor=0.01)
    guarded = surface_rules.activate_guard(known, 7, "new")
    assert guarded.surface.shares["holdout"] == pytest.approx(0.2 + 0.4 * 0.99)
    assert 'arm "new" gets fewer clicks' in guarded.detail
    assert not surface_rules.activate_guard(guarded.surface, 8, "new").action
    restarted = surface_rules.restart_comparison(guarded.surface, 9).surface
    assert (restarted.guarded, restarted.compared_since) == ({}, 9)


def test_the_audit_log_has_values_as_json():
    changes = {"guard": False, "retention_days": 30.0, "arms": [{"name": "new", "policy": "uniform", "share": 0.5}]}
    detail = change_settings(surface(), changes, NOW).detail
    assert "guard: true -> false; retention_days: null -> 30.0" in detail
    before, after = detail.partition("arms: ")[2].partition("; ")[0].split(" -> ")
    assert (json.loads(before), json.loads(after)[0]["name"]) == ([], "new")
    assert not re.search(r"'|\bNone\b|\bTrue\b|\bFalse\b", detail)
