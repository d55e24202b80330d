"""Growth like a logarithm is recognised, growth like a square root is not, and a size without long games has none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bothworlds.arena.run import run
from bothworlds.experiments.growth import EASY, IN_LONG_GAMES, draw_logarithm, logarithm_claims, longest_games
from bothworlds.experiments.reproduce import SIZES
from bothworlds.experiments.result_lookup import Results
from bothworlds.experiments.verdict import judged

SIZE = SIZES["paper"]._replace(easy_rounds=10_000, few_replications=4)


@pytest.fixture(scope="module")
def played():
    return run(longest_games(SIZE), progress=False)


def with_regret(results, regret):
    """The same results with another regret, a function of rounds, and noise of one percent."""
    rng = np.random.default_rng(1)

    def changed(result):
        curve = regret(result.rounds) * (1.0 + 0.01 * rng.standard_normal((SIZE.few_replications, 1)))
        return replace(result, reward=result.best_fixed - curve)

    return Results([changed(result) for result in results])


def verdicts(results):
    return [judged(claim, results, SIZE) for claim in logarithm_claims(SIZE)]


def test_sizes_have_long_games():
    assert longest_games(SIZES["quick"]) == []
    assert {(game.world.name, game.rounds) for game in longest_games(SIZES["long"])} == {
        ("four items", 10_000_000),
        ("paper/stochastic", 100_000_000),
    }
    assert {game.policy.name for game in longest_games(SIZES["paper"])} == set(IN_LONG_GAMES)
    assert EASY.n_items == 4


@pytest.mark.slow
def test_a_logarithm_holds_and_a_square_root_fails(played):
    (holds,) = verdicts(with_regret(played, lambda t: 5.0 + 54.0 * np.log(t)))
    assert holds.outcome == "holds"
    assert "+ 54 [" in holds.measured
    (fails,) = verdicts(with_regret(played, np.sqrt))
    assert fails.outcome == "fails"


@pytest.mark.slow
def test_the_figure_is_drawn(played, tmp_path):
    (figure,) = draw_logarithm(Results(played), SIZE, str(tmp_path))
    assert {path.suffix for path in tmp_path.iterdir()} == {".svg", ".png"}
    assert figure.stem == "logarithm"
    assert draw_logarithm(Results(played), SIZES["quick"], str(tmp_path)) == []
