"""The shared vocabulary: shapes, streams of randomness, and states that can be taken apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bothworlds
from bothworlds.core import (
    Decision,
    Shape,
    buffer_of,
    check_shape,
    copy_state,
    is_compiled,
    is_work,
    leaves,
    streams,
    with_leaves,
)
from tests.policies.plain import EpsilonGreedy


class Inner(NamedTuple):
    numbers: np.ndarray
    count: int


class Outer(NamedTuple):
    rate: float
    inner: Inner
    flags: np.ndarray


def a_state():
    return Outer(0.5, Inner(np.arange(3.0), 7), np.array([True, False]))


@given(st.integers(2, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))))
def test_every_possible_shape_is_accepted(shape):
    assert check_shape(*shape) == shape


def test_whole_numbers_of_numpy_are_whole_numbers():
    shape = check_shape(np.int32(4), np.int64(2))
    assert shape == Shape(4, 2)
    assert {type(number) for number in shape} == {int}


@pytest.mark.parametrize(
    ("n", "m", "named"),
    [
        (1, 1, "n_items"),
        (0, 0, "n_items"),
        (-3, 1, "n_items"),
        (4, 0, "n_positions"),
        (4, 5, "n_positions"),
        (4, -1, "n_positions"),
        (4.5, 2, "n_items"),
        ("4", 2, "n_items"),
        (None, 2, "n_items"),
        (4, 2.5, "n_positions"),
        (4, True, "n_positions"),
        (np.array([4]), 2, "n_items"),
    ],
)
def test_an_impossible_shape_is_refused_by_name(n, m, named):
    with pytest.raises(ValueError, match=f"^{named} must be"):
        check_shape(n, m)


def test_a_decision_has_a_ranking_and_its_propensities():
    decision = Decision(np.array([2, 0]), np.array([0.5, np.nan]))
    assert decision.ranking.tolist() == [2, 0]
    assert np.isnan(decision.propensity[1])
    assert len(decision.note) == len(decision.absent) == 0
    assert decision.learned is None
    assert bothworlds.Decision is Decision


def test_a_seed_fixes_all_streams():
    ours, theirs = streams(5, 2), streams(5, 2)
    for one, other in zip(ours, theirs):
        assert (one.random(100) == other.random(100)).all()


def test_streams_differ_between_seeds_replications_and_purposes():
    drawn = [generator.random(8).tobytes() for seed in range(4) for k in range(4) for generator in streams(seed, k)]
    assert len(set(drawn)) == len(drawn)


def test_streams_are_uncorrelated():
    drawn = np.array([generator.random(20_000) for k in range(3) for generator in streams(0, k)])
    correlation = np.corrcoef(drawn) - np.eye(len(drawn))
    assert np.abs(correlation).max() < 5 / np.sqrt(20_000)


def test_leaves_have_their_paths():
    found = dict(leaves(a_state()))
    assert list(found) == ["rate", "inner.numbers", "inner.count", "flags"]
    assert found["inner.count"] == 7


def test_a_state_can_be_rebuilt_from_its_leaves():
    state = a_state()
    again = with_leaves(a_state(), dict(leaves(state)))
    assert type(again) is Outer
    assert type(again.inner) is Inner
    assert again.inner.numbers is state.inner.numbers


def test_leaves_can_be_replaced():
    changed = with_leaves(a_state(), dict(leaves(a_state())) | {"inner.count": 8})
    assert changed.inner.count == 8
    assert changed.rate == 0.5


def test_a_copy_of_a_state_shares_nothing_with_it():
    state = a_state()
    copied = copy_state(state)
    copied.inner.numbers[0] = 99.0
    assert state.inner.numbers[0] == 0.0
    assert type(copied) is Outer


class Mixed(NamedTuple):
    flags: np.ndarray
    none: np.ndarray
    one: np.ndarray
    table: np.ndarray
    work: Inner


def a_mixed_state(k):
    table = np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3) + k)
    return Mixed(np.array([True, k > 0]), np.zeros((0, 3)), np.array(float(k)), table, Inner(np.full(2, 1.0 * k), k))


def test_all_arrays_of_a_copy_but_those_to_work_in_are_views_of_one_buffer():
    one, other = (copy_state(a_mixed_state(k)) for k in (0, 1))
    for path, leaf in leaves(one):
        assert np.array_equal(leaf, dict(leaves(a_mixed_state(0)))[path])
        if isinstance(leaf, np.ndarray):
            assert leaf.flags.aligned
            assert np.shares_memory(leaf, buffer_of(one)) == (leaf.size > 0 and not is_work(path))
    buffer_of(one)[:] = buffer_of(other)
    for path, leaf in leaves(one):
        assert np.array_equal(leaf, dict(leaves(a_mixed_state(int(not is_work(path)))))[path])


def test_a_state_that_is_not_one_buffer_is_named():
    with pytest.raises(ValueError, match="the arrays of Outer are not views of one buffer; use copy_state"):
        buffer_of(a_state())
    copied = copy_state(a_state())
    with pytest.raises(ValueError, match="use copy_state"):
        buffer_of(copied._replace(flags=copied.flags.copy()))


def test_is_compiled_is_true_for_states_with_kernels():
    assert all(is_compiled(bothworlds.policy(name).init(3, 2)) for name in ("uniform", "ftrl-pbm"))
    assert not is_compiled(EpsilonGreedy().init(3, 2))
    assert not is_compiled({})
