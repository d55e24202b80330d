"""Compile the kernels that many tests need, once, in as many processes as there are cores.

``python -m tests.compile_kernels``. Test processes that start without compiled kernels would all compile the same ones.
"""

from __future__ import annotations

import numpy as np

from bothworlds.arena.game import Game
from bothworlds.arena.parallel import in_processes
from bothworlds.core import Labels, cores
from bothworlds.policies import names, policy
from bothworlds.policies.pages import has_parts, resized

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


def main() -> None:
    """Compile the kernels of every policy."""
    order = sorted(names(), key=lambda name: LONGEST.index(name) if name in LONGEST else len(LONGEST))
    for _ in in_processes(compile_policy, order, cores(), "compiling kernels for the tests"):
        pass


if __name__ == "__main__":
    main()
