"""Uniform numbers from a generator or from a random stream."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from bothworlds.core import copy_state
from bothworlds.kernels import Floats, kernel
from bothworlds.policies.parts.random_stream import absorb, make_stream


@kernel
def fill(source: Any, numbers: Floats) -> None:
    for k in range(numbers.size):
        numbers[k] = source.random()


@kernel
def take_in(stream: Any, ranking: Any) -> None:
    absorb(stream, ranking)


def drawn(source: Any, size: int) -> np.ndarray:
    numbers = np.empty(size)
    fill(source, numbers)
    return numbers


def test_a_generator_is_used_as_it_is():
    assert drawn(np.random.default_rng(1), 10).tolist() == np.random.default_rng(1).random(10).tolist()


def test_a_stream_is_uniform_and_its_numbers_unrelated():
    numbers = drawn(make_stream(7), 200_000)
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert stats.kstest(numbers, "uniform").pvalue > 1e-4
    for lag in (1, 2, 3, 10):
        assert abs(np.corrcoef(numbers[:-lag], numbers[lag:])[0, 1]) < 5 / np.sqrt(numbers.size)
    pairs = np.histogram2d(numbers[:-1:2], numbers[1::2], bins=20)[0]
    assert stats.chisquare(pairs.ravel()).pvalue > 1e-4


def test_compiled_and_interpreted_streams_agree():
    interpreted = make_stream(3)
    assert drawn(make_stream(3), 5).tolist() == [interpreted.random() for _ in range(5)]


def test_a_copy_has_the_same_numbers():
    stream = make_stream(3)
    drawn(stream, 4)
    twin = copy_state(stream)
    assert drawn(stream, 5).tolist() == drawn(twin, 5).tolist()


def test_an_absorbed_list_changes_all_later_numbers():
    one, other = make_stream(3), make_stream(3)
    take_in(one, np.array([0, 1, 2]))
    take_in(other, np.array([0, 2, 1]))
    far = [drawn(stream, 1000) for stream in (one, other)]
    assert abs(np.corrcoef(*far)[0, 1]) < 5 / np.sqrt(1000)


def test_one_different_list_changes_the_leading_digits():
    firsts = []
    for i in range(10):
        stream = make_stream(4, 2)
        take_in(stream, np.array([i, (i + 1) % 10]))
        firsts.append(drawn(stream, 1)[0])
    assert np.ptp(firsts) > 0.3
    assert min(np.diff(np.sort(firsts))) > 1e-3
