"""The result of an evaluation: estimates with intervals, support by the log, warnings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from ...data_frames import html_table, to_frame

# The names of the estimators in tables.
ESTIMATOR_NAMES = {
    "logged": "the log itself",
    "ips": "inverse propensity",
    "snips": "self-normalised",
    "clipped": "clipped",
    "direct": "direct method",
    "dr": "doubly robust",
}
MAX_LABEL = 60  # characters of a target in a repr
Z95 = 1.959963984540054  # 95% of a normal distribution, two sides


@dataclass(frozen=True)
class Estimate:
    """Expected clicks per page at one position, or on the whole page where ``position`` is None.

    ``lower`` and ``upper`` bound a 95% interval; NaN if the log does not determine the value, or its bias.
    """

    estimator: str
    position: int | None
    value: float
    standard_error: float
    lower: float
    upper: float


def make_estimate(
    estimator: str, position: int | None, value: float, standard_error: float, unseen: float = 0.0
) -> Estimate:
    """Return an estimate with its normal interval, truncated at 0.

    ``unseen`` is added to the upper end: without clicks the standard error is 0, and the interval would be too short.
    If it is NaN, there is no interval.

    >>> make_estimate("ips", 1, 0.02, 0.02)
    Estimate(estimator='ips', position=1, value=0.02, standard_error=0.02, lower=0.0, upper=0.059...)
    """
    lower, upper = (max(value + side * Z95 * standard_error, 0.0) for side in (-1.0, 1.0))
    known = unseen == unseen
    return Estimate(estimator, position, value, standard_error, lower if known else unseen, upper + unseen)


@dataclass(frozen=True)
class Support:
    """How well the log supports the target, at one position, or on the whole page if ``position`` is None.

    Effective impressions and clicks are Kish's effective sample sizes: that many with equal weights would give the same
    precision. For the whole page, effective impressions are those of the position with the fewest. ``unsupported`` is
    the share of the target that the log never shows, ``clipped`` the share of impressions whose weight was clipped, and
    ``lost`` the share of the sum of weights that clipping removed.
    """

    position: int | None
    impressions: int
    effective_impressions: float
    effective_clicks: float
    mean_weight: float
    mean_weight_error: float
    unsupported: float
    clipped: float
    lost: float


@dataclass(frozen=True)
class Evaluation:
    """Estimates of the clicks of a target, from a log of other rankings.

    Attributes
    ----------
    target
        The name of the target.
    estimates
        One for every estimator and position, and for the whole page.
    support
        How well the log supports the target, per position and for the whole page; empty for a log without
        propensities.
    clip_weights
        The largest weight of the clipped estimate.
    pages
        The number of pages of the log; if it has no pages, the impressions of its most frequent position.
    notes
        How the log was read and the target made.
    warnings
        Why estimates may be unreliable.
    """

    target: str
    positions: tuple[int, ...]
    estimates: tuple[Estimate, ...]
    support: tuple[Support, ...]
    clip_weights: float | None
    pages: int
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """A table of the estimates for the whole page."""
        lines = [f"<Evaluation of {_short(self.target)} on {self.pages:,} pages: clicks per page, 95% interval"]
        for name in self.estimators:
            page = self.estimate(name)
            between = f"{page.lower:z.4f} to {page.upper:z.4f}" if page.lower == page.lower else "no interval"
            lines.append(f"  {ESTIMATOR_NAMES[name]:<18}  {page.value:z.4f}  {between}")
        if self.warnings:
            lines.append(f"  {len(self.warnings)} warning{'s' * (len(self.warnings) > 1)}, in .warnings")
        return "\n".join(lines) + ">"

    @property
    def estimators(self) -> tuple[str, ...]:
        """The names of the estimators, in order."""
        return tuple(dict.fromkeys(estimate.estimator for estimate in self.estimates))

    def estimate(self, estimator: str, position: int | None = None) -> Estimate:
        """Return an estimate, at a position or for the whole page; raise ValueError if there is none."""
        for estimate in self.estimates:
            if (estimate.estimator, estimate.position) == (estimator, position):
                return estimate
        raise ValueError(
            f"there is no estimate {estimator!r} at position {position}; there are {', '.join(self.estimators)} at "
            f"positions {', '.join(map(str, self.positions))}"
        )

    def support_at(self, position: int | None = None) -> Support:
        """Return the support at a position or on the whole page; raise ValueError if there is none."""
        for support in self.support:
            if support.position == position:
                return support
        raise ValueError(f"there is no support at position {position}")

    def table(self) -> list[dict[str, Any]]:
        """Return one row for every estimate, for printing and for data frames."""
        return [{"target": self.target, **asdict(estimate)} for estimate in self.estimates]

    def to_frame(self, library: str | None = None) -> Any:
        """Return a data frame with one row for every estimator and position, and for the whole page.

        Columns: ``target``, ``estimator``, ``position`` (missing for the whole page), ``value`` (clicks per page),
        ``standard_error``, and ``lower`` and ``upper``, a 95% interval.

        ``library`` is "pandas", "polars" or "arrow"; by default the first of them that is installed. Raises ValueError
        for another name, and ImportError without the library.
        """
        names = ("target", *(field.name for field in fields(Estimate)))
        return to_frame({name: [row[name] for row in self.table()] for name in names}, library)

    def _repr_html_(self) -> str:
        """A table of the estimates for the whole page, with all warnings, for notebooks."""
        page = [self.estimate(name) for name in self.estimators]
        columns: dict[str, list[Any]] = {
            "estimator": [ESTIMATOR_NAMES[one.estimator] for one in page],
            "clicks per page": [one.value for one in page],
            "lower (95%)": [one.lower for one in page],
            "upper (95%)": [one.upper for one in page],
        }
        return html_table(f"{_short(self.target)} on {self.pages:,} pages", columns, self.warnings)

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes as plain values for JSON; NaN becomes None."""
        return {key: _plain(value) for key, value in asdict(self).items()}


def _short(target: str) -> str:
    return repr(target if len(target) <= MAX_LABEL else f"{target[: MAX_LABEL - 3]}...")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and value != value else value
