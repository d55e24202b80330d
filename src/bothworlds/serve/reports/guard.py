"""The guard: is the learner shown to be worse than the page's own order?

A young learner explores and is worse at first without being wrong. The guard waits until ``guard_after`` pages of the
learner have settled, and compares the pages since that moment only. Its confidence sequence holds at all times at once,
so that it may be checked every minute. On a surface with arms, each policy is guarded by itself, and the error is
divided between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...statistics.confidence_sequence import difference, interval
from ..model import BASELINE_ARM, LEARNER_ARM, Arm, Surface
from ..schemas import Guard
from ..stores import Store
from .inputs import MINUTE
from .strata import ArmHistory, arm_totals, pair_of
from .uplift import GUARD_ALPHA, SHORT, ArmPair, comparable


def learned_arms(surface: Surface) -> list[Arm]:
    """Return the arms that have a policy and a share."""
    return [arm for arm in surface.asked_shares if arm != BASELINE_ARM]


def _alpha(surface: Surface) -> float:
    """Return the error of the guard of one arm."""
    return GUARD_ALPHA / len(learned_arms(surface))


def _key(surface: Surface, arm: Arm) -> str:
    """Return the key of the fact in which the store keeps the start of the guard's comparison."""
    return f"guard {surface.id} {surface.compared_since}" + ("" if arm == LEARNER_ARM else f" {arm}")


def _start(store: Store, surface: Surface, arm: Arm) -> int | None:
    """Return when the guard's comparison started, None if it has not."""
    fact = store.get(_key(surface, arm))
    return None if fact is None else int(fact)


def _pairs(store: Store, surface: Surface, arm: Arm, since: int, until: int) -> list[ArmPair]:
    """Return the pages of an arm and of the holdout by stratum, in a range of time."""
    strata = arm_totals(store, surface, None, since, until) if since < until else []
    return [pair_of(totals, arm) for totals in strata]


def check_arm(store: Store, history: ArmHistory, surface: Surface, arm: Arm, now: int) -> bool:
    """Return whether an arm is shown to be worse; starts its comparison at the next whole minute once it has enough
    pages. Raises StoreError."""
    since = _start(store, surface, arm)
    if since is not None:
        pairs = _pairs(store, surface, arm, since, now)
        return is_worse(pairs, surface.settings.guard_margin, _alpha(surface))
    strata = history.arms_since_start(store, surface, None, now + 1, now)
    if sum(pair_of(totals, arm)[0].pages for totals in strata) >= surface.settings.guard_after:
        store.put(_key(surface, arm), b"%d" % ((now // MINUTE + 1) * MINUTE))
    return False


def learner_minus_holdout(strata: Sequence[ArmPair], alpha: float = GUARD_ALPHA) -> tuple[float, float] | None:
    """Return the confidence sequence for the difference of clicks per page; None without enough clicks."""
    counted = comparable(strata)
    return interval(difference(*counted), alpha, SHORT) if counted else None


def is_worse(strata: Sequence[ArmPair], margin: float, alpha: float = GUARD_ALPHA) -> bool:
    """Return whether the learner is shown to get fewer clicks per page than the holdout, by more than a margin.

    >>> from .uplift import PageTotals
    >>> one, other = PageTotals(9000, 2700, 2700), PageTotals(1000, 400, 400)
    >>> is_worse([(one, other)], 0.0), is_worse([(one, other)], 0.05), is_worse([(other, one)], 0.0)
    (True, False, False)
    """
    ends = learner_minus_holdout(strata, alpha)
    return ends is not None and ends[1] < -margin


def guard_view(store: Store, surface: Surface, until: int) -> Guard:
    """Return the state of the guard in the form that reports have; raises StoreError.

    With several arms, the figures are those of an arm that is guarded, or is the closest to it.
    """
    views = [_arm_view(store, surface, arm, until) for arm in learned_arms(surface)]
    closest = min(views, key=lambda view: (not view["active"], math.inf if view["high"] is None else view["high"]))
    return {
        **closest,
        "active": bool(surface.guarded),
        "active_since": min(surface.guarded.values(), default=None),
    }


def _arm_view(store: Store, surface: Surface, arm: Arm, until: int) -> Guard:
    since, active_since = _start(store, surface, arm), surface.guarded.get(arm)
    end = until if active_since is None else active_since
    ends = learner_minus_holdout([] if since is None else _pairs(store, surface, arm, since, end), _alpha(surface))
    return {
        "enabled": surface.settings.guard,
        "active": active_since is not None,
        "active_since": active_since,
        "compared_since": since,
        "low": ends[0] if ends else None,
        "high": ends[1] if ends else None,
    }
