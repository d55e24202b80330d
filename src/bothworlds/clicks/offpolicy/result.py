"""The result of an evaluation: what was chosen and why, estimates with intervals, what the log determines, warnings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from ...data_frames import html_table, to_frame

# The names of the estimators in tables.
ESTIMATOR_NAMES = {
    "logged": "the log itself",
    "cells": "placement rates",
    "pbm": "position-based",
    "pbm+level": "position-based, levels",
    "ubm": "user browsing",
    "shrunken": "shrunken attraction",
    "ips": "inverse propensity",
    "snips": "self-normalised",
    "clipped": "clipped",
    "dr": "doubly robust",
}
ALIASES = {"direct": "pbm"}
MAX_LABEL = 60  # characters of a target in a repr
Z95 = 1.959963984540054  # 95% of a normal distribution, two sides
NAN = float("nan")
NOT_FROM_THIS_LOG = "not from this log"


@dataclass(frozen=True)
class Estimate:
    """Expected clicks per page at one position, or on the whole page where ``position`` is None.

    ``lower`` and ``upper`` bound a 95% interval. All are NaN where the log does not determine the value; the interval
    is also NaN where the bias is unknown. ``determined`` is the share of the target's placements that the estimator
    determines.
    """

    estimator: str
    position: int | None
    value: float
    standard_error: float
    lower: float
    upper: float
    determined: float = 1.0


def make_estimate(
    estimator: str,
    position: int | None,
    value: float,
    standard_error: float,
    unseen: float = 0.0,
    determined: float = 1.0,
) -> Estimate:
    """Return an estimate with its normal interval, truncated at 0.

    ``unseen`` is added to the upper end: without clicks the standard error is 0, and the interval would be too short.
    If it is NaN, there is no interval.

    >>> make_estimate("ips", 1, 0.02, 0.02)
    Estimate(estimator='ips', position=1, value=0.02, standard_error=0.02, lower=0.0, upper=0.059..., determined=1.0)
    """
    if value != value:
        return Estimate(estimator, position, NAN, NAN, NAN, NAN, determined)
    ends = (value + side * Z95 * standard_error for side in (-1.0, 1.0))
    lower, upper = (end if end != end else max(end, 0.0) for end in ends)
    known = unseen == unseen
    lower, upper = lower if known else unseen, upper + unseen
    return Estimate(estimator, position, value, standard_error, lower, upper, determined)


@dataclass(frozen=True)
class Support:
    """How well propensities support the target, at one position, or on the whole page if ``position`` is None.

    Effective impressions and clicks are Kish's effective sample sizes: that many with equal weights would give the same
    precision. For the whole page, effective impressions are those of the position with the fewest. ``unsupported`` is
    the share of the target that the log never shows.
    """

    position: int | None
    impressions: int
    effective_impressions: float
    effective_clicks: float
    mean_weight: float
    mean_weight_error: float
    unsupported: float


class Change(NamedTuple):
    """The change of clicks per page, relative to the log on the same traffic: 0.1 is 10% more."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Candidate:
    """How well a model predicted the lists that were held out; errors are relative to the clicks of a page."""

    model: str
    error: float  # root mean squared error, net of sampling noise
    error_of_no_change: float
    advantage: float  # how much smaller the squared error is than that of no change, in standard errors
    phi: float  # mean squared error relative to its expectation, 1 if the model is right
    slope: float  # observed change per predicted change
    slope_error: float
    blocks: int
    squared_error: float = field(repr=False, default=NAN)
    behind: float = field(repr=False, default=NAN)  # squared error minus that of the best, in paired standard errors


@dataclass(frozen=True)
class Evaluation:
    """What a target would have earned, from a log of other rankings.

    Attributes
    ----------
    target
        The name of the target.
    chosen, reason
        The estimator that was chosen, or None, and why.
    value
        Clicks per page by the chosen estimator; NaN if none is chosen.
    change
        The change relative to the log on the same traffic, with its 95% interval.
    lower_bound, upper_bound
        Bounds on clicks per page where the log does not determine the target; equal to the value if it does.
    determined
        The share of the placements of the target that the log determines, weighted by traffic.
    estimates
        One for every estimator and position, and for the whole page.
    candidates
        How the models did on lists that were held out.
    support
        How well propensities support the target, per position and for the whole page; empty without propensities.
    pages
        The number of pages of the log; if it has no pages, the impressions of the most frequent position of queries.
    queries_in_log
        The number of queries.
    placements
        Arrow table of all that the target places: query, item, position, shown_here and shown_elsewhere (impressions at
        this and at other positions), how_determined (shown, examination, weakly, open).
    queries
        Arrow table: query, pages, logged and value (clicks per page), change.
    backtest
        Arrow table of the lists that were held out: query, list, pages, observed, predicted, baseline (no change),
        standard_error of the difference, model, and its slope, phi, error and error_of_no_change.
    notes
        How the log was read and the target made.
    warnings
        Why estimates may be unreliable, and what to log to know better.
    """

    target: str
    chosen: str | None
    reason: str
    value: float
    change: Change
    lower_bound: float
    upper_bound: float
    determined: float
    positions: tuple[int, ...]
    estimates: tuple[Estimate, ...]
    candidates: tuple[Candidate, ...]
    support: tuple[Support, ...]
    pages: int
    queries_in_log: int
    shares: tuple[float, float, float, float]  # of placements: shown, by examination, weakly, open
    placements: Any = field(repr=False, compare=False)
    queries: Any = field(repr=False, compare=False)
    backtest: Any = field(repr=False, compare=False)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """A table of the estimates for the whole page, the change, and the choice."""
        lines = [f"<Evaluation of {_short(self.target)} on {self.traffic}: clicks per page, 95% interval, determined"]
        rows = self.rows()
        width = max(len(name) for name, *_ in rows)
        lines += [
            f"  {name:<{width}}  {'  '.join((f'{a:<7}', f'{b:<18}', f'{c:>7}'))}".rstrip() for name, a, b, c in rows
        ]
        lines.append(f"  {self.reason}")
        if self.warnings:
            lines.append(f"  {len(self.warnings)} warning{'s' * (len(self.warnings) > 1)}, in .warnings")
        return "\n".join(lines) + ">"

    @property
    def traffic(self) -> str:
        """The size of the log in words."""
        queries = f", {self.queries_in_log:,} queries" if self.queries_in_log > 1 else ""
        return f"{self.pages:,} pages{queries}"

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return the rows of a printed table: estimator, value, interval, share of placements that are determined.

        The values of models that the log refutes are not printed.
        """
        rows = []
        for name in self.estimators:
            page = self.estimate(name)
            label = ESTIMATOR_NAMES[name] + (" (chosen)" if name == self.chosen else "")
            share = f"{page.determined:.1%}" if name != "logged" else ""
            if page.value != page.value:
                rows.append((label, "-", "not determined", share))
            elif self.reason.startswith(NOT_FROM_THIS_LOG) and name != "logged":
                rows.append((label, "-", "not confirmed", share))
            else:
                rows.append((label, f"{page.value:z.4f}", interval_text(page.lower, page.upper), share))
        if self.lower_bound != self.upper_bound and self.lower_bound == self.lower_bound:
            rows.append(("bounds", "", interval_text(self.lower_bound, self.upper_bound), ""))
            if (base := self.estimate("logged").value) > 0.0:
                low, high = (bound / base - 1.0 for bound in (self.lower_bound, self.upper_bound))
                rows.append(("bounds of the change", "", f"{low:+.1%} to {high:+.1%}", ""))
        if self.chosen:
            value, low, high = self.change
            rows.append(("change", f"{value:+.1%}", f"{low:+.1%} to {high:+.1%}" if low == low else "no interval", ""))
        else:
            rows.append(("change", "-", NOT_FROM_THIS_LOG, ""))
        return rows

    @property
    def estimators(self) -> tuple[str, ...]:
        """The names of the estimators, in order."""
        return tuple(dict.fromkeys(estimate.estimator for estimate in self.estimates))

    def estimate(self, estimator: str, position: int | None = None) -> Estimate:
        """Return an estimate, at a position or for the whole page; raise ValueError if there is none."""
        name = ALIASES.get(estimator, estimator)
        for estimate in self.estimates:
            if (estimate.estimator, estimate.position) == (name, position):
                return estimate
        raise ValueError(
            f"there is no estimate {estimator!r} at position {position}; there are {', '.join(self.estimators)} at "
            f"positions {', '.join(map(str, self.positions))}"
        )

    def to_frame(self, library: str | None = None) -> Any:
        """Return a data frame with one row for every estimator and position, and for the whole page.

        Columns: ``target``, ``estimator``, ``position`` (missing for the whole page), ``value`` (clicks per page),
        ``standard_error``, ``lower`` and ``upper`` (a 95% interval), ``determined``.

        ``library`` is "pandas", "polars" or "arrow"; by default the first of them that is installed. Raises ValueError
        for another name, and ImportError without the library.
        """
        rows = [{"target": self.target, **asdict(estimate)} for estimate in self.estimates]
        return to_frame({name: [row[name] for row in rows] for name in rows[0]}, library)

    def _repr_html_(self) -> str:
        """The table of the repr, with the reason and all warnings, for notebooks."""
        columns = dict(zip(("clicks per page", "value", "95% interval", "determined"), zip(*self.rows())))
        return html_table(f"{_short(self.target)} on {self.traffic}", columns, (self.reason, *self.warnings))

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes as plain values for JSON, without placements and queries; NaN becomes None."""
        skipped = ("placements", "queries", "backtest")
        plain = {one.name: _plain(getattr(self, one.name)) for one in fields(self) if one.name not in skipped}
        return {**plain, "backtest": _plain(self.backtest.to_pylist())}


def interval_text(low: float, high: float) -> str:
    """Return the ends of an interval as text."""
    return "no interval" if low != low else f"{low:z.4f} to {high:z.4f}"


def _short(target: str) -> str:
    return repr(target if len(target) <= MAX_LABEL else f"{target[: MAX_LABEL - 3]}...")


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif hasattr(value, "__dataclass_fields__"):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and value != value else value
