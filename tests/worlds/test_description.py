"""A world describes itself, and can be built again from its description."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bothworlds.worlds import (
    Changing,
    ListWorld,
    Relabelled,
    World,
    from_description,
    matrix,
    names,
    periodic,
    resolve,
    stochastic,
    world,
)

SUMMER, RAIN = stochastic([0.9, 0.5, 0.1], [1.0, 0.5]), matrix([[0.1, 0.2], [0.3, 0.4], [0.5, 1 / 3]])
BUILT = {
    "stochastic": SUMMER,
    "matrix": RAIN,
    "periodic": periodic([SUMMER, RAIN], phase=7),
    "nested": periodic([periodic([SUMMER, RAIN], phase=3), RAIN], phase=5),
    "relabelled": Relabelled(SUMMER, np.array([2, 0, 1])),
    "relabelled by name": Relabelled(world("drift/slow", seed=4), np.arange(10)[::-1]),
    "fitted": resolve(stochastic([0.3, 0.2, 0.1], [0.7, 1 / 3])),
}


def rebuilt(made):
    return from_description(json.loads(json.dumps(made.description())))


def same_users(one, other, rounds=(0, 3, 4, 99, 1_000, 123_456)):
    if isinstance(one, ListWorld):
        lists = np.array([np.roll(np.arange(one.n_items), k)[: one.n_positions] for k in range(one.n_items)])
        return all((one.expected_rewards(t, lists) == other.expected_rewards(t, lists)).all() for t in rounds)
    return all((one.click_probabilities(t) == other.click_probabilities(t)).all() for t in rounds)


@pytest.mark.parametrize("name", names())
def test_a_named_world_is_built_again_from_its_name_and_settings(name):
    made = world(name)
    again = rebuilt(made)
    assert made.description()["name"] == name
    assert (again.name, type(again), again.description()) == (made.name, type(made), made.description())
    assert same_users(made, again)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("paper/periodic-items", {"gap": 0.01, "phase": 50}),
        ("paper/periodic-items", {"gap": np.float64(0.01), "phase": np.int64(50)}),
        ("drift/switching", {"seed": 3, "longest": 60}),
        ("adversarial/hard-instance", {"n_items": 6, "n_positions": 2, "rounds": 500}),
    ],
)
def test_settings_are_part_of_the_description(name, settings):
    made = world(name, **settings)
    again = rebuilt(made)
    assert made.description()["settings"].items() >= settings.items()
    assert same_users(made, again)
    assert made.description() != world(name).description()


@pytest.mark.parametrize("made", BUILT.values(), ids=BUILT)
def test_a_world_without_a_name_is_built_again_from_its_numbers(made):
    again = rebuilt(made)
    assert type(again) is type(made)
    assert again.description() == made.description()
    assert same_users(made, again)


def test_a_default_setting_may_be_given_or_not():
    assert world("paper/stochastic", gap=0.03).description() == world("paper/stochastic").description()


def test_the_name_in_tables_is_no_part_of_the_description():
    made = world("paper/stochastic")
    made.name = "users of Monday"
    assert made.description() == world("paper/stochastic").description()


def test_the_file_of_a_fitted_model_is_not_needed_again(tmp_path):
    parameters = {"item_parameters": {"attraction": {"value": [0.5, 0.2]}}}
    parameters["shared_parameters"] = {"examination": {"value": [1.0, 0.5]}}
    model = {"model": "pbm", "identified": True, "positions": [1, 2], "query": ["", ""], "item": ["a", "b"]}
    (tmp_path / "model.json").write_text(json.dumps({**model, **parameters}))
    made = world(str(tmp_path / "model.json"))
    (tmp_path / "model.json").unlink()
    assert same_users(made, rebuilt(made))


class Fading(World):
    n_items, n_positions = 2, 1

    def click_probabilities(self, t):
        return np.full((2, 1), 0.5**t)


class Stranger:
    n_items, n_positions = 2, 1

    def click_probabilities(self, t):
        return [[0.5], [0.25]]


def one_phase(count):
    return np.array([2**62]), np.array([[0.9, 0.1]])


@pytest.mark.parametrize("made", [Fading(), resolve(Stranger()), Changing(one_phase, [1.0])], ids=str)
def test_a_world_of_an_unknown_class_is_described_by_its_class_and_not_built(made):
    assert list(made.description()) == ["class"]
    with pytest.raises(ValueError, match="no world can be built from the description"):
        rebuilt(made)


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        ({}, "no world can be built"),
        ({"kind": "riddle"}, "no world can be built"),
        ({"kind": "stochastic", "attraction": [0.5, 0.4]}, "of kind 'stochastic' is incomplete: .*examination"),
        ({"kind": "matrix", "click_probabilities": [[2.0], [0.5]]}, "click_probabilities must be probabilities"),
        ({"kind": "periodic", "phase": 3, "worlds": 5}, "of kind 'periodic' is incomplete"),
        ({"name": "nowhere"}, "no world named 'nowhere'"),
        ({"name": "paper/stochastic", "settings": {"mood": 1}}, "no setting 'mood'"),
    ],
)
def test_a_description_of_no_world_is_refused(description, sentence):
    with pytest.raises(ValueError, match=sentence):
        from_description(description)
