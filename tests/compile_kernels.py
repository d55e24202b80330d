"""Compile the kernels that many tests need, once, in as many processes as there are cores.

``python -m tests.compile_kernels``. Test processes that start without compiled kernels would all compile the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bothworlds.arena.game import Game
from bothworlds.arena.parallel import in_processes
from bothworlds.core import Labels, cores
from bothworlds.geometry import leader
from bothworlds.policies import names, policy
from bothworlds.policies.logged_pages import LoggedPage, LogState
from bothworlds.policies.pages import has_parts, resized
from tests.policies.informed import ONE_OF_EACH_KIND
from tests.reference.regularizers import NAMES as REGULARIZERS

LONGEST = ("all-weather", "pmed", "context-ts", "gibbs-ts")  # start first
LABELS = Labels(np.array([3]), np.array([2]), np.array([[0, 1, 0, 1, 0]]))


def compile_policy(name: str) -> None:
    """Compile the loop of a policy, its two kernels as Python calls them, and what computes a part of its state."""
    game = Game.of(name, "paper/stochastic", 1, inform=True)
    game.compile()
    player, states = game.policy, [game.new_state()]
    if player.learns_labels:
        states.append(policy(name).init(5, 2, LABELS))
    for state in states:
        decision = player.decide(state, np.random.default_rng(0))
        player.learn(state, decision, np.zeros(state.shape.n_positions))
        if has_parts(player):
            resized(player, state, range(state.shape.n_items - 1), range(state.shape.n_positions))
    if name in ONE_OF_EACH_KIND:  # while the kernels that are called are in memory
        (n, m), shown = states[0].shape, list(range(states[0].shape.n_positions))
        LogState(player, n, m).learn([LoggedPage(1, n, shown, [1.0] * m, [0.0] * m, (1 << m) - 1)])


def compile_leader(regularizer: str) -> None:
    """Compile the solver of a regularizer, for one rate and for a rate of every pair."""
    for rates in (1.0, [[1.0, 2.0], [1.0, 1.0], [1.0, 1.0]]):
        leader(np.zeros((3, 2)), rates, regularizer=regularizer)


def run(task: Callable[[], None]) -> None:
    """Run a task in a worker process."""
    task()


def main() -> None:
    """Compile the kernels of every policy and regularizer."""
    order = [*LONGEST, *(name for name in names() if name not in LONGEST)]
    tasks = [
        *(partial(compile_policy, name) for name in order),
        *(partial(compile_leader, name) for name in REGULARIZERS),
    ]
    for _ in in_processes(run, tasks, cores(), "compiling kernels for the tests"):
        pass


if __name__ == "__main__":
    main()
