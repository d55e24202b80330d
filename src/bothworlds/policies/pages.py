"""Pages: a list drawn from the state of a policy, or from a part of it, and what is learned from it.

Some items may be *absent* from a page: paused, removed, or excluded from this list. Some positions may be *pinned*: the
page has chosen the item itself. The rest of the page is decided by the state of the part that is left, these items at
these positions, as if there had never been any others. Its feedback is learned by the policy's own ``learn``, in the
whole state: pinned positions are not learned from, and an absent item is charged the loss observed at the others.

A policy has parts if it names its ``learned_leaves``: the arrays of its state in which it has learned something, by
their last axes. ``"ij"`` is a table of items and positions, ``"i"`` and ``"j"`` a vector of either, ``"ii"`` a table of
pairs of items, ``""`` is copied as it is. A new item starts as in a new state, or, with ``" median"``, at the median of
the others; ``" items"`` are indices of items. Everything else in a state follows from these: ``refreshed`` computes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from ..core import NO_CONTEXT, NO_NOTE, Decision, Labels, Shape, leaves
from ..kernels import Ints
from .base import CompiledPolicy, Policy

NEW = -1  # in place of an item or a position: one that is new


class Part(NamedTuple):
    """The state of some items at some positions, and the policy for it."""

    policy: Any
    state: Any
    items: Ints  # the item of the whole state that is item i of the part
    positions: Ints  # the position of the whole state that is position j of the part


def learned_leaves(policy: Any) -> dict[str, str]:
    """Return the axes of every array in which a policy learns, by its path in the state; empty if it has no parts.

    >>> from bothworlds import policy
    >>> learned_leaves(policy("ftrl-pbm"))["loss"], learned_leaves(policy("batchrank"))
    ('ij median', {})
    """
    found: dict[str, str] = {}
    if has_parts(policy):
        for base in reversed(type(policy).__mro__):
            found |= vars(base).get("learned_leaves") or {}
    return found


def has_parts(policy: Any) -> bool:
    """Return whether items can be added, paused, excluded and pinned with this policy."""
    return isinstance(policy, Policy) and policy.learned_leaves is not None


def learns_labels(policy: Any) -> bool:
    """Return whether a policy learns labels of visitors and items."""
    return isinstance(policy, CompiledPolicy) and policy.learns_labels


def check_learns_labels(policy: Any) -> None:
    """Raise ValueError if a policy does not learn labels."""
    if not learns_labels(policy):
        label = getattr(policy, "label", "") or type(policy).__name__
        raise ValueError(f"labels need the policy all-weather or context-ts; {label} does not learn them")


def check_parts(policy: Any) -> None:
    """Raise ValueError if the state of a policy has no parts."""
    if not has_parts(policy):
        label = getattr(policy, "label", "") or type(policy).__name__
        raise ValueError(f"items cannot be changed, excluded or pinned with {label}: its state has no parts")


def resized(policy: Policy, state: Any, items: ArrayLike, positions: ArrayLike) -> Part:
    """Return the state of these items at these positions, with what was learned of them; ``NEW`` is a new one.

    It is the state of a part, of more items or positions, or of fewer. Raises ValueError if the policy has no parts.

    >>> from bothworlds import policy
    >>> ucb = policy("comb-ucb")
    >>> state = ucb.init(3, 2)
    >>> state.counts.shown[:] = [[5, 1], [0, 2], [4, 3]]
    >>> resized(ucb, state, [2, 0, NEW], [1]).state.counts.shown.tolist()
    [[3.0], [1.0], [0.0]]
    """
    check_parts(policy)
    rows, columns = np.asarray(items, np.int64), np.asarray(positions, np.int64)
    return _copied(policy.part(rows, columns), policy, state, rows, columns)


def _copied(part: Policy, policy: Policy, state: Any, rows: Ints, columns: Ints) -> Part:
    """Return a new state of the policy ``part`` with what was learned of these items and positions."""
    labels = getattr(state, "labels", None)
    if labels is None:
        fresh = part.init(len(rows), len(columns))
    else:
        items = np.where(rows == NEW, 0, labels.items[:, rows])
        fresh = cast(CompiledPolicy, part).init(len(rows), len(columns), labels._replace(items=items))
    return Part(part, part.refreshed(_filled(policy, state, fresh, rows, columns)), rows, columns)


def _filled(policy: Policy, state: Any, fresh: Any, rows: Ints, columns: Ints) -> Any:
    """Return a new state with what an old one has learned of these items and positions."""
    old, new = dict(leaves(state)), dict(leaves(fresh))
    index = {"i": rows, "j": columns}
    if hasattr(state, "labels"):
        before, after = state.labels, fresh.labels
        index["v"] = _indices([1, *before.visitor, state.shape.n_positions], [1, *after.visitor], [columns])
        sizes = [1, *before.item, state.shape.n_items, state.shape.n_positions]
        index["c"] = _indices(sizes, [1, *after.item], [rows, columns])
    for path, axes in learned_leaves(policy).items():
        if path in new:
            _copy(old[path], new[path], axes, index)
    return fresh


def _indices(sizes: Sequence[int], counts: Sequence[int], last: Sequence[Ints]) -> Ints:
    """Return the old index of each row or column of a table of effects, by blocks of these old sizes.

    Blocks of labels now have ``counts`` values, and ``last`` are the items and positions of those that follow.
    """
    starts = np.cumsum([0, *sizes])
    blocks = [np.where(np.arange(now) < size, np.arange(now), NEW) for size, now in zip(sizes, counts)]
    return np.concatenate([np.where(b == NEW, NEW, b + first) for b, first in zip([*blocks, *last], starts)])


def _copy(old: Any, new: Any, axes: str, index: Mapping[str, Ints]) -> None:
    """Copy what was learned of these items and positions into an array of the new state."""
    axes, _, kind = axes.partition(" ")
    if old.size == 0:
        return
    chosen = [index[axis] for axis in axes]
    rows = index["i"]
    kept = [np.flatnonzero(index != NEW) for index in chosen]
    values = old[(..., *np.ix_(*(index[k] for index, k in zip(chosen, kept))))] if axes else old
    if kind == "items":
        place = np.full(max(int(rows.max()), int(values.max(initial=0))) + 2, NEW)
        place[rows[rows != NEW]] = np.flatnonzero(rows != NEW)
        values = np.where(values >= 0, place[values], NEW)
    if kind == "median" and len(kept[0]) < len(rows):
        new[..., :, kept[1]] = np.median(values, axis=-2, keepdims=True)
    new[(..., *np.ix_(*kept)) if axes else ...] = values


def grown(policy: Policy, state: Any, n_items: int, n_positions: int) -> Any:
    """Return the state with more items or positions, which are new; the state itself if there are none.

    >>> from bothworlds import policy
    >>> leader = policy("ftrl-pbm")
    >>> state = leader.init(3, 1)
    >>> state.loss[:, 0] = [4.0, 0.0, 7.0]
    >>> grown(leader, state, 4, 1).loss[:, 0].tolist()
    [4.0, 0.0, 7.0, 4.0]
    """
    n, m = state.shape
    if (n, m) == (n_items, n_positions):
        return state
    check_parts(policy)
    rows, columns = (np.array([*range(old), *[NEW] * (now - old)]) for old, now in ((n, n_items), (m, n_positions)))
    whole = policy.part(np.arange(n_items), columns)  # settings may refer to the items that are new
    return _copied(whole, policy, state, rows, columns).state


def renewed(policy: Any, state: Any, items: ArrayLike, labels: Labels) -> Any:
    """Return the state of as many items, of which those that are ``NEW`` take the place of others, with their labels.

    Raises ValueError if the policy has no parts.
    """
    if hasattr(policy, "renewed"):
        return policy.renewed(state, items, labels)
    fresh = resized(policy, state, items, np.arange(state.shape.n_positions)).state
    return fresh if getattr(fresh, "labels", None) is None else with_labels(policy, fresh, labels)


def with_labels(policy: Policy, state: Any, labels: Labels) -> Any:
    """Return the state with these labels of the same items; labels may have more values than before.

    What was learned of a value stays with it.
    """
    n, m = state.shape
    fresh = cast(CompiledPolicy, policy).init(n, m, labels)
    copied = _filled(policy, state, fresh, np.arange(n), np.arange(m))
    return policy.refreshed(copied)


class Page(NamedTuple):
    """What one list may show: one of ``items`` at each position without a pin, and the pinned item at each other."""

    items: Ints  # the items that can be drawn, in the order of the state
    pins: Mapping[int, int]  # position: item


def part_for(policy: Policy, state: Any, page: Page) -> Part | None:
    """Return the part of a state from which a page is drawn; None if there is nothing to choose.

    Raises ValueError if that is not the whole state and the policy has no parts.
    """
    n, m = state.shape
    positions = np.array([j for j in range(m) if j not in page.pins], np.int64)
    if len(positions) == m and len(page.items) == n:
        return Part(policy, state, page.items, positions)
    if len(positions) == 0 or len(page.items) == 1:
        return None
    return resized(policy, state, page.items, positions)


def decide_for(policy: Any, state: Any, rng: np.random.Generator, context: Ints = NO_CONTEXT) -> Decision:
    """Return a decision for a context; a policy that learns no labels is called without."""
    decision: Decision = policy.decide(state, rng, context) if context.size else policy.decide(state, rng)
    return decision


def rank_page(
    part: Part | None, page: Page, shape: Shape, rng: np.random.Generator, context: Ints = NO_CONTEXT
) -> Decision:
    """Draw the list of a page from its part; items and positions of the decision are those of the whole state.

    A pinned item has the propensity 1, and its position is not learned from; where there is nothing to choose, nothing
    is. An item that is pinned is absent from the other positions.
    """
    n, m = shape
    if part is not None and part.state.shape == shape:
        return decide_for(part.policy, part.state, rng, context)
    ranking, propensity, note = np.empty(m, np.int64), np.ones(m), NO_NOTE
    learned = np.ones(m, np.bool_)
    for position, item in page.pins.items():
        ranking[position], learned[position] = item, False
    if part is None:
        ranking[learned] = page.items[: learned.sum()]
        learned[:] = False
    else:
        drawn = decide_for(part.policy, part.state, rng, context)
        ranking[learned], propensity[learned] = part.items[drawn.ranking], drawn.propensity
        given = (context,) if context.size else ()
        note = part.policy.note_of_part(part.state, drawn.ranking, part.positions, m, *given)
    absent = np.setdiff1d(np.arange(n), page.items)
    return Decision(ranking, propensity, note, absent, None if learned.all() else learned, context)


def learn_page(policy: Policy, state: Any, decision: Decision, rewards: ArrayLike, n_items: int) -> Any:
    """Learn from the rewards of a page, in place, and return the state; there were ``n_items`` items when it was drawn.

    Items that were added since then could not be shown.
    """
    n = state.shape.n_items
    if n > n_items:
        decision = decision._replace(absent=np.array(absent_now(decision.absent.tolist(), n_items, n)))
    return policy.learn(state, decision, rewards)


def absent_now(absent: Sequence[int], n_then: int, n_now: int) -> Sequence[int]:
    """Return the items that could not be shown when there were ``n_then`` items, among the present ones."""
    return [*absent, *range(n_then, n_now)] if n_now > n_then else absent
