"""Policies as targets: trained on one half of the pages, and evaluated by their marginals on the other half."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import NO_NOTE, NONE_ABSENT, Decision, decide, learn
from ...kernels import Floats, Ints, kernel
from ...progress import ReportProgress, progress_bar
from .logged import LoggedPages
from .targets import Mass, Target, mass_of

FEWEST_DRAWS, MOST_DRAWS = 10_000, 1_000_000
BATCH = 10_000  # pages or decisions per call of a kernel, during which Ctrl+C is not handled


def from_policy(
    policy: Any,
    logged: LoggedPages,
    halves: tuple[Ints, Ints],
    seed: int = 0,
    draws: int | None = None,
    progress: bool | None = False,
) -> Target:
    """Return the target of a policy: for each half of the pages, what it shows after training on the other half.

    Every query has a policy of its own, which learns from the complete pages of one half in random order, and knows its
    items in the order of their names. It learns from lists that it did not choose, so that a policy that relies on its
    own exploration learns less than it would online. Raises ValueError if rows do not form pages, if a half has no
    complete page, or if the policy needs propensities and the log has none.
    """
    pages, (queries, n, m, _) = logged.pages, logged.shape
    if not logged.has_pages:
        raise ValueError("a policy learns from whole pages, and the log has no column event")
    if getattr(policy, "needs_propensity", False) and pages.propensity is None:
        raise ValueError(f"{label_of(policy)} needs propensities, and the log has none")
    complete = np.diff(pages.starts) == m
    if pages.propensity is not None:
        complete &= logged.by_page(np.isnan(pages.propensity).astype(np.float64)) == 0
    parts, learned = [], np.zeros(2, np.int64)
    asked = np.flatnonzero(logged.of_query)
    rounds = draws or int(np.clip(pages.pages / max(asked.size, 1), FEWEST_DRAWS, MOST_DRAWS))
    rng = np.random.default_rng([seed, 0xF01D])
    with progress_bar("training", 2 * asked.size, progress) as report:
        for h in range(2):
            count = np.where(complete, halves[1 - h], 0)
            learned[1 - h] = count.sum()
            masses = []
            for q in asked.tolist():
                own = np.flatnonzero((pages.query == q) & (count > 0))
                if not own.size:
                    raise ValueError(
                        "the log has too few complete pages, with an item at every position, to train a policy on one "
                        "half and evaluate it on the other"
                    )
                items = np.unique(pages.item[pages.query[logged.page] == q]) if queries > 1 else np.arange(n)
                state = policy.init(items.size, m)
                chosen = rng.permutation(np.repeat(own, count[own]))
                state = train(policy, state, *_batch(logged, chosen, items))
                x = marginals_of(policy, state, (items.size, m), rounds, np.random.default_rng([seed, h, q]))
                place, item, weight = mass_of(x, items, 1)
                masses.append(Mass(place + q * m, item, weight))
                report(1)
            parts.append(Mass(*(np.concatenate(part) for part in zip(*masses))))
    notes: tuple[str, ...] = (
        f"The policy was trained on one half of the log ({learned[0]:,} and {learned[1]:,} pages) and evaluated, "
        f"without learning, on the other, and vice versa; its marginals are the average of {rounds:,} decisions.",
    )
    left_out = pages.pages - int(learned.sum())
    if left_out:
        notes += (f"{left_out:,} of {pages.pages:,} pages are incomplete: the policy does not learn from them.",)
    return Target(label_of(policy), tuple(parts), False, notes=notes)


def _batch(logged: LoggedPages, chosen: Ints, items: Ints) -> tuple[Ints, Floats, Floats]:
    """Rankings, propensities (NaN without) and clicks (T, m) of complete pages."""
    pages, m = logged.pages, logged.shape[2]
    results = pages.starts[chosen][:, None] + np.arange(m)
    propensity = np.full(results.shape, np.nan) if pages.propensity is None else pages.propensity[results]
    return np.searchsorted(items, pages.item[results]), propensity, pages.click[results].astype(np.float64)


def train(policy: Any, state: Any, ranking: Ints, propensity: Floats, clicks: Floats) -> Any:
    """Update the state with pages in their order, in a compiled loop if the policy is compiled, and return it."""
    if not runs_compiled(policy, state):
        for page in zip(ranking, propensity, clicks):
            policy.learn(state, Decision(page[0], page[1]), page[2])
        return state
    for start in range(0, len(ranking), BATCH):
        some = slice(start, start + BATCH)
        learn_pages(state, ranking[some], propensity[some], clicks[some], NO_NOTE.copy(), NONE_ABSENT.copy())
    return state


def marginals_of(
    policy: Any,
    state: Any,
    shape: tuple[int, int],
    rounds: int,
    rng: np.random.Generator,
    report: ReportProgress = lambda amount: None,
) -> Floats:
    """(n_items, n_positions) the share of ``rounds`` decisions, without learning, with each item at each position.

    Exact for a policy that always shows one list; otherwise with an error of at most :math:`1/(2\\sqrt{rounds})`, which
    is small compared to the uncertainty of the log if there are as many draws as pages.
    """
    counts, positions, compiled = np.zeros(shape), np.arange(shape[1]), runs_compiled(policy, state)
    for start in range(0, rounds, BATCH):
        some = min(BATCH, rounds - start)
        if compiled:
            count_decisions(state, some, rng, np.empty(shape[1], np.int64), np.empty(shape[1]), counts)
        else:
            for _ in range(some):
                counts[policy.decide(state, rng).ranking, positions] += 1.0
        report(some)
    return counts / rounds


def is_policy(given: Any) -> bool:
    """Return whether an object has the methods of a policy."""
    return all(callable(getattr(given, verb, None)) for verb in ("init", "decide", "learn"))


def label_of(policy: Any) -> str:
    """Return the name of a policy."""
    return str(getattr(policy, "label", "") or type(policy).__name__)


def runs_compiled(policy: Any, state: Any) -> bool:
    """Return whether compiled loops can replace calls of the methods of a policy."""
    return bool(getattr(policy, "runs_compiled", lambda state: False)(state))


@kernel
def learn_pages(
    state: Any, ranking: Ints, propensity: Floats, clicks: Floats, no_note: Floats, none_absent: Ints
) -> None:
    """Learn from pages (T, m), one after the other; the last two are empty."""
    for t in range(ranking.shape[0]):
        learn(state, ranking[t], propensity[t], clicks[t], no_note, none_absent, none_absent)


@kernel
def count_decisions(
    state: Any, rounds: int, rng: np.random.Generator, ranking: Ints, propensity: Floats, counts: Floats
) -> None:
    """Decide repeatedly without learning; ``counts`` (n, m) adds up the placements."""
    for _ in range(rounds):
        decide(state, rng, ranking, propensity, ranking[:0])
        for j in range(ranking.size):
            counts[ranking[j], j] += 1.0
