"""Training a policy on logged pages, and estimating the marginals of what it then shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...core import NO_NOTE, NONE_ABSENT, Decision, decide, learn
from ...kernels import Floats, Ints, kernel
from ...progress import ReportProgress, progress_bar
from .impressions import Impressions
from .pages import PageBatch, count_complete_pages, page_batches
from .targets import Target

FEWEST_DRAWS, MOST_DRAWS = 10_000, 1_000_000
DRAWS = 10_000  # per call of a kernel, during which Ctrl+C is not handled


def from_policy(
    policy: Any, impressions: Impressions, seed: int = 0, draws: int | None = None, progress: bool | None = False
) -> Target:
    """Return the target of a policy: for each fold, what it shows after training on the other fold.

    Items are numbered as in ``impressions.items``. The policy learns from rankings that it did not choose, so that a
    policy that relies on its own exploration learns less than it would online. Raises ValueError if a fold has no
    complete page, or if the policy needs propensities and the log has none.
    """
    good, total = count_complete_pages(impressions)
    _check_pages(policy, impressions, good)
    rounds = draws or int(np.clip(total, FEWEST_DRAWS, MOST_DRAWS))
    if not runs_compiled(policy, policy.init(*impressions.shape)) and draws is None:
        rounds = FEWEST_DRAWS
    halves = [page_batches(impressions, 1 - fold, progress) for fold in (0, 1)]
    with progress_bar("learning", int(good.sum()), progress) as report:
        states = [train(policy, policy.init(*impressions.shape), half, report) for half in halves]
    with progress_bar("drawing lists", 2 * rounds, progress) as report:
        marginals = [
            marginals_of(policy, state, impressions.shape, rounds, np.random.default_rng([seed, fold]), report)
            for fold, state in enumerate(states)
        ]
    notes = _notes(impressions, good, total, rounds)
    return Target(label_of(policy), np.stack(marginals), np.zeros(len(impressions.positions)), True, notes)


def _check_pages(policy: Any, impressions: Impressions, good: Ints) -> None:
    if not good.all():
        raise ValueError(
            "the log has too few complete pages, with a different item at every position, to train a policy on one "
            "half and evaluate it on the other"
        )
    if getattr(policy, "needs_propensity", False) and not impressions.weighable:
        raise ValueError(f"{label_of(policy)} needs propensities, and the log has none")


def _notes(impressions: Impressions, good: Ints, total: int, rounds: int) -> tuple[str, ...]:
    notes = [
        f"The policy was trained on one half of the log ({good[0]:,} and {good[1]:,} pages) and evaluated, without "
        f"learning, on the other, and vice versa; its marginals are the average of {rounds:,} decisions."
    ]
    if not impressions.has_pages:
        notes.append(
            "Training pages are composed of single impressions, the k-th of every position in order of time, which is "
            "valid under the item-position model."
        )
    if total > good.sum():
        why = ", show an item twice or lack a propensity" if impressions.weighable else " or show an item twice"
        notes.append(
            f"{total - int(good.sum()):,} of {total:,} pages are incomplete{why}: the policy does not learn from them."
        )
    return tuple(notes)


def train(policy: Any, state: Any, pages: Iterable[PageBatch], report: ReportProgress = lambda amount: None) -> Any:
    """Update the state with pages in their order, in a compiled loop if the policy is compiled, and return it."""
    compiled = runs_compiled(policy, state)
    for batch in pages:
        if compiled:
            learn_pages(state, *batch, NO_NOTE.copy(), NONE_ABSENT.copy())
        else:
            for ranking, propensity, clicks in zip(*batch):
                policy.learn(state, Decision(ranking, propensity), clicks)
        report(len(batch.ranking))
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
    for start in range(0, rounds, DRAWS):
        some = min(DRAWS, rounds - start)
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
