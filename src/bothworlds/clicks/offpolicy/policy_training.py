"""Teach a policy with logged pages, and find out what it would then show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...core import Decision, decide, learn
from ...kernels import Floats, Ints, kernel
from ...progress import Report, progress_bar
from .impressions import Impressions
from .pages import Batch, batches, usable
from .targets import Target

__all__ = ["from_policy", "is_policy", "label_of", "marginals_of", "runs_compiled", "teach"]

FEWEST_DRAWS, MOST_DRAWS = 10_000, 1_000_000
DRAWS = 10_000  # in one call of a kernel, which does not hear Ctrl-C


def from_policy(
    policy: Any, impressions: Impressions, seed: int = 0, draws: int | None = None, progress: bool | None = False
) -> Target:
    """What a policy shows after it has learned from one fold, as the target for the other fold; both ways.

    Nothing is judged by the clicks that taught it. Items have the numbers of ``impressions.items``. The policy is
    taught with rankings it did not choose: one that counts on its own exploration learns less than it would have.
    """
    good, total = usable(impressions)
    _check_pages(policy, impressions, good)
    rounds = draws or int(np.clip(total, FEWEST_DRAWS, MOST_DRAWS))
    if not runs_compiled(policy, policy.init(*impressions.shape)) and draws is None:
        rounds = FEWEST_DRAWS
    halves = [batches(impressions, 1 - fold, progress) for fold in (0, 1)]
    with progress_bar("learning", int(good.sum()), progress) as report:
        states = [teach(policy, policy.init(*impressions.shape), half, report) for half in halves]
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
            "the log has too few complete pages, with every position filled by another item, to teach a policy with "
            "one half and judge it on the other"
        )
    if getattr(policy, "needs_propensity", False) and not impressions.weighable:
        raise ValueError(f"{label_of(policy)} learns with propensities, and the log has none")


def _notes(impressions: Impressions, good: Ints, total: int, rounds: int) -> tuple[str, ...]:
    notes = [
        f"The policy learned from one half of the log ({good[0]:,} and {good[1]:,} pages) and was judged, as it then "
        f"stood, on the other, both ways; its marginals are the average of {rounds:,} decisions."
    ]
    if not impressions.has_pages:
        notes.append(
            "Pages to learn from are put together from single impressions, the k-th of every position in order of "
            "time, as the item-position model allows."
        )
    if total > good.sum():
        why = ", show an item twice or lack a propensity" if impressions.weighable else " or show an item twice"
        notes.append(
            f"{total - int(good.sum()):,} of {total:,} pages are incomplete{why}: the policy does not learn from them."
        )
    return tuple(notes)


def teach(policy: Any, state: Any, pages: Iterable[Batch], report: Report = lambda amount: None) -> Any:
    """The state after learning from pages in their order; compiled policies learn in a compiled loop."""
    compiled = runs_compiled(policy, state)
    for batch in pages:
        if compiled:
            learn_pages(state, *batch)
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
    report: Report = lambda amount: None,
) -> Floats:
    """(n_items, n_positions) how often a policy that stands still puts each item at each position, in ``rounds`` draws.

    Exact for a policy that always shows one list; otherwise with an error of at most :math:`1/(2\\sqrt{rounds})`, which
    with as many draws as there are pages is small beside what the log leaves uncertain.
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
    """Whether something can be taught and asked."""
    return all(callable(getattr(given, verb, None)) for verb in ("init", "decide", "learn"))


def label_of(policy: Any) -> str:
    """The name of a policy."""
    return str(getattr(policy, "label", "") or type(policy).__name__)


def runs_compiled(policy: Any, state: Any) -> bool:
    """Whether compiled loops can stand in for the methods of a policy."""
    return bool(getattr(policy, "runs_compiled", lambda state: False)(state))


@kernel
def learn_pages(state: Any, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    """Learn from pages (T, m), one after the other."""
    for t in range(ranking.shape[0]):
        learn(state, ranking[t], propensity[t], clicks[t])


@kernel
def count_decisions(
    state: Any, rounds: int, rng: np.random.Generator, ranking: Ints, propensity: Floats, counts: Floats
) -> None:
    """Decide again and again without learning; ``counts`` (n, m) is where items were put."""
    for _ in range(rounds):
        decide(state, rng, ranking, propensity)
        for j in range(ranking.size):
            counts[ranking[j], j] += 1.0
