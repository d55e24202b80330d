"""Sample ratio mismatch: do pages and feedback of all arms come in the proportion that was asked for?

Two counts of the pages whose attribution window has ended are tested: lists that were returned, and pages whose final
feedback arrived in time. A page that loses the feedback of one arm settles without a click, so that it looks like an
arm that nobody clicks on; only the second count shows it. A page that sends ``final`` only after a click has an uneven
second count without any loss, so that count is used only where one arm gets final feedback on nearly all pages, and
small deviations are tolerated.

All pages of a visitor have the same arm. Of every visitor, only the first page is counted, since their arm is one draw.
Where events are deleted after some days (``retention_days``), their first page may be gone when they come again. There,
pages are counted in periods, in each of which no event is deleted before all of its pages are counted. A visitor is
counted once in a period, and every period is a test of its own: the k-th has a share of 1 / (k (k + 1)) of the error.
A period in which no page has a visitor goes on.

The evidence is the mean of both test martingales, which is one as well. Once it is large enough, the alarm stays until
the comparison is started again.
"""

from __future__ import annotations

import math

import msgspec

from ...statistics.sample_ratio import ALARM, log_evidence
from ..model import BASELINE_ARM, LEARNER_ARM, NO_SHARE, Arm, Surface, SurfaceSettings
from ..schemas import ArmFeedback, SampleRatio
from ..stores import Store
from .inputs import DAY, HOUR, MINUTE, shortest_retention
from .strata import Shares, Stratum, strata_between
from .uplift import spent

TOLERANCE = 0.05  # of the odds of feedback: by so much the arms may differ without a loss
ANSWERED = 0.9  # the share of pages with final feedback, in one arm at least, for feedback to be tested
LARGEST = math.log(1e9)  # larger evidence is reported as this
MAX_RANGE = 7 * DAY  # of pages that are counted at a time
COUNTING_DELAY = 10 * MINUTE  # by which pages may be counted late: they are counted once a minute

Counts = tuple[int, int]  # pages, and those of them with final feedback


class RatioRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the proportions of a surface, up to ``until``.

    ``counts`` are those of every arm since a share was last changed; ``pages_before`` and ``feedback_before`` are the
    logarithms of the evidence of earlier shares. All of them are those of the current period, which began at
    ``period_since``; ``period`` is its number, 0 if there are no periods.
    """

    started: int  # of the comparison
    until: int
    shares: Shares
    counts: dict[Arm, Counts] = {}
    pages_before: float = 0.0
    feedback_before: float = 0.0
    alarm_at: int | None = None
    period: int = 0
    period_since: int | None = None  # None: the start of the comparison

    @property
    def counted_since(self) -> int:
        """The time since which every visitor is counted once."""
        return self.started if self.period_since is None else self.period_since

    @property
    def pages_evidence(self) -> float:
        """The logarithm of the evidence that lists are not returned in the proportion of the shares."""
        return self.pages_before + self._evidence(0)

    @property
    def feedback_evidence(self) -> float:
        """The logarithm of the evidence that feedback does not arrive in the proportion of the shares."""
        answered = max((answered / max(1, pages) for pages, answered in self.counts.values()), default=0.0)
        return self.feedback_before + (self._evidence(1, TOLERANCE) if answered >= ANSWERED else 0.0)

    def _evidence(self, column: int, tolerance: float = 0.0) -> float:
        """Return the evidence of one of the counts; none if one arm has all pages."""
        shares = self.shares | {LEARNER_ARM: 1.0 - sum(self.shares.values())}
        shares = {arm: share for arm, share in shares.items() if share > NO_SHARE}
        if len(shares) < 2:
            return 0.0
        counted = [self.counts.get(arm, (0, 0))[column] for arm in shares]
        return log_evidence(counted, list(shares.values()), tolerance=tolerance)


def mismatch_evidence(record: RatioRecord) -> float:
    """Return the logarithm of the mean of both kinds of evidence, times the share of the period in the error."""
    one, other = record.pages_evidence, record.feedback_evidence
    share = spent(1.0, record.period) if record.period else 1.0
    return max(one, other) + math.log1p(math.exp(-abs(one - other))) - math.log(2.0) + math.log(share)


def period_length(settings: SurfaceSettings) -> int | None:
    """Return the length of a period in milliseconds; None if no event is deleted because of its age.

    An event is kept for at least this time after all pages of its period were counted.
    """
    kept = shortest_retention(settings)
    return None if kept is None else (kept - _delay(settings) - COUNTING_DELAY) // MINUTE * MINUTE


def ratio_key(surface_id: int) -> str:
    """Return the key of the fact in which the store keeps the record."""
    return f"sample ratio {surface_id}"


def read_ratio(store: Store, surface: Surface) -> tuple[RatioRecord, bytes | None]:
    """Return the record of the current comparison, and the stored bytes; raises StoreError."""
    fact = store.get(ratio_key(surface.id))
    record = None if fact is None else _decode(fact)
    since = surface.compared_since
    if record is None or record.started != since:
        record = RatioRecord(started=since, until=since, shares=surface.compared_shares)
    return record, fact


def updated_ratio(store: Store, surface: Surface, record: RatioRecord, now: int) -> RatioRecord:
    """Return the record with the pages counted whose attribution window has ended since; raises StoreError."""
    until = min(now - _delay(surface.settings), record.until + MAX_RANGE) // MINUTE * MINUTE
    length = period_length(surface.settings)
    while record.until < until:
        end = until
        if length is not None:
            record, period_end = _in_period(store, surface.id, record, length)
            end = min(until, period_end)
        for stratum in strata_between(surface, record.until, end):
            counts = store.feedback_counts(surface.id, stratum.since, stratum.until, record.counted_since)
            record = _with_counts(record, stratum, counts)
        alarm = record.alarm_at is None and mismatch_evidence(record) > ALARM
        record = msgspec.structs.replace(record, until=end, alarm_at=now if alarm else record.alarm_at)
    return record


def _delay(settings: SurfaceSettings) -> int:
    """Return how long after a page was shown it is counted."""
    return round(1000 * settings.attribution_seconds) + MINUTE


def _in_period(store: Store, surface_id: int, record: RatioRecord, length: int) -> tuple[RatioRecord, int]:
    """Return the record in the period of its next pages, and when that ends; raises StoreError.

    Without visitors the period goes on: pages of others are counted once in any case.
    """
    since = record.counted_since
    end = (since + length) // MINUTE * MINUTE
    if record.until >= end and not store.visitor_sums(surface_id, None, since - since % HOUR, record.until):
        end = record.until + length
    if record.until < end:
        return msgspec.structs.replace(record, period=max(1, record.period)), end
    fresh = RatioRecord(
        started=record.started,
        until=record.until,
        shares=record.shares,
        alarm_at=record.alarm_at,
        period=record.period + 1,
        period_since=record.until,
    )
    return fresh, record.until + length


def sample_ratio_view(record: RatioRecord) -> SampleRatio:
    """Return the record in the form that reports have."""
    views: dict[Arm, ArmFeedback] = {
        arm: {"pages": pages, "answered": answered}
        for arm in (LEARNER_ARM, *record.shares)
        for pages, answered in [record.counts.get(arm, (0, 0))]
    }
    view: SampleRatio = {
        "alarm": record.alarm_at is not None,
        "evidence": math.exp(min(mismatch_evidence(record), LARGEST)),
        "alarm_at": record.alarm_at,
        "share": record.shares[BASELINE_ARM],
        "learner": views.pop(LEARNER_ARM),
        "holdout": views.pop(BASELINE_ARM),
    }
    return {**view, "arms": views} if views else view


_decode = msgspec.msgpack.Decoder(RatioRecord).decode


def _with_counts(record: RatioRecord, stratum: Stratum, counts: dict[Arm, Counts]) -> RatioRecord:
    if stratum.shares != record.shares:
        evidence = {"pages_before": record.pages_evidence, "feedback_before": record.feedback_evidence}
        record = msgspec.structs.replace(record, shares=stratum.shares, counts={}, **evidence)
    summed = {}
    for arm in (LEARNER_ARM, *record.shares):
        pages, answered = zip((0, 0), *(known[arm] for known in (record.counts, counts) if arm in known))
        summed[arm] = sum(pages), sum(answered)
    return msgspec.structs.replace(record, counts=summed)
