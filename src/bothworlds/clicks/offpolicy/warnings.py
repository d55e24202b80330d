"""When not to trust an evaluation: sentences for people, from its figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels import Floats
from .impressions import Impressions
from .result import Estimate, Support

__all__ = ["doubts_about_fit", "doubts_about_model", "doubts_about_support", "notes_on_log"]

FEWEST_IMPRESSIONS = 100  # effective, per position
FEWEST_CLICKS = 30  # effective, on the whole page; below, the normal approximation of the interval is poor too
FAR = 4.0  # standard errors of a mean weight from where it must be
MOST_NAMED = 10  # positions
VISIBLE = 0.01  # rounding of propensities in a long log is no reason for alarm
ALIKE = 1e-3  # of a value: estimates that are closer may look the same in four digits


def notes_on_log(impressions: Impressions) -> list[str]:
    """How the log was taken, where that is not obvious."""
    notes = [*impressions.notes, *_uneven(impressions)]
    if not impressions.has_pages:
        notes.append(
            "The log does not say which impressions were on one page: positions are taken as independent in the "
            "intervals of the whole page."
        )
    left_out = impressions.total - impressions.weighable
    if left_out and impressions.weighable:
        notes.append(f"{left_out:,} of {impressions.total:,} impressions have no propensity and are not weighed.")
    if impressions.queries > 1:
        notes.append(
            f"The {impressions.queries:,} queries of the log are pooled, as if one ranking served them all; choose one "
            "query to judge it alone."
        )
    return notes


def _uneven(impressions: Impressions) -> list[str]:
    rare = [(share, p) for share, p in zip(impressions.reach.tolist(), impressions.positions) if share < 1.0]
    if not rare:
        return []
    said = ", ".join(f"position {p} exists on {share:.1%}" for share, p in rare[:MOST_NAMED])
    more = ", ..." if len(rare) > MOST_NAMED else ""
    return [
        f"Pages differ in length: {said}{more} of the {impressions.pages:,} pages. "
        "Clicks are per page, and a position counts as often as it exists."
    ]


def doubts_about_support(support: Sequence[Support]) -> list[str]:
    """What is wrong with the weights of a target, in sentences; nothing if nothing is."""
    *positions, whole = support
    weighed = [s for s in positions if s.impressions]
    doubts = [*_mute(positions), *_unsupported(weighed), *_few(weighed, whole), *_wrong(weighed)]
    if whole.lost > 0.0:
        doubts.append(
            f"Clipping cut {whole.clipped:.1%} of the weights and with them {whole.lost:.1%} of the weight: the "
            "clipped estimate is too low, and its interval does not know by how much."
        )
    return doubts


def _mute(positions: Sequence[Support]) -> list[str]:
    mute = [str(s.position) for s in positions if not s.impressions]
    if not mute:
        return []
    return [
        f"No impression at position {', '.join(mute)} has a propensity: weighted estimates are unknown there and for "
        "the whole page, and only the direct method is left."
    ]


def _unsupported(positions: Sequence[Support]) -> list[str]:
    missing = [(s.position, s.unsupported) for s in positions if s.unsupported > 0.0]
    if not missing:
        return []
    said = ", ".join(f"{share:.1%} at position {position}" for position, share in missing)
    return [
        f"The log never shows part of what the target would show: {said}. Inverse propensity and clipped know no "
        "clicks there and are too low; self-normalised puts the average of the rest in its place, doubly robust the "
        "word of its model."
    ]


def _few(positions: Sequence[Support], whole: Support) -> list[str]:
    doubts = []
    thin = [s for s in positions if s.effective_impressions < FEWEST_IMPRESSIONS]
    if thin:
        said = ", ".join(f"{s.effective_impressions:.0f} at position {s.position}" for s in thin)
        doubts.append(
            f"Too few impressions speak for the target to trust the weighted estimates: as many as {said} with equal "
            f"weights, and {FEWEST_IMPRESSIONS} are the least."
        )
    if whole.effective_clicks < FEWEST_CLICKS:
        doubts.append(
            f"Too few clicks speak for the target to trust the weighted estimates and their intervals: as many as "
            f"{whole.effective_clicks:.1f} with equal weights, and {FEWEST_CLICKS} are the least."
        )
    return doubts


def _wrong(positions: Sequence[Support]) -> list[str]:
    """Weights average 1, or what is supported of it, if propensities are what they claim to be."""
    off = []
    for s in positions:
        far = abs(s.mean_weight - (1.0 - s.unsupported))
        if far > max(FAR * s.mean_weight_error, VISIBLE):
            off.append(f"{s.mean_weight:.3g} (standard error {s.mean_weight_error:.2g}) at position {s.position}")
    if not off:
        return []
    return [
        f"The propensities of the log do not look right: weights must average 1 minus what is not supported, and "
        f"average {', '.join(off)}. A filter that keeps only some items does that too."
    ]


def doubts_about_model(impressions: Impressions, unknown: Floats) -> list[str]:
    """What the direct method cannot say; ``unknown`` (m,) is the mass for which the model has no click rate."""
    missing = [(p, share) for p, share in zip(impressions.positions, np.asarray(unknown).tolist()) if share > 1e-9]
    if not missing:
        return []
    said = ", ".join(f"{share:.1%} at position {position}" for position, share in missing)
    return [
        f"The log does not determine the model's click rates for part of the target: {said}. The direct method knows "
        "no clicks there and is too low."
    ]


def doubts_about_fit(direct: Sequence[Estimate], robust: Sequence[Estimate], support: Sequence[Support]) -> list[str]:
    """Whether the direct method is off by more than chance, for the whole page or at positions that cancel out."""
    *apart, whole = (_apart(*parts) for parts in zip(direct, robust, support))
    if whole:
        return [
            f"The direct method ({direct[-1].value:.4g}) is further from doubly robust ({robust[-1].value:.4g}) than "
            "chance explains: clicks of this log do not follow its model, and doubly robust is the one to trust."
        ]
    off = [(a, b) for a, b, far in zip(direct, robust, apart) if far]
    if not off:
        return []
    said = ", ".join(f"{a.value:.4g} and not {b.value:.4g} at position {a.position}" for a, b in off[:MOST_NAMED])
    more = ", ..." if len(off) > MOST_NAMED else ""
    return [
        f"The direct method is further from doubly robust than chance explains: {said}{more}. Clicks of this log do "
        "not follow its model, and doubly robust is the one to trust."
    ]


def _apart(direct: Estimate, robust: Estimate, support: Support) -> bool:
    """Whether two estimates differ by more than chance, if clicks are enough for standard errors to hold."""
    far = max(FAR * robust.standard_error, ALIKE * max(abs(direct.value), abs(robust.value)))
    return support.effective_clicks >= FEWEST_CLICKS and abs(direct.value - robust.value) > far
