"""Checks that every policy and every world must pass, as sentences."""

from __future__ import annotations

import functools
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arena import play
from ..core import Decision, copy_state, leaves
from ..policies import Policy, configured_for
from ..policies import resolve as resolve_policy
from ..ranker import Ranker
from ..worlds import World, stochastic
from ..worlds import resolve as resolve_world
from ..worlds.base import first_difference

__all__ = ["CheckFailed", "check_policy", "check_world", "policy_checks"]

SHAPES = ((5, 3), (3, 3), (6, 1), (2, 1))
ATTRACTION = np.array([0.9, 0.7, 0.4, 0.2, 0.1])
EXAMINATION = np.array([0.9, 0.6, 0.3])
ROUNDS = 400
SIGMAS = 5.0


class CheckFailed(AssertionError):
    """A policy or a world does not do what every one of its kind must do."""


def check_policy(policy: str | Policy, *, strict: bool = False) -> None:
    """Run every check on a policy; raise CheckFailed, with a sentence, at the first that fails.

    The checks are statistical where the policy is random, at five standard errors and with fixed seeds: a policy
    passes or fails the same way every time. ``strict`` also asks that it refuse impossible shapes and feedback, as
    every policy of this package does.

    >>> check_policy("uniform")
    """
    resolved = resolve_policy(policy)
    for check in policy_checks(strict=strict):
        check(resolved)


def policy_checks(*, strict: bool = False) -> list[Callable[[Policy], None]]:
    """The checks that ``check_policy`` runs, in order."""
    on_input = [check_impossible_shapes_are_refused, check_bad_feedback_is_refused_and_changes_nothing]
    return [
        check_rankings_are_valid,
        # These two first, since the others would put the blame elsewhere: on a trace, on feedback or on propensities.
        check_a_seed_fixes_everything,
        check_deciding_leaves_no_trace,
        *(on_input if strict else []),
        check_propensities_equal_frequencies,
        check_late_and_shuffled_feedback_is_accepted,
        check_memory_is_bounded,
        check_saving_and_loading_keeps_the_future,
        check_labels_do_not_matter,
        check_it_beats_uniform_in_an_easy_world,
    ]


def _require(condition: bool, policy: Any, sentence: str) -> None:
    if not condition:
        raise _failure(policy, sentence)


def _failure(policy: Any, sentence: str) -> CheckFailed:
    return CheckFailed(f"{getattr(policy, 'name', '') or repr(policy)}: {sentence}")


def _attempt(policy: Any, verb: str, *arguments: Any) -> Any:
    """Call a method of a policy; an exception is a failed check."""
    try:
        return getattr(policy, verb)(*arguments)
    except Exception as error:
        raise _failure(policy, f"{verb} must not raise; {type(error).__name__}: {error}") from error


def _world() -> World:
    return stochastic(ATTRACTION, EXAMINATION)


def _told(check: Callable[[Policy], None]) -> Callable[[Policy], None]:
    """Tell the policy what it needs to know before it is checked."""

    @functools.wraps(check)
    def informed(policy: Policy) -> None:
        check(configured_for(policy, ROUNDS, _world()))

    return informed


def _user(rng: np.random.Generator, decision: Decision, world: World) -> NDArray[np.float64]:
    p = world.click_probabilities(0)[decision.ranking, np.arange(world.n_positions)]
    return (rng.random(p.size) < p).astype(np.float64)


def _trained(policy: Policy, rounds: int = 60, seed: int = 1) -> tuple[Any, World]:
    """A state that has learned a little in a world of its own."""
    world = _world()
    state, rng = policy.init(world.n_items, world.n_positions), np.random.default_rng(seed)
    for _ in range(rounds):
        decision = policy.decide(state, rng)
        policy.learn(state, decision, _user(rng, decision, world))
    return state, world


def _future(policy: Policy, state: Any, world: World, rounds: int = 30) -> list[tuple[list[int], list[float]]]:
    """What the policy does next, for fixed users and fixed randomness."""
    rng, users = np.random.default_rng(2), np.random.default_rng(3)
    seen = []
    for _ in range(rounds):
        decision = policy.decide(state, rng)
        seen.append((decision.ranking.tolist(), np.nan_to_num(decision.propensity, nan=-1.0).tolist()))
        policy.learn(state, decision, _user(users, decision, world))
    return seen


def check_rankings_are_valid(policy: Policy) -> None:
    """Different items at all positions, with propensities that are probabilities or NaN, whatever users do."""
    for n, m in SHAPES:
        informed = configured_for(policy, ROUNDS, stochastic(np.linspace(0.9, 0.1, n), np.linspace(0.9, 0.3, m)))
        if (n, m) != SHAPES[0] and _refuses(informed.init, n, m):
            continue  # its settings are for one shape
        state, rng = informed.init(n, m), np.random.default_rng(0)
        for t in range(100):
            decision = _attempt(informed, "decide", state, rng)
            ranking, propensity = _arrays_of(decision, policy)
            whole = ranking.shape == (m,) and ranking.dtype.kind in "iu"
            _require(whole, policy, f"ranking must be {m} item indices, got {ranking!r}")
            distinct = bool(len(set(ranking.tolist())) == m and ranking.min() >= 0 and ranking.max() < n)
            _require(distinct, policy, f"ranking must be different items below {n}, got {ranking.tolist()}")
            stated = propensity[~np.isnan(propensity)] if propensity.shape == (m,) else np.array([-1.0])
            sound = bool(((stated > 0.0) & (stated <= 1.0 + 1e-9)).all())
            _require(sound, policy, f"propensity must be {m} probabilities or NaN, got {propensity!r}")
            clicks = np.full(m, float(t % 3 == 0)) if t % 2 else (rng.random(m) < 0.5).astype(np.float64)
            _attempt(informed, "learn", state, decision, clicks)


def _arrays_of(decision: Any, policy: Policy) -> tuple[NDArray[Any], NDArray[Any]]:
    """The ranking and the propensity of what ``decide`` returned."""
    ranking, propensity = getattr(decision, "ranking", None), getattr(decision, "propensity", None)
    if not (isinstance(ranking, np.ndarray) and isinstance(propensity, np.ndarray)):
        raise _failure(policy, f"decide must return a Decision of two arrays, ranking and propensity; got {decision!r}")
    return ranking, propensity


@_told
def check_impossible_shapes_are_refused(policy: Policy) -> None:
    """More positions than items, no position, or a single item: ValueError."""
    for n, m in ((3, 5), (4, 0), (1, 1), (0, 0), (5, -1)):
        _require(_refuses(policy.init, n, m), policy, f"init({n}, {m}) must raise ValueError")


@_told
def check_bad_feedback_is_refused_and_changes_nothing(policy: Policy) -> None:
    """Clicks that are not one 0 or 1 for every position, or a decision nobody made: ValueError, state unchanged."""
    state, world = _trained(policy)
    decision = policy.decide(state, np.random.default_rng(0))
    twin = copy_state(state)
    repeated = Decision(np.zeros_like(decision.ranking), decision.propensity)
    beyond = Decision(decision.ranking + world.n_items, decision.propensity)
    good = np.zeros(world.n_positions)
    for given, clicks in (
        (decision, np.zeros(world.n_positions + 1)),
        (decision, np.full(world.n_positions, 0.5)),
        (decision, np.full(world.n_positions, np.nan)),
        (decision, np.array([2.0, 0.0, 0.0])),
        (decision, np.array([-1.0, 0.0, 0.0])),
        (repeated, good),
        (beyond, good),
    ):
        refused = _refuses(policy.learn, state, given, clicks)
        _require(refused, policy, f"learn must raise ValueError for ranking {given.ranking}, clicks {clicks}")
    same = _future(policy, state, world) == _future(policy, twin, world)
    _require(same, policy, "feedback that is refused must leave the state as it was")


def _refuses(call: Callable[..., object], *arguments: Any) -> bool:
    try:
        call(*arguments)
    except ValueError:
        return True
    return False


@_told
def check_propensities_equal_frequencies(policy: Policy) -> None:
    """Propensities that are stated are what is observed when deciding again and again from one state."""
    for rounds in (0, 60):
        state, world = _trained(policy, rounds)
        n, m = world.n_items, world.n_positions
        rng, draws, positions = np.random.default_rng(4), 8000, np.arange(m)
        counts, stated = np.zeros((n, m)), np.full((n, m), np.nan)
        for _ in range(draws):
            decision = policy.decide(state, rng)
            before = stated[decision.ranking, positions]
            steady = np.isnan(before) | (before == decision.propensity)
            _require(bool(steady.all()), policy, "the propensity of an item at a position must not vary with the draw")
            stated[decision.ranking, positions] = decision.propensity
            counts[decision.ranking, positions] += 1
        known = ~np.isnan(stated)
        expected = stated[known]
        error = np.sqrt(expected * np.maximum(1.0 - expected, 0.0) / draws) + 1.0 / draws
        off = np.abs(counts[known] / draws - expected) / error
        if off.size:
            sentence = f"stated propensities must equal observed frequencies; off by {off.max():.1f} standard errors"
            _require(bool(off.max() <= SIGMAS), policy, sentence)
        for j in range(m):
            if known[:, j].any() and counts[~known[:, j], j].sum() == 0:
                total = float(np.nansum(stated[:, j]))
                sentence = f"propensities at position {j} must sum to 1 over items; they sum to {total:.4f}"
                _require(abs(total - 1.0) < 0.02, policy, sentence)


@_told
def check_deciding_leaves_no_trace(policy: Policy) -> None:
    """A ranker that was asked a thousand times and told nothing behaves like one that was asked once."""
    state, world = _trained(policy)
    twin, rng = copy_state(state), np.random.default_rng(5)
    for _ in range(50):
        policy.decide(state, rng)
    same = _future(policy, state, world) == _future(policy, twin, world)
    _require(same, policy, "deciding must leave no trace in the state")


@_told
def check_a_seed_fixes_everything(policy: Policy) -> None:
    """Same seed, same users: the same decisions and the same result."""
    state, _ = _trained(policy)
    rngs = [np.random.default_rng(8) for _ in range(2)]
    for _ in range(50):
        one, other = (policy.decide(copy_state(state), rng) for rng in rngs)
        same = np.array_equal(one.ranking, other.ranking)
        _require(same, policy, "it draws randomness of its own instead of from the rng it is given")
    first, second = (_future(policy, *_trained(policy)) for _ in range(2))
    cause = "learn draws randomness of its own, or something is kept outside the state"
    _require(first == second, policy, f"the same seeds must give the same decisions; {cause}")
    world = _world()
    a, b = (play(policy, world, 50, seeds=2, checkpoints=5, jobs=jobs) for jobs in (1, 2))
    same = bool((a.reward == b.reward).all() and (a.clicks == b.clicks).all())
    _require(same, policy, f"the result of play must depend on the seed alone; {cause}")


@_told
def check_late_and_shuffled_feedback_is_accepted(policy: Policy) -> None:
    """Clicks may come after other decisions, in any order."""
    state, world = _trained(policy)
    rng = np.random.default_rng(6)
    for _ in range(5):
        waiting = [policy.decide(state, rng) for _ in range(20)]
        for k in rng.permutation(len(waiting)):
            try:
                policy.learn(state, waiting[k], _user(rng, waiting[k], world))
            except Exception as error:
                raise _failure(policy, f"late feedback must be accepted; {error!r}") from error
    _future(policy, state, world)


@_told
def check_memory_is_bounded(policy: Policy) -> None:
    """The state does not grow with the number of rounds."""
    state, _ = _trained(policy, rounds=100)
    later, _ = _trained(policy, rounds=ROUNDS)
    few, many = _size(state), _size(later)
    _require(many <= 1.2 * few + 256, policy, f"memory must be bounded; {few} bytes became {many}")


def _size(state: Any) -> int:
    """Bytes in a state: of its arrays, or of what any other part would be pickled to."""
    parts = [value for _, value in leaves(state)]
    return sum(part.nbytes if isinstance(part, np.ndarray) else len(pickle.dumps(part)) for part in parts)


@_told
def check_saving_and_loading_keeps_the_future(policy: Policy) -> None:
    """A ranker that is saved and loaded goes on as if nothing had happened, pending feedback included."""
    ranker = Ranker(["a", "b", "c", "d", "e"], 3, policy=policy, seed=7)
    waiting = [ranker.rank() for _ in range(40)]
    for shown in waiting[::2]:
        ranker.feedback(shown.id, shown.items[:1])
    with tempfile.TemporaryDirectory() as folder:
        try:
            ranker.save(Path(folder) / "ranker")
        except ValueError as error:
            raise _failure(policy, f"it must be possible to save; {error}") from error
        twin = Ranker.load(Path(folder) / "ranker", policy=policy)
    for shown in waiting[1::2]:
        for one in (ranker, twin):
            one.feedback(shown.id, shown.items[1:2])
        ours, theirs = ranker.rank(), twin.rank()
        same = ours.items == theirs.items and np.array_equal(ours.propensities, theirs.propensities, equal_nan=True)
        _require(same, policy, "a ranker that was saved and loaded must have the same future")


@_told
def check_labels_do_not_matter(policy: Policy) -> None:
    """Listing the items in the opposite order changes nothing but their names: the law of the reward is the same."""
    reversed_labels = np.arange(ATTRACTION.size)[::-1]
    relabelled = policy.relabelled(reversed_labels) if isinstance(policy, Policy) else policy
    turned = stochastic(ATTRACTION[::-1], EXAMINATION)
    # Ties broken by label show at once, and a memory of labels later on.
    rewards = [
        play(one, world, 60, seeds=150, seed=seed, checkpoints=(1, 10, 60), shuffle=False, progress=False).reward
        for seed, one, world in ((10, policy, _world()), (11, relabelled, turned))
    ]
    difference = np.abs(rewards[0].mean(axis=0) - rewards[1].mean(axis=0))
    error = np.sqrt(sum(r.var(axis=0, ddof=1) / len(r) for r in rewards)) + 1e-9
    apart = float((difference / error).max())
    sentence = f"relabelling items must not change what is earned; {apart:.1f} standard errors apart"
    _require(apart <= SIGMAS, policy, sentence)


def check_it_beats_uniform_in_an_easy_world(policy: Policy) -> None:
    """Where items differ plainly, learning pays, in as many rounds as the policy asks patience for.

    Not asked of policies that declare they do not learn.
    """
    if not getattr(policy, "adaptive", True):
        return
    world, rounds = _world(), getattr(policy, "patience", ROUNDS)
    ours, uniform = (
        play(p, world, rounds, seeds=12, seed=12, checkpoints=1, progress=False)
        for p in (configured_for(policy, rounds, world), "uniform")
    )
    gain = ours.reward[:, -1] - uniform.reward[:, -1]
    error = gain.std(ddof=1) / np.sqrt(gain.size)
    sentence = f"it must beat uniform in an easy world; it earned {gain.mean() / rounds:+.3f} a round"
    _require(bool(gain.mean() > SIGMAS * error), policy, sentence)


def check_world(world: str | World, rounds: int = 1000) -> None:
    """Probabilities of the right shape, the same when asked again, and pieces that agree with them.

    >>> check_world("paper/periodic-both")
    """
    resolved = resolve_world(world)
    n, m = resolved.n_items, resolved.n_positions
    _check_first_change(world, resolved, rounds)
    for t in (0, 1, rounds // 2, rounds):
        try:
            p = np.asarray(resolved.click_probabilities(t))
        except ValueError as error:
            raise CheckFailed(f"{world}: {error}") from error
        _require(p.shape == (n, m), world, f"click_probabilities({t}) must have shape {(n, m)}, got {p.shape}")
        _require(bool(((p >= 0.0) & (p <= 1.0)).all()), world, f"click_probabilities({t}) must be from 0 to 1")
        again = np.array_equal(p, resolved.click_probabilities(t))
        _require(again, world, f"click_probabilities({t}) must be the same when asked again")
    done = 3
    for end, p in resolved.pieces(3, rounds):
        _require(done < end <= rounds, world, f"pieces must go forward from 3 to {rounds}; got {end} after {done}")
        for t in (done, end - 1):
            same = np.array_equal(p, resolved.click_probabilities(t))
            _require(same, world, f"pieces must agree with click_probabilities at round {t}")
        done = end
    _require(done == rounds, world, f"pieces must cover the rounds up to {rounds}; they end at {done}")


def _check_first_change(world: str | World, resolved: World, rounds: int) -> None:
    """A first change that is stated is a round, and probabilities are the same up to it and different in it."""
    change = resolved.first_change()
    if change is None:
        return
    _require(change >= 1, world, f"first_change must be a round after the first or None; got {change}")
    found = first_difference(resolved, min(change + 1, rounds))
    stated = change if change < rounds else None
    sentence = f"first_change must be the first round with other probabilities; it is {change}, and that is {found}"
    _require(found == stated, world, sentence)
