"""The question about attacks: verdicts from made-up scores, in both directions, and one real game through the cache."""

from __future__ import annotations

import numpy as np
import pytest

import bothworlds
from bothworlds.arena import Result, load_results, save_results
from bothworlds.arena.result import AttackScores
from bothworlds.arena.run import run
from bothworlds.experiments.attacks import POLICIES, Attacks, attacked_worlds
from bothworlds.experiments.question import Size, game
from bothworlds.experiments.reproduce import ON_REQUEST
from bothworlds.experiments.result_lookup import Results

SIZE = Size("quick", 1_000, 100, 3, 3, 2, 1_000, 100)
ROUNDS = np.arange(100, 1_001, 100)


def made_up(name, world, late):
    """A result in which the item is first in all of the first half, and in a share of the second."""
    first = np.cumsum(np.where(ROUNDS <= 500, 100.0, 100.0 * late))
    scores = np.tile(first, (3, 1)) + np.array([[0.0], [0.01], [0.02]])
    zeros = np.zeros((3, 10))
    return Result(
        policy=name,
        world=world.name,
        settings={},
        seed=0,
        rounds=ROUNDS,
        reward=zeros,
        clicks=zeros,
        best_fixed=np.ones(10),
        best_dynamic=np.ones(10),
        seconds=1.0,
        world_description=world.description(),
        attack=AttackScores(ROUNDS, zeros, zeros, scores, scores),
    )


def outcomes(late):
    worlds = attacked_worlds(SIZE)
    results = [made_up(name, world, late(key, name)) for key, world in worlds.items() for name in POLICIES]
    return [verdict.outcome for verdict in Attacks().verdicts(Results(results), SIZE)]


def test_verdicts_follow_the_second_half():
    owned = ("toprank", "unirank")
    assert outcomes(lambda key, name: float((name in owned) == (key == "promoted"))) == ["holds"] * 5
    assert outcomes(lambda key, name: float((name in owned) != (key == "promoted"))) == ["fails"] * 5


@pytest.mark.slow
def test_the_figure_of_attacks_is_drawn(tmp_path):
    results = [made_up(name, world, 0.5) for world in attacked_worlds(SIZE).values() for name in POLICIES]
    (figure,) = Attacks().figures(Results(results), SIZE, str(tmp_path))
    names = {"attacks.svg", "attacks.png", "attacks-narrow.svg", "attacks-narrow.png"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert "1,000 rounds" in figure.caption
    assert "all-weather" in (tmp_path / "attacks.svg").read_text()


def test_results_without_scores_are_refused():
    world = attacked_worlds(SIZE)["promoted"]
    bare = Result(**{**vars(made_up("toprank", world, 1.0)), "attack": None})
    with pytest.raises(KeyError, match="no scores of an attack"):
        Attacks().verdicts(Results([bare]), SIZE)


def test_scores_pass_through_the_cache_and_the_file(tmp_path):
    once = game(bothworlds.policy("uniform"), attacked_worlds(SIZE)["promoted"], 200, 2)
    (first,), (again,) = (run([once], cells=tmp_path, progress=False) for _ in range(2))
    assert first.attack.flips[:, -1].min() > 0
    np.testing.assert_array_equal(first.attack.flips, again.attack.flips)
    (loaded,) = load_results(save_results([again], tmp_path / "results.parquet"))
    np.testing.assert_array_equal(loaded.attack.target_first, first.attack.target_first)


def test_it_is_played_on_request():
    assert "attacks" in ON_REQUEST
    assert len(Attacks().games(SIZE)) == 2 * len(POLICIES)
    assert attacked_worlds(SIZE)["promoted"].attack.until == 20  # 2% of the rounds
