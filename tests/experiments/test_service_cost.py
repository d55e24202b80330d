"""The question what serving costs: its games, figure, verdicts and table."""

from __future__ import annotations

import pytest

import bothworlds
from bothworlds.arena import UnchangedWorldWarning
from bothworlds.experiments import QUESTIONS, SIZES, Results, service_cost
from bothworlds.experiments.reproduce import ON_REQUEST
from bothworlds.experiments.result_lookup import game_key
from bothworlds.experiments.service_cost import ServiceCost, variants


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
    assert len(ServiceCost().verdicts(results, SIZES["quick"])) == 4
    assert ServiceCost().figures(results, SIZES["quick"], str(tmp_path))
    assert (tmp_path / "service.svg").stat().st_size > 1000
    assert (tmp_path / "service-all-weather.svg").stat().st_size > 1000
    assert set(variants()) >= {"floor 0.02", "fixed point", "all defaults"}
