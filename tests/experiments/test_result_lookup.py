"""Results are looked up by settings and description, whatever the names in tables."""

from __future__ import annotations

import pytest

import bothworlds
from bothworlds import policy, world
from bothworlds.arena import load_results, save_results
from bothworlds.arena.run import run
from bothworlds.experiments import Results, game
from bothworlds.experiments.result_lookup import game_key


def renamed(name, **settings):
    made = world(name, **settings)
    made.name = "somewhere"
    return made


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    games = [
        game(policy("uniform"), world("paper/stochastic"), 40, 3),
        game(policy("uniform"), world("paper/stochastic"), 80, 2),
        game(policy("uniform"), world("paper/stochastic", gap=0.01), 40, 3),
        game(policy("fixed"), world("paper/stochastic"), 40, 2),
        game(policy("fixed", ranking=(4, 3, 2, 1, 0)), renamed("paper/stochastic"), 40, 2),
        game(policy("oracle"), world("yandex/stochastic"), 40, 2),
    ]
    played = run(games, progress=False)
    return Results(load_results(save_results(played, folder / "results.parquet")))


@pytest.mark.slow
def test_a_world_is_found_under_any_name(results):
    short = results.of_length(40)
    assert short[policy("fixed"), renamed("paper/stochastic")].settings["ranking"] is None
    assert short[policy("fixed", ranking=(4, 3, 2, 1, 0)), world("paper/stochastic")].world == "somewhere"


def test_settings_tell_worlds_and_policies_apart(results):
    assert results["uniform", world("paper/stochastic", gap=0.01)].world == "paper/stochastic(gap=0.01)"
    assert results[policy("fixed"), world("paper/stochastic")].policy == "fixed"


def test_settings_that_are_filled_in_from_the_world_are_found(results):
    assert results[policy("oracle"), world("yandex/stochastic")].policy == "oracle"


def test_strings_are_the_names_in_tables(results):
    assert results["uniform", "paper/stochastic(gap=0.01)"].rounds[-1] == 40
    assert results["fixed(ranking=(4, 3, 2, 1, 0))", "somewhere"].policy_name == "fixed"
    assert results[policy("fixed"), "paper/stochastic"].policy == "fixed"


def test_games_of_different_length_are_told_apart(results):
    with pytest.raises(KeyError, match=r"there are 2 results .* their rounds are \[40, 80\]"):
        _ = results["uniform", world("paper/stochastic")]
    assert results.of_length(80)["uniform", world("paper/stochastic")].rounds[-1] == 80


def test_a_result_that_is_missing_is_a_key_error(results):
    with pytest.raises(KeyError, match="there are 0 results"):
        _ = results["mw", world("paper/stochastic")]
    assert results.of(["mw", "fixed"], [world("paper/stochastic")]) == [results["fixed", "paper/stochastic"]]


def test_fewer_replications_are_the_first_ones(results):
    place = world("paper/stochastic", gap=0.01)
    fewer = results.first_replications(2)["uniform", place]
    assert (fewer.reward == results["uniform", place].reward[:2]).all()
    assert fewer.clicks.shape == fewer.reward.shape
    assert results.first_replications(9)["uniform", place].reward.shape[0] == 3


def test_the_key_of_a_game_is_that_of_its_result(results):
    found = results["uniform", world("paper/stochastic", gap=0.01)]
    again = bothworlds.play("uniform", found.build_world(), 40, replications=3, checkpoints=found.rounds)
    assert (again.reward == found.reward).all()
    assert game_key(policy("uniform"), found.build_world(), 40) == game_key(
        policy("uniform"), world("paper/stochastic", gap=0.01), 40
    )
