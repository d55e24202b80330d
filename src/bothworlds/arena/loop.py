"""The simulation loop: one policy in one world, compiled where the policy is."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Streams, decide, learn, streams
from ..kernels import Floats, Ints, kernel
from ..policies import Policy, configured_for
from ..worlds import World

if TYPE_CHECKING:  # not at run time: an edit of progress.py would compile all loops again
    from ..progress import ReportProgress

__all__ = ["Score", "Simulation", "advance", "advance_compiled"]


class Score(NamedTuple):
    """One replication: cumulative expected reward and clicks at the checkpoints, and its processor time in seconds."""

    reward: NDArray[np.float64]
    clicks: NDArray[np.float64]
    seconds: float


class Simulation:
    """A policy in a world for a number of rounds. Nothing in it changes; replications may run in several threads.

    Parameters
    ----------
    policy, world, rounds
        What is played, and for how long. A policy whose setting ``horizon`` is None gets ``rounds``.
    shuffle
        Whether each replication has its own random order of item labels.
    tell
        Whether the policy gets what it needs to know of the world: its examination, or the world itself.

    Attributes
    ----------
    policy
        The policy that plays, with those settings filled in.
    label
        The name of the policy in tables: its registered name, with the settings that differ from the defaults.
    policy_name
        The registered name of the policy, or the name of its class.
    settings
        The settings the policy plays with, those that were filled in included.
    world_name
        The name of the world in results: its own, or else that of its class.
    """

    def __init__(self, policy: Policy, world: World, rounds: int, shuffle: bool, tell: bool) -> None:
        self.policy = configured_for(policy, rounds, world if tell else None)
        self.world, self.rounds, self.shuffle = world, rounds, shuffle
        class_name = type(policy).__name__
        self.label = policy.label if isinstance(policy, Policy) else class_name
        self.policy_name = (policy.name or class_name) if isinstance(policy, Policy) else class_name
        self.settings = self.policy.settings() if isinstance(self.policy, Policy) else {}
        self.world_name = world.name or type(world).__name__.lower()
        self.title = f"{self.label} in {world.name or 'a world'}"

    def new_state(self) -> Any:
        """Return the state of the policy before the first round."""
        return self.policy.init(self.world.n_items, self.world.n_positions)

    def relabelled(self, labels: NDArray[np.int64]) -> Simulation:
        """Return the same simulation for a policy that sees item ``labels[i]`` as item i."""
        policy: Any = self.policy  # may be any object with the three methods
        if not isinstance(policy, Policy):
            return self
        twin = copy.copy(self)
        twin.policy = policy.relabelled(labels)
        return twin

    def compiled(self) -> bool:
        """Return whether the compiled loop can play the policy."""
        return isinstance(self.policy, Policy) and self.policy.runs_compiled(self.new_state())

    def compile(self) -> None:
        """Compile the loop of the policy in the world, if there is one, without playing a round."""
        if self.compiled():
            users = np.zeros((self.world.n_items, self.world.n_positions))
            advance_compiled(self.policy, self.new_state(), 0, users, streams(0, 0), np.zeros(2))

    def warm_up(self) -> None:
        """Play one round and discard it, so that everything is compiled once before worker processes are forked."""
        state, m = self.new_state(), self.world.n_positions
        self.policy.learn(state, self.policy.decide(state, np.random.default_rng(0)), np.zeros(m))

    def replicate(self, marks: NDArray[np.int64], seed: int, replication: int, report: ReportProgress) -> Score:
        """Play one replication and return its score at the rounds ``marks``.

        ``seed`` and ``replication`` determine all randomness. ``report`` is called with the number of rounds played
        since its last call. An exception of the policy, the world or ``report`` is passed on.
        """
        source = streams(seed, replication)
        n = self.world.n_items
        labels = source.labels.permutation(n) if self.shuffle else np.arange(n)
        policy = self.relabelled(labels).policy
        state = policy.init(self.world.n_items, self.world.n_positions)
        advance = advance_compiled if self.compiled() else _advance_interpreted
        totals = np.zeros(2)
        at_first = self.world.click_probabilities(0)
        _check_shape_of(at_first, self.world)
        advance(policy, state, 0, at_first[labels], source, totals)  # compiles, outside the measured time
        started = time.thread_time()
        reward, clicks = np.empty(len(marks)), np.empty(len(marks))
        done, last, seen = 0, None, at_first
        for k, mark in enumerate(marks.tolist()):
            for end, probabilities in self.world.pieces(done, mark):
                _check_shape_of(probabilities, self.world)
                if probabilities is not last or probabilities.flags.writeable:  # a writeable array may have changed
                    last, seen = probabilities, probabilities[labels]
                advance(policy, state, end - done, seen, source, totals)
                report(end - done)
                done = end
            reward[k], clicks[k] = totals
        return Score(reward, clicks, time.thread_time() - started)


def _check_shape_of(probabilities: Floats, world: World) -> None:
    if probabilities.shape != (world.n_items, world.n_positions):
        raise ValueError(
            f"click_probabilities must have the shape (n_items, n_positions) = {(world.n_items, world.n_positions)}; "
            f"got {probabilities.shape}"
        )


def advance_compiled(
    policy: Policy, state: Any, rounds: int, probabilities: NDArray[np.float64], source: Streams, totals: Any
) -> None:
    """Play rounds with the compiled loop; ``totals`` (2,), expected reward and clicks, is updated in place."""
    m = probabilities.shape[1]
    advance(state, rounds, probabilities, source.policy, source.users, np.empty(m, np.int64), np.empty((2, m)), totals)


@kernel
def advance(
    state: Any,
    rounds: int,
    probabilities: Floats,
    policy_rng: np.random.Generator,
    user_rng: np.random.Generator,
    ranking: Ints,
    rows: Floats,
    totals: Floats,
) -> None:
    """The compiled loop; ``rows`` holds propensities and clicks, ``totals`` expected reward and clicks so far."""
    propensity, clicks = rows[0], rows[1]
    for _ in range(rounds):
        decide(state, policy_rng, ranking, propensity)
        for j in range(ranking.size):
            p = probabilities[ranking[j], j]
            totals[0] += p
            clicks[j] = 1.0 if user_rng.random() < p else 0.0
            totals[1] += clicks[j]
        learn(state, ranking, propensity, clicks)


def _advance_interpreted(
    policy: Policy, state: Any, rounds: int, probabilities: NDArray[np.float64], source: Streams, totals: Any
) -> None:
    """The same loop for policies in plain Python; it draws the same random numbers in the same order."""
    positions = np.arange(probabilities.shape[1])
    for _ in range(rounds):
        decision = policy.decide(state, source.policy)
        p = probabilities[decision.ranking, positions]
        clicks = (source.users.random(positions.size) < p).astype(np.float64)
        for chance, click in zip(p.tolist(), clicks.tolist()):
            totals[0] += chance
            totals[1] += click
        policy.learn(state, decision, clicks)
