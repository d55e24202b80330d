"""Warnings and notes on an evaluation: support, propensities, model, and how the log was read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels import Floats
from ..model.model import ClickModel, model_named
from .impressions import Impressions
from .list_dependence import Dependence
from .result import Estimate, Support

FEWEST_IMPRESSIONS = 100  # effective, per position
FEWEST_CLICKS = 30  # effective, on the whole page; below, the normal approximation of the interval is poor too
FAR = 4.0  # standard errors that count as more than chance
MOST_NAMED = 10  # positions
VISIBLE = 0.01  # smaller deviations may come from rounded propensities
ALIKE = 1e-3  # relative; estimates that are closer may print as the same four digits


def log_notes(impressions: Impressions) -> list[str]:
    """Return notes on how the log was read: its pages, propensities and queries."""
    notes = [*impressions.notes, *_uneven(impressions)]
    if not impressions.has_pages:
        notes.append(
            "The log has no column event, which groups impressions into pages: the intervals of the whole page "
            "assume independent positions, and it cannot be tested whether clicks depend on the rest of the page."
        )
    left_out = impressions.total - impressions.weighable
    if left_out and impressions.weighable:
        notes.append(f"{left_out:,} of {impressions.total:,} impressions have no propensity and are not weighted.")
    if impressions.queries > 1:
        notes.append(
            f"The {impressions.queries:,} queries of the log are pooled, as if they had one ranking; select a query to "
            "evaluate it separately."
        )
    return notes


def _uneven(impressions: Impressions) -> list[str]:
    rare = [(share, p) for share, p in zip(impressions.reach.tolist(), impressions.positions) if share < 1.0]
    if not rare:
        return []
    listed = ", ".join(f"position {p} exists on {share:.1%}" for share, p in rare[:MOST_NAMED])
    more = ", ..." if len(rare) > MOST_NAMED else ""
    return [
        f"Pages differ in length: {listed}{more} of the {impressions.pages:,} pages. "
        "Clicks are per page, and a position counts as often as it exists."
    ]


def support_warnings(support: Sequence[Support]) -> list[str]:
    """Return warnings about the weights of a target."""
    *positions, whole = support
    weighed = [s for s in positions if s.impressions]
    warnings = [
        *_without_propensity(positions),
        *_unsupported(weighed),
        *_few_effective(weighed, whole),
        *_biased_weights(weighed),
    ]
    if whole.lost > 0.0:
        warnings.append(
            f"Clipping cut {whole.clipped:.1%} of the weights and removed {whole.lost:.1%} of their sum: the clipped "
            "estimate is too low, by an unknown amount, and has no interval."
        )
    return warnings


def _without_propensity(positions: Sequence[Support]) -> list[str]:
    missing = [str(s.position) for s in positions if not s.impressions]
    if not missing:
        return []
    return [
        f"No impression at position {', '.join(missing)} has a propensity: weighted estimates are unknown there and "
        "for the whole page, and only the direct method is available."
    ]


def _unsupported(positions: Sequence[Support]) -> list[str]:
    missing = [(s.position, s.unsupported) for s in positions if s.unsupported > 0.0]
    if not missing:
        return []
    listed = ", ".join(f"{share:.1%} at position {position}" for position, share in missing)
    return [
        f"The log never shows part of what the target would show: {listed}. Inverse propensity and clipped count no "
        "clicks there and are too low; self-normalised uses the average of the rest instead, and doubly robust its "
        "model."
    ]


def _few_effective(positions: Sequence[Support], whole: Support) -> list[str]:
    warnings = []
    thin = [s for s in positions if s.effective_impressions < FEWEST_IMPRESSIONS]
    if thin:
        listed = ", ".join(f"{s.effective_impressions:.0f} at position {s.position}" for s in thin)
        warnings.append(
            f"Too few impressions support the target for reliable weighted estimates: effectively {listed}; at least "
            f"{FEWEST_IMPRESSIONS} are needed."
        )
    if whole.effective_clicks < FEWEST_CLICKS:
        warnings.append(
            "Too few clicks support the target for reliable weighted estimates and intervals: effectively "
            f"{whole.effective_clicks:.1f}; at least {FEWEST_CLICKS} are needed."
        )
    return warnings


def _biased_weights(positions: Sequence[Support]) -> list[str]:
    """Correct propensities have weights with mean 1 minus the unsupported share."""
    off = []
    for s in positions:
        far = abs(s.mean_weight - (1.0 - s.unsupported))
        if far > max(FAR * s.mean_weight_error, VISIBLE):
            off.append(f"{s.mean_weight:.3g} (standard error {s.mean_weight_error:.2g}) at position {s.position}")
    if not off:
        return []
    return [
        f"The propensities of the log seem to be wrong: the mean weight should be 1 minus the unsupported share, and "
        f"is {', '.join(off)}. A filter that keeps only some items also causes this."
    ]


def model_warnings(impressions: Impressions, unknown: Floats) -> list[str]:
    """Return a warning if the model has no click rate for part of the target, of probability ``unknown`` (m,)."""
    missing = [(p, share) for p, share in zip(impressions.positions, np.asarray(unknown).tolist()) if share > 1e-9]
    if not missing:
        return []
    listed = ", ".join(f"{share:.1%} at position {position}" for position, share in missing)
    return [
        f"The log does not determine the model's click rates for part of the target: {listed}. The direct method "
        "counts no clicks there and is too low."
    ]


def dependence_warnings(fitted: object) -> list[str]:
    """Return a warning if ``fitted``, a model of the log, is one in which the clicks of a page depend on each other."""
    if not isinstance(fitted, ClickModel) or not model_named(fitted.model).dependent:
        return []
    return [
        f"In the given {fitted.title} a click depends on the rest of the page. The estimates assume that it depends on "
        "its own item and position only; if the model is right, all of them but that of the log itself are biased, by "
        "an amount that their intervals do not include. Evaluate lists in the world of the model instead."
    ]


def rest_of_page_notes(impressions: Impressions, found: Dependence | None) -> list[str]:
    """Return a note if it could not be tested whether clicks depend on the items above.

    That is the case if the test would not even notice users who leave with their first click: every click that is
    expected above takes away a click.
    """
    if not impressions.has_pages or len(impressions.positions) < 2:
        return []
    if rest_of_page_warnings(found):
        return []
    if found is not None and found.effective_pages >= FEWEST_IMPRESSIONS and FAR * found.error <= found.rate:
        return []
    return [
        "Whether clicks depend on the rest of the page is unknown: too few varied pages to test it. The estimates "
        "assume that a click depends on its own item and position only."
    ]


def rest_of_page_warnings(found: Dependence | None) -> list[str]:
    """Return a warning if clicks at the same item and position depend on the items above by more than chance."""
    if found is None or found.effective_pages < FEWEST_IMPRESSIONS or found.far < FAR:
        return []
    per_tenth = 0.1 * found.slope / found.rate
    low, high = sorted(abs(per_tenth + side * 0.196 * found.error / found.rate) for side in (-1.0, 1.0))
    return [
        f"Clicks of this log depend on the rest of the page: at the same position, an item is clicked "
        f"{'more' if found.slope > 0.0 else 'less'} often below items that are clicked more, by {abs(per_tenth):.1%} "
        f"for every 0.1 clicks expected {found.of} (95% interval {low:.1%} to {high:.1%}). The estimates assume that a "
        "click depends on its own item and position only; all of them but that of the log itself may be biased, by an "
        "amount that their intervals do not include. The command compare says which model fits, and lists can be "
        "evaluated in the world of that model. Rankings that were made for each user, or that changed while the users "
        "did, also cause this."
    ]


def disagreement_warnings(
    direct: Sequence[Estimate], robust: Sequence[Estimate], support: Sequence[Support]
) -> list[str]:
    """Return a warning if the direct and doubly robust estimates differ by more than chance.

    The whole page is checked first, and then single positions, where differences of opposite sign may cancel out.
    """
    *apart, whole = (_apart(*parts) for parts in zip(direct, robust, support))
    if whole:
        return [
            f"The direct method ({direct[-1].value:.4g}) is further from doubly robust ({robust[-1].value:.4g}) than "
            "chance explains: the clicks of this log do not follow the model; use doubly robust."
        ]
    off = [(a, b) for a, b, far in zip(direct, robust, apart) if far]
    if not off:
        return []
    listed = ", ".join(f"{a.value:.4g} instead of {b.value:.4g} at position {a.position}" for a, b in off[:MOST_NAMED])
    more = ", ..." if len(off) > MOST_NAMED else ""
    return [
        f"The direct method is further from doubly robust than chance explains: {listed}{more}. The clicks of this "
        "log do not follow the model; use doubly robust."
    ]


def _apart(direct: Estimate, robust: Estimate, support: Support) -> bool:
    """Whether two estimates differ by more than chance; False if there are too few clicks for standard errors."""
    far = max(FAR * robust.standard_error, ALIKE * max(abs(direct.value), abs(robust.value)))
    return support.effective_clicks >= FEWEST_CLICKS and abs(direct.value - robust.value) > far
