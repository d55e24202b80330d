"""Warnings and notes of an evaluation: what to distrust, and what to log to know better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .choice import Choice
from .dependence import FAR, Dependence
from .identification import OPEN, WEAKLY, Identified
from .importance_weighting import Weighted
from .result import Support
from .targets import Target

if TYPE_CHECKING:
    from .evaluation import Evaluator, Value

FEWEST_IMPRESSIONS = 100  # effective, per position
FEWEST_CLICKS = 30  # effective, on the whole page; below, the normal approximation of the interval is poor too
FEWEST_QUERIES = 30  # for intervals over queries
FLAT = 0.8  # a slope below it by two standard errors is a bias
VISIBLE = 0.01  # smaller deviations may come from rounded propensities
UNEXPLAINED = 2.0  # phi above it is warned of
LUCK = 2.0  # standard errors between the value and its shrunken value


def log_notes(given: Evaluator) -> list[str]:
    """Return notes on how the log was read."""
    logged = given.logged
    notes = ["Traffic shares of queries and windows are taken as given."]
    if logged.pages.windows:
        first, last = logged.pages.windows[0], logged.pages.windows[-1]
        notes.append(f"{len(logged.pages.windows)} windows of time, starting from {first} to {last}.")
    if logged.pages.propensity is not None:
        known = logged.pages.count[logged.page] * ~np.isnan(logged.pages.propensity)
        total = int(logged.pages.count[logged.page].sum())
        if left_out := total - int(known.sum()):
            notes.append(f"{left_out:,} of {total:,} impressions have no propensity and are not weighted.")
    if not logged.has_pages:
        independent = "positions are assumed independent" if logged.clusters is None else "clusters are (query, window)"
        notes.append(
            f"The log has no column event, which groups impressions into pages: {independent}, and it cannot be tested "
            "whether clicks depend on the rest of the page."
        )
    elif len(logged.pages.positions) > 1 and not (
        given.dependence is not None and (given.dependence.fires or given.dependence.sensitive)
    ):
        notes.append(
            "Whether clicks depend on the rest of the page is unknown: too few varied pages to test it. All estimates "
            "but user browsing assume that a click depends on its own item and position only."
        )
    return notes


def all_warnings(
    given: Evaluator,
    target: Target,
    picked: Choice,
    found: Identified,
    values: Mapping[str, Value],
    weighted: Weighted | None,
) -> Iterator[str]:
    """Yield all warnings but those about open placements."""
    if found.shares[WEAKLY] > 0.0:
        yield (
            f"{max(found.shares[WEAKLY], 0.001):.1%} of the placements are weakly determined, by fewer than 30 pages: "
            "swap their positions on more pages."
        )
    plain, shrunken = (values[name].estimates[-1] for name in ("pbm", "shrunken"))
    if plain.value - shrunken.value > LUCK * plain.standard_error / given.factor("pbm"):
        yield (
            "This ranking may have been chosen by the luck of this log: with attraction shrunken towards the mean it "
            f"earns {shrunken.value:.4g} instead of {plain.value:.4g}. The interval of the change holds both; evaluate "
            "on pages that are later than those the ranking was made from (--since)."
        )
    tested = given.backtest.of(picked.name)
    if tested is not None and tested.slope + 2.0 * tested.slope_error < FLAT:
        yield (
            f"Held-out lists changed clicks only {tested.slope:.2f} times as much as predicted: the interval of the "
            "change reaches down to that. Users may change from list to list, or the model may be wrong; try the "
            "ranking on 1% of traffic."
        )
    if tested is not None and tested.phi > UNEXPLAINED:
        yield (
            f"Errors on held-out lists were {tested.phi**0.5:.1f} times what chance explains: intervals are widened by "
            "that, but a bias would remain."
        )
    if given.levels >= FAR and picked.name != "pbm+level":
        yield (
            "Click rates of the whole log changed over time, by more than chance: a ranking that was shown later is "
            "mistaken for a better or a worse one unless levels are estimated (--estimator pbm+level). Show two lists "
            "at the same time."
        )
    if given.dependence is not None and given.dependence.fires:
        yield _dependent(given.dependence, picked)
    size = int((given.logged.of_query > 0.0).sum())
    if given.logged.cluster == "query" and size < FEWEST_QUERIES:
        yield f"The interval is over queries, and there are only {size}: at least {FEWEST_QUERIES} are needed."
    if found.shares[OPEN] > 0.0 and not found.falling:
        yield "The bounds do not use that examination falls with the position: the log contradicts it."
    if weighted is not None and (picked.name in weighted.estimates or len(target.parts) > 1):
        yield from support_warnings(weighted.support)


def _dependent(found: Dependence, picked: Choice) -> str:
    """Clicks at the same item and position depend on the items above by more than chance."""
    per_tenth = 0.1 * found.slope / found.rate
    low, high = sorted(abs(per_tenth + side * 0.196 * found.error / found.rate) for side in (-1.0, 1.0))
    other = (
        "User browsing describes this in part."
        if picked.name == "ubm"
        else "All estimates but user browsing assume that a click depends on its own item and position only, and may "
        "be biased by an amount that their intervals do not include."
    )
    return (
        f"Clicks of this log depend on the rest of the page: at the same position, an item is clicked "
        f"{'more' if found.slope > 0.0 else 'less'} often below items that are clicked more, by {abs(per_tenth):.1%} "
        f"for every 0.1 clicks expected {found.of} (95% interval {low:.1%} to {high:.1%}). {other}"
    )


def support_warnings(support: Sequence[Support]) -> Iterator[str]:
    """Yield warnings about weights: missing support, few effective impressions, wrong propensities."""
    *positions, whole = support

    def listed(some: Sequence[Support], text: str) -> str:
        return ", ".join(f"{text.format(s)} at position {s.position}" for s in some)

    if missing := [s for s in positions if s.unsupported > 0.0]:
        shares = listed(missing, "{0.unsupported:.1%}")
        yield f"The log never shows part of what the target would show with a propensity: {shares}."
    if thin := [s for s in positions if s.effective_impressions < FEWEST_IMPRESSIONS]:
        yield (
            "Too few impressions support the target for reliable weighted estimates: effectively "
            f"{listed(thin, '{0.effective_impressions:.0f}')}; at least {FEWEST_IMPRESSIONS} are needed."
        )
    if whole.effective_clicks < FEWEST_CLICKS:
        yield (
            "Too few clicks support the target for reliable weighted estimates and intervals: effectively "
            f"{whole.effective_clicks:.1f}; at least {FEWEST_CLICKS} are needed."
        )
    if off := [s for s in positions if wrong_propensities(s)]:
        yield (
            "The propensities of the log seem to be wrong: the mean weight should be 1 minus the unsupported share, "
            f"and is {listed(off, '{0.mean_weight:.3g} (standard error {0.mean_weight_error:.2g})')}. A filter that "
            "keeps only some items also causes this."
        )


def wrong_propensities(support: Support) -> bool:
    """Whether the mean weight is far from 1 minus the unsupported share, which it is with the right propensities."""
    far = abs(support.mean_weight - (1.0 - support.unsupported))
    return far > max(FAR * support.mean_weight_error, VISIBLE)
