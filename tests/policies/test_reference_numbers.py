"""Average rewards over 200,000 rounds, against those of independent prototypes in C (3 seeds, mean and error)."""

from __future__ import annotations

from math import hypot

import pytest

import bothworlds

ROUNDS = 200_000
SEEDS = 4  # one more than the prototypes had, whose error limits the precision of the comparison
WORLDS = {
    "stochastic": bothworlds.world("paper/stochastic"),
    "stochastic, gap 0.01": bothworlds.world("paper/stochastic", gap=0.01),
    "yandex": bothworlds.world("yandex/stochastic"),
    "periodic-items": bothworlds.world("paper/periodic-items"),
    "periodic-both": bothworlds.world("paper/periodic-both"),
}
FTRL_PBM = {
    "stochastic": (2.0617, 0.0008),
    "stochastic, gap 0.01": (2.1203, 0.0003),
    "yandex": (0.8398, 0.0032),
    "periodic-items": (1.967, 0.004),
    "periodic-both": (1.987, 0.005),
}
UNIFORM = {
    "stochastic": 1.8609,
    "stochastic, gap 0.01": 2.0664,
    "yandex": 0.1943,
    "periodic-items": 1.8609,
    "periodic-both": 1.8610,
}


def agrees(result, reference, reference_error):
    mean, error = result.final()
    return abs(mean - reference) < 3.0 * hypot(error, reference_error) + 0.005


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_ftrl_pbm_earns_what_the_prototype_earned(world, cells):
    result = bothworlds.play("ftrl-pbm", WORLDS[world], ROUNDS, seeds=SEEDS, cells=cells)
    assert agrees(result, *FTRL_PBM[world])


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_uniform_lists_earn_the_expected_reward(world):
    result = bothworlds.play("uniform", WORLDS[world], ROUNDS, seeds=10)
    assert agrees(result, UNIFORM[world], 0.0001)


@pytest.mark.slow
def test_the_tolerance_distinguishes_the_learners():
    result = bothworlds.play("uniform", WORLDS["stochastic"], ROUNDS, seeds=3)
    assert not agrees(result, *FTRL_PBM["stochastic"])
