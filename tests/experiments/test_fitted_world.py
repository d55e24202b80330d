"""Experiments with a fitted world in place of the paper's search log."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.arena import UnchangedWorldWarning
from bothworlds.experiments import SIZES, Size, reproduce
from bothworlds.experiments.panels import as_search_log, panel_title, panel_world
from bothworlds.worlds import stochastic

TINY = Size("tiny", 300, 100, 2, 2, 2, 300, 40)
ALPHA, BETA = [0.1, 0.6, 0.3, 0.5, 0.2, 0.4, 0.05, 0.01], [1.0, 0.5, 0.2]


def users():
    place = stochastic(ALPHA, BETA)
    place.name = "fitted(news)"
    return place


@pytest.fixture(scope="module")
def size():
    return TINY._replace(fitted=as_search_log(users()))


def test_items_are_ordered_by_attraction_as_the_papers_are(size):
    assert size.fitted.attraction.tolist() == sorted(ALPHA, reverse=True)
    assert size.fitted.name == "fitted(news)"


def test_the_panels_of_the_log_are_those_of_the_fitted_world(size):
    best = np.outer(sorted(ALPHA, reverse=True), BETA)
    for key, changed in (("2a", best), ("2b", np.roll(best, 4, axis=0)), ("2c", best[::-1, ::-1])):
        place = panel_world(key, size)
        np.testing.assert_allclose(place.click_probabilities(0), best)
        np.testing.assert_allclose(place.click_probabilities(100), changed)
        assert place.name.startswith("fitted(news)/")
        assert "fitted log" in panel_title(key, size)
    assert len({panel_world(key, size).name for key in ("2a", "2b", "2c")}) == 3


def test_the_other_panels_stay_as_they_are(size):
    assert panel_world("1b", size).name == panel_world("1b", TINY).name
    assert panel_world("2a", TINY).name == "yandex/stochastic"


@pytest.mark.slow
def test_the_report_says_in_whose_place_the_world_stands(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "tiny", TINY)
        with pytest.warns(UnchangedWorldWarning):  # adversarial/fraud is played for too few rounds
            answer = reproduce("tiny", only="growth", out=tmp_path, world=users(), progress=False)
    page = answer.report.read_text()
    assert "<h1>What holds of the paper, with fitted(news)</h1>" in page
    assert "8 items, 3 positions" in page
    for drawing in (tmp_path / "growth" / "figures").glob("*.svg"):
        labels = drawing.read_text()
        assert "Theorem 1, 10 items, 5 positions" in labels  # the synthetic world
        assert "Theorem 1, 8 items, 3 positions" in labels  # the fitted one
    assert any("fitted(news)/stochastic" in verdict.measured for verdict in answer.verdicts)
    assert not any("yandex" in verdict.measured for verdict in answer.verdicts)
