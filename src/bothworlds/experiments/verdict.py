"""Estimates from replications, and the verdicts that follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["Estimate", "Outcome", "Verdict", "estimate", "judge", "judge_samples", "judge_within"]

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
    """

    statement: str
    source: str
    outcome: Outcome
    measured: str
    rule: str
    figure: str = ""
    remark: str = ""


def estimate(values: ArrayLike, level: float = 0.95) -> Estimate:
    """Return the mean of independent replications and its Student interval at a confidence level.

    The interval of a single replication is infinite.

    >>> print(estimate([1.0, 2.0, 3.0]))
    2.0000 [-0.4841, 4.4841]
    """
    from scipy.stats import t

    sample = np.asarray(values, dtype=np.float64)
    mean = float(sample.mean())
    if sample.size < 2:
        return Estimate(mean, -np.inf, np.inf)
    half = float(t.ppf(0.5 + 0.5 * level, sample.size - 1) * sample.std(ddof=1) / np.sqrt(sample.size))
    return Estimate(mean, mean - half, mean + half)


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


def judge_samples(samples: Iterable[ArrayLike], above: float = 0.0) -> Outcome:
    """Judge whether the means of several samples of replications all lie above a limit.

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
