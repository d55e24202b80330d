"""Playing: results do not depend on how the loop runs, all policies meet the same users, clicks follow the world."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import threading

import numba
import numpy as np
import pytest

import bothworlds
from bothworlds import compete, policy
from bothworlds.arena import run
from bothworlds.worlds import World, matrix, periodic, stochastic
from tests.cases import case
from tests.policies.compiled import Popular
from tests.policies.plain import Diary, EpsilonGreedy, FixedList, Interpreted, Patient, Stranger, called

EASY = stochastic([0.9, 0.7, 0.4, 0.2, 0.1], [0.9, 0.6, 0.3])
SEASONAL = periodic([EASY, stochastic([0.1, 0.2, 0.4, 0.7, 0.9], [0.3, 0.6, 0.9])], phase=17)
COMPILED = [policy("ftrl-pbm"), policy("uniform"), Popular()]

# Policies in plain Python play in other processes, which take a second to start, if not told otherwise.
play = functools.partial(bothworlds.play, jobs=1)


def same(one, other):
    return (
        np.array_equal(one.rounds, other.rounds)
        and np.array_equal(one.reward, other.reward)
        and np.array_equal(one.clicks, other.clicks)
    )


# Results do not depend on how the loop runs


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED, ids=called)
@pytest.mark.parametrize("world", [EASY, SEASONAL, "yandex/stochastic"], ids=called)
def test_the_compiled_loop_equals_the_interpreted_one_draw_for_draw(compiled, world):
    fast = play(compiled, world, 300, replications=3, checkpoints=300)
    slow = play(Interpreted(compiled), world, 300, replications=3, checkpoints=300)
    assert same(fast, slow)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("player", "many"),
    [("ftrl-pbm", (2, 50, None)), ("uniform", (2, 50, None)), (EpsilonGreedy(), (None,)), (Stranger(), (2,))],
    ids=["ftrl-pbm", "uniform", "EpsilonGreedy", "Stranger"],
)
def test_the_number_of_jobs_makes_no_difference(player, many):
    alone = play(player, SEASONAL, 120, replications=5, jobs=1)
    for jobs in many:
        assert same(alone, play(player, SEASONAL, 120, replications=5, jobs=jobs)), jobs


def test_a_policy_that_cannot_be_pickled_plays_in_several_jobs():
    class Local(EpsilonGreedy):
        pass

    assert same(play(Local(), EASY, 50, replications=4, jobs=2), play(Local(), EASY, 50, replications=4, jobs=1))


@pytest.mark.slow
@pytest.mark.parametrize("player", ["ftrl-pbm", EpsilonGreedy()], ids=called)
def test_a_seed_fixes_the_result_and_another_changes_it(player):
    one, again, other = (play(player, EASY, 200, replications=3, seed=seed) for seed in (4, 4, 5))
    assert same(one, again)
    assert not same(one, other)
    assert one.seed == 4


@pytest.mark.slow
@pytest.mark.parametrize("player", ["ftrl-pbm", EpsilonGreedy()], ids=called)
def test_more_seeds_continue_fewer(player):
    few, many = (play(player, EASY, 100, replications=replications) for replications in (5, 10))
    assert (many.reward[:5] == few.reward).all()
    assert (many.clicks[:5] == few.clicks).all()


def test_every_seed_is_a_different_game():
    result = play("ftrl-pbm", EASY, 200, replications=10)
    assert len({row.tobytes() for row in result.reward}) == 10


@pytest.mark.slow
def test_playing_changes_neither_policy_nor_world():
    mine = FixedList()
    before = SEASONAL.click_probabilities(0).copy()
    one = play(mine, SEASONAL, 50, replications=2)
    assert same(one, play(mine, SEASONAL, 50, replications=2))
    assert (SEASONAL.click_probabilities(0) == before).all()


@pytest.mark.slow
@pytest.mark.parametrize("player", ["uniform", EpsilonGreedy()], ids=called)
def test_names_and_objects_give_the_same_result(player):
    assert same(
        play(player, "paper/stochastic", 50, replications=2),
        play(player, bothworlds.world("paper/stochastic"), 50, replications=2),
    )
    assert same(play("uniform", EASY, 50, replications=2), play(policy("uniform"), EASY, 50, replications=2))


# All policies meet the same users


@pytest.mark.slow
def test_every_policy_meets_the_same_users():
    """Where the item does not matter, nothing a policy does can change the clicks."""
    indifferent = matrix(np.tile([0.8, 0.5, 0.2], (6, 1)))
    first, *others = (
        play(p, indifferent, 500, replications=4, checkpoints=500) for p in (*COMPILED, EpsilonGreedy(), Stranger())
    )
    for other in others:
        assert (other.clicks == first.clicks).all()
        assert (other.reward == first.reward).all()


@pytest.mark.slow
def test_labels_are_shuffled_for_every_seed():
    shuffled = play(FixedList(), EASY, 1, replications=300)
    assert np.unique(shuffled.reward.round(9)).size > 30
    fixed = play(FixedList(), EASY, 1, replications=300, shuffle=False)
    assert (fixed.reward == fixed.reward[0]).all()


@pytest.mark.slow
def test_shuffled_labels_are_uniform():
    """A fixed list of shuffled labels is a uniformly random list: it earns the average."""
    reward = play(FixedList(), EASY, 1, replications=2000).reward[:, -1]
    average = EASY.click_probabilities(0).mean(axis=0).sum()
    assert abs(reward.mean() - average) < 4.5 * reward.std() / np.sqrt(reward.size)


@pytest.mark.slow
def test_every_policy_gets_the_same_labels():
    other = play(Interpreted(FixedList()), EASY, 3, replications=50)
    assert (play(FixedList(), EASY, 3, replications=50).reward == other.reward).all()


@pytest.mark.slow
def test_the_randomness_of_a_policy_does_not_reach_the_users():
    """A policy that wastes its own random numbers sees the same clicks."""

    class Wasteful(FixedList):
        def decide(self, state, rng):
            rng.random(3)
            return super().decide(state, rng)

    assert same(play(FixedList(), EASY, 100, replications=3), play(Wasteful(), EASY, 100, replications=3))


# Clicks follow the world


def dependence(clicks):
    """The largest correlation between two positions, in standard errors."""
    correlation = np.corrcoef(np.array(clicks).T) - np.eye(clicks[0].size)
    return np.abs(correlation).max() * np.sqrt(len(clicks))


def test_clicks_are_independent_from_position_to_position():
    diary = Diary(FixedList())
    play(diary, matrix(np.tile([0.6, 0.5, 0.4], (5, 1))), 4000, replications=1, jobs=1)
    assert dependence(diary.clicks) < 4.5


def test_a_single_draw_for_all_positions_would_be_noticed():
    users = np.random.default_rng(0)
    comonotone = [(users.random() < np.array([0.6, 0.5, 0.4])).astype(float) for _ in range(4000)]
    assert dependence(comonotone) > 20


@pytest.mark.slow
def test_the_compiled_loop_draws_for_each_position_too():
    """The variance of the clicks of a round is the sum over positions, not the square of the sum."""
    p = np.array([0.6, 0.5, 0.4])
    result = play("uniform", matrix(np.tile(p, (5, 1))), 4000, replications=2, checkpoints=4000)
    per_round = np.diff(result.clicks, axis=1, prepend=0.0)
    assert per_round.var() == pytest.approx((p * (1 - p)).sum(), rel=0.1)
    assert set(np.unique(per_round)) <= {0.0, 1.0, 2.0, 3.0}


def test_clicks_are_independent_from_round_to_round():
    diary = Diary(FixedList())
    play(diary, matrix(np.full((3, 1), 0.5)), 4000, replications=1, jobs=1)
    clicks = np.array(diary.clicks)[:, 0]
    assert dependence(np.column_stack([clicks[1:], clicks[:-1]])) < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("player", ["uniform", "ftrl-pbm", EpsilonGreedy()], ids=called)
@pytest.mark.parametrize("world", [EASY, SEASONAL], ids=called)
def test_realised_clicks_agree_with_the_expected_reward(player, world):
    result = play(player, world, 1000, replications=10, checkpoints=1)
    surprise = (result.clicks - result.reward)[:, -1]
    largest = 1000 * 3 * 0.25  # the variance of a click is at most 1/4
    assert np.abs(surprise).max() < 5 * np.sqrt(largest)
    assert abs(surprise.mean()) < 4.5 * np.sqrt(largest / 10)
    assert (surprise != 0).all()


def test_the_reward_is_the_expected_one_of_the_lists_shown():
    diary = Diary(policy("uniform"))
    result = play(diary, EASY, 60, replications=1, jobs=1, checkpoints=60, shuffle=False)
    shown = np.array(diary.rankings)
    expected = EASY.click_probabilities(0)[shown, np.arange(3)].sum(axis=1).cumsum()
    np.testing.assert_allclose(result.reward[0], expected, rtol=1e-12)
    assert (result.clicks[0] == np.array(diary.clicks).sum(axis=1).cumsum()).all()


def test_certain_worlds_are_certain():
    for p in (0.0, 1.0):
        result = play("ftrl-pbm", matrix(np.full((4, 2), p)), 50, replications=3)
        assert (result.clicks == result.reward).all()
        assert (result.reward[:, -1] == 100 * p).all()


ALTERNATING = periodic([matrix(np.ones((3, 2))), matrix(np.zeros((3, 2)))], phase=7)


@pytest.mark.parametrize("player", ["uniform", "ftrl-pbm", FixedList()], ids=called)
@pytest.mark.parametrize("checkpoints", [1, 2, 3, 7, 50, [1], [6, 7, 8], [5, 20], [13, 14, 15, 49]], ids=str)
def test_the_world_changes_on_time_wherever_the_checkpoints_are(player, checkpoints):
    result = play(player, ALTERNATING, 50, replications=2, checkpoints=checkpoints)
    expected = [2 * sum(t // 7 % 2 == 0 for t in range(mark)) for mark in result.rounds]
    assert (result.reward == expected).all()
    assert (result.clicks == expected).all()
    assert (result.best_dynamic == expected).all()


class Duck:
    """A world with nothing but the three members, different in every round, in lists."""

    n_items, n_positions = 3, 2

    def click_probabilities(self, t):
        return [[(t % 5) / 5, 0.1], [0.5, 0.5], [1 - (t % 5) / 5, 0.9]]


class Subclassed(World):
    """The same, as a subclass of World."""

    n_items, n_positions = 3, 2

    def click_probabilities(self, t):
        return np.array(Duck().click_probabilities(t))


@pytest.mark.slow
@pytest.mark.parametrize("player", ["ftrl-pbm", EpsilonGreedy()], ids=called)
def test_any_object_with_the_three_members_is_a_world(player):
    foreign = play(player, Duck(), 100, replications=3, checkpoints=9)
    assert foreign.world == "Duck"
    turns = periodic([matrix(Duck().click_probabilities(t)) for t in range(5)], phase=1)
    for native in (
        play(player, Subclassed(), 100, replications=3, checkpoints=9),
        play(player, turns, 100, replications=3, checkpoints=9),
    ):
        assert same(foreign, native)
        np.testing.assert_allclose(foreign.best_fixed, native.best_fixed)
        np.testing.assert_allclose(foreign.best_dynamic, native.best_dynamic)


@pytest.mark.parametrize("rows", [2, 4])
@pytest.mark.parametrize("base", [object, World])
def test_a_world_that_contradicts_itself_is_refused(base, rows):
    class Contradiction(base):
        n_items, n_positions = 3, 2

        def click_probabilities(self, t):
            return np.full((rows, 2), 0.5)

    with pytest.raises(ValueError, match="click_probabilities"):
        play("uniform", Contradiction(), 10, replications=1)


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("base", [object, World])
@pytest.mark.parametrize("player", ["uniform", FixedList()], ids=called)
def test_a_world_with_other_positions_than_it_says_is_refused(player, base, columns):
    class Contradiction(base):
        n_items, n_positions = 3, 2

        def click_probabilities(self, t):
            return np.full((3, columns), 0.5)

    with pytest.raises(ValueError, match="click_probabilities"):
        play(player, Contradiction(), 10, replications=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.asfortranarray, lambda p: p.astype(np.float32), lambda p: p[:, ::-1]])
def test_a_world_may_return_arrays_of_any_layout_and_type(kind):
    class Kept(World):
        n_items, n_positions = 5, 3
        kept = kind(EASY.click_probabilities(0))

        def click_probabilities(self, t):
            return self.kept

    plain = matrix(np.array(Kept.kept, dtype=float))
    np.testing.assert_allclose(
        play("uniform", Kept(), 100, replications=2).reward, play("uniform", plain, 100, replications=2).reward
    )


# Checkpoints


def test_checkpoints_as_a_number_are_evenly_spaced():
    assert play("uniform", EASY, 1000, replications=1, checkpoints=4).rounds.tolist() == [250, 500, 750, 1000]
    assert play("uniform", EASY, 1000, replications=1).rounds.tolist() == list(range(10, 1001, 10))
    assert play("uniform", EASY, 10, replications=1, checkpoints=3).rounds.tolist() == [3, 7, 10]


@pytest.mark.parametrize("checkpoints", [1, 2, 3, 64, 100, 1000])
def test_checkpoints_increase_to_the_last_round(checkpoints):
    for rounds in (1, 2, 3, 7, 97, 100, 101, 250, 999):
        with case(rounds=rounds):
            marks = play("uniform", EASY, rounds, replications=1, checkpoints=checkpoints).rounds
            assert len(marks) == min(rounds, checkpoints)
            assert marks[-1] == rounds
            assert marks[0] >= 1
            assert (np.diff(marks) >= 1).all()


@pytest.mark.parametrize("given", [[10, 20, 50], (10, 20, 50), np.array([10, 20, 50]), range(10, 51, 20)])
def test_checkpoints_as_a_list_are_taken_and_the_last_round_is_added(given):
    assert play("uniform", EASY, 60, replications=1, checkpoints=given).rounds.tolist() == [*given, 60]
    assert play("uniform", EASY, 50, replications=1, checkpoints=given).rounds.tolist() == list(given)


@pytest.mark.slow
@pytest.mark.parametrize("player", ["ftrl-pbm", EpsilonGreedy()], ids=called)
def test_checkpoints_do_not_change_the_result(player):
    every = play(player, SEASONAL, 90, replications=2, checkpoints=90)
    some = play(player, SEASONAL, 90, replications=2, checkpoints=[1, 16, 17, 18, 80])
    assert (some.reward == every.reward[:, some.rounds - 1]).all()
    assert (some.clicks == every.clicks[:, some.rounds - 1]).all()
    np.testing.assert_allclose(some.best_fixed, every.best_fixed[some.rounds - 1])
    np.testing.assert_allclose(some.best_dynamic, every.best_dynamic[some.rounds - 1])


# The horizon


class Witness(Patient):
    """Raises its horizon."""

    def init(self, n_items, n_positions):
        raise RuntimeError(f"horizon {self.horizon}")


def test_a_missing_horizon_is_filled_with_the_number_of_rounds():
    with pytest.raises(RuntimeError, match="horizon 123"):
        play(Witness(), EASY, 123, replications=1)
    with pytest.raises(RuntimeError, match="horizon 45"):
        play(Witness(horizon=45), EASY, 123, replications=1)


@pytest.mark.slow
def test_the_horizon_is_recorded_with_the_result_and_left_out_of_the_name():
    result = play(Patient(), EASY, 80, replications=2)
    assert result.settings == {"epsilon": 0.2, "horizon": 80}
    assert result.policy == "Patient"
    assert same(result, play(Patient(horizon=80), EASY, 80, replications=2))


def test_the_horizon_of_a_policy_that_is_no_subclass_is_filled_too():
    class Timed(Stranger):
        def __init__(self, horizon=None):
            self.horizon = horizon

        def init(self, n_items, n_positions):
            if self.horizon != 70:
                raise RuntimeError(f"horizon {self.horizon}")
            return super().init(n_items, n_positions)

    given = Timed()
    play(given, EASY, 70, replications=2)
    assert given.horizon is None
    with pytest.raises(RuntimeError, match="horizon 3"):
        play(Timed(3), EASY, 70, replications=1)


# Bad arguments


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"rounds": 0}, "rounds"),
        ({"rounds": -5}, "rounds"),
        ({"rounds": 10.5}, "rounds"),
        ({"rounds": "many"}, "rounds"),
        ({"rounds": None}, "rounds"),
        ({"rounds": True}, "rounds"),
        ({"replications": 0}, "replications"),
        ({"replications": 2.5}, "replications"),
        ({"replications": [1, 2]}, "replications"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"seed": None}, "seed"),
        ({"jobs": 0}, "jobs"),
        ({"jobs": -1}, "jobs"),
        ({"jobs": 1.5}, "jobs"),
        ({"checkpoints": 0}, "checkpoints"),
        ({"checkpoints": -1}, "checkpoints"),
        ({"checkpoints": 2.5}, "checkpoints"),
        ({"checkpoints": None}, "checkpoints"),
        ({"checkpoints": True}, "checkpoints"),
        ({"checkpoints": []}, "checkpoints"),
        ({"checkpoints": [0, 5]}, "checkpoints"),
        ({"checkpoints": [5, 5]}, "checkpoints"),
        ({"checkpoints": [5, 3]}, "checkpoints"),
        ({"checkpoints": [5, 11]}, "checkpoints"),
        ({"checkpoints": [1.5]}, "checkpoints"),
        ({"checkpoints": [[1, 2]]}, "checkpoints"),
        ({"checkpoints": [[1], [2, 3]]}, "checkpoints"),
        ({"checkpoints": "all"}, "checkpoints"),
        ({"policy": "nobody"}, "policy"),
        ({"policy": None}, "policy"),
        ({"policy": EpsilonGreedy}, "policy"),
        ({"world": "nowhere"}, "world"),
        ({"world": 3}, "world"),
        ({"world": World}, "world"),
    ],
    ids=lambda given: (
        "" if isinstance(given, str) else ", ".join(f"{k}={getattr(v, '__name__', v)}" for k, v in given.items())
    ),
)
def test_bad_arguments_are_refused_by_name(arguments, named):
    good = {"policy": "uniform", "world": EASY, "rounds": 10, "replications": 2}
    with pytest.raises(ValueError, match=rf"\b{named}\b"):
        play(**(good | arguments))


def test_options_go_by_name():
    with pytest.raises(TypeError):
        play("uniform", EASY, 10, 2)


# Failures


class Explodes(EpsilonGreedy):
    """Fails in its thirtieth round."""

    error = RuntimeError

    def learn(self, state, decision, clicks):
        if state.shown.sum() >= 90:
            raise self.error("bang")
        return super().learn(state, decision, clicks)


class IsInterrupted(Explodes):
    error = KeyboardInterrupt


def assert_that_threads_end(before):
    """A thread that was told to end may still be about to."""
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert set(threading.enumerate()) <= before


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("player", [Explodes(), IsInterrupted()], ids=lambda p: p.error.__name__)
def test_a_failing_policy_raises_and_leaves_nothing_running(player, jobs):
    threads = set(threading.enumerate())
    with pytest.raises(player.error, match="bang"):
        play(player, EASY, 100, replications=6, jobs=jobs)
    assert_that_threads_end(threads)
    assert multiprocessing.active_children() == []
    assert play(EpsilonGreedy(), EASY, 10, replications=4, jobs=jobs).reward.shape == (4, 10)


class FailingWorld(World):
    """Fails in its fortieth round."""

    n_items, n_positions = 5, 3

    def click_probabilities(self, t):
        if t >= 40:
            raise RuntimeError("no probabilities")
        return EASY.click_probabilities(t)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("player", ["uniform", EpsilonGreedy()], ids=called)
def test_a_failing_world_raises_and_leaves_nothing_running(player, jobs):
    threads = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="no probabilities"):
        play(player, FailingWorld(), 100, replications=6, jobs=jobs)
    assert_that_threads_end(threads)
    assert multiprocessing.active_children() == []


# Progress


@pytest.mark.slow
@pytest.mark.parametrize(("player", "jobs"), [("uniform", 2), (EpsilonGreedy(), 1)], ids=["uniform", "EpsilonGreedy"])
def test_a_progress_bar_changes_nothing(player, jobs, capsys):
    shown = play(player, EASY, 50, replications=3, jobs=jobs, progress=True)
    assert same(shown, play(player, EASY, 50, replications=3, jobs=jobs, progress=False))
    assert capsys.readouterr().out == ""


def test_without_a_terminal_there_is_no_progress_bar(capsys):
    play("uniform", EASY, 50, replications=3)
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled here")
@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_counts_a_round_in_plain_python_as_several_compiled_ones(jobs, monkeypatch):
    bars = []

    @contextlib.contextmanager
    def bar(title, total, progress, **_):
        amounts = []
        bars.append((total, amounts))
        yield amounts.append

    monkeypatch.setattr(run, "progress_bar", bar)
    compete(["uniform", EpsilonGreedy()], [EASY], 50, replications=3, jobs=jobs)
    ((total, amounts),) = bars
    assert total == sum(amounts) == 3 * 50 * (1 + run.INTERPRETED)
