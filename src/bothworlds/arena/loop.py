"""The simulation loop: one policy in one world, compiled where both are.

There is one compiled loop for worlds with a table of click probabilities, one for worlds that answer a whole list, and
one for worlds with an adversary. Each is compiled for the class of the policy's state, and the last two also for the
class of the users.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import NONE_ABSENT, Streams, click, decide, expected_reward, learn, note, streams
from ..kernels import Floats, Ints, kernel
from ..policies import Policy, check_needs, configured_for
from ..worlds import Attack, Attacked, ListWorld, World
from ..worlds.attack_kernels import AttackState, tamper
from ..worlds.attacks import PlainAttack
from ..worlds.users import TableUsers

if TYPE_CHECKING:  # not at run time: an edit of progress.py would compile all loops again
    from ..progress import ReportProgress

__all__ = [
    "Answer",
    "Score",
    "Simulation",
    "advance",
    "advance_attacked",
    "advance_compiled",
    "advance_lists",
    "answer_list",
    "users_class",
    "users_of",
]


TOTALS = 6  # expected reward, clicks, and the four scores of an attack


class Score(NamedTuple):
    """One replication: cumulative expected reward and clicks at the checkpoints, and its processor time in seconds.

    ``attack`` (4, checkpoints) has flips, touched rounds, and rounds with the target first and in the list.
    """

    reward: NDArray[np.float64]
    clicks: NDArray[np.float64]
    seconds: float
    attack: NDArray[np.float64] | None = None


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
        check_needs(self.policy)
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
        """Return whether a compiled loop can play the policy in the world."""
        users = self.world.honest
        if isinstance(self.world, Attacked) and not isinstance(self.world.attack, Attack):
            return False
        if isinstance(users, ListWorld) and users.users(0) is None:
            return False
        return isinstance(self.policy, Policy) and self.policy.runs_compiled(self.new_state())

    def compile(self) -> None:
        """Compile the loop of the policy in the world, if there is one, without playing a round."""
        if self.compiled():
            users = users_of(self.world, np.arange(self.world.n_items)).at_first()
            advance_compiled(self.policy, self.new_state(), 0, users, streams(0, 0), np.zeros(TOTALS))

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
        totals = np.zeros(TOTALS)
        world = users_of(self.world, labels)
        advance(policy, state, 0, world.at_first(), source, totals)  # compiles, outside the measured time
        started = time.thread_time()
        scores = np.empty((TOTALS, len(marks)))
        done = 0
        for k, mark in enumerate(marks.tolist()):
            for end, users in world.pieces(done, mark):
                advance(policy, state, end - done, users, source, totals)
                report(end - done)
                done = end
            scores[:, k] = totals
        attack = scores[2:] if isinstance(self.world, Attacked) else None
        return Score(scores[0], scores[1], time.thread_time() - started, attack)


class _Tables:
    """The click probabilities of a world, for items in the order ``labels``."""

    def __init__(self, world: World, labels: NDArray[np.int64]) -> None:
        self._world, self._labels = world, labels
        self._last = self._seen = np.empty(0)

    def at_first(self) -> Floats:
        """Return the table of round 0."""
        return self._relabelled(self._world.click_probabilities(0))

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, Floats]]:
        """Yield ranges of rounds in which nothing changes: (end, table)."""
        for end, probabilities in self._world.pieces(start, stop):
            yield end, self._relabelled(probabilities)

    def _relabelled(self, probabilities: Floats) -> Floats:
        shape = (self._world.n_items, self._world.n_positions)
        if probabilities.shape != shape:
            raise ValueError(
                f"click_probabilities must have the shape (n_items, n_positions) = {shape}; got {probabilities.shape}"
            )
        if probabilities is not self._last or probabilities.flags.writeable:  # a writeable array may have changed
            self._last, self._seen = probabilities, probabilities[self._labels]
        return self._seen


class _PlainUsers(NamedTuple):
    """The users of a list world in plain Python, from a round on."""

    world: ListWorld
    labels: NDArray[np.int64]
    start: int


class _Lists:
    """The users of a world that answers a whole list, for items in the order ``labels``."""

    def __init__(self, world: ListWorld, labels: NDArray[np.int64]) -> None:
        self._world, self._labels = world, labels

    def at_first(self) -> Any:
        """Return the users of round 0."""
        return self._at(0)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, Any]]:
        """Yield ranges of rounds in which nothing changes: (end, users)."""
        for end in self._world.spans(start, stop):
            yield end, self._at(start)
            start = end

    def _at(self, t: int) -> Any:
        users = self._world.users(t, self._labels)
        return _PlainUsers(self._world, self._labels, t) if users is None else users


class _UnderAttack(NamedTuple):
    """Users, and the adversary who reports their clicks."""

    users: Any
    attack: AttackState | PlainAttack


class _AttackedUsers:
    """The users of a world with an adversary, for items in the order ``labels``."""

    def __init__(self, world: Attacked, labels: NDArray[np.int64]) -> None:
        self._users, self._attack = users_of(world.honest, labels), world.start(labels)

    def at_first(self) -> _UnderAttack:
        """Return the users of round 0."""
        return self._attacked(self._users.at_first())

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, _UnderAttack]]:
        """Yield ranges of rounds in which users do not change: (end, users)."""
        for end, users in self._users.pieces(start, stop):
            yield end, self._attacked(users)

    def _attacked(self, users: Any) -> _UnderAttack:
        return _UnderAttack(TableUsers(users) if isinstance(users, np.ndarray) else users, self._attack)


def users_of(world: World, labels: NDArray[np.int64]) -> _Tables | _Lists | _AttackedUsers:
    """Return the users of a world for one game, with item ``labels[i]`` as item i: ``pieces`` yields them in order."""
    if isinstance(world, Attacked):
        return _AttackedUsers(world, labels)
    return _Lists(world, labels) if isinstance(world, ListWorld) else _Tables(world, labels)


def users_class(world: World) -> tuple[type, ...]:
    """Return the classes of the users in compiled loops: each has its own loop."""
    users = users_of(world, np.arange(world.n_items)).at_first()
    return (type(users), type(users.users)) if isinstance(users, _UnderAttack) else (type(users),)


def advance_compiled(policy: Policy, state: Any, rounds: int, users: Any, source: Streams, totals: Any) -> None:
    """Play rounds with the compiled loop; ``totals`` (TOTALS,) is updated in place.

    ``users`` are a table of click probabilities (n, m), the users of a world that answers a whole list, or either with
    an adversary.
    """
    m = state.shape.n_positions
    rest = np.empty(policy.note_size(state.shape)), NONE_ABSENT.copy(), totals
    if isinstance(users, _UnderAttack):
        assert isinstance(users.attack, AttackState)
        generators = source.policy, source.users, source.adversary
        given = users.users, users.attack, *generators
        advance_attacked(state, rounds, *given, np.empty(m, np.int64), np.empty((3, m)), *rest)
        return
    loop = advance if isinstance(users, np.ndarray) else advance_lists
    loop(state, rounds, users, source.policy, source.users, np.empty(m, np.int64), np.empty((2, m)), *rest)


@kernel
def advance(
    state: Any,
    rounds: int,
    probabilities: Floats,
    policy_rng: np.random.Generator,
    user_rng: np.random.Generator,
    ranking: Ints,
    rows: Floats,
    noted: Floats,
    absent: Ints,
    totals: Floats,
) -> None:
    """The compiled loop; ``rows`` holds propensities and clicks, ``totals`` expected reward and clicks so far."""
    propensity, clicks = rows[0], rows[1]
    for _ in range(rounds):
        decide(state, policy_rng, ranking, propensity)
        note(state, ranking, noted)
        for j in range(ranking.size):
            p = probabilities[ranking[j], j]
            totals[0] += p
            clicks[j] = 1.0 if user_rng.random() < p else 0.0
            totals[1] += clicks[j]
        learn(state, ranking, propensity, clicks, noted, absent)


@kernel
def advance_lists(
    state: Any,
    rounds: int,
    users: Any,
    policy_rng: np.random.Generator,
    user_rng: np.random.Generator,
    ranking: Ints,
    rows: Floats,
    noted: Floats,
    absent: Ints,
    totals: Floats,
) -> None:
    """The compiled loop for users who answer a whole list; otherwise as ``advance``."""
    propensity, clicks = rows[0], rows[1]
    for _ in range(rounds):
        decide(state, policy_rng, ranking, propensity)
        note(state, ranking, noted)
        totals[0] += expected_reward(users, ranking)
        click(users, ranking, user_rng, clicks)
        for j in range(ranking.size):
            totals[1] += clicks[j]
        learn(state, ranking, propensity, clicks, noted, absent)


@kernel
def advance_attacked(
    state: Any,
    rounds: int,
    users: Any,
    attack: AttackState,
    policy_rng: np.random.Generator,
    user_rng: np.random.Generator,
    adversary_rng: np.random.Generator,
    ranking: Ints,
    rows: Floats,
    noted: Floats,
    absent: Ints,
    totals: Floats,
) -> None:
    """The compiled loop with an adversary: rewards are those of the users, and the policy learns what is reported."""
    propensity, clicks, reported = rows[0], rows[1], rows[2]
    for _ in range(rounds):
        decide(state, policy_rng, ranking, propensity)
        note(state, ranking, noted)
        totals[0] += expected_reward(users, ranking)
        click(users, ranking, user_rng, clicks)
        for j in range(ranking.size):
            totals[1] += clicks[j]
        flips = tamper(attack, ranking, clicks, adversary_rng, reported)
        _count_attack(attack.target, ranking, flips, totals)
        learn(state, ranking, propensity, reported, noted, absent)


@kernel
def _count_attack(target: int, ranking: Ints, flips: int, totals: Floats) -> None:
    """Add the flips of a round, whether there were any, and where the target was shown."""
    totals[2] += flips
    totals[3] += 1.0 if flips > 0 else 0.0
    totals[4] += 1.0 if ranking[0] == target else 0.0
    for j in range(ranking.size):
        if ranking[j] == target:
            totals[5] += 1.0


def _advance_interpreted(policy: Policy, state: Any, rounds: int, users: Any, source: Streams, totals: Any) -> None:
    """The same loops in plain Python; they draw the same random numbers in the same order."""
    for t in range(rounds):
        decision = policy.decide(state, source.policy)
        answer = answer_list(users, t, decision.ranking, source)
        for chance in answer.expected:
            totals[0] += chance
        for clicked in answer.clicks.tolist():
            totals[1] += clicked
        if isinstance(users, _UnderAttack):
            _count_attack(users.attack.target, np.ascontiguousarray(decision.ranking, np.int64), answer.flips, totals)
        policy.learn(state, decision, answer.reported)


class Answer(NamedTuple):
    """What users do with a list, and what is reported of it."""

    expected: list[float]  # the parts of the expected number of clicks
    clicks: NDArray[np.float64]  # (m,) of the users
    reported: NDArray[np.float64]  # (m,) what is reported to the policy: the clicks, unless there is an adversary
    flips: int = 0  # reports that differ from the clicks


def answer_list(users: Any, t: int, ranking: NDArray[np.int64], source: Streams) -> Answer:
    """Return the answer to a list, t rounds after the first round of these users."""
    if not isinstance(users, _UnderAttack):
        expected, clicks = _answer(users, t, ranking, source.users)
        return Answer(expected, clicks, clicks)
    expected, clicks = _answer(users.users, t, ranking, source.users)
    shown = np.ascontiguousarray(ranking, np.int64)
    if isinstance(users.attack, PlainAttack):
        told = users.attack.report(shown, clicks, source.adversary)
        return Answer(expected, clicks, told, int((told != clicks).sum()))
    reported = np.empty(clicks.size)
    return Answer(expected, clicks, reported, tamper(users.attack, shown, clicks, source.adversary, reported))


def _answer(
    users: Any, t: int, ranking: NDArray[np.int64], rng: np.random.Generator
) -> tuple[list[float], NDArray[np.float64]]:
    """Return the parts of the expected reward of a list, and the clicks on it, t rounds after the users' first."""
    if isinstance(users, np.ndarray):
        p = users[ranking, np.arange(users.shape[1])]
        return p.tolist(), (rng.random(p.size) < p).astype(np.float64)
    if isinstance(users, _PlainUsers):
        shown = users.labels[ranking]
        value = float(users.world.expected_reward(users.start + t, shown))
        return [value], np.asarray(users.world.click(users.start + t, shown, rng), np.float64)
    clicks, shown = np.empty(ranking.size), np.ascontiguousarray(ranking, np.int64)
    value = expected_reward(users, shown)
    click(users, shown, rng, clicks)
    return [value], clicks
