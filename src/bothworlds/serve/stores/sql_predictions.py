"""SQL statements on versions of predicted losses; see ``prediction_versions``.

A version is inserted once. Only the number of its settled events changes, in the transaction that settles them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import msgspec
import numpy as np

from ..model import Segment, VerifiedFeedback
from ..prediction_versions import PredictionVersion, decode_version, encode_version, predicted_losses
from .batch_totals import BatchTotals
from .database import Session

__all__ = [
    "add_settled",
    "delete_unused",
    "fill_predicted",
    "insert_version",
    "read_settled",
    "read_version",
    "with_known_versions",
]

_SEGMENT = "WHERE surface_id = ? AND segment = ?"


def read_version(session: Session, surface_id: int, segment: str) -> PredictionVersion | None:
    """Returns the newest version of a segment."""
    sql = f"SELECT body FROM prediction_versions {_SEGMENT} ORDER BY number DESC LIMIT 1"
    rows = session.run(sql, (surface_id, segment))
    return decode_version(rows[0][0]) if rows else None


def insert_version(
    session: Session, surface_id: int, segment: str, version: PredictionVersion, expected: int | None
) -> bool:
    """Inserts a version if the newest one is as expected; returns whether it did. The revision must have been taken."""
    newest = session.run(f"SELECT max(number) FROM prediction_versions {_SEGMENT}", (surface_id, segment))[0][0]
    if newest != expected:
        return False
    session.many(
        "INSERT INTO prediction_versions (surface_id, segment, number, body, settled) VALUES (?, ?, ?, ?, 0)",
        [(surface_id, segment, version.number, encode_version(version))],
    )
    return True


def add_settled(session: Session, totals: BatchTotals) -> None:
    """Adds the settled events of a batch to their versions, in sorted order."""
    session.many(
        f"UPDATE prediction_versions SET settled = settled + ? {_SEGMENT} AND number = ?",
        [(settled, *version) for version, settled in sorted(totals.versions.items())],
    )


def fill_predicted(session: Session, segments: Mapping[str, Segment], surface_id: int, since: int) -> None:
    """Fills in what versions add to the estimated losses of segments with a revision greater than ``since``."""
    rows = session.run(
        "SELECT p.segment, p.body, p.settled FROM prediction_versions p JOIN segments s"
        " ON s.surface_id = p.surface_id AND s.segment = p.segment"
        " WHERE s.surface_id = ? AND s.revision > ? AND p.settled <> 0 ORDER BY p.segment",
        (surface_id, since),
    )
    for name, group in groupby(rows, key=lambda row: str(row[0])):
        if (segment := segments.get(name)) is None:
            continue
        versions = [(decode_version(body), settled) for _, body, settled in group]
        segment.settled.update({version.number: settled for version, settled in versions})
        losses = predicted_losses(versions)
        items, slots = np.nonzero(losses)
        segment.predicted.update(zip(zip(items.tolist(), slots.tolist()), losses[items, slots].tolist(), strict=True))


def read_settled(session: Session, surface_id: int, segment: str, sign: int = 1) -> tuple[tuple[int, int], ...]:
    """Returns number and settled events, times ``sign``, of all versions that have some."""
    sql = f"SELECT number, settled FROM prediction_versions {_SEGMENT} AND settled <> 0 ORDER BY number"
    return tuple((number, sign * settled) for number, settled in session.run(sql, (surface_id, segment)))


def delete_unused(session: Session, surface_id: int, before: int) -> None:
    """Deletes versions without settled events that were replaced before this time, or whose segment does not exist.

    A version may have been in force for a long time, so that its own age does not say whether its events have settled.
    """
    same = "{0}.surface_id = prediction_versions.surface_id AND {0}.segment = prediction_versions.segment"
    newer = f"SELECT max(newer.number) FROM prediction_versions newer WHERE {same.format('newer')} AND newer.number < ?"
    session.run(
        f"DELETE FROM prediction_versions WHERE surface_id = ? AND settled = 0 AND (number < ({newer})"
        f" OR (number < ? AND NOT EXISTS (SELECT 1 FROM segments WHERE {same.format('segments')})))",
        (surface_id, before, before),
    )


def with_known_versions(session: Session, feedback: Sequence[VerifiedFeedback]) -> list[VerifiedFeedback]:
    """Returns the feedback without predictions of versions that are not stored.

    A store that was restored from a backup may lack the version of a token. Without its prediction, such an event is
    estimated as those without predictions are.
    """
    wanted = {
        (event.surface_id, event.counter_key, event.prediction.version)
        for event in (given.event for given in feedback)
        if event.prediction is not None
    }
    sql = f"SELECT 1 FROM prediction_versions {_SEGMENT} AND number = ?"
    unknown = {key for key in sorted(wanted) if not session.run(sql, key)}
    return [_without_unknown(given, unknown) for given in feedback] if unknown else list(feedback)


def _without_unknown(given: VerifiedFeedback, unknown: set[tuple[int, str, int]]) -> VerifiedFeedback:
    event = given.event
    if event.prediction is None or (event.surface_id, event.counter_key, event.prediction.version) not in unknown:
        return given
    return msgspec.structs.replace(given, event=msgspec.structs.replace(event, prediction=None))
