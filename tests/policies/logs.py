"""Logs of pages, drawn by a policy that learns them one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from bothworlds.core import Decision, is_work, leaves
from bothworlds.policies.logged_pages import LoggedPage, policy_name
from bothworlds.policies.pages import Page, grown, has_parts, learn_page, part_for, rank_page

LATE = 5  # pages that are learned after the page that was drawn next


def played(policy: Any, n: int, m: int, count: int, seed: int = 0, added: int = 0) -> tuple[list[LoggedPage], Any]:
    """Return the pages that a policy has drawn, as they were learned, and its state after them.

    Users prefer items with low numbers; every other page has rewards between 0 and 1. If the state has parts, every
    third page excludes an item and pins another, and ``added`` items are added after half of the pages. Every fifth
    page is learned after the next one, also where that has more items.
    """
    rng, state, divisible = np.random.default_rng(seed), policy.init(n, m), has_parts(policy)
    pages: list[LoggedPage] = []
    waiting: list[tuple[int, Decision]] = []
    for k in range(count):
        if divisible and k == count // 2:
            n += added
        now = grown(policy, state, n, m) if divisible else state
        waiting.insert(0, (n, _decided(policy, now, m, rng, constrained=divisible and k % 3 == 2)))
        while waiting and (k % LATE or k == count - 1):
            n_then, decision = waiting.pop(0)
            rewards = (rng.random(m) < 0.9 - 0.8 * decision.ranking / n).astype(float)
            if k % 2:
                rewards *= rng.integers(0, 5, m) / 4
            if divisible and n_then > state.shape.n_items:
                state = grown(policy, state, n_then, m)
            p = np.where(np.isnan(decision.propensity), 0.5, decision.propensity)
            decision = decision._replace(propensity=p)
            state = learn_page(policy, state, decision, rewards, n_then if divisible else n)
            pages.append(logged_page(len(pages) + 1, n_then, decision, rewards, policy_name(policy)))
    return pages, state


def _decided(policy: Any, state: Any, m: int, rng: np.random.Generator, constrained: bool) -> Decision:
    if not constrained:
        return policy.decide(state, rng)
    n = state.shape.n_items
    pinned, excluded = rng.permutation(n)[:2].tolist()
    page = Page(np.setdiff1d(np.arange(n), [pinned, excluded]), {m - 1: pinned} if rng.random() < 0.5 else {})
    return rank_page(part_for(policy, state, page), page, state.shape, rng)


def logged_page(number: int, n_items: int, decision: Decision, rewards: Any, policy: str = "") -> LoggedPage:
    """Return a page of a log."""
    m = len(decision.ranking)
    learned = np.ones(m, bool) if decision.learned is None else decision.learned
    return LoggedPage(
        number=number,
        n_items=n_items,
        items=decision.ranking.tolist(),
        propensity=decision.propensity.tolist(),
        rewards=np.asarray(rewards).tolist(),
        learned=sum(1 << j for j in range(m) if learned[j]),
        absent=decision.absent.tolist(),
        note=decision.note.tolist(),
        policy=policy,
    )


def same_bits(one: Any, other: Any) -> bool:
    """Whether two states have the same leaves, bit for bit; work arrays are not compared."""
    ours, theirs = (
        {path: np.asarray(leaf) for path, leaf in leaves(state) if not is_work(path)} for state in (one, other)
    )
    return ours.keys() == theirs.keys() and all(
        (ours[path].dtype, ours[path].shape, ours[path].tobytes())
        == (theirs[path].dtype, theirs[path].shape, theirs[path].tobytes())
        for path in ours
    )
