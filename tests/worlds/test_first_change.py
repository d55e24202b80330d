"""Worlds state the first round in which they change; a warning is issued for a game of fewer rounds."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import bothworlds
from bothworlds.arena import UnchangedWorldWarning, compete, draw_results, load_results, save_results, save_table
from bothworlds.arena import standings as standings_of
from bothworlds.testing import CheckFailed, check_world
from bothworlds.worlds import Changing, Relabelled, World, matrix, periodic, resolve, stochastic

SUMMER, WINTER = stochastic([0.9, 0.5, 0.1], [1.0, 0.5]), stochastic([0.1, 0.5, 0.9], [1.0, 0.5])
YEAR = periodic([SUMMER, WINTER], phase=20)


@pytest.mark.parametrize(
    ("world", "first"),
    [
        (SUMMER, None),
        (matrix([[0.5], [0.1]]), None),
        (YEAR, 20),
        (periodic([SUMMER, SUMMER, WINTER], phase=20), 40),
        (periodic([SUMMER, SUMMER], phase=20), None),
        (periodic([YEAR, YEAR], phase=50), 20),
        (Relabelled(YEAR, np.array([2, 0, 1])), 20),
    ],
)
def test_the_first_change_is_stated(world, first):
    assert world.first_change() == first


@pytest.mark.parametrize(
    ("name", "settings", "first"),
    [
        ("paper/stochastic", {}, None),
        ("paper/periodic-items", {}, 100_000),
        ("yandex/periodic-both", {"phase": 7}, 7),
        ("adversarial/hard-instance", {}, None),
        ("adversarial/growing-phases", {}, 100),
        ("adversarial/corruption", {}, 75),
        ("adversarial/corruption", {"share": 1.0}, 20_000),
        ("adversarial/corruption", {"share": 0.0}, None),
        ("adversarial/fraud", {}, 10_000),
        ("drift/slow", {}, 1_000),
        ("drift/slow", {"step": 0.0}, None),
    ],
)
def test_the_first_change_of_named_worlds(name, settings, first):
    assert bothworlds.world(name, **settings).first_change() == first


def test_the_first_change_of_random_phases_is_that_of_the_probabilities():
    world = bothworlds.world("drift/switching", seed=3)
    first = world.first_change()
    same = [np.array_equal(world.click_probabilities(t), world.click_probabilities(0)) for t in range(first + 1)]
    assert same == [True] * first + [False]


def test_the_first_change_does_not_depend_on_earlier_requests():
    world = bothworlds.world("drift/slow", step=0.0)
    world.click_probabilities(1_000_000)
    assert world.first_change() is None


def test_a_world_of_another_package_may_state_its_first_change():
    class Stranger:
        n_items, n_positions = 2, 1

        def click_probabilities(self, t):
            return [[0.5], [0.1 if t < 30 else 0.9]]

    assert resolve(Stranger()).first_change() is None
    Stranger.first_change = lambda self: 30
    assert resolve(Stranger()).first_change() == 30
    check_world(Stranger())


@pytest.mark.parametrize("stated", [0, 19, 21, 40, 100_000])
def test_a_wrong_statement_fails_the_check_of_worlds(stated):
    class Mistaken(World):
        n_items, n_positions = YEAR.n_items, YEAR.n_positions
        click_probabilities, spans = YEAR.click_probabilities, YEAR.spans

        def first_change(self):
            return stated

    with pytest.raises(CheckFailed, match="first_change must be"):
        check_world(Mistaken())


# Warnings


@pytest.mark.parametrize("rounds", [1, 20])
def test_play_warns_if_users_do_not_change(rounds):
    with pytest.warns(UnchangedWorldWarning, match=r"do not change in .* first after 20") as caught:
        result = bothworlds.play("uniform", YEAR, rounds, replications=2)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert result.first_change == 20
    assert "the users of periodic do not change" in result.no_change


@pytest.mark.parametrize("world", [SUMMER, YEAR, "drift/switching"])
def test_play_does_not_warn_if_users_change_or_the_world_never_changes(world):
    result = bothworlds.play("uniform", world, 501, replications=2)  # a warning would be an error here
    assert result.no_change is None


@pytest.mark.slow
def test_several_policies_are_one_warning_for_each_world():
    worlds = [YEAR, SUMMER, bothworlds.world("drift/slow")]
    with pytest.warns(UnchangedWorldWarning) as caught:
        compete(["uniform", "fixed"], worlds, 20, replications=2)
    assert len(caught) == 2


@pytest.fixture(scope="module")
def results():
    with pytest.warns(UnchangedWorldWarning):
        return compete(["uniform"], ["paper/periodic-both", YEAR], 100, replications=2)


def test_a_table_ends_with_the_warning(results, tmp_path):
    text = save_table(standings_of(results), tmp_path / "table.md").read_text()
    assert text.splitlines()[-1].startswith("Warning: the users of paper/periodic-both do not change in 100 rounds")
    assert text.count("Warning:") == 1


@pytest.mark.slow
def test_a_figure_notes_it_in_the_panel_of_that_world_alone(results, tmp_path):
    text = " ".join(ElementTree.parse(draw_results(results, tmp_path / "drawn.svg")).getroot().itertext())
    assert text.count("rounds (too few for users to change)") == 1


def test_it_is_kept_with_saved_results(results, tmp_path):
    pytest.importorskip("pyarrow")
    again = load_results(save_results(results, tmp_path / "results.parquet"))
    assert [result.first_change for result in again] == [100_000, 20]


def test_a_plan_that_changes_late_is_covered_the_same_way():
    late = Changing(lambda count: (40 * np.arange(1, count + 1), np.eye(count, 3)[::-1] * 0.5), [1.0])
    assert late.first_change() == 40 * 61
    with pytest.warns(UnchangedWorldWarning):
        bothworlds.play("uniform", late, 100, replications=1)
