"""The question what serving costs: its games, figure, verdicts and table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import bothworlds
from bothworlds.arena import UnchangedWorldWarning
from bothworlds.experiments import QUESTIONS, SIZES, Results, service_cost
from bothworlds.experiments.reproduce import ON_REQUEST
from bothworlds.experiments.result_lookup import game_key
from bothworlds.experiments.service_cost import (
    ALL,
    FIRST,
    LAST,
    LENGTHS,
    Lengths,
    ServiceCost,
    earned_per_round,
    variants,
)


@pytest.mark.slow
def test_the_question_is_played_on_request_only(tmp_path, monkeypatch):
    assert "service" in ON_REQUEST
    assert "service" not in QUESTIONS
    monkeypatch.setitem(service_cost.LENGTHS, "quick", Lengths(300, 2, 60, 2, 2, 50, 2, 2))
    games = ServiceCost().games(SIZES["quick"])
    assert len({game_key(game.policy, game.world, game.rounds) for game in games}) == len(games)
    with pytest.warns(UnchangedWorldWarning):  # 300 rounds are fewer than a phase
        results = Results(
            [bothworlds.play(g.policy, g.world, g.rounds, seeds=2, jobs=1, progress=False) for g in games]
        )
    assert len(ServiceCost().verdicts(results, SIZES["quick"])) == 8
    assert ServiceCost().figures(results, SIZES["quick"], str(tmp_path))
    assert (tmp_path / "service.svg").stat().st_size > 1000
    for figure in ("service-all-weather", "service-baseline"):
        assert (tmp_path / f"{figure}.svg").stat().st_size > 1000
    assert set(variants()) >= {"floor 0.02", "fixed point", "all defaults"}


@pytest.mark.parametrize("size", SIZES)
def test_every_size_has_its_games(size):
    games = ServiceCost().games(SIZES[size])
    assert max(game.rounds for game in games) == LENGTHS[size].rounds


def test_what_is_lost_in_the_last_half_is_told_apart_from_the_start():
    world = bothworlds.world("paper/stochastic")
    plain = bothworlds.play("all-weather", world, 400, seeds=2, checkpoints=8, jobs=1, progress=False)
    lost_at_first = replace(plain, reward=plain.reward - 5.0)
    steady = replace(plain, reward=plain.reward - 0.1 * plain.rounds)
    for one, lost in ((plain, (0.0, 0.0, 0.0)), (lost_at_first, (5 / 400, 5 / 400, 0.0)), (steady, (0.1, 0.05, 0.1))):
        found = [earned_per_round(plain, part) - earned_per_round(one, part) for part in (ALL, FIRST, LAST)]
        assert np.allclose(found, np.array(lost)[:, None])


def test_rewards_between_two_records_are_interpolated():
    world = bothworlds.world("paper/stochastic")
    coarse, fine = (
        bothworlds.play("uniform", world, 400, seeds=2, checkpoints=k, jobs=1, progress=False) for k in (1, 400)
    )
    assert np.allclose(earned_per_round(coarse, FIRST), coarse.reward[:, 0] / 800)
    assert np.allclose(earned_per_round(fine, FIRST), fine.reward[:, 199] / 400)
