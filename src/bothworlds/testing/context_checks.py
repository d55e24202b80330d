"""The checks of policies that learn labels: those whose ``init`` takes them and whose ``decide`` takes a context."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arena import play
from ..core import copy_state, is_work, leaves
from ..policies import Policy
from ..worlds import ContextualWorld
from .failure import require, standard_errors

CONTEXTS = np.array(list(np.ndindex(2, 3)))  # the second label says what visitors like, the first one nothing
CATEGORIES = np.array([[0, 1], [1, 0], [2, 1], [0, 0], [1, 1], [2, 0]])  # and the first label of items what they are
SHARE = np.array([0.2, 0.1, 0.2, 0.1, 0.3, 0.1])
LIKED = np.where(CONTEXTS[:, 1:] == CATEGORIES[:, 0], 0.9, 0.1)
EXAMINATION = np.array([0.9, 0.5])
TRAINED, DRAWS, SIGMAS = 60, 4000, 5.0
ROUNDS, REPLICATIONS = 400, 30


def learns_labels(policy: Any) -> bool:
    """Return whether a policy takes declared labels; the checks of this module require nothing of others."""
    return bool(getattr(policy, "learns_labels", False))


def check_propensities_equal_frequencies_in_every_context(policy: Policy) -> None:
    """The propensities of a context equal the frequencies of many decisions for this context from the same state."""
    if not learns_labels(policy):
        return
    state = _trained(policy)
    given: Any = policy
    for context in CONTEXTS[[0, 2, 4]]:
        rng, positions = np.random.default_rng(4), np.arange(EXAMINATION.size)
        counts, stated = np.zeros(LIKED.shape[1:] + EXAMINATION.shape), np.zeros(LIKED.shape[1:] + EXAMINATION.shape)
        for _ in range(DRAWS):
            decision = given.decide(state, rng, context)
            same = np.array_equal(decision.context, context)
            require(same, policy, f"a decision must have the context it was made for; got {decision.context!r}")
            counts[decision.ranking, positions] += 1.0
            stated[decision.ranking, positions] = decision.propensity
        if np.isnan(stated).any():
            return
        error = np.sqrt(stated * np.maximum(1.0 - stated, 0.0) / DRAWS) + 1.0 / DRAWS
        apart = float((np.abs(counts / DRAWS - stated) / error).max())
        sentence = f"propensities of the context {context.tolist()} must equal observed frequencies"
        require(apart <= SIGMAS, policy, f"{sentence}; they differ by {standard_errors(apart)}")


def check_deciding_for_contexts_leaves_no_trace(policy: Policy) -> None:
    """Decisions for contexts, known or new, change neither later decisions nor the state, but for its work arrays."""
    if not learns_labels(policy):
        return
    given: Any = policy
    state = _trained(policy)
    twin, rng = copy_state(state), np.random.default_rng(5)
    for k in range(60):
        given.decide(state, rng, CONTEXTS[k % len(CONTEXTS)])
    before: dict[str, Any] = dict(leaves(twin))
    after: dict[str, Any] = dict(leaves(state))
    for path in before | after:
        same = is_work(path) or np.array_equal(before.get(path, 0.0), after.get(path, 0.0))
        require(same, policy, f"deciding for a context must not change the state; it changed {path}")
    for context in CONTEXTS:
        one, other = (given.decide(now, np.random.default_rng(6), context) for now in (state, twin))
        same = np.array_equal(one.ranking, other.ranking) and np.array_equal(one.propensity, other.propensity)
        require(same, policy, "deciding for a context must not change later decisions")


def check_labels_of_contexts_and_items_may_be_numbered_in_any_order(policy: Policy) -> None:
    """Other numbers of values, another order of labels and of items do not change the distribution of the reward."""
    if not learns_labels(policy):
        return
    contexts, categories = 1 - CONTEXTS[:, :1], 2 - CONTEXTS[:, 1:]
    items = np.stack([1 - CATEGORIES[::-1, 1], 2 - CATEGORIES[::-1, 0]], axis=1)
    renumbered = ContextualWorld(np.hstack([categories, contexts]), items, SHARE, LIKED[:, ::-1], EXAMINATION)
    rewards = [_reward(policy, world, seed) for seed, world in ((20, _world()), (21, renumbered))]
    difference = np.abs(rewards[0].mean(axis=0) - rewards[1].mean(axis=0))
    error = np.sqrt(sum(earned.var(axis=0, ddof=1) / len(earned) for earned in rewards)) + 1e-9
    apart = float((difference / error).max())
    sentence = f"numbers of labels and of items must not change the reward; it differs by {standard_errors(apart)}"
    require(apart <= SIGMAS, policy, sentence)


def check_what_a_label_says_is_learned(policy: Policy) -> None:
    """Where a label says what visitors like, the policy earns more than if all visitors had the same labels."""
    if not learns_labels(policy) or not getattr(policy, "adaptive", True):
        return
    alike = ContextualWorld(np.zeros_like(CONTEXTS), CATEGORIES, SHARE, LIKED, EXAMINATION)
    ours, blind = (_reward(policy, world, 22)[:, -1] for world in (_world(), alike))
    gain, error = float((ours - blind).mean()), float((ours - blind).std(ddof=1) / np.sqrt(len(ours)))
    sentence = f"labels that say what visitors like must be worth something; they are worth {gain / ROUNDS:+.3f}"
    require(gain > SIGMAS * error, policy, f"{sentence} clicks a round")


CONTEXT_CHECKS = [
    check_propensities_equal_frequencies_in_every_context,
    check_deciding_for_contexts_leaves_no_trace,
    check_labels_of_contexts_and_items_may_be_numbered_in_any_order,
    check_what_a_label_says_is_learned,
]


def _world() -> ContextualWorld:
    return ContextualWorld(CONTEXTS, CATEGORIES, SHARE, LIKED, EXAMINATION)


def _trained(policy: Any) -> Any:
    """Return a state after some rounds in which all but the last context came."""
    world, rng = _world(), np.random.default_rng(1)
    state = policy.init(world.n_items, world.n_positions, world.labels(0))
    for _ in range(TRAINED):
        c = rng.integers(len(CONTEXTS) - 1)
        decision = policy.decide(state, rng, CONTEXTS[c])
        p = world.click_table(0)[c][decision.ranking, np.arange(world.n_positions)]
        state = policy.learn(state, decision, (rng.random(p.size) < p).astype(np.float64))
    return state


def _reward(policy: Policy, world: ContextualWorld, seed: int) -> NDArray[np.float64]:
    marks = (ROUNDS // 4, ROUNDS)
    result = play(
        policy, world, ROUNDS, replications=REPLICATIONS, seed=seed, checkpoints=marks, jobs=1, shuffle=False,
        progress=False,
    )  # fmt: skip
    return result.reward
