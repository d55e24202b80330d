"""Replay: run a policy on a log of uniformly random lists, using the pages whose list it chooses itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from ...checks import whole
from ...core import NONE_ABSENT, decide, learn, note
from ...kernels import Floats, Ints, kernel
from ...progress import progress_bar
from ..reading.database import run
from .impressions import Impressions, open_impressions
from .pages import PageBatch, count_complete_pages, page_batches
from .policy_training import is_policy, label_of, runs_compiled
from .result import Estimate, make_estimate

FEWEST_MATCHES = 100
UNLIKELY = 1e-6  # the probability of rejecting a log of uniformly random lists


@dataclass(frozen=True)
class Replay:
    """The result of a replay: clicks per page over ``matches`` rounds.

    The standard error is that of the average over these rounds, of one run of the policy.
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
        """Return one row, as in the table of an evaluation."""
        return [{"target": self.target, **asdict(self.estimate)}]

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes as plain values for JSON; NaN becomes None."""
        plain = {**asdict(self), "share": self.share}
        plain["estimate"] = {key: None if value != value else value for key, value in plain["estimate"].items()}
        return plain


def replay(log: Any, policy: Any, *, seed: int = 0, progress: bool | None = None) -> Replay:
    """Run a policy on a log of uniformly random lists (Li et al. 2011).

    The policy decides for every page. If its list is the logged one, the page counts and the policy learns from its
    clicks; other pages are skipped. Since all lists are equally likely, the pages that count are distributed as if the
    policy had chosen them: the estimate is unbiased for policies that learn, with any click model. The cost is data: of
    n items at m positions one page in :math:`n!/(n-m)!` is used.

    Matching single positions would use more pages, but it would be biased: the policy would learn from positions of
    pages that it would not have shown. For a policy that does not learn, :func:`bothworlds.clicks.evaluate` weights
    single positions.

    Raises ValueError if the log does not consist of uniformly random lists or has no complete page.

    References
    ----------
    Li, Chu, Langford, Wang: Unbiased offline evaluation of contextual-bandit-based news article recommendation
    algorithms, WSDM 2011.
    """
    if not is_policy(policy):
        raise ValueError(f"replay needs a policy, such as bothworlds.policy('ftrl-pbm'); got {policy!r}")
    whole(seed, "seed", 0)
    with open_impressions(log, progress) as impressions:
        _check_uniform(impressions)
        pages = page_batches(impressions, progress=progress)
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
    pages = int(count_complete_pages(impressions)[0].sum())
    if not pages:
        raise ValueError("the log has no complete page, with a different item at every position, for a replay")
    value = float(clicks.mean()) if clicks.size else float("nan")
    error = float(clicks.std(ddof=1) / np.sqrt(clicks.size)) if clicks.size > 1 else float("nan")
    warnings = []
    if clicks.size < FEWEST_MATCHES:
        warnings.append(
            f"Only {clicks.size} of {pages:,} pages show what the policy decided: too few for a reliable average, and "
            "for the policy to learn; with many items, use evaluate instead."
        )
    notes = [*impressions.notes, "The policy learned only from the pages that show its decision."]
    estimate = make_estimate("replay", None, value, error)
    return Replay(label_of(policy), pages, int(clicks.size), estimate, tuple(notes), tuple(warnings))


def _check_uniform(impressions: Impressions) -> None:
    """Raise ValueError if propensities are missing or not those of uniformly random lists."""
    if impressions.weighable < impressions.total:
        raise ValueError(
            "replay needs a log of uniformly random lists; some impressions of this one have no propensity"
        )
    n = len(impressions.items)
    ends = run(impressions.connection, "SELECT min(propensity), max(propensity) FROM impressions")
    least, most = ends[0]
    if not (abs(least * n - 1.0) < 1e-3 and abs(most * n - 1.0) < 1e-3):
        raise ValueError(
            f"replay needs a log of uniformly random lists: with {n} items all propensities must be {1.0 / n:.4g}, but "
            f"they range from {least:.4g} to {most:.4g}; use evaluate instead"
        )


def _check_pairs(pairs: Floats, m: int) -> None:
    """Raise ValueError if the items at the first and last position are dependent, as in lists that are rotations."""
    n, total = len(pairs), pairs.sum()
    if m == 1 or not total:
        return
    expected = total / (n * (n - 1))
    distance = float(((pairs[~np.eye(n, dtype=bool)] - expected) ** 2).sum() / expected)
    if chdtrc(n * (n - 1) - 1, distance) < UNLIKELY:
        raise ValueError(
            "replay needs a log of uniformly random lists: here every item is equally frequent at every position, but "
            "the items at the first and the last position depend on each other; use evaluate instead"
        )


def _play(policy: Any, state: Any, pages: PageBatch, rng: np.random.Generator) -> Floats:
    """The clicks on each page whose list the policy chose."""
    matched = np.zeros(len(pages.ranking), np.bool_)
    if runs_compiled(policy, state):
        m = pages.ranking.shape[1]
        noted = np.empty(policy.note_size(state.shape))
        drawn = np.empty(m, np.int64), np.empty(m), noted
        replay_pages(state, pages.ranking, pages.clicks, rng, *drawn, NONE_ABSENT.copy(), matched)
    else:
        for t, (ranking, clicks) in enumerate(zip(pages.ranking, pages.clicks)):
            decision = policy.decide(state, rng)
            matched[t] = (decision.ranking == ranking).all()
            if matched[t]:
                policy.learn(state, decision, clicks)
    return np.asarray(pages.clicks[matched].sum(axis=1))


@kernel
def replay_pages(
    state: Any,
    logged: Ints,
    clicks: Floats,
    rng: np.random.Generator,
    ranking: Ints,
    propensity: Floats,
    noted: Floats,
    none_absent: Ints,
    matched: NDArray[np.bool_],
) -> None:
    """Decide for every page (T, m); learn from those that show the decision, and mark them in ``matched`` (T,)."""
    for t in range(logged.shape[0]):
        decide(state, rng, ranking, propensity, none_absent)
        note(state, ranking, noted)
        same = True
        for j in range(ranking.size):
            same = same and ranking[j] == logged[t, j]
        matched[t] = same
        if same:
            learn(state, ranking, propensity, clicks[t], noted, none_absent, none_absent)
