"""The simulation loop: one policy in one world, compiled where both are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..core import NONE_ABSENT, Decision, Streams, decide, learn, note, streams
from ..kernels import kernel
from ..worlds.attack_kernels import report
from ..worlds.users import Answer, ContextUsers, PlainUsers, answer, arrive, new_answer

if TYPE_CHECKING:  # not at run time: an edit of these files would compile all loops again
    from ..policies import Policy
    from ..progress import ReportProgress
    from ..worlds import World
    from .game import Game


@kernel
def advance(
    state: Any,
    rounds: int,
    users: Any,
    adversary: Any,
    policy_rng: np.random.Generator,
    user_rng: np.random.Generator,
    adversary_rng: np.random.Generator,
    page: Decision,
    to: Answer,
) -> None:
    """The loop, compiled for the classes of the state, the users and the adversary, which may be None."""
    for _ in range(rounds):
        arrive(users, user_rng, page.context)
        decide(state, policy_rng, page.ranking, page.propensity, page.context)
        note(state, page.ranking, page.note)
        answer(users, page.ranking, user_rng, to)
        report(adversary, page.ranking, adversary_rng, to)
        learn(state, page.ranking, page.propensity, to.reported, page.note, page.absent, page.context)


def play_compiled(
    policy: Policy, state: Any, rounds: int, users: Any, source: Streams, to: Answer, adversary: Any = None
) -> None:
    """Play rounds with the compiled loop; ``state`` and ``to`` are updated in place."""
    m = state.shape.n_positions
    page = Decision(
        np.empty(m, np.int64),
        np.empty(m),
        np.empty(policy.note_size(state.shape)),
        NONE_ABSENT.copy(),
        context=empty_context(users if getattr(policy, "learns_labels", False) else None),
    )
    advance(state, rounds, users, adversary, source.policy, source.users, source.adversary, page, to)


def play_interpreted(
    policy: Policy, state: Any, rounds: int, users: Any, source: Streams, to: Answer, adversary: Any = None
) -> None:
    """The same loop in plain Python; it draws the same random numbers in the same order."""
    row, decide_for = empty_context(users), cast(Any, policy.decide)
    if getattr(policy, "learns_labels", False) and row.size:
        decide_for = partial(decide_for, context=row)
    for _ in range(rounds):
        arrive(users, source.users, row)
        decision = decide_for(state, source.policy)
        ranking = np.ascontiguousarray(decision.ranking, np.int64)
        if ranking.shape != to.clicks.shape:
            raise ValueError(f"a ranking must have {to.clicks.size} items; got {decision.ranking!r}")
        answer(users, ranking, source.users, to)
        report(adversary, ranking, source.adversary, to)
        policy.learn(state, decision, to.reported.copy())


def empty_context(users: Any) -> NDArray[np.int64]:
    """Return the array that is filled in with the context of each visitor; it is empty where nobody reads it."""
    return np.zeros(users.contexts.shape[1] if isinstance(users, ContextUsers) else 0, np.int64)


def start(policy: Policy, world: World, labels: NDArray[np.int64]) -> Any:
    """Return the state before the first round, with item ``labels[i]`` of the world as item i."""
    given: Any = policy
    if hasattr(world, "labels") and getattr(policy, "learns_labels", False):
        return given.init(world.n_items, world.n_positions, world.labels(0, labels))
    return given.init(world.n_items, world.n_positions)


def users_of(world: World, labels: NDArray[np.int64], stops: Iterable[int]) -> Iterator[tuple[int, Any]]:
    """Yield ranges of rounds, from 0 up to each of ``stops``, in which nothing changes: (end, users).

    Item ``labels[i]`` of the world is item i of the users.
    """
    start, users, known = 0, None, -1
    for stop in stops:
        for end in world.spans(start, stop):
            alike = world.first_round_like(start)
            if alike != known:
                users, known = world.users(start, labels), alike
                users = PlainUsers(world, labels, start) if users is None else users
            yield end, users
            start = end


def loop_classes(world: World) -> tuple[type, type]:
    """Return the classes of the users and of the adversary: each pair has its own compiled loop."""
    labels = np.arange(world.n_items)
    return type(world.users(0, labels)), type(world.adversary(labels))


class Score(NamedTuple):
    """One replication: cumulative expected reward and clicks at the checkpoints, and its processor time in seconds.

    ``attack`` (4, checkpoints) has flips, touched rounds, and rounds with the target first and in the list.
    """

    reward: NDArray[np.float64]
    clicks: NDArray[np.float64]
    seconds: float
    attack: NDArray[np.float64] | None = None


def replicate(game: Game, replication: int, report: ReportProgress) -> Score:
    """Play one replication of a game and return its score.

    The seed of the game and ``replication`` determine all randomness. ``report`` is called with the number of rounds
    played since its last call. An exception of the policy, the world or ``report`` is passed on.
    """
    from ..policies.pages import renewed

    world, n = game.world, game.world.n_items
    source = streams(game.seed, replication)
    labels = source.labels.permutation(n) if game.shuffle else np.arange(n)
    given: Any = game.policy  # may be any object with the three methods
    policy = given.relabelled(labels) if hasattr(given, "relabelled") else given
    state, adversary = start(policy, world, labels), world.adversary(labels)
    to = new_answer(world.n_positions, adversary)
    play = play_compiled if game.compiled() else play_interpreted
    _, users = next(users_of(world, labels, [1]))
    play(policy, state, 0, users, source, to, adversary)  # compiles, outside the measured time
    started, done = time.thread_time(), 0
    scores: list[NDArray[np.float64]] = []
    for end, users in users_of(world, labels, game.marks.tolist()):
        if done in getattr(world, "renewals", ()):
            state = renewed(policy, state, *cast(Any, world).renewed(done, labels))
        play(policy, state, end - done, users, source, to, adversary)
        report(end - done)
        done = end
        if done == game.marks[len(scores)]:
            scores.append(to.totals.copy())
    reward, clicks, *attack = np.array(scores).T
    return Score(reward, clicks, time.thread_time() - started, None if adversary is None else np.array(attack))
