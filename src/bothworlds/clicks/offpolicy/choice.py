"""The choice of an estimator, with the reason in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .backtest import Backtest
from .dependence import FAR, Dependence
from .result import ESTIMATOR_NAMES, NOT_FROM_THIS_LOG, Candidate

BETTER = 2.0  # standard errors that a model must be better than no change
TIED = 2.0  # paired standard errors of models that count as equally good


class Choice(NamedTuple):
    """The estimator, or None, and why."""

    name: str | None
    reason: str


def choose(
    knows: Callable[[str], bool],
    found: Backtest,
    weighted: bool,
    levels: float,
    dependence: Dependence | None,
    open_share: float,
) -> Choice:
    """Return the automatic choice.

    ``knows`` says whether an estimator determines the target, ``weighted`` whether propensities may be used, and
    ``levels`` how far levels of windows differ, in standard errors.
    """
    if weighted and knows("dr"):
        return Choice("dr", "Chosen: the log has propensities, and supports the target everywhere.")
    if open_share > 0.0:
        reason = f"{NOT_FROM_THIS_LOG}: it does not determine {max(open_share, 0.001):.1%} of the placements."
        return Choice(None, reason + " Bounds are given instead.")
    first = "there are no weights to use" if weighted else "no propensities that can be used"
    if not found.candidates:
        return _unchecked(knows, levels, dependence)
    usable = [one for one in found.candidates if one.model != "pbm+level" or levels >= FAR]
    good = [one for one in usable if one.advantage >= BETTER and knows(one.model)]
    if not good:
        best = min(usable, key=lambda one: one.squared_error)
        return Choice(
            None,
            f"{NOT_FROM_THIS_LOG}: no model predicts the changes that this log has seen. Of {best.blocks} lists held "
            f"out in turn, {ESTIMATOR_NAMES[best.model]} predicts best, with error {best.error:.1%} (no change "
            f"{best.error_of_no_change:.1%}); changes were {best.slope:.2f} times what it predicted.",
        )
    best = min(good, key=lambda one: one.squared_error)
    simple = next((one for one in good if one.model == "pbm"), None)
    if simple is not None and _tied(simple, best):
        best = simple
    return Choice(
        best.model,
        f"Chosen: {first}; of {best.blocks} lists held out in turn, {ESTIMATOR_NAMES[best.model]} predicts best (error "
        f"{best.error:.1%}, no change {best.error_of_no_change:.1%}); changes were {best.slope:.2f} times what it "
        f"predicted, and errors {best.phi**0.5:.2f} times what chance explains.",
    )


def _tied(one: Candidate, best: Candidate) -> bool:
    return one.behind <= TIED or one.squared_error <= best.squared_error


def _unchecked(knows: Callable[[str], bool], levels: float, dependence: Dependence | None) -> Choice:
    start = "Not checked by a backtest: fewer than 10 lists have 30 pages and are determined by the others. Chosen: "
    if levels >= FAR and knows("pbm+level"):
        return Choice("pbm+level", start + "position-based with levels, since click rates changed over time.")
    if dependence is not None and dependence.fires and knows("ubm"):
        return Choice("ubm", start + "user browsing, since clicks depend on the rest of the page.")
    return Choice("pbm", start + "position-based.") if knows("pbm") else Choice(None, NOT_FROM_THIS_LOG)


def asked_for(name: str, knows: Callable[[str], bool], open_share: float) -> Choice:
    """Return the choice of an estimator that was asked for."""
    if knows(name):
        return Choice(name, f"{ESTIMATOR_NAMES[name].capitalize()} was asked for.")
    share = f" ({open_share:.1%} of its placements are open)" if open_share > 0.0 else ""
    return Choice(None, f"{NOT_FROM_THIS_LOG}: {ESTIMATOR_NAMES[name]} does not determine the target{share}.")
