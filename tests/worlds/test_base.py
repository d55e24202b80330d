"""Worlds made from numbers, and worlds made from worlds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bothworlds
from bothworlds.worlds import Matrix, Periodic, Stochastic, World, matrix, periodic, resolve, stochastic

SUMMER, WINTER = stochastic([0.9, 0.5, 0.1], [1.0, 0.5]), stochastic([0.1, 0.5, 0.9], [0.5, 1.0])
RAIN = matrix([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])


def test_attraction_and_examination_are_multiplied():
    world = stochastic([0.9, 0.5, 0.1], [1.0, 0.5])
    assert isinstance(world, Stochastic)
    assert (world.n_items, world.n_positions) == (3, 2)
    np.testing.assert_allclose(world.click_probabilities(10**9), [[0.9, 0.45], [0.5, 0.25], [0.1, 0.05]])
    assert world.attraction.tolist() == [0.9, 0.5, 0.1]
    assert world.examination.tolist() == [1.0, 0.5]


def test_a_matrix_is_taken_as_it_is():
    given = [[0.1, 0.9], [0.9, 0.1]]
    world = matrix(given)
    assert isinstance(world, Matrix)
    assert world.click_probabilities(3).tolist() == given


def test_a_matrix_is_copied():
    given = np.full((3, 2), 0.5)
    world = matrix(given)
    given[:] = 0.0
    assert (world.click_probabilities(0) == 0.5).all()


def test_worlds_take_turns():
    world = periodic([SUMMER, WINTER, RAIN], phase=4)
    assert isinstance(world, Periodic)
    turns = [world.click_probabilities(t) for t in range(24)]
    for t, probabilities in enumerate(turns):
        expected = (SUMMER, WINTER, RAIN)[t // 4 % 3]
        assert (probabilities == expected.click_probabilities(t)).all()


def test_a_single_world_may_take_all_turns():
    world = periodic([SUMMER], phase=1)
    assert (world.click_probabilities(5) == SUMMER.click_probabilities(0)).all()


def test_whole_numbers_of_any_kind_are_phases():
    assert periodic([SUMMER], phase=np.int64(3)).phase == 3
    assert periodic([SUMMER], phase=1e5).phase == 100_000


class Drifting(World):
    """Somebody else's world, with the pieces every world has: one for each round."""

    n_items = 3
    n_positions = 2

    def click_probabilities(self, t):
        return np.full((3, 2), 1.0 / (1.0 + t))


def worlds(depth=2):
    leaf = st.sampled_from([SUMMER, WINTER, RAIN, Drifting()])
    if not depth:
        return leaf
    nested = st.builds(periodic, st.lists(worlds(depth - 1), min_size=1, max_size=3), phase=st.integers(1, 9))
    return leaf | nested


@pytest.mark.slow
@given(worlds(), st.integers(0, 50), st.integers(0, 60))
def test_pieces_tile_the_rounds_and_agree_with_them(world, start, length):
    done = start
    for end, probabilities in world.pieces(start, start + length):
        assert done < end
        for t in range(done, end):
            assert (probabilities == world.click_probabilities(t)).all()
        done = end
    assert done == start + length


def test_what_does_not_change_is_one_piece():
    assert len(list(SUMMER.pieces(0, 10**12))) == 1
    assert len(list(RAIN.pieces(5, 6))) == 1
    assert list(RAIN.pieces(5, 5)) == []


def test_a_change_makes_a_piece_and_nothing_else_does():
    world = periodic([SUMMER, WINTER], phase=100_000)
    assert [end for end, _ in world.pieces(0, 250_000)] == [100_000, 200_000, 250_000]
    assert [end for end, _ in world.pieces(99_999, 100_001)] == [100_000, 100_001]
    assert [end for end, _ in world.pieces(100_000, 200_000)] == [200_000]


@pytest.mark.parametrize(
    ("attraction", "examination", "named"),
    [
        ([0.5, 1.2], [1.0], "attraction"),
        ([0.5, -0.2], [1.0], "attraction"),
        ([0.5, np.nan], [1.0], "attraction"),
        ([], [1.0], "attraction"),
        ([[0.5, 0.4]], [1.0], "attraction"),
        (0.5, [1.0], "attraction"),
        (None, [1.0], "attraction"),
        (["high", "low"], [1.0], "attraction"),
        ([0.5, [0.4, 0.3]], [1.0], "attraction"),
        ([0.5, 0.4], [2.0], "examination"),
        ([0.5, 0.4], [np.inf], "examination"),
        ([0.5, 0.4], [], "examination"),
        ([0.5, 0.4], [[1.0]], "examination"),
        ([0.5, 0.4], [1.0, 0.9, 0.8], "examination"),
        ([0.5, 0.4], {"first": 1.0}, "examination"),
    ],
)
def test_impossible_attraction_and_examination_are_refused_by_name(attraction, examination, named):
    with pytest.raises(ValueError, match=f"^{named} must "):
        stochastic(attraction, examination)


@pytest.mark.parametrize(
    "probabilities",
    [[[0.5, 0.4]], [0.5, 0.4], [[1.5], [0.5]], [[-0.5], [0.5]], [[np.nan], [0.5]], [[]], [], None, "x", [["a"], ["b"]]],
)
def test_impossible_click_probabilities_are_refused_by_name(probabilities):
    with pytest.raises(ValueError, match=r"^click_probabilities must be"):
        matrix(probabilities)


@pytest.mark.parametrize("given", [[], None, [SUMMER, "paper/stochastic"], [SUMMER, None], SUMMER, "ab"])
def test_what_cannot_take_turns_is_refused(given):
    with pytest.raises(ValueError, match=r"^worlds must be"):
        periodic(given, phase=3)


def test_worlds_of_different_shapes_cannot_take_turns():
    with pytest.raises(ValueError, match=r"worlds must have one shape; got \[\(2, 1\), \(3, 2\)\]"):
        periodic([SUMMER, stochastic([0.5, 0.4], [1.0])], phase=3)


@pytest.mark.parametrize("phase", [0, -1, 1.5, np.nan, np.inf, "3", None, True, [3]])
def test_an_impossible_phase_is_refused_by_name(phase):
    with pytest.raises(ValueError, match=r"^phase must be"):
        periodic([SUMMER, WINTER], phase=phase)


@pytest.mark.parametrize("world", [SUMMER, RAIN, periodic([SUMMER, RAIN], phase=3)])
def test_a_negative_round_is_refused(world):
    with pytest.raises(ValueError, match="t must not be negative; got -2"):
        world.click_probabilities(-2)


class Stranger:
    n_items, n_positions = 2, 1
    name = "abroad"

    def click_probabilities(self, t):
        return [[0.5], [0.25 if t < 10 else 0.75]]


def test_a_world_needs_only_three_members():
    world = resolve(Stranger())
    assert isinstance(world, World)
    assert (world.n_items, world.n_positions, world.name) == (2, 1, "abroad")
    assert world.click_probabilities(10).tolist() == [[0.5], [0.75]]
    assert len(list(world.pieces(0, 12))) == 12


def test_a_world_is_found_by_name_or_passed_as_it_is():
    assert resolve("paper/stochastic").name == "paper/stochastic"
    assert resolve(SUMMER) is SUMMER


@pytest.mark.parametrize("given", [None, 3, object(), Stranger, World, np.zeros((3, 2))])
def test_what_is_no_world_is_refused(given):
    with pytest.raises(ValueError, match="world must be a name or an object with n_items, n_positions and click_prob"):
        resolve(given)


@pytest.mark.parametrize("wrong", [[[0.5]], [[0.5], [0.4], [0.3]], [[0.5, 0.1], [0.4, 0.1]], [[1.5], [0.1]], None])
def test_a_stranger_that_contradicts_itself_is_refused(wrong):
    class Contradiction(Stranger):
        def click_probabilities(self, t):
            return wrong

    with pytest.raises(ValueError, match="click_probabilities"):
        resolve(Contradiction()).click_probabilities(0)


def test_builders_are_at_hand():
    assert bothworlds.worlds.stochastic is stochastic
    assert bothworlds.worlds.periodic is periodic
    assert bothworlds.worlds.matrix is matrix


def test_a_world_without_a_name_still_says_what_it_is():
    assert repr(RAIN) == "<Matrix: 3 items, 2 positions>"
