"""The work of a round, counted and not timed: Newton steps, rows, sampler steps, allocations, assignments."""

from __future__ import annotations

from collections import Counter

import numba
import numpy as np
import pytest
from numba.core.runtime import _nrt_python, rtsys

import bothworlds
from bothworlds.arena import comparators
from bothworlds.arena.loop import advance
from bothworlds.core import Decision, Shape, streams
from bothworlds.geometry import best_ranking, leaders, sampling
from bothworlds.policies import comb_ucb, policy
from bothworlds.policies.parts import placement
from bothworlds.worlds import Matrix, periodic, stochastic
from bothworlds.worlds.users import TableUsers, new_answer

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="counts compiled rounds")

LARGE = (100_000, 10)
ROUNDS = {(10, 5): 2_000, (100, 10): 300, (1000, 10): 150, LARGE: 60}


def probabilities(n, m):
    return np.outer(np.linspace(0.95, 0.38, n), 1.0 / np.arange(1, m + 1))


def play_rounds(state, rounds, seed=0):
    """Play in the compiled loop of the arena."""
    n, m = state.shape
    page = Decision(np.empty(m, np.int64), np.empty(m), np.empty(0), np.empty(0, np.int64))
    policy_rng, user_rng = streams(0, seed).policy, streams(0, seed).users
    advance(state, rounds, TableUsers(probabilities(n, m)), None, policy_rng, user_rng, user_rng, page, new_answer(m))
    return state


def check_steps(state, rounds):
    """Starting from the multipliers of the last round, Newton's method takes two to three steps, and no sweeps."""
    effort = state.leading.effort
    mean = effort.steps[0] / rounds
    assert mean <= 3.0, f"{mean} Newton steps a round"
    assert effort.most_steps[0] <= 6, f"{effort.most_steps[0]} Newton steps in one round"
    assert effort.sweeps[0] == 0, f"{effort.sweeps[0]} sweeps"


@pytest.mark.parametrize(("shape", "rounds"), ROUNDS.items(), ids=str)
def test_newton_steps_of_a_round(shape, rounds):
    check_steps(play_rounds(policy("ftrl-pbm").init(*shape), rounds), rounds)


def test_a_solver_that_forgets_its_multipliers_is_caught():
    state, rounds = policy("ftrl-pbm").init(10, 5), 200
    for k in range(rounds):
        state.leading.lam[:] = 1e3
        state.leading.mu[:] = 0.0
        play_rounds(state, 1, seed=k)
    with pytest.raises(AssertionError, match="Newton steps"):
        check_steps(state, rounds)


def test_newton_steps_from_a_cold_start():
    losses = 30.0 * np.random.default_rng(0).random((200, 10, 5))
    assert leaders(losses, 0.5, jobs=1).iterations.mean() <= 9.0


def check_rows(state, rounds):
    """The solver, the repair and the packing of the sampler go over the items that were shown, not over all."""
    n, m = state.shape
    rows, most = int(state.leading.urn.n_rows[0]), min(n, m * rounds + 1)
    assert rows <= most, f"{rows} rows after {rounds} rounds, of at most {most}"
    assert state.leading.urn.bins[0] <= 2 * m + 1


@pytest.mark.parametrize("name", ["ftrl-pbm", "hybrid"])
def test_a_round_costs_what_was_learned(name):
    rounds = 30
    check_rows(play_rounds(policy(name).init(*LARGE), rounds), rounds)


def test_a_row_for_every_item_is_caught():
    state = play_rounds(policy("ftrl-pbm").start(Shape(2_000, 10), sharing=False), 5)
    with pytest.raises(AssertionError, match="2000 rows after 5 rounds"):
        check_rows(state, 5)


def count_calls(monkeypatch, module, names):
    """Replace every kernel of a module by its source, and count the calls of some."""
    counts = Counter()

    def counted(name, function):
        def call(*arguments):
            counts[name] += 1
            return function(*arguments)

        return call

    for name, value in list(vars(module).items()):
        if hasattr(value, "py_func"):
            function = value.py_func
            monkeypatch.setattr(module, name, counted(name, function) if name in names else function)
    return counts


def check_draws(counts, draws, n, m):
    """One member for every position; few seatings, and hardly any draw in which a column has to be rounded."""
    assert counts["member"] == m * draws
    seatings = counts["improve_seating"] / draws
    assert seatings <= m, f"{seatings} seatings for every draw"
    pairs = counts["round_pair"] / draws
    assert pairs <= 1.0, f"{pairs} pairs rounded for every draw"


def draws_from(state, draws):
    rng, ranking = np.random.default_rng(0), np.empty(state.shape.n_positions, np.int64)
    x = state.leading.marginals[: state.leading.urn.n_rows[0]]
    for _ in range(draws):
        sampling.draw(x, rng, state.leading.urn, ranking)


@pytest.mark.parametrize(("shape", "rounds"), [((10, 5), 2_000), ((10, 5), 0), ((100, 10), 300), (LARGE, 30)], ids=str)
def test_sampler_steps_of_a_draw(monkeypatch, shape, rounds):
    state, draws = play_rounds(policy("ftrl-pbm").init(*shape), rounds), 100
    counts = count_calls(monkeypatch, sampling, ("member", "improve_seating", "round_pair"))
    draws_from(state, draws)
    check_draws(counts, draws, *shape)


def test_a_sampler_without_seatings_is_caught(monkeypatch):
    state = play_rounds(policy("ftrl-pbm").init(10, 5), 100)
    counts = count_calls(monkeypatch, sampling, ("member", "round_pair"))
    monkeypatch.setattr(sampling, "PEELS", 0)
    state.leading.urn.weight[0] = 0.0
    draws_from(state, 50)
    with pytest.raises(AssertionError, match="pairs rounded"):
        check_draws(counts, 50, 10, 5)


def allocations(call, *arguments):
    """The number of arrays that compiled code allocates during a call."""
    _nrt_python.memsys_enable_stats()
    try:
        before = rtsys.get_allocation_stats().alloc
        call(*arguments)
        return rtsys.get_allocation_stats().alloc - before
    finally:
        _nrt_python.memsys_disable_stats()


@pytest.mark.parametrize("name", ["ftrl-pbm", "comb-ucb", "toprank"])
def test_the_loop_allocates_nothing(name):
    state = policy(name, **({"horizon": 1_000} if name == "toprank" else {})).init(10, 5)
    play_rounds(state, 1)
    # A call from Python allocates something for each random generator.
    assert allocations(play_rounds, state, 500) == allocations(play_rounds, state, 0)


@numba.njit
def allocating(rounds):
    total = 0.0
    for k in range(rounds):
        total += np.ones(k + 1).sum()
    return total


def test_a_loop_that_allocates_is_caught():
    allocating(1)
    assert allocations(allocating, 500) == 500


def assignments(monkeypatch, world, rounds, checkpoints):
    """The number of assignments that a game of the arena solves."""
    calls = []
    monkeypatch.setattr(comparators, "best_ranking", lambda scores: calls.append(1) or best_ranking(scores))
    bothworlds.play("uniform", world, rounds, replications=2, checkpoints=checkpoints, jobs=1)
    return len(calls)


STEADY = stochastic([0.9, 0.5, 0.2], [1.0, 0.5])


def test_a_game_solves_one_assignment_for_every_checkpoint_and_every_phase(monkeypatch):
    assert assignments(monkeypatch, STEADY, 2_000, 10) == 10 + 1
    seasons = periodic([STEADY, stochastic([0.1, 0.5, 0.9], [1.0, 0.5])], phase=50)
    assert assignments(monkeypatch, seasons, 2_000, 10) == 10 + 2


class NewArrays(Matrix):
    """A world that says that every round differs from all others."""

    def click_probabilities(self, t):
        return super().click_probabilities(t).copy()

    def first_round_like(self, t):
        return t

    def spans(self, start, stop):
        yield from range(start + 1, stop + 1)


def test_an_assignment_in_every_round_is_caught(monkeypatch):
    assert assignments(monkeypatch, NewArrays(STEADY.click_probabilities(0)), 300, 10) == 10 + 300


def test_a_policy_solves_one_assignment_a_round(monkeypatch):
    state = play_rounds(policy("comb-ucb").init(10, 5), 50)
    counts = count_calls(monkeypatch, placement, ())
    solve = placement.assign
    monkeypatch.setattr(placement, "assign", lambda *work: counts.update(["assign"]) or solve(*work))
    monkeypatch.setattr(comb_ucb, "place_best", placement.place_best)
    decide = comb_ucb.decide.py_func
    for k in range(5):
        decide(state, np.random.default_rng(k), np.empty(5, np.int64), np.empty(5))
    assert counts["assign"] == 5
