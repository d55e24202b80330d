"""Estimates from replications, and the verdicts that follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Contrast", "Estimate", "Outcome", "Verdict", "estimate", "judge", "judge_samples", "judge_within"]

Outcome = Literal["holds", "fails", "cannot be decided"]


class Estimate(NamedTuple):
    """A mean over replications with its confidence interval, 95% unless requested otherwise."""

    mean: float
    low: float
    high: float

    def __neg__(self) -> Estimate:
        return Estimate(-self.mean, -self.high, -self.low)

    def over(self, scale: float) -> Estimate:
        """Return the estimate divided by a positive number."""
        return Estimate(self.mean / scale, self.low / scale, self.high / scale)

    def __str__(self) -> str:
        digits = 4 if abs(self.mean) < 10 else 0
        return f"{self.mean:,.{digits}f} [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"


@dataclass(frozen=True)
class Verdict:
    """The outcome of testing one statement, with the evidence.

    Attributes
    ----------
    statement
        The statement that was tested.
    source
        Where it is made: a section or theorem of the paper; it begins with "ours" for a statement that is not there.
    outcome
        Whether it holds.
    measured
        What was measured, with numbers and intervals.
    rule
        When the statement counts as true.
    figure
        The stem of the figure that shows it, or "".
    remark
        A sentence on how to read the outcome, or "".
    because
        Why it fails, in words: a sentence without numbers, or "".
    """

    statement: str
    source: str
    outcome: Outcome
    measured: str
    rule: str
    figure: str = ""
    remark: str = ""
    because: str = ""


class Contrast(NamedTuple):
    """A weighted sum of the means of independent samples, such as the difference of two; pairs (weight, sample).

    >>> print(estimate(Contrast.of([3.0, 4.0, 5.0]) - Contrast.of([1.0, 2.0, 3.0])))
    2.0000 [-0.2670, 4.2670]
    """

    parts: tuple[tuple[float, NDArray[np.float64]], ...]

    @classmethod
    def of(cls, sample: ArrayLike) -> Contrast:
        """Return the mean of one sample."""
        return cls(((1.0, np.asarray(sample, dtype=np.float64)),))

    def __sub__(self, other: Contrast) -> Contrast:
        return Contrast(self.parts + tuple((-weight, sample) for weight, sample in other.parts))

    def __truediv__(self, scale: float) -> Contrast:
        return Contrast(tuple((weight / scale, sample) for weight, sample in self.parts))


def estimate(values: ArrayLike | Contrast, level: float = 0.95) -> Estimate:
    """Return the mean of independent replications, or a contrast of such means, with its interval.

    It is Student's interval (Welch's for several samples), wider on the side to which the samples are skewed, by the
    transformation of Hall (1992): Student's misses the mean of PBM-PIE, which fails badly in some replications, too
    often on that side. The interval is infinite if a sample has one replication.

    >>> print(estimate([1.0, 2.0, 3.0]))
    2.0000 [-0.4841, 4.4841]
    >>> print(estimate([2.1, 2.2, 2.3, 2.2, 0.0]))
    1.7600 [-3.0068, 2.9848]
    """
    from scipy.stats import t

    parts = values.parts if isinstance(values, Contrast) else Contrast.of(values).parts
    mean = float(sum(weight * sample.mean() for weight, sample in parts))
    if any(sample.size < 2 for _, sample in parts):
        return Estimate(mean, -np.inf, np.inf)
    variances = np.array([weight**2 * sample.var(ddof=1) / sample.size for weight, sample in parts])
    variance = float(variances.sum())
    if variance == 0.0:
        return Estimate(mean, mean, mean)
    freedom = variance**2 / sum(one**2 / (sample.size - 1) for one, (_, sample) in zip(variances, parts))
    thirds = [weight**3 * ((sample - sample.mean()) ** 3).mean() / sample.size**2 for weight, sample in parts]
    skewness = sum(thirds) / variance**1.5  # of the distribution of the mean
    quantile = float(t.ppf(0.5 + 0.5 * level, freedom))
    below, above = (max(quantile, abs(_without_skewness(side * quantile, skewness))) for side in (1.0, -1.0))
    return Estimate(mean, mean - below * np.sqrt(variance), mean + above * np.sqrt(variance))


def _without_skewness(quantile: float, skewness: float) -> float:
    """Return the quantile of a studentised mean with a skewed distribution, from that of a symmetric one."""
    if abs(skewness) < 1e-9:
        return quantile
    return float(3.0 / skewness * (np.cbrt(1.0 + skewness * (quantile - skewness / 6.0)) - 1.0))


def judge(estimates: Iterable[Estimate], above: float = 0.0) -> Outcome:
    """Judge whether several quantities all lie above a limit.

    "holds" if all intervals lie above it, "fails" if one lies below it, otherwise "cannot be decided".

    >>> judge([Estimate(2.0, 1.0, 3.0)]), judge([Estimate(2.0, -1.0, 5.0)]), judge([Estimate(-2.0, -3.0, -1.0)])
    ('holds', 'cannot be decided', 'fails')
    """
    given = list(estimates)
    if any(one.high < above for one in given):
        return "fails"
    return "holds" if all(one.low > above for one in given) else "cannot be decided"


def judge_samples(samples: Iterable[ArrayLike | Contrast], above: float = 0.0) -> Outcome:
    """Judge whether the means of several samples of replications, or contrasts of them, all lie above a limit.

    "holds" if every 95% interval lies above it. "fails" if one interval lies below it; these are wider, because with
    many samples one is easily below by chance (Bonferroni). Otherwise "cannot be decided".

    >>> judge_samples([[1.0, 1.1, 1.2], [2.0, 2.1, 2.2]]), judge_samples([[-1.0, -1.01], [2.0, 2.1]])
    ('holds', 'fails')
    """
    given = list(samples)
    if any(estimate(one, 1.0 - 0.05 / len(given)).high < above for one in given):
        return "fails"
    return "holds" if all(estimate(one).low > above for one in given) else "cannot be decided"


def judge_within(estimates: Iterable[Estimate], low: float, high: float) -> Outcome:
    """Judge whether several quantities all lie between two limits; the outcomes are those of ``judge``.

    >>> judge_within([Estimate(0.2, 0.1, 0.3)], 0.0, 1.0), judge_within([Estimate(2.0, 1.5, 2.5)], 0.0, 1.0)
    ('holds', 'fails')
    """
    given = list(estimates)
    if any(one.high < low or one.low > high for one in given):
        return "fails"
    return "holds" if all(low < one.low and one.high < high for one in given) else "cannot be decided"
