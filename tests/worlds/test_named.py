"""The named worlds, number by number."""

from __future__ import annotations

import numpy as np
import pytest

import bothworlds
from bothworlds.geometry import best_ranking
from bothworlds.worlds import ListWorld, World, names, world
from tests.cases import case

PHASE = 100_000
PAPER = [0.95, 0.92, 0.89, 0.86, 0.83, 0.80, 0.77, 0.74, 0.71, 0.68]
CLOSE = [0.95, 0.94, 0.93, 0.92, 0.91, 0.90, 0.89, 0.88, 0.87, 0.86]
READING = [1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 5]
YANDEX = [0.894, 0.231, 0.139, 0.0745, 0.0585, 0.0424, 0.0237, 0.0234, 0.0231, 0.0178]
YANDEX_READING = [0.891, 0.227, 0.0778, 0.0412, 0.0378]

SOURCES = {"paper": (PAPER, READING), "yandex": (YANDEX, YANDEX_READING)}


def exchanged(alpha):
    return alpha[5:] + alpha[:5]


def in_turn(kind, alpha, beta):
    """The two matrices that a construction alternates between."""
    second = {
        "stochastic": (alpha, beta),
        "periodic-items": (exchanged(alpha), beta),
        "periodic-both": (alpha[::-1], beta[::-1]),
    }[kind]
    return np.outer(alpha, beta), np.outer(*second)


KINDS = [(source, kind) for source in SOURCES for kind in ("stochastic", "periodic-items", "periodic-both")]


def test_the_papers_six_worlds_have_names():
    assert {f"{source}/{kind}" for source, kind in KINDS} <= set(names())
    assert bothworlds.worlds.names() == sorted(names())


@pytest.mark.parametrize(("source", "kind"), KINDS)
def test_a_named_world_has_exactly_the_published_numbers(source, kind):
    for phase in (PHASE, 20_000, 1):
        settings = {} if phase == PHASE else {"phase": phase}
        made = bothworlds.world(f"{source}/{kind}", **settings)
        first, second = in_turn(kind, *SOURCES[source])
        assert (made.n_items, made.n_positions) == (10, 5)
        # Rounds count from 0, so that the first phase is rounds 0 to phase - 1.
        for t in (0, 1, phase - 1, phase, 2 * phase - 1, 2 * phase, 3 * phase, 7 * phase + phase // 2):
            with case(phase=phase, t=t):
                expected = (first, second)[t // phase % 2]
                np.testing.assert_allclose(made.click_probabilities(t), expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("kind", ["stochastic", "periodic-items", "periodic-both"])
def test_the_gap_is_a_setting_of_the_papers_worlds(kind):
    made = world(f"paper/{kind}", gap=0.01, phase=5)
    first, second = in_turn(kind, CLOSE, READING)
    np.testing.assert_allclose(made.click_probabilities(4), first, rtol=0, atol=1e-15)
    np.testing.assert_allclose(made.click_probabilities(5), second, rtol=0, atol=1e-15)


def test_the_largest_gap_leaves_the_last_item_nothing():
    probabilities = world("paper/stochastic", gap=0.95 / 9).click_probabilities(0)
    assert probabilities[-1] == pytest.approx(np.zeros(5), abs=1e-12)
    assert probabilities.min() >= 0.0


def test_with_no_gap_all_items_are_alike():
    probabilities = world("paper/stochastic", gap=0).click_probabilities(0)
    assert (probabilities == probabilities[0]).all()


@pytest.mark.parametrize(("source", "optimum"), [("paper", 2.0877), ("yandex", 0.8651)])
@pytest.mark.parametrize("kind", ["stochastic", "periodic-items", "periodic-both"])
def test_the_best_list_of_every_phase_earns_the_reference_number(source, kind, optimum):
    made = world(f"{source}/{kind}")
    for t in (0, PHASE):
        probabilities = made.click_probabilities(t)
        best = probabilities[best_ranking(probabilities), np.arange(5)].sum()
        assert best == pytest.approx(optimum, abs=1e-4)


def test_every_world_says_what_it_is():
    for name in names():
        with case(name=name):
            made = world(name)
            assert isinstance(made, World)
            assert made.name == name
            n_items = {"context/segments": 20}.get(name, 60 if name.startswith("context/") else 10)
            assert repr(made) == f"<{type(made).__name__} {name!r}: {n_items} items, 5 positions>"
            sentence, settings = bothworlds.worlds.describe(name)
            assert sentence.endswith(".")
            assert len(settings) > 0


def test_tables_cannot_be_changed_by_accident_and_have_no_negative_rounds():
    tables = [made for made in map(world, names()) if not isinstance(made, ListWorld)]
    assert len(tables) > 15
    for made in tables:
        with case(name=made.name):
            with pytest.raises(ValueError, match="read-only"):
                made.click_probabilities(0)[0, 0] = 0.0
            with pytest.raises(ValueError, match="t must not be negative; got -1"):
                made.click_probabilities(-1)


def test_settings_are_part_of_the_name():
    assert world("paper/periodic-items", gap=0.01, phase=7).name == "paper/periodic-items(gap=0.01, phase=7)"


def test_a_world_of_the_paper_is_described_with_its_settings():
    for source, kind in KINDS:
        _, settings = bothworlds.worlds.describe(f"{source}/{kind}")
        assert settings["phase"] == PHASE
        assert settings.get("gap") == (0.03 if source == "paper" else None)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no world named 'paper/stochstic'; there are .*paper/stochastic"):
        world("paper/stochstic")


def test_an_unknown_setting_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="world 'paper/stochastic' has no setting 'gaps'; it has gap, phase"):
        world("paper/stochastic", gaps=0.01)
    with pytest.raises(ValueError, match="world 'yandex/stochastic' has no setting 'gap'; it has phase"):
        world("yandex/stochastic", gap=0.01)


@pytest.mark.parametrize("gap", [-0.01, 0.11, float("nan"), float("inf"), "wide", None])
def test_an_impossible_gap_is_refused_by_name(gap):
    with pytest.raises(ValueError, match="gap must be"):
        world("paper/periodic-both", gap=gap)


@pytest.mark.parametrize("phase", [0, -5, 2.5, float("nan"), float("inf"), "long", None, True])
def test_an_impossible_phase_is_refused_by_name(phase):
    with pytest.raises(ValueError, match="phase must be"):
        world("yandex/periodic-items", phase=phase)
