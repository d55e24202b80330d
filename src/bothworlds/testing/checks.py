"""Checks that every policy must pass; the name of each check is the sentence it verifies."""

from __future__ import annotations

import functools
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arena import play
from ..core import Decision, copy_state, is_work, leaves
from ..policies import Policy, configured_for
from ..policies import resolve as resolve_policy
from ..ranker import Ranker
from ..worlds import World, stochastic
from .context_checks import CONTEXT_CHECKS
from .failure import failure, require, standard_errors
from .page_checks import check_a_part_is_a_smaller_problem, check_an_absent_item_does_not_gain

SHAPES = ((5, 3), (3, 3), (6, 1), (2, 1), (2, 2), (30, 12))
ATTRACTION = np.array([0.9, 0.7, 0.4, 0.2, 0.1])
EXAMINATION = np.array([0.9, 0.6, 0.3])
ROUNDS = 400
SIGMAS = 5.0
REWARD = 0.4  # of a click, in the check of rewards


def check_policy(policy: str | Policy, *, strict: bool = False) -> None:
    """Run every check on a policy; raises CheckFailed at the first that fails.

    The checks of random policies are statistical, at five standard errors. Seeds are fixed, so that a policy passes or
    fails the same way every time. ``strict`` also requires that impossible shapes and invalid feedback raise
    ValueError, as in every policy of this package.

    >>> check_policy("uniform")
    """
    resolved = resolve_policy(policy)
    for check in policy_checks(strict=strict):
        check(resolved)


def policy_checks(*, strict: bool = False) -> list[Callable[[Policy], None]]:
    """Return the checks that ``check_policy`` runs, in order."""
    input_checks = [check_impossible_shapes_are_refused, check_bad_feedback_is_refused_and_changes_nothing]
    return [
        check_rankings_are_valid,
        # These two come first: their faults would make later checks fail with a misleading message.
        check_a_seed_fixes_everything,
        check_deciding_leaves_no_trace,
        *(input_checks if strict else []),
        check_propensities_equal_frequencies,
        check_late_and_shuffled_feedback_is_accepted,
        check_propensities_change_nothing_unless_they_are_needed,
        check_a_part_is_a_smaller_problem,
        check_an_absent_item_does_not_gain,
        check_memory_is_bounded,
        check_saving_and_loading_keeps_the_future,
        check_a_restart_forgets_everything,
        check_labels_do_not_matter,
        check_it_beats_uniform_in_an_easy_world,
        check_rewards_between_0_and_1_are_learned_from,
        *CONTEXT_CHECKS,
    ]


def _attempt(policy: Any, verb: str, *arguments: Any) -> Any:
    """Call a method of a policy; raises CheckFailed if it raises."""
    try:
        return getattr(policy, verb)(*arguments)
    except Exception as error:
        raise failure(policy, f"{verb} must not raise; {type(error).__name__}: {error}") from error


def _world() -> World:
    return stochastic(ATTRACTION, EXAMINATION)


def _informed(check: Callable[[Policy], None]) -> Callable[[Policy], None]:
    """Decorate a check: the policy is first given the facts it needs, such as the horizon."""

    @functools.wraps(check)
    def check_informed(policy: Policy) -> None:
        check(configured_for(policy, ROUNDS, _world()))

    return check_informed


def _clicks(rng: np.random.Generator, decision: Decision, world: World) -> NDArray[np.float64]:
    p = world.click_probabilities(0)[decision.ranking, np.arange(world.n_positions)]
    return (rng.random(p.size) < p).astype(np.float64)


def _trained(policy: Policy, rounds: int = 60, seed: int = 1) -> tuple[Any, World]:
    """Return a state after some rounds of learning, and the world it was trained in."""
    world = _world()
    state, rng = policy.init(world.n_items, world.n_positions), np.random.default_rng(seed)
    for _ in range(rounds):
        decision = policy.decide(state, rng)
        policy.learn(state, decision, _clicks(rng, decision, world))
    return state, world


def _future(policy: Policy, state: Any, world: World, rounds: int = 30) -> list[tuple[list[int], list[float]]]:
    """Return the next decisions of a policy, with fixed users and a fixed seed."""
    rng, users = np.random.default_rng(2), np.random.default_rng(3)
    decisions = []
    for _ in range(rounds):
        decision = policy.decide(state, rng)
        decisions.append((decision.ranking.tolist(), np.nan_to_num(decision.propensity, nan=-1.0).tolist()))
        policy.learn(state, decision, _clicks(users, decision, world))
    return decisions


def check_rankings_are_valid(policy: Policy) -> None:
    """Rankings have different items at all positions; propensities are probabilities or NaN, whatever users click."""
    for n, m in SHAPES:
        informed = configured_for(policy, ROUNDS, stochastic(np.linspace(0.9, 0.1, n), np.linspace(0.9, 0.3, m)))
        if (n, m) != SHAPES[0] and _refuses(informed.init, n, m):
            continue  # its settings fix the shape
        state, rng = informed.init(n, m), np.random.default_rng(0)
        for t in range(100):
            decision = _attempt(informed, "decide", state, rng)
            ranking, propensity = _arrays_of(decision, policy)
            whole = ranking.shape == (m,) and ranking.dtype.kind in "iu"
            require(whole, policy, f"ranking must be {m} item indices, got {ranking!r}")
            distinct = bool(len(set(ranking.tolist())) == m and ranking.min() >= 0 and ranking.max() < n)
            require(distinct, policy, f"ranking must be different items below {n}, got {ranking.tolist()}")
            stated = propensity[~np.isnan(propensity)] if propensity.shape == (m,) else np.array([-1.0])
            sound = bool(((stated > 0.0) & (stated <= 1.0 + 1e-9)).all())
            require(sound, policy, f"propensity must be {m} probabilities or NaN, got {propensity!r}")
            clicks = np.full(m, float(t % 3 == 0)) if t % 2 else (rng.random(m) < 0.5).astype(np.float64)
            _attempt(informed, "learn", state, decision, clicks)


def _arrays_of(decision: Any, policy: Policy) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the ranking and the propensity of a decision; raises CheckFailed if they are not arrays."""
    ranking, propensity = getattr(decision, "ranking", None), getattr(decision, "propensity", None)
    if not (isinstance(ranking, np.ndarray) and isinstance(propensity, np.ndarray)):
        raise failure(policy, f"decide must return a Decision of two arrays, ranking and propensity; got {decision!r}")
    return ranking, propensity


@_informed
def check_impossible_shapes_are_refused(policy: Policy) -> None:
    """More positions than items, no position, or a single item raise ValueError."""
    for n, m in ((3, 5), (4, 0), (1, 1), (0, 0), (5, -1)):
        require(_refuses(policy.init, n, m), policy, f"init({n}, {m}) must raise ValueError")


@_informed
def check_bad_feedback_is_refused_and_changes_nothing(policy: Policy) -> None:
    """Clicks that are not from 0 to 1 at every position, or an invalid decision, raise ValueError, change nothing."""
    state, world = _trained(policy)
    decision = policy.decide(state, np.random.default_rng(0))
    twin = copy_state(state)
    repeated = Decision(np.zeros_like(decision.ranking), decision.propensity)
    beyond = Decision(decision.ranking + world.n_items, decision.propensity)
    good = np.zeros(world.n_positions)
    for invalid, clicks in (
        (decision, np.zeros(world.n_positions + 1)),
        (decision, np.full(world.n_positions, np.nan)),
        (decision, np.array([2.0, 0.0, 0.0])),
        (decision, np.array([-1.0, 0.0, 0.0])),
        (repeated, good),
        (beyond, good),
    ):
        refused = _refuses(policy.learn, state, invalid, clicks)
        require(refused, policy, f"learn must raise ValueError for ranking {invalid.ranking}, clicks {clicks}")
    same = _future(policy, state, world) == _future(policy, twin, world)
    require(same, policy, "feedback that raises ValueError must not change the state")


def _refuses(call: Callable[..., object], *arguments: Any) -> bool:
    try:
        call(*arguments)
    except ValueError:
        return True
    return False


@_informed
def check_propensities_equal_frequencies(policy: Policy) -> None:
    """Propensities equal the frequencies of many decisions from the same state."""
    for rounds in (0, 60):
        state, world = _trained(policy, rounds)
        n, m = world.n_items, world.n_positions
        rng, draws, positions = np.random.default_rng(4), 8000, np.arange(m)
        counts, stated = np.zeros((n, m)), np.full((n, m), np.nan)
        for _ in range(draws):
            decision = policy.decide(state, rng)
            before = stated[decision.ranking, positions]
            steady = np.isnan(before) | (before == decision.propensity)
            require(
                bool(steady.all()), policy, "the propensity of an item at a position must be the same in every draw"
            )
            stated[decision.ranking, positions] = decision.propensity
            counts[decision.ranking, positions] += 1
        known = ~np.isnan(stated)
        expected = stated[known]
        error = np.sqrt(expected * np.maximum(1.0 - expected, 0.0) / draws) + 1.0 / draws
        off = np.abs(counts[known] / draws - expected) / error
        if off.size:
            sentence = f"propensities must equal observed frequencies; they differ by {standard_errors(off.max())}"
            require(bool(off.max() <= SIGMAS), policy, sentence)
        for j in range(m):
            if known[:, j].any() and counts[~known[:, j], j].sum() == 0:
                total = float(np.nansum(stated[:, j]))
                sentence = f"propensities at position {j} must sum to 1 over items; they sum to {total:.4f}"
                require(abs(total - 1.0) < 0.02, policy, sentence)


@_informed
def check_deciding_leaves_no_trace(policy: Policy) -> None:
    """Decisions without feedback change neither later decisions nor the state, except for its work arrays."""
    state, world = _trained(policy)
    twin, rng = copy_state(state), np.random.default_rng(5)
    for _ in range(50):
        policy.decide(state, rng)
    before, after = dict(leaves(twin)), dict(leaves(state))
    for path in before | after:
        same = is_work(path) or _equal(before.get(path), after.get(path))
        require(same, policy, f"decide must not change the state; it changed {path}, which is not in a field work")
    same = _future(policy, state, world) == _future(policy, twin, world)
    require(same, policy, "decide must not change the state")


@_informed
def check_a_seed_fixes_everything(policy: Policy) -> None:
    """The same seed and the same users give the same decisions and the same result."""
    state, _ = _trained(policy)
    rngs = [np.random.default_rng(8) for _ in range(2)]
    for _ in range(50):
        one, other = (policy.decide(copy_state(state), rng) for rng in rngs)
        same = np.array_equal(one.ranking, other.ranking)
        require(same, policy, "decide must draw from the rng that is passed, not from its own")
    first, second = (_future(policy, *_trained(policy)) for _ in range(2))
    cause = "learn draws random numbers, or something is stored outside the state"
    require(first == second, policy, f"the same seeds must give the same decisions; {cause}")
    world = _world()
    a, b = (play(policy, world, 50, replications=2, checkpoints=5, jobs=jobs) for jobs in (1, 2))
    same = bool((a.reward == b.reward).all() and (a.clicks == b.clicks).all())
    require(same, policy, f"the result of play must depend on the seed alone; {cause}")


@_informed
def check_late_and_shuffled_feedback_is_accepted(policy: Policy) -> None:
    """Feedback may come after other decisions and in any order."""
    state, world = _trained(policy)
    rng = np.random.default_rng(6)
    for _ in range(5):
        waiting = [policy.decide(state, rng) for _ in range(20)]
        for k in rng.permutation(len(waiting)):
            try:
                policy.learn(state, waiting[k], _clicks(rng, waiting[k], world))
            except Exception as error:
                raise failure(policy, f"late feedback must be accepted; {error!r}") from error
    _future(policy, state, world)


@_informed
def check_propensities_change_nothing_unless_they_are_needed(policy: Policy) -> None:
    """Without ``needs_propensity``, the propensities of a mixture with random lists teach the same.

    A service that mixes random lists in records the propensities of the mixture. A policy that reads something else
    out of its own propensities, such as the size of a group, would be misled without notice; it must note that.
    """
    if getattr(policy, "needs_propensity", True):
        return
    states = []
    for share in (0.0, 0.5):
        state, world = _trained(policy, 0)
        rng, users = np.random.default_rng(13), np.random.default_rng(14)
        for _ in range(30):
            for decision in [policy.decide(state, rng) for _ in range(5)]:
                mixed = (1.0 - share) * decision.propensity + share / world.n_items
                policy.learn(state, decision._replace(propensity=mixed), _clicks(users, decision, world))
        states.append(state)
    same = all(_equal(one, other) for (_, one), (_, other) in zip(*map(leaves, states)))
    require(same, policy, "learning must not depend on propensities; note what it needs, or declare needs_propensity")


def _equal(one: Any, other: Any) -> bool:
    a, b = np.asarray(one), np.asarray(other)
    return np.array_equal(a, b, equal_nan=a.dtype.kind == b.dtype.kind == "f")


@_informed
def check_memory_is_bounded(policy: Policy) -> None:
    """The size of the state does not grow with the number of rounds."""
    state, _ = _trained(policy, rounds=100)
    later, _ = _trained(policy, rounds=ROUNDS)
    few, many = _size(state), _size(later)
    require(many <= 1.2 * few + 256, policy, f"memory must be bounded; it grew from {few} to {many} bytes")


def _size(state: Any) -> int:
    """Return the bytes of a state: of its arrays, and of other parts when pickled."""
    parts = [value for _, value in leaves(state)]
    return sum(part.nbytes if isinstance(part, np.ndarray) else len(pickle.dumps(part)) for part in parts)


@_informed
def check_saving_and_loading_keeps_the_future(policy: Policy) -> None:
    """A ranker that is saved and loaded makes the same decisions, pending feedback included."""
    ranker = Ranker(["a", "b", "c", "d", "e"], 3, policy=policy, seed=7)
    waiting = [ranker.rank() for _ in range(40)]
    for shown in waiting[::2]:
        ranker.feedback(shown.id, shown.items[:1])
    with tempfile.TemporaryDirectory() as folder:
        try:
            ranker.save(Path(folder) / "ranker")
        except ValueError as error:
            raise failure(policy, f"save must not fail; {error}") from error
        twin = Ranker.load(Path(folder) / "ranker", policy=policy)
    for shown in waiting[1::2]:
        for either in (ranker, twin):
            either.feedback(shown.id, shown.items[1:2])
        ours, theirs = ranker.rank(), twin.rank()
        same = ours.items == theirs.items and np.array_equal(ours.propensities, theirs.propensities, equal_nan=True)
        require(same, policy, "a ranker must make the same decisions after it was saved and loaded")


def check_a_restart_forgets_everything(policy: Policy) -> None:
    """A policy with a setting ``restart`` decides after so many rounds like one that has learned nothing.

    Other policies are not checked.
    """
    given: Any = policy
    if "restart" not in getattr(given, "__dataclass_fields__", {}):
        return
    restarting: Policy = configured_for(replace(given, restart=ROUNDS), ROUNDS, _world())
    fresh, restarted = (restarting.init(ATTRACTION.size, EXAMINATION.size) for _ in range(2))
    _convince(restarting, restarted, 1, ROUNDS, seed=9)
    rngs = [np.random.default_rng(8) for _ in range(2)]
    for _ in range(50):
        one, other = (restarting.decide(state, rng) for state, rng in zip((restarted, fresh), rngs))
        same = np.array_equal(one.ranking, other.ranking)
        require(same, policy, f"after {ROUNDS} rounds, restart={ROUNDS} must leave nothing that was learned")
    # Equal states have equal futures. Where the state has randomness of its own, the futures have equal means.
    if _future(restarting, copy_state(restarted), _world()) == _future(restarting, copy_state(fresh), _world()):
        return
    futures = np.array(
        [[_convince(restarting, copy_state(start), 3, 30, seed) for seed in range(40)] for start in (restarted, fresh)]
    )
    error = np.sqrt((futures.var(axis=1, ddof=1) / futures.shape[1]).sum()) + 1e-9
    apart = float(abs(np.subtract(*futures.mean(axis=1))) / error)
    sentence = f"a policy must learn after a restart as at first; its lists differ by {standard_errors(apart)}"
    require(apart <= SIGMAS, policy, sentence)


def _convince(policy: Policy, state: Any, item: int, rounds: int, seed: int) -> int:
    """Let users who click on this item alone teach a state; return how often the item came first."""
    rng, first = np.random.default_rng(seed), 0
    for _ in range(rounds):
        decision = policy.decide(state, rng)
        policy.learn(state, decision, (decision.ranking == item).astype(np.float64))
        first += int(decision.ranking[0] == item)
    return first


@_informed
def check_labels_do_not_matter(policy: Policy) -> None:
    """Listing the items in the opposite order does not change the distribution of the reward."""
    reversed_labels = np.arange(ATTRACTION.size)[::-1]
    relabelled = policy.relabelled(reversed_labels) if isinstance(policy, Policy) else policy
    reversed_world = stochastic(ATTRACTION[::-1], EXAMINATION)
    # Ties broken by label show in early rounds, learned preferences for labels in later ones. Games as short as these
    # take less time than starting processes for a policy in plain Python.
    marks = (1, 10, 60)
    rewards = [
        play(
            one, world, 60, replications=150, seed=seed, checkpoints=marks, jobs=1, shuffle=False, progress=False
        ).reward
        for seed, one, world in ((10, policy, _world()), (11, relabelled, reversed_world))
    ]
    difference = np.abs(rewards[0].mean(axis=0) - rewards[1].mean(axis=0))
    error = np.sqrt(sum(r.var(axis=0, ddof=1) / len(r) for r in rewards)) + 1e-9
    apart = float((difference / error).max())
    sentence = f"relabelling items must not change the reward; it differs by {standard_errors(apart)}"
    require(apart <= SIGMAS, policy, sentence)


def check_it_beats_uniform_in_an_easy_world(policy: Policy) -> None:
    """A learning policy beats uniform where items differ clearly, in ``policy.patience`` rounds (default 400).

    Policies with ``adaptive = False`` are not checked.
    """
    if not getattr(policy, "adaptive", True):
        return
    world, rounds = _world(), getattr(policy, "patience", ROUNDS)
    ours, uniform = (
        play(p, world, rounds, replications=12, seed=12, checkpoints=1, jobs=1, progress=False)
        for p in (configured_for(policy, rounds, world), "uniform")
    )
    gain = ours.reward[:, -1] - uniform.reward[:, -1]
    error = gain.std(ddof=1) / np.sqrt(gain.size)
    sentence = f"it must beat uniform in an easy world; its reward per round differs by {gain.mean() / rounds:+.3f}"
    require(bool(gain.mean() > SIGMAS * error), policy, sentence)


def check_rewards_between_0_and_1_are_learned_from(policy: Policy) -> None:
    """A learning policy beats uniform where items differ clearly and a click is a reward of 0.4, in three runs."""
    if not getattr(policy, "adaptive", True):
        return
    world, rounds, gains = _world(), 2 * getattr(policy, "patience", ROUNDS), []
    informed, by_chance = configured_for(policy, rounds, world), ATTRACTION.mean() * EXAMINATION.sum()
    expected = world.click_probabilities(0)
    for seed in range(3):
        state, rng = informed.init(world.n_items, world.n_positions), np.random.default_rng(15 + seed)
        earned = 0.0
        for _ in range(rounds):
            decision = informed.decide(state, rng)
            earned += expected[decision.ranking, np.arange(world.n_positions)].sum()
            _attempt(informed, "learn", state, decision, REWARD * _clicks(rng, decision, world))
        gains.append(earned / rounds - by_chance)
    gain, error = float(np.mean(gains)), np.sqrt(world.n_positions / rounds / len(gains))
    sentence = f"it must learn from rewards of {REWARD}; its reward per round differs from uniform by {gain:+.3f}"
    require(gain > error, policy, sentence)
