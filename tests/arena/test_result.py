"""Results of a game, and the comparators of regret."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

import bothworlds
from bothworlds import Result, play
from bothworlds.arena import compete
from bothworlds.arena.comparators import comparators
from bothworlds.arena.result import COLUMNS
from bothworlds.worlds import World, matrix, periodic, stochastic
from tests.policies.plain import EpsilonGreedy, FixedList, called

EASY = stochastic([0.9, 0.7, 0.4, 0.2], [0.9, 0.3])
TURNED = stochastic([0.2, 0.4, 0.7, 0.9], [0.3, 0.9])


def test_a_result_has_all_its_members():
    result = play("uniform", EASY, 50, replications=3, checkpoints=5)
    assert isinstance(result, Result)
    assert result.rounds.tolist() == [10, 20, 30, 40, 50]
    assert result.reward.shape == result.clicks.shape == (3, 5)
    assert result.best_fixed.shape == result.best_dynamic.shape == (5,)
    assert (result.average_reward() == result.reward / result.rounds).all()
    assert (np.diff(result.reward, axis=1) > 0).all()
    assert (np.diff(result.clicks, axis=1) >= 0).all()
    assert result.seconds > 0.0
    assert result.cost() == pytest.approx(result.seconds / 150)


def test_a_result_records_what_was_played():
    result = play(
        bothworlds.policy("ftrl-pbm", rate=0.25),
        bothworlds.world("paper/stochastic", gap=0.01),
        5,
        replications=1,
        seed=8,
    )
    assert result.policy == "ftrl-pbm(rate=0.25)"
    assert result.world == "paper/stochastic(gap=0.01)"
    assert result.settings == {"rate": 0.25, "tolerance": 1e-6, "every": 1, "restart": None}
    assert result.seed == 8
    assert "ftrl-pbm(rate=0.25)" in repr(result)


def test_the_final_score_is_a_mean_with_its_standard_error():
    result = play("uniform", EASY, 50, replications=4)
    last = result.average_reward()[:, -1]
    assert result.final() == pytest.approx((last.mean(), last.std(ddof=1) / 2.0))
    mean, error = play("uniform", EASY, 50, replications=1).final()
    assert mean > 0.0
    assert np.isnan(error)


def test_a_printed_result_has_its_reward():
    result = play("uniform", "paper/stochastic", 1_000, replications=3)
    mean, error = result.final()
    assert f"reward {mean:.4f} ±{error:.4f} per round, 1,000 rounds, 3 replications" in repr(result)
    alone = repr(play("uniform", "paper/stochastic", 10, replications=1))
    assert "±" not in alone
    assert alone.endswith("10 rounds, 1 replication>")


def test_rows_hold_every_replication_and_checkpoint():
    result = play("uniform", EASY, 50, replications=3, checkpoints=5)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*result.columns().values())]
    assert len(rows) == 15
    assert rows[7]["replication"] == 1
    assert rows[7]["round"] == 30
    assert rows[7]["reward"] == result.reward[1, 2]
    assert rows[7]["clicks"] == result.clicks[1, 2]
    assert rows[7]["regret_fixed"] == result.regret("fixed")[1, 2]
    assert rows[7]["regret_dynamic"] == result.regret("dynamic")[1, 2]


def test_regret_is_the_reward_of_the_comparator_minus_that_of_the_policy():
    result = play("uniform", periodic([EASY, TURNED], phase=13), 50, replications=3)
    assert (result.regret() == result.best_fixed - result.reward).all()
    assert (result.regret("fixed") == result.regret(against="fixed")).all()
    assert (result.regret("dynamic") == result.best_dynamic - result.reward).all()


@pytest.mark.parametrize("against", ["best", None, "FIXED", 0])
def test_an_unknown_comparator_is_refused(against):
    result = play("uniform", EASY, 5, replications=1)
    with pytest.raises(ValueError, match="against must be 'fixed' or 'dynamic'"):
        result.regret(against)


@pytest.mark.parametrize("player", ["uniform", "ftrl-pbm", EpsilonGreedy()], ids=called)
@pytest.mark.parametrize("world", ["paper/stochastic", "paper/periodic-items", "yandex/periodic-both"])
def test_the_best_of_each_round_is_at_least_the_best_fixed_list(player, world):
    world = bothworlds.world(world, phase=70)
    result = play(player, world, 500, replications=2, jobs=1)
    assert (result.regret("dynamic") >= result.regret("fixed") - 1e-9).all()
    assert (result.regret("dynamic") >= -1e-9).all()


def test_where_nothing_changes_both_comparators_are_the_same():
    result = play("uniform", "yandex/stochastic", 500, replications=2)
    np.testing.assert_allclose(result.regret("dynamic"), result.regret("fixed"), atol=1e-9)


@pytest.mark.slow
def test_the_best_fixed_list_has_no_regret():
    result = play(FixedList(), EASY, 200, replications=3, shuffle=False, jobs=1)
    np.testing.assert_allclose(result.regret(), 0.0, atol=1e-9)


def test_a_list_that_is_best_in_one_season_has_regret_in_the_other():
    world = periodic([EASY, TURNED], phase=100)
    result = play(FixedList(), world, 200, replications=1, shuffle=False, checkpoints=2)
    assert result.regret("dynamic")[0] == pytest.approx([0.0, 100 * (0.81 + 0.21 - 0.2 * 0.3 - 0.4 * 0.9)])


@pytest.mark.parametrize("world", ["paper/periodic-items", "paper/periodic-both"])
def test_the_optimum_of_the_first_phase_frozen_earns_the_reference_number(world):
    result = play(FixedList(), bothworlds.world(world, phase=100), 200, replications=1, shuffle=False)
    assert result.average_reward()[0, -1] == pytest.approx(1.9164, abs=1e-4)


@pytest.mark.parametrize(
    ("world", "settings", "dynamic", "fixed"),
    [
        ("paper/stochastic", {}, 2.0877, 2.0877),
        ("paper/stochastic", {"gap": 0.01}, 2.1420, 2.1420),
        ("yandex/stochastic", {}, 0.8651, 0.8651),
        ("paper/periodic-items", {}, 2.0877, 1.9684),
        ("paper/periodic-both", {}, 2.0877, 1.9952),
    ],
)
def test_comparators_earn_the_reference_numbers(world, settings, dynamic, fixed):
    best_fixed, best_dynamic, _ = comparators(bothworlds.world(world, **settings), np.array([100_000, 200_000]))
    assert best_fixed[-1] / 200_000 == pytest.approx(fixed, abs=1e-4)
    assert best_dynamic[-1] / 200_000 == pytest.approx(dynamic, abs=1e-4)
    assert best_fixed[0] == pytest.approx(best_dynamic[0])


def test_comparators_equal_those_of_a_search_through_all_lists():
    rng = np.random.default_rng(3)
    parts = [matrix(rng.random((4, 3))) for _ in range(3)]
    world = periodic(parts, phase=5)
    fixed, dynamic, _ = comparators(world, np.array([4, 9, 30, 41]))
    lists = [np.array(one) for one in permutations(range(4), 3)]
    earned = np.array([[world.click_probabilities(t)[one, np.arange(3)].sum() for t in range(41)] for one in lists])
    for k, mark in enumerate((4, 9, 30, 41)):
        assert fixed[k] == pytest.approx(earned[:, :mark].sum(axis=1).max())
        assert dynamic[k] == pytest.approx(earned[:, :mark].max(axis=0).sum())


def test_a_world_that_reuses_its_array_has_the_right_comparators():
    class ReusesItsArray(World):
        n_items, n_positions = 2, 1

        def __init__(self):
            self.array = np.zeros((2, 1))

        def click_probabilities(self, t):
            self.array[:] = [[0.9], [0.1]] if t < 50 else [[0.3], [0.5]]
            return self.array

    fixed, dynamic, _ = comparators(ReusesItsArray(), np.array([100]))
    assert dynamic[0] == pytest.approx(50 * 0.9 + 50 * 0.5)
    assert fixed[0] == pytest.approx(50 * 0.9 + 50 * 0.3)


def test_a_tracking_list_beats_the_best_fixed_one():
    class Tracking(FixedList):
        """Knows the seasons: turns its list around after every hundred rounds."""

        def init(self, n_items, n_positions):
            return {"t": 0}

        def decide(self, state, rng):
            items = [0, 1] if state["t"] < 100 else [2, 3]
            return bothworlds.Decision(np.array(items), np.ones(2))

        def learn(self, state, decision, clicks):
            state["t"] += 1
            return state

    result = play(Tracking(), periodic([EASY, TURNED], phase=100), 200, replications=1, shuffle=False)
    assert result.regret("dynamic")[0, -1] == pytest.approx(0.0, abs=1e-9)
    assert result.regret("fixed")[0, -1] < 0.0


@pytest.mark.slow
def test_every_policy_plays_in_every_world():
    seen = []
    results = compete(
        ["uniform", EpsilonGreedy()], [EASY, "paper/stochastic"], 30, replications=2, finished=seen.append
    )
    assert [(r.policy, r.world) for r in results] == [
        ("uniform", "stochastic"),
        ("EpsilonGreedy", "stochastic"),
        ("uniform", "paper/stochastic"),
        ("EpsilonGreedy", "paper/stochastic"),
    ]
    assert {id(one) for one in results} == {id(one) for one in seen}  # in the order in which they were completed
    assert len(seen) == len(results)
    assert (results[0].reward == play("uniform", EASY, 30, replications=2).reward).all()
