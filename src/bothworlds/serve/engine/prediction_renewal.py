"""Renews the predicted losses of segments, for policies whose leader subtracts them."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from ...policies import Policy
from ...policies.predictions import FIRST_ROUNDS, Predictions, in_units, needs_renewal, next_renewal
from ..model import Adjustment, Cell, Increments, Segment, Surface
from ..prediction_versions import PredictionVersion
from ..stores.base import Store
from .served_surface import ServedSegment
from .tokens import MAX_WINDOW

__all__ = ["PredictionRenewal", "folded_predictions"]

MAX_VERSIONS = 64  # with settled events, of one segment; every refresh reads them
ACTOR = "predictions"  # of adjustments


class PredictionRenewal:
    """Stores new versions of predictions. Blocks on the store; raises StoreError. Used by one thread at a time."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self._store, self._clock = store, clock

    def in_force(self, policy: Policy, surface_id: int, segment: str) -> PredictionVersion | None:
        """Returns the newest version of a segment, if its policy predicts losses."""
        predicts = type(policy).predictions is not Policy.predictions
        return self._store.prediction_version(surface_id, segment) if predicts else None

    def renewed(self, name: str, segment: ServedSegment) -> PredictionVersion | None:
        """Returns the version that is in force from now on, if it is a new one; it is durable then."""
        predictions = segment.unconstrained.learner.predictions
        if predictions is None or not self._is_due(segment, predictions):
            return None
        surface, counters, known = segment.served_surface.surface, segment.counters, segment.counters.version
        used = np.zeros((len(surface.items), surface.settings.slots), np.uint8)
        used[[item.index for item in segment.unconstrained.learner.eligible]] = in_units(predictions.used)
        now = self._clock()
        version = PredictionVersion(
            number=now if known is None else max(now, known.number + 1),
            rounds=counters.rounds,
            renew_at=next_renewal(counters.rounds, predictions.memory),
            changed_at=counters.changed_at,
            policy=segment.served_surface.policy.label,
            slots=surface.settings.slots,
            compressed=zlib.compress(used.tobytes(), 1),
        )
        expected = None if known is None else known.number
        if self._store.save_prediction_version(
            surface.id, name, version, expected=expected, unused_before=now - MAX_WINDOW
        ):
            return version
        return self._store.prediction_version(surface.id, name)  # another process was first

    def fold(self, surface: Surface, segment: Segment) -> None:
        """Adds what was predicted to the losses of a segment, if it has so many versions that reading them is slow."""
        if len(segment.settled) > MAX_VERSIONS:
            self._store.adjust_by(
                surface.id,
                lambda known: [
                    folded_predictions(one, self._clock())
                    for one in known
                    if one.name == segment.name and len(one.settled) > MAX_VERSIONS
                ],
                [],
            )

    @staticmethod
    def _is_due(segment: ServedSegment, predictions: Predictions) -> bool:
        counters, served = segment.counters, segment.served_surface
        known = counters.version
        if counters.rounds < FIRST_ROUNDS:
            return False
        if known is None or known.slots != served.surface.settings.slots:
            return True
        if (known.policy, known.changed_at) != (served.policy.label, counters.changed_at):
            return True
        used = known.used_at([item.index for item in segment.unconstrained.learner.eligible])
        if used is None:  # an item that it predicts cannot be shown any more
            return True
        return needs_renewal(used, known.rounds, known.renew_at, counters.rounds, predictions)


def folded_predictions(segment: Segment, now: int) -> Adjustment:
    """Returns the adjustment that adds the predicted losses of a segment to its counters and sets versions to 0.

    The estimated losses stay the same. Events that settle later count for their versions again.
    """
    cells = tuple(Cell(*cell, loss=loss) for cell, loss in sorted(segment.predicted.items()))
    return Adjustment(
        increments=Increments(surface_id=segment.surface_id, segment=segment.name, rounds=0, cells=cells),
        at=now,
        actor=ACTOR,
        reason="predicted losses",
        settled=tuple((number, -settled) for number, settled in sorted(segment.settled.items())),
    )
