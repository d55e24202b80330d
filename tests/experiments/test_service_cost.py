"""The question what late clicks cost: its games, figure and verdicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import bothworlds
from bothworlds.arena import UnchangedWorldWarning
from bothworlds.experiments import QUESTIONS, SIZES, Results
from bothworlds.experiments.reproduce import ON_REQUEST
from bothworlds.experiments.result_lookup import game_key
from bothworlds.experiments.service_cost import ServiceCost, earned_per_round

SHORT = SIZES["quick"]._replace(rounds=300, many_replications=2)


@pytest.mark.slow
def test_the_question_is_played_on_request_only(tmp_path):
    assert "service" in ON_REQUEST
    assert "service" not in QUESTIONS
    games = ServiceCost().games(SHORT)
    assert len({game_key(game.policy, game.world, game.rounds) for game in games}) == len(games) == 24
    with pytest.warns(UnchangedWorldWarning):  # 300 rounds are fewer than a phase
        results = Results(
            [
                bothworlds.play(g.policy, g.world, g.rounds, replications=g.replications, jobs=1, progress=False)
                for g in games
            ]
        )
    assert len(ServiceCost().verdicts(results, SHORT)) == 3
    assert [figure.stem for figure in ServiceCost().figures(results, SHORT, str(tmp_path))] == ["service"]
    assert (tmp_path / "service.svg").stat().st_size > 1000


def test_what_is_lost_in_the_last_half_is_told_apart_from_the_start():
    plain = bothworlds.play("uniform", "paper/stochastic", 400, replications=2, checkpoints=8, jobs=1, progress=False)
    lost_at_first = replace(plain, reward=plain.reward - 5.0)
    steady = replace(plain, reward=plain.reward - 0.1 * plain.rounds)
    for one, lost in ((plain, (0.0, 0.0)), (lost_at_first, (5 / 400, 0.0)), (steady, (0.1, 0.1))):
        found = [earned_per_round(plain, half) - earned_per_round(one, half) for half in (False, True)]
        assert np.allclose(found, np.array(lost)[:, None])
