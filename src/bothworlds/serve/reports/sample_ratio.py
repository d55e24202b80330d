"""Sample ratio mismatch: do pages and feedback of learner and holdout come in the proportion that was asked for?

Two counts of the pages whose attribution window has ended are tested: lists that were returned, and pages whose final
feedback arrived in time. A page that loses the feedback of one arm settles without a click, so that it looks like an
arm that nobody clicks on; only the second count shows it. A page that sends ``final`` only after a click has an uneven
second count without any loss, so that count is used only where one arm gets final feedback on nearly all pages, and
small deviations are tolerated.

The evidence is the mean of both test martingales, which is one as well. Once it is large enough, the alarm stays until
the comparison is started again.
"""

from __future__ import annotations

import math

import msgspec

from ...statistics.sample_ratio import ALARM, log_evidence
from ..model import Surface
from ..schemas import SampleRatio
from ..stores.base import Store
from .inputs import DAY, MINUTE
from .strata import ArmHistory, Stratum

__all__ = ["RatioRecord", "mismatch_evidence", "ratio_key", "read_ratio", "sample_ratio_view", "updated_ratio"]

TOLERANCE = 0.05  # of the odds of feedback: by so much the arms may differ without a loss
ANSWERED = 0.9  # the share of pages with final feedback, in one arm at least, for feedback to be tested
LARGEST = math.log(1e9)  # larger evidence is reported as this
MAX_RANGE = 7 * DAY  # of pages that are counted at a time

Counts = tuple[int, int]  # pages, and those of them with final feedback


class RatioRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the proportions of a surface, up to ``until``.

    ``learner`` and ``holdout`` are counts since the share was last changed; ``pages_before`` and ``feedback_before``
    are the logarithms of the evidence of earlier shares.
    """

    started: int  # of the comparison
    until: int
    share: float
    learner: Counts = (0, 0)
    holdout: Counts = (0, 0)
    pages_before: float = 0.0
    feedback_before: float = 0.0
    alarm_at: int | None = None

    @property
    def pages_evidence(self) -> float:
        """The logarithm of the evidence that lists are not returned in the proportion of the shares."""
        return self.pages_before + _log_evidence(self.holdout[0], self.learner[0], self.share)

    @property
    def feedback_evidence(self) -> float:
        """The logarithm of the evidence that feedback does not arrive in the proportion of the shares."""
        answered = max(_share(self.learner), _share(self.holdout))
        now = _log_evidence(self.holdout[1], self.learner[1], self.share, TOLERANCE) if answered >= ANSWERED else 0.0
        return self.feedback_before + now


def mismatch_evidence(record: RatioRecord) -> float:
    """Return the logarithm of the mean of both kinds of evidence."""
    one, other = record.pages_evidence, record.feedback_evidence
    return max(one, other) + math.log1p(math.exp(-abs(one - other))) - math.log(2.0)


def ratio_key(surface_id: int) -> str:
    """Return the key of the fact in which the store keeps the record."""
    return f"sample ratio {surface_id}"


def read_ratio(store: Store, surface: Surface) -> tuple[RatioRecord, bytes | None]:
    """Return the record of the current comparison, and the stored bytes; raises StoreError."""
    fact = store.get(ratio_key(surface.id))
    record = None if fact is None else _decode(fact)
    if record is None or record.started != surface.compared_since:
        record = RatioRecord(started=surface.compared_since, until=surface.compared_since, share=surface.share)
    return record, fact


def updated_ratio(store: Store, history: ArmHistory, surface: Surface, record: RatioRecord, now: int) -> RatioRecord:
    """Return the record with the pages counted whose attribution window has ended since; raises StoreError."""
    window = round(1000 * surface.settings.attribution_seconds) + MINUTE
    until = min(now - window, record.until + MAX_RANGE) // MINUTE * MINUTE
    if until <= record.until:
        return record
    for stratum in history.strata(store, surface, record.until, until):
        record = _with_counts(record, stratum, store.feedback_counts(surface.id, stratum.since, stratum.until))
    alarm = record.alarm_at is None and mismatch_evidence(record) > ALARM
    return msgspec.structs.replace(record, until=until, alarm_at=now if alarm else record.alarm_at)


def sample_ratio_view(record: RatioRecord) -> SampleRatio:
    """Return the record in the form that reports have."""
    return {
        "alarm": record.alarm_at is not None,
        "evidence": math.exp(min(mismatch_evidence(record), LARGEST)),
        "alarm_at": record.alarm_at,
        "share": record.share,
        "learner": {"pages": record.learner[0], "answered": record.learner[1]},
        "holdout": {"pages": record.holdout[0], "answered": record.holdout[1]},
    }


_decode = msgspec.msgpack.Decoder(RatioRecord).decode


def _with_counts(record: RatioRecord, stratum: Stratum, counts: dict[str, Counts]) -> RatioRecord:
    if stratum.share != record.share:
        record = msgspec.structs.replace(
            record,
            share=stratum.share,
            learner=(0, 0),
            holdout=(0, 0),
            pages_before=record.pages_evidence,
            feedback_before=record.feedback_evidence,
        )
    learner, holdout = counts.get("learner", (0, 0)), counts.get("holdout", (0, 0))
    return msgspec.structs.replace(record, learner=_sum(record.learner, learner), holdout=_sum(record.holdout, holdout))


def _sum(one: Counts, other: Counts) -> Counts:
    return one[0] + other[0], one[1] + other[1]


def _share(counts: Counts) -> float:
    return counts[1] / counts[0] if counts[0] else 0.0


def _log_evidence(holdout: int, learner: int, share: float, tolerance: float = 0.0) -> float:
    """Return the evidence against the share; none if one arm has all pages."""
    return log_evidence(holdout, learner, share, tolerance=tolerance) if 0.0 < share < 1.0 else 0.0
