"""Let a policy meet a world: the one loop that everything else is built around."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Streams, decide, learn, streams
from ..kernels import Floats, Ints, kernel
from ..policies import Policy, configured_for
from ..policies import resolve as resolve_policy
from ..progress import Report, interrupted, progress_bar
from ..worlds import World
from ..worlds import resolve as resolve_world
from .comparators import best_in_hindsight
from .result import Result, UnchangedWorldWarning, no_change

__all__ = [
    "Meeting",
    "Plan",
    "checkpoint_rounds",
    "collecting",
    "compile_ahead",
    "cores",
    "name_of",
    "play",
    "play_meeting",
    "warn_of_no_change",
]


class Score(NamedTuple):
    """One replication: cumulative expected reward and clicks at the checkpoints, and the processor time it took."""

    reward: NDArray[np.float64]
    clicks: NDArray[np.float64]
    seconds: float


def play(
    policy: str | Policy,
    world: str | World,
    rounds: int,
    *,
    seeds: int = 10,
    seed: int = 0,
    checkpoints: int | Sequence[int] = 100,
    jobs: int | None = None,
    shuffle: bool = True,
    tell: bool = False,
    progress: bool | None = None,
) -> Result:
    """Let a policy rank for ``rounds`` rounds in a world, several times over, and keep score.

    Each replication has its own users, its own random order of item labels and its own randomness for the policy,
    all of them fixed by ``seed`` and the number of the replication: every policy meets the same users, and the result
    does not depend on ``jobs``.

    Parameters
    ----------
    policy, world
        Names, or objects.
    rounds
        How many rounds to play; told to a policy whose setting ``horizon`` is None.
    seeds
        How many replications.
    seed
        Where their randomness starts.
    checkpoints
        At how many evenly spaced rounds to keep the score, or at which.
    jobs
        How many replications to run at a time; all cores if not given. Compiled policies run in threads, others in
        processes where the system can fork.
    shuffle
        Whether item labels are shuffled in each replication. Leave it on: a policy that breaks ties by label would
        otherwise be told the best order when items are listed in it.
    tell
        Whether to tell the policy what it needs to know of the world and has not been told: its examination (as it is
        at the start), or the world itself.
    progress
        Whether to show a progress bar. If not given, a terminal gets a bar, and other output a line on standard error
        about every half minute.

    Warns
    -----
    UnchangedWorldWarning
        If the world changes, but not within ``rounds`` rounds.

    Returns
    -------
    Result
        Cumulative rewards and clicks at the checkpoints, and what the best rankings would have earned.

    Examples
    --------
    >>> result = play("ftrl-pbm", "paper/stochastic", rounds=2_000, seeds=3, checkpoints=4)
    >>> result.rounds
    array([ 500, 1000, 1500, 2000])
    >>> result.reward.shape
    (3, 4)
    >>> again = play("ftrl-pbm", "paper/stochastic", rounds=2_000, seeds=3, checkpoints=4, jobs=1)
    >>> bool((again.reward == result.reward).all())
    True
    """
    plan = Plan.checked(rounds, seeds, seed, checkpoints, jobs)
    meeting = Meeting(resolve_policy(policy), resolve_world(world), plan.rounds, shuffle, tell)
    warn_of_no_change([(meeting.world, plan.rounds)])
    with progress_bar(meeting.title, plan.rounds * len(plan.replications), progress) as report:
        return play_meeting(meeting, plan, report)


class Plan(NamedTuple):
    """How to play: rounds, checkpoints, replications, where their randomness starts, and how many run at a time."""

    rounds: int
    marks: NDArray[np.int64]
    replications: range
    seed: int
    workers: int

    @classmethod
    def checked(
        cls, rounds: int, seeds: int, seed: int, checkpoints: int | Sequence[int], jobs: int | None = None
    ) -> Plan:
        """The plan that the arguments of ``play`` describe, or ValueError."""
        marks = checkpoint_rounds(checkpoints, _whole(rounds, "rounds"))
        replications = range(_whole(seeds, "seeds"))
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ValueError(f"seed must be a whole number of at least 0; got {seed!r}")
        workers = min(len(replications), _whole(jobs, "jobs") if jobs is not None else cores())
        return cls(int(rounds), marks, replications, seed, workers)


def warn_of_no_change(games: Iterable[tuple[World, int]]) -> None:
    """Issue an UnchangedWorldWarning, as from the caller of ``play``, for every world that changes after its rounds."""
    sentences = (no_change(name_of(world), world.first_change(), rounds) for world, rounds in games)
    for sentence in dict.fromkeys(filter(None, sentences)):
        warnings.warn(sentence, UnchangedWorldWarning, stacklevel=3)


def name_of(world: World) -> str:
    """The name of a world in results: its own, or else that of its kind."""
    return world.name or type(world).__name__.lower()


def play_meeting(meeting: Meeting, plan: Plan, report: Report) -> Result:
    """Play all replications of a meeting; ``report`` is called with the number of rounds since its last call."""
    marks = plan.marks
    scores = _replicate(meeting, marks, plan.seed, plan.replications, plan.workers, report)
    fixed, dynamic = best_in_hindsight(meeting.world, marks)
    return Result(
        policy=meeting.policy_name,
        world=name_of(meeting.world),
        settings=meeting.settings,
        seed=plan.seed,
        rounds=marks,
        reward=np.array([score.reward for score in scores]),
        clicks=np.array([score.clicks for score in scores]),
        best_fixed=fixed,
        best_dynamic=dynamic,
        seconds=sum(score.seconds for score in scores),
        adaptive=getattr(meeting.policy, "adaptive", True),
        first_change=meeting.world.first_change(),
    )


class Meeting:
    """A policy and a world that fit together."""

    def __init__(self, policy: Policy, world: World, rounds: int, shuffle: bool, tell: bool) -> None:
        self.policy = configured_for(policy, rounds, world if tell else None)
        self.world, self.rounds, self.shuffle = world, rounds, shuffle
        self.policy_name = policy.label if isinstance(policy, Policy) else type(policy).__name__
        self.settings = self.policy.settings() if isinstance(self.policy, Policy) else {}
        self.title = f"{self.policy_name} in {world.name or 'a world'}"

    def new_state(self) -> Any:
        return self.policy.init(self.world.n_items, self.world.n_positions)

    def relabelled(self, labels: NDArray[np.int64]) -> Meeting:
        """The same meeting for a policy that sees item ``labels[i]`` as item i."""
        policy: Any = self.policy  # may be any object with the three methods
        if not isinstance(policy, Policy):
            return self
        twin = copy.copy(self)
        twin.policy = policy.relabelled(labels)
        return twin

    def compiled(self) -> bool:
        return isinstance(self.policy, Policy) and self.policy.runs_compiled(self.new_state())

    def rehearse(self) -> None:
        """One round for nothing, so that what has to be compiled is compiled once, before workers fork."""
        state, m = self.new_state(), self.world.n_positions
        self.policy.learn(state, self.policy.decide(state, np.random.default_rng(0)), np.zeros(m))

    def replicate(self, marks: NDArray[np.int64], seed: int, replication: int, report: Report) -> Score:
        """Play once."""
        source = streams(seed, replication)
        n = self.world.n_items
        labels = source.labels.permutation(n) if self.shuffle else np.arange(n)
        policy = self.relabelled(labels).policy
        state = policy.init(self.world.n_items, self.world.n_positions)
        advance = _advance_compiled if self.compiled() else _advance_interpreted
        totals = np.zeros(2)
        at_first = self.world.click_probabilities(0)
        _check_shape_of(at_first, self.world)
        advance(policy, state, 0, at_first[labels], source, totals)  # compiles
        started = time.thread_time()
        reward, clicks = np.empty(len(marks)), np.empty(len(marks))
        done = 0
        for k, mark in enumerate(marks.tolist()):
            for end, probabilities in self.world.pieces(done, mark):
                _check_shape_of(probabilities, self.world)
                advance(policy, state, end - done, probabilities[labels], source, totals)
                report(end - done)
                done = end
            reward[k], clicks[k] = totals
        return Score(reward, clicks, time.thread_time() - started)


def _check_shape_of(probabilities: Floats, world: World) -> None:
    if probabilities.shape != (world.n_items, world.n_positions):
        raise ValueError(
            f"click_probabilities must have the shape the world says, {(world.n_items, world.n_positions)}; "
            f"got {probabilities.shape}"
        )


def _advance_compiled(
    policy: Policy, state: Any, rounds: int, probabilities: NDArray[np.float64], source: Streams, totals: Any
) -> None:
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
    """The same loop for policies in plain Python, draw for draw."""
    positions = np.arange(probabilities.shape[1])
    for _ in range(rounds):
        decision = policy.decide(state, source.policy)
        p = probabilities[decision.ranking, positions]
        clicks = (source.users.random(positions.size) < p).astype(np.float64)
        for chance, click in zip(p.tolist(), clicks.tolist()):
            totals[0] += chance
            totals[1] += click
        policy.learn(state, decision, clicks)


def _replicate(
    meeting: Meeting,
    marks: NDArray[np.int64],
    seed: int,
    replications: range,
    workers: int,
    report: Report,
) -> list[Score]:
    if workers == 1:
        return [meeting.replicate(marks, seed, k, report) for k in replications]
    if meeting.compiled():
        return _in_threads(meeting, marks, seed, replications, workers, report)
    if "fork" not in multiprocessing.get_all_start_methods():
        return [meeting.replicate(marks, seed, k, report) for k in replications]
    return _in_processes(meeting, marks, seed, replications, workers, report)


def _in_threads(
    meeting: Meeting, marks: NDArray[np.int64], seed: int, replications: range, workers: int, report: Report
) -> list[Score]:
    stopped = threading.Event()

    def counting(rounds: int) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        report(rounds)

    with collecting(ThreadPoolExecutor(workers), stopped.set) as pool:
        return list(pool.map(lambda k: meeting.replicate(marks, seed, k, counting), replications))


# What a forked worker needs is inherited, not pickled: a policy typed at a prompt works as well as an imported one.
_inherited: dict[str, Any] = {}


def _in_processes(
    meeting: Meeting, marks: NDArray[np.int64], seed: int, replications: range, workers: int, report: Report
) -> list[Score]:
    meeting.rehearse()
    _inherited["task"] = (meeting, marks, seed)
    try:
        with _forked(workers) as pool:
            scores = []
            for result in pool.map(_one_inherited, replications):
                report(meeting.rounds)
                scores.append(result)
            return scores
    finally:
        _inherited.clear()


def _one_inherited(replication: int) -> Score:
    meeting, marks, seed = _inherited["task"]
    result: Score = meeting.replicate(marks, seed, replication, lambda rounds: None)
    return result


def compile_ahead(meetings: Sequence[Meeting], jobs: int | None = None, progress: bool | None = None) -> None:
    """Compile what several meetings will need, in as many processes as may run: a process compiles one thing at a time.

    What they leave in the cache on disk is all that remains of them. Nothing happens where that would not help.
    """
    workers = min(len(meetings), jobs or cores())
    if workers < 2 or "fork" not in multiprocessing.get_all_start_methods() or threading.active_count() > 1:
        return
    _inherited["meetings"] = list(meetings)
    title = f"compiling {len(meetings)} policies, once for every install"
    try:
        with _forked(workers) as pool:
            compiled = pool.map(_compile_inherited, range(len(meetings)))
            # After the workers are forked: a bar has a thread of its own.
            with progress_bar(title, len(meetings), progress, first="") as report:
                for _ in compiled:
                    report(1)
    finally:
        _inherited.clear()


def _compile_inherited(k: int) -> None:
    meeting: Meeting = _inherited["meetings"][k]
    # A policy that cannot play here is refused when its turn comes.
    with contextlib.suppress(ValueError):
        if meeting.compiled():
            n, m = meeting.world.n_items, meeting.world.n_positions
            source, totals = streams(0, 0), np.zeros(2)
            _advance_compiled(meeting.policy, meeting.new_state(), 0, np.zeros((n, m)), source, totals)


@contextmanager
def _forked(workers: int) -> Iterator[Executor]:
    """A pool of forked processes, which are terminated if the block fails or is interrupted.

    Ctrl+C at a terminal reaches every process of its group. The workers ignore it: the parent ends them.
    """
    context = multiprocessing.get_context("fork")
    ignore = (signal.SIGINT, signal.SIG_IGN)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=signal.signal, initargs=ignore)

    def terminate() -> None:
        for process in list((pool._processes or {}).values()):
            process.terminate()

    with collecting(pool, terminate):
        yield pool


@contextmanager
def collecting(pool: Executor, stop: Callable[[], None]) -> Iterator[Executor]:
    """A pool that is shut down after the block; if the block fails, ``stop`` is called first, and queued work dropped.

    Work that runs is waited for, unless the program itself was interrupted and is about to exit: nothing can stop a
    thread that compiles.
    """
    try:
        yield pool
    except BaseException:
        stop()
        pool.shutdown(wait=not interrupted(), cancel_futures=True)
        raise
    pool.shutdown()


def checkpoint_rounds(given: int | Sequence[int], rounds: int) -> NDArray[np.int64]:
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        count = min(_whole(int(given), "checkpoints"), rounds)
        return np.round(np.arange(1, count + 1) * (rounds / count)).astype(np.int64)
    try:
        marks = np.asarray(given)
    except ValueError:
        marks = np.empty(0)
    if marks.ndim != 1 or not marks.size or marks.dtype.kind not in "iu":
        raise ValueError(f"checkpoints must be a number or a list of rounds; got {given!r}")
    if marks[0] < 1 or (np.diff(marks) < 1).any() or marks[-1] > rounds:
        raise ValueError(f"checkpoints must increase from at least 1 to at most {rounds} rounds; got {marks.tolist()}")
    return np.unique(np.append(marks, rounds)).astype(np.int64)


def _whole(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}")
    return int(value)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
