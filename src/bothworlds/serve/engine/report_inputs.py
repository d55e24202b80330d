"""The engine's state of a surface as plain data, for ``reports``, which does not import the engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..model import Surface
from ..reports.exploration_cost import shrunk_rates
from ..reports.inputs import SegmentState, SurfaceState
from .learner import SegmentCounters
from .served_surface import ServedSegment, ServedSurface
from .surface_rules import exposure_problem

__all__ = ["surface_state"]


def surface_state(display: ServedSurface, segment: str | None = None, duplicates: int = 0) -> SurfaceState:
    """Return a copy of the state of a surface with the counters of one segment, or of all of them (None).

    Any thread may call it.
    """
    served = dict(display.first.segments)
    names = list(served) if segment is None else [segment]
    segments = {name: _segment_state(served[name], _others(display, name)) for name in names if name in served}
    return SurfaceState(display.surface, list(served), segments, duplicates, _warnings(display.surface))


def _others(display: ServedSurface, segment: str) -> list[SegmentCounters]:
    """Return the counters of a segment that belong to other policies than the first one."""
    others = [one for one in display.learners if one is not display.first]
    return [one.segments[segment].counters for one in others if segment in one.segments]


def _segment_state(segment: ServedSegment, others: Sequence[SegmentCounters]) -> SegmentState:
    counters, policy = segment.counters, segment.unconstrained.learner
    shown = counters.shown + sum(other.shown for other in others)
    clicked = counters.clicked + sum(other.clicked for other in others)
    served = np.ix_([item.index for item in policy.eligible], policy.free)
    return SegmentState(
        rounds=counters.rounds,
        shown=shown,
        clicked=clicked,
        items=tuple(item.name for item in policy.eligible),
        rates=shrunk_rates(shown[served], clicked[served]),
        marginals=policy.marginals,
        policy_id=policy.id,
        made_at=segment.made_at,
        leader_alone=counters.wake > 0,
        other_rounds=sum(other.rounds for other in others),
    )


def _warnings(surface: Surface) -> list[str]:
    warnings = []
    if reason := exposure_problem(surface):
        warnings.append(f"{reason}; lists are uniform now, and nothing that was learned is used")
    if surface.settings.holdout == 0.0 and not surface.settings.arms:
        warnings.append("without a holdout the uplift cannot be measured; a holdout of 0.05 is a good start")
    return warnings
