"""The guard: is the learner shown to be worse than the page's own order?

A young learner explores and is worse at first without being wrong. The guard waits until ``guard_after`` pages of the
learner have settled, and compares the pages since that moment only. Its confidence sequence holds at all times at once,
so that it may be checked every minute.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...statistics.confidence_sequence import difference, interval
from ..model import Surface
from ..schemas import Guard
from ..stores.base import Store
from .inputs import MINUTE
from .strata import ArmHistory
from .uplift import GUARD_ALPHA, ArmPair, comparable

__all__ = ["guard_key", "guard_start", "guard_view", "is_worse", "read_guard_start", "start_value"]


def guard_key(surface: Surface) -> str:
    """Return the key of the fact in which the store keeps the start of the guard's comparison."""
    return f"guard {surface.id} {surface.compared_since}"


def read_guard_start(store: Store, surface: Surface) -> int | None:
    """Return when the guard's comparison started, None if it has not; raises StoreError."""
    fact = store.get(guard_key(surface))
    return None if fact is None else int(fact)


def start_value(at: int) -> bytes:
    """Return the value of the fact."""
    return b"%d" % at


def guard_start(store: Store, history: ArmHistory, surface: Surface, now: int) -> int | None:
    """Return the next whole minute if enough pages have settled, otherwise None; raises StoreError."""
    strata = history.since_start(store, surface, None, now + 1, now)
    pages = sum(learner.pages for learner, _ in strata)
    return (now // MINUTE + 1) * MINUTE if pages >= surface.settings.guard_after else None


def learner_minus_holdout(strata: Sequence[ArmPair]) -> tuple[float, float] | None:
    """Return the confidence sequence for the difference of clicks per page; None without enough clicks."""
    counted = comparable(strata)
    return interval(difference(*counted), GUARD_ALPHA) if counted else None


def is_worse(strata: Sequence[ArmPair], margin: float) -> bool:
    """Return whether the learner is shown to get fewer clicks per page than the holdout, by more than a margin.

    >>> from .uplift import PageTotals
    >>> one, other = PageTotals(9000, 2700, 2700), PageTotals(1000, 400, 400)
    >>> is_worse([(one, other)], 0.0), is_worse([(one, other)], 0.05), is_worse([(other, one)], 0.0)
    (True, False, False)
    """
    ends = learner_minus_holdout(strata)
    return ends is not None and ends[1] < -margin


def guard_view(store: Store, history: ArmHistory, surface: Surface, until: int) -> Guard:
    """Return the state of the guard in the form that reports have; raises StoreError."""
    since = read_guard_start(store, surface)
    end = until if surface.guarded_since is None else surface.guarded_since
    started = since is not None and since < end
    ends = learner_minus_holdout(history.totals(store, surface, None, since or 0, end)) if started else None
    return {
        "enabled": surface.settings.guard,
        "active": surface.guarded_since is not None,
        "active_since": surface.guarded_since,
        "compared_since": since,
        "low": ends[0] if ends else None,
        "high": ends[1] if ends else None,
    }
