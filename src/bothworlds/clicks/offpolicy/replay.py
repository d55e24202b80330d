"""Replay: let a learner play on a log of uniformly random lists, with the pages it happens to agree with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from ...core import decide, learn
from ...kernels import Floats, Ints, kernel
from ...progress import progress_bar
from ...worlds.settings import whole
from ..reading.duckdb_relations import run
from .impressions import Impressions, opened
from .pages import Batch, batches, usable
from .policy_training import is_policy, label_of, runs_compiled
from .result import Estimate, interval

__all__ = ["Replay", "replay"]

FEWEST_MATCHES = 100
UNLIKELY = 1e-6  # chance of refusing a log for nothing


@dataclass(frozen=True)
class Replay:
    """What a learner earned in the rounds that a log let it play: clicks per page over ``matches`` rounds.

    The standard error is that of the average over these rounds, of one course of learning.
    """

    target: str
    pages: int
    matches: int
    estimate: Estimate
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The share of pages that were used."""
        return self.matches / self.pages

    def table(self) -> list[dict[str, Any]]:
        """One row, as in the table of an evaluation."""
        return [{"target": self.target, **asdict(self.estimate)}]

    def as_dict(self) -> dict[str, Any]:
        """Everything, as plain values for JSON; NaN becomes None."""
        plain = {**asdict(self), "share": self.share}
        plain["estimate"] = {key: None if value != value else value for key, value in plain["estimate"].items()}
        return plain


def replay(log: Any, policy: Any, *, seed: int = 0, progress: bool | None = None) -> Replay:
    """Play a policy on a log of uniformly random lists (Li et al. 2011).

    Page by page the policy decides. Where its list is the logged one, the page counts and the policy learns from its
    clicks; other pages are skipped, as if they had never been. Since all lists are equally likely, the pages that count
    are distributed as if the policy had been in charge: exact for learners, with any click model. The price is data: of
    n items at m positions one page in :math:`n!/(n-m)!` is used.

    Agreeing position by position would use more pages, and is not offered: a learner taught by the positions that agree
    sees pages that no course of play could have shown it, with other items beside them, and what it decides next
    depends on them. For a policy that stands still, :func:`bothworlds.clicks.evaluate` does just that by weighing.

    References
    ----------
    Li, Chu, Langford, Wang: Unbiased offline evaluation of contextual-bandit-based news article recommendation
    algorithms, WSDM 2011.
    """
    if not is_policy(policy):
        raise ValueError(f"replay plays a policy, as bothworlds.policy('ftrl-pbm') makes one; got {policy!r}")
    whole(seed, "seed", 0)
    with opened(log, progress) as impressions:
        _check_uniform(impressions)
        pages = batches(impressions, progress=progress)
        state, rng = policy.init(*impressions.shape), np.random.default_rng(seed)
        clicks, pairs = [np.empty(0)], np.zeros((len(impressions.items),) * 2)
        with progress_bar("replaying", impressions.pages, progress) as report:
            for batch in pages:
                clicks.append(_play(policy, state, batch, rng))
                np.add.at(pairs, (batch.ranking[:, 0], batch.ranking[:, -1]), 1.0)
                report(len(batch.ranking))
        _check_pairs(pairs, len(impressions.positions))
        return _summary(policy, impressions, np.concatenate(clicks))


def _summary(policy: Any, impressions: Impressions, clicks: Floats) -> Replay:
    pages = int(usable(impressions)[0].sum())
    if not pages:
        raise ValueError("the log has no complete page, with every position filled by another item, to play on")
    value = float(clicks.mean()) if clicks.size else float("nan")
    error = float(clicks.std(ddof=1) / np.sqrt(clicks.size)) if clicks.size > 1 else float("nan")
    warnings = []
    if clicks.size < FEWEST_MATCHES:
        warnings.append(
            f"Only {clicks.size} of {pages:,} pages show what the policy decided: too few to trust the average, and "
            "for a learner to learn; with many items, evaluate by weights instead."
        )
    notes = [*impressions.notes, "The policy learned from the pages it agreed with and from no others."]
    estimate = interval("replay", None, value, error)
    return Replay(label_of(policy), pages, int(clicks.size), estimate, tuple(notes), tuple(warnings))


def _check_uniform(impressions: Impressions) -> None:
    """Refuse a log whose propensities are not those of uniformly random lists, or whose lists are plainly not such."""
    if impressions.weighable < impressions.total:
        raise ValueError(
            "replay needs a log of uniformly random lists, and this one has impressions without propensity"
        )
    n = len(impressions.items)
    ends = run(impressions.connection, "SELECT min(propensity), max(propensity) FROM impressions")
    least, most = ends[0]
    if not (abs(least * n - 1.0) < 1e-3 and abs(most * n - 1.0) < 1e-3):
        raise ValueError(
            f"replay needs a log of uniformly random lists: with {n} items all propensities must be {1.0 / n:.4g}, and "
            f"they are from {least:.4g} to {most:.4g}; evaluate by weights instead"
        )


def _check_pairs(pairs: Floats, m: int) -> None:
    """Refuse lists that do not pair the items at their ends at random, though each alone is: rotations, for example."""
    n, total = len(pairs), pairs.sum()
    if m == 1 or not total:
        return
    expected = total / (n * (n - 1))
    distance = float(((pairs[~np.eye(n, dtype=bool)] - expected) ** 2).sum() / expected)
    if chdtrc(n * (n - 1) - 1, distance) < UNLIKELY:
        raise ValueError(
            "replay needs a log of uniformly random lists: here every item is as often at every position, but the "
            "items at the first and the last position depend on each other; evaluate by weights instead"
        )


def _play(policy: Any, state: Any, pages: Batch, rng: np.random.Generator) -> Floats:
    """The clicks on each page that the policy agrees with."""
    agreed = np.zeros(len(pages.ranking), np.bool_)
    if runs_compiled(policy, state):
        m = pages.ranking.shape[1]
        replay_pages(state, pages.ranking, pages.clicks, rng, np.empty(m, np.int64), np.empty(m), agreed)
    else:
        for t, (ranking, clicks) in enumerate(zip(pages.ranking, pages.clicks)):
            decision = policy.decide(state, rng)
            agreed[t] = (decision.ranking == ranking).all()
            if agreed[t]:
                policy.learn(state, decision, clicks)
    return np.asarray(pages.clicks[agreed].sum(axis=1))


@kernel
def replay_pages(
    state: Any,
    logged: Ints,
    clicks: Floats,
    rng: np.random.Generator,
    ranking: Ints,
    propensity: Floats,
    agreed: NDArray[np.bool_],
) -> None:
    """Decide for every page (T, m); learn from those that show what was decided, and mark them in ``agreed`` (T,)."""
    for t in range(logged.shape[0]):
        decide(state, rng, ranking, propensity)
        same = True
        for j in range(ranking.size):
            same = same and ranking[j] == logged[t, j]
        agreed[t] = same
        if same:
            learn(state, ranking, propensity, clicks[t])
