"""Playing in worlds that answer a whole list, and worlds with a table beside them."""

from __future__ import annotations

import numpy as np
import pytest

import bothworlds
from bothworlds import play
from bothworlds.arena import load, save_results
from bothworlds.arena.comparators import comparators
from bothworlds.arena.loop import loop_classes
from bothworlds.registry import parsed_name
from bothworlds.testing import check_world
from bothworlds.worlds import ListWorld, browsing, cascade, dependent_clicks, periodic
from bothworlds.worlds.best_list import all_lists
from bothworlds.worlds.users import TableUsers
from tests.policies.plain import EpsilonGreedy

# Rewards before worlds of lists existed: two replications at two checkpoints, in hexadecimal, and clicks.
DIGITS = {
    ("paper/stochastic", "uniform"): (
        ["0x1.d20bc131d5ab5p+10", "0x1.d163fa89e60b5p+11", "0x1.d04eec33e1f6bp+10", "0x1.d0965cd7b8feep+11"],
        [[1867.0, 3771.0], [1838.0, 3713.0]],
        "0x1.04f5555555555p+12",
    ),
    ("yandex/periodic-items:phase=700", "toprank"): (
        ["0x1.e3504d24cbe2ap+8", "0x1.016cd0bbefb68p+10", "0x1.bfee83426a2eep+8", "0x1.f32b2c7c5fe47p+9"],
        [[482.0, 1042.0], [461.0, 1005.0]],
        "0x1.3a256909aed55p+10",
    ),
    ("drift/slow", "ftrl-pbm"): (
        ["0x1.e88ca6921736ap+10", "0x1.eaed157a7666fp+11", "0x1.e4b281b4e8169p+10", "0x1.e707a4e288595p+11"],
        [[1979.0, 3981.0], [1907.0, 3886.0]],
        "0x1.02db40b3f05cfp+12",
    ),
    ("adversarial/fraud:phase=500", "comb-ucb"): (
        ["0x1.b851e2c8286b5p+10", "0x1.ba85601e955dbp+11", "0x1.b9f5b4e81b52bp+10", "0x1.baac4c0c8facbp+11"],
        [[1771.0, 3592.0], [1732.0, 3513.0]],
        "0x1.dac1111111110p+11",
    ),
}


@pytest.mark.parametrize(("name", "policy"), DIGITS)
def test_worlds_with_a_table_keep_every_digit(name, policy):
    rewards, clicks, best = DIGITS[name, policy]
    world, settings = parsed_name(name)
    result = play(policy, bothworlds.world(world, **settings), 2000, replications=2, seed=3, checkpoints=2, jobs=1)
    assert [value.hex() for value in result.reward.ravel().tolist()] == rewards
    assert result.clicks.tolist() == clicks
    assert result.best_fixed[-1].hex() == best
    assert result.comparators == {"fixed": "exact, by assignment", "dynamic": "exact, by assignment"}


CASCADE = cascade([0.2, 0.6, 0.4, 0.1], 2)


class PlainCascade(ListWorld):
    """The cascade model in plain Python, with the random numbers of the compiled one."""

    n_items, n_positions = 4, 2
    name = "plain cascade"

    def click(self, t, ranking, rng):
        clicks, examined = np.zeros(2), True
        for k, item in enumerate(ranking):
            attracted, _ = rng.random() < CASCADE.attraction[item], rng.random()
            clicks[k] = examined and attracted
            examined = examined and not attracted
        return clicks

    def expected_reward(self, t, ranking):
        return 1.0 - np.prod(1.0 - CASCADE.attraction[ranking])


@pytest.mark.slow
def test_a_plain_world_plays_like_the_compiled_one():
    check_world(PlainCascade())
    for policy in ("uniform", EpsilonGreedy()):
        compiled, plain = (
            play(policy, world, 300, replications=2, jobs=1, checkpoints=3) for world in (CASCADE, PlainCascade())
        )
        np.testing.assert_allclose(plain.reward, compiled.reward, rtol=1e-12)
        np.testing.assert_array_equal(plain.clicks, compiled.clicks)
        np.testing.assert_allclose(plain.best_fixed, compiled.best_fixed, rtol=1e-12)
    assert compiled.comparators["fixed"] == "exact, by dynamic programme over items sorted by index"
    assert plain.comparators["fixed"] == "exact, by enumeration"


def test_any_object_that_clicks_and_expects_is_a_world():
    class Stranger:
        n_items, n_positions = 3, 2

        def click(self, t, ranking, rng):
            return [int(rng.random() < 0.5), 0]

        def expected_reward(self, t, ranking):
            return 0.5

    check_world(Stranger())
    result = play("uniform", Stranger(), 50, replications=1)
    assert result.world == "Stranger"
    assert result.reward[0, -1] == 25.0


def test_two_policies_meet_the_same_users():
    certain = cascade([1.0, 0.0, 0.0], 1)
    lists = [
        play(bothworlds.policy("fixed", ranking=[i, 1, 2][:1]), certain, 40, replications=1, shuffle=False)
        for i in (0, 1)
    ]
    assert lists[0].clicks[0, -1] == 40.0
    assert lists[1].clicks[0, -1] == 0.0
    world = dependent_clicks([0.5, 0.5, 0.5], [0.5, 0.5])
    first, second = (
        play(bothworlds.policy("fixed", ranking=ranking), world, 200, replications=2, shuffle=False).clicks
        for ranking in ([0, 1], [2, 0])
    )
    np.testing.assert_array_equal(first, second)


def test_clicks_are_as_many_as_expected():
    for world in (CASCADE, browsing([0.2, 0.6, 0.4], [1.0, 0.5, 0.9])):
        result = play("uniform", world, 4_000, replications=4, jobs=1, checkpoints=1)
        # The number of clicks of a round has a variance of at most 1.
        assert np.abs(result.clicks - result.reward).max() < 5.0 * np.sqrt(4_000)


def test_the_best_fixed_list_of_changing_users_is_found_by_enumeration():
    first, second = dependent_clicks([0.9, 0.6, 0.2, 0.1], [0.8, 0.2]), cascade([0.1, 0.3, 0.9, 0.5], 2)
    world, marks = periodic([first, second], phase=10), np.array([10, 15, 40])
    found = comparators(world, marks)
    lists = all_lists(4, 2)
    one, other = first.expected_rewards(0, lists), second.expected_rewards(0, lists)
    expected = [10 * one.max(), (10 * one + 5 * other).max(), (20 * one + 20 * other).max()]
    np.testing.assert_allclose(found.fixed, expected, rtol=1e-12)
    np.testing.assert_allclose(
        found.dynamic, [10 * one.max(), 10 * one.max() + 5 * other.max(), 20 * (one.max() + other.max())], rtol=1e-12
    )
    assert found.methods["fixed"] == "exact, by enumeration"
    oracle = play("oracle", world, 40, replications=2, inform=True, checkpoints=[10, 15])
    np.testing.assert_allclose(oracle.regret("dynamic"), 0.0, atol=1e-9)


def test_how_comparators_were_found_is_saved(tmp_path):
    result = play("uniform", CASCADE, 20, replications=1)
    again = load(save_results([result], tmp_path / "results.parquet"))
    assert again.comparators == result.comparators
    assert again.build_world().expected_reward(0, [0, 1]) == CASCADE.expected_reward(0, [0, 1])


def test_each_kind_of_users_has_its_own_loop():
    names = ("dcm/paper", "dbn/paper", "ubm/paper", "paper/stochastic")
    kinds = [loop_classes(bothworlds.world(name)) for name in names]
    assert kinds[0] == kinds[1] == kinds[2] != kinds[3]
    assert (
        loop_classes(bothworlds.world("trust/paper"))
        == loop_classes(bothworlds.world("drift/slow"))
        == (TableUsers, type(None))
    )
