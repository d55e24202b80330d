"""What an evaluation found: estimates, how far to trust them, and what to beware of."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["WORDS", "Estimate", "Evaluation", "Support", "interval"]

# What people call the estimators.
WORDS = {
    "logged": "the log itself",
    "ips": "inverse propensity",
    "snips": "self-normalised",
    "clipped": "clipped",
    "direct": "direct method",
    "dr": "doubly robust",
}
LONGEST = 60  # letters of a target in a repr
Z95 = 1.959963984540054  # the normal distribution is within so many standard deviations 95 times out of 100


@dataclass(frozen=True)
class Estimate:
    """Expected clicks per page at one position, or on the whole page where ``position`` is None.

    ``lower`` and ``upper`` bound a 95% interval; NaN where the log does not determine the value.
    """

    estimator: str
    position: int | None
    value: float
    standard_error: float
    lower: float
    upper: float


def interval(
    estimator: str, position: int | None, value: float, standard_error: float, silent: float = 0.0
) -> Estimate:
    """An estimate with its normal interval, cut off at 0, below which there are no clicks.

    ``silent`` is added to the upper end: where no click was seen, the standard error is 0 and knows nothing.

    >>> interval("ips", 1, 0.02, 0.02)
    Estimate(estimator='ips', position=1, value=0.02, standard_error=0.02, lower=0.0, upper=0.059...)
    """
    lower, upper = (max(value + side * Z95 * standard_error, 0.0) for side in (-1.0, 1.0))
    return Estimate(estimator, position, value, standard_error, lower, upper + silent)


@dataclass(frozen=True)
class Support:
    """How much of the log speaks for the target, at one position, or on the whole page where ``position`` is None.

    ``effective`` impressions and clicks are Kish's: as many, equally weighted, would be worth the same. For the whole
    page the impressions are those of the weakest position. ``unsupported`` is the share of the target that the log
    never shows; ``clipped`` the share of impressions whose weight was cut, ``lost`` the share of weight that went.
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
    """Estimates of what a target would earn, from a log that somebody else's rankings made.

    Attributes
    ----------
    target
        What was judged, in words.
    estimates
        One for every estimator and position, and for the whole page.
    support
        How much of the log speaks for the target, position by position and for the whole page; none for a log without
        propensities.
    clip_weights
        Where the clipped estimate cuts weights.
    pages
        How many pages the log has; where it has none, how many its most frequent position needs.
    notes
        How it was done.
    warnings
        What to beware of.
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
        """A table of the estimates for the whole page; all the rest is in the attributes."""
        lines = [f"<Evaluation of {_short(self.target)} on {self.pages:,} pages: clicks per page, 95% interval"]
        for name in self.estimators:
            found = self.estimate(name)
            lines.append(f"  {WORDS[name]:<18}  {found.value:.4f}  {found.lower:.4f} to {found.upper:.4f}")
        if self.warnings:
            lines.append(f"  {len(self.warnings)} warning{'s' * (len(self.warnings) > 1)}, in .warnings")
        return "\n".join(lines) + ">"

    @property
    def estimators(self) -> tuple[str, ...]:
        """The names of the estimators, in order."""
        return tuple(dict.fromkeys(estimate.estimator for estimate in self.estimates))

    def estimate(self, estimator: str, position: int | None = None) -> Estimate:
        """The estimate of that name, at a position or for the whole page."""
        for found in self.estimates:
            if (found.estimator, found.position) == (estimator, position):
                return found
        raise ValueError(
            f"there is no estimate {estimator!r} at position {position}; there are {', '.join(self.estimators)} at "
            f"positions {', '.join(map(str, self.positions))}"
        )

    def support_at(self, position: int | None = None) -> Support:
        """How much of the log speaks for the target, at a position or on the whole page."""
        for found in self.support:
            if found.position == position:
                return found
        raise ValueError(f"nothing is known about the support at position {position}")

    def table(self) -> list[dict[str, Any]]:
        """One row for every estimate, for printing and for data frames."""
        return [{"target": self.target, **asdict(estimate)} for estimate in self.estimates]

    def as_dict(self) -> dict[str, Any]:
        """Everything, as plain values for JSON; NaN becomes None."""
        return {key: _plain(value) for key, value in asdict(self).items()}


def _short(target: str) -> str:
    return repr(target if len(target) <= LONGEST else f"{target[: LONGEST - 3]}...")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and value != value else value
