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
from bothworlds.experiments.service_cost import ServiceCost, earned_per_round, variants


def test_the_question_is_played_on_request_only(tmp_path, monkeypatch):
    assert "service" in ON_REQUEST
    assert "service" not in QUESTIONS
    monkeypatch.setitem(service_cost.ROUNDS, "quick", 300)
    monkeypatch.setitem(service_cost.SEEDS, "quick", 2)
    monkeypatch.setitem(service_cost.ALL_WEATHER_ROUNDS, "quick", 60)
    monkeypatch.setitem(service_cost.ALL_WEATHER_SEEDS, "quick", 2)
    games = ServiceCost().games(SIZES["quick"])
    assert len({game_key(game.policy, game.world, game.rounds) for game in games}) == len(games)
    with pytest.warns(UnchangedWorldWarning):  # 300 rounds are fewer than a phase
        results = Results(
            [bothworlds.play(g.policy, g.world, g.rounds, seeds=2, jobs=1, progress=False) for g in games]
        )
    assert len(ServiceCost().verdicts(results, SIZES["quick"])) == 7
    assert ServiceCost().figures(results, SIZES["quick"], str(tmp_path))
    assert (tmp_path / "service.svg").stat().st_size > 1000
    for figure in ("service-all-weather", "service-baseline"):
        assert (tmp_path / f"{figure}.svg").stat().st_size > 1000
    assert set(variants()) >= {"floor 0.02", "fixed point", "all defaults"}


def test_what_is_lost_in_the_last_half_is_told_apart_from_the_start():
    world = bothworlds.world("paper/stochastic")
    plain = bothworlds.play("all-weather", world, 20, seeds=2, checkpoints=4, jobs=1, progress=False)
    lost_at_first = replace(plain, reward=plain.reward - 5.0)
    for one, lost in ((plain, 0.0), (lost_at_first, 5.0 / 20)):
        assert np.allclose(earned_per_round(plain, False) - earned_per_round(one, False), lost)
        assert np.allclose(earned_per_round(plain, True) - earned_per_round(one, True), 0.0)
    steady = replace(plain, reward=plain.reward - 0.1 * plain.rounds)
    assert np.allclose(earned_per_round(plain, True) - earned_per_round(steady, True), 0.1)
