"""Estimates from replications, claims, and the verdicts that follow: one function judges every claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from .question import Size
    from .result_lookup import Results

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


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement that is tested."""

    statement: str
    source: str  #: a section or theorem of the paper; it begins with "ours" for a statement that is not there
    rule: str  #: when it counts as true
    figure: str = ""  #: the stem of the figure that shows it
    because: str = ""  #: why it fails, in a sentence without numbers


@dataclass(frozen=True, kw_only=True)
class Verdict(Statement):
    """Whether a statement holds, what was measured, and a sentence on how to read it, or ""."""

    outcome: Outcome
    measured: str
    remark: str = ""


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


#: What is known of one quantity: replications, a contrast of the means of some, or an interval.
Sample = ArrayLike | Contrast | Estimate
#: Samples by label; where a policy is compared with several, those of one label by the name of the other policy.
Measured = Mapping[str, Sample | Mapping[str, Sample]]
Measure = Callable[["Results", "Size"], Measured]


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
    freedom = variance**2 / sum(part**2 / (sample.size - 1) for part, (_, sample) in zip(variances, parts))
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


def judge(samples: Iterable[Sample], above: float = -np.inf, below: float = np.inf) -> Outcome:
    """Judge whether the means of several samples, or contrasts of them, all lie between two limits.

    "holds" if every 95% interval lies between them. "fails" if one interval lies outside; those of samples are wider
    then, because with many samples one is easily outside by chance (Bonferroni). An Estimate is taken as it is.
    Otherwise "cannot be decided".

    >>> judge([[1.0, 1.1, 1.2], [2.0, 2.1, 2.2]], above=0.0), judge([[-1.0, -1.01], [2.0, 2.1]], above=0.0)
    ('holds', 'fails')
    >>> judge([Estimate(2.0, -1.0, 5.0)], above=0.0)
    'cannot be decided'
    """
    given = list(samples)
    wide = [interval(sample, 1.0 - 0.05 / len(given)) for sample in given]
    if any(found.high < above or found.low > below for found in wide):
        return "fails"
    inside = (above < found.low and found.high < below for found in map(interval, given))
    return "holds" if all(inside) else "cannot be decided"


def interval(sample: Sample, level: float = 0.95) -> Estimate:
    """Return the estimate from a sample; an Estimate is returned as it is."""
    return sample if isinstance(sample, Estimate) else estimate(sample, level)


@dataclass(frozen=True, kw_only=True)
class Claim(Statement):
    """A statement as data: it holds if all that is measured lies between two limits, ``above`` and ``below``."""

    measure: Measure  #: returns samples of the results, by label
    #: What the samples are; or a function of the estimates, the results and the size that says all of it.
    said: str | Callable[[Mapping[str, Estimate], Results, Size], str]
    above: float = -np.inf
    below: float = np.inf
    only: str = ""  #: the label of the sample that is judged, if the others are shown only
    denied: bool = False  #: the claim is that a policy is *not* ahead of all others: it holds if that fails everywhere
    remark: str | Callable[[Results, Size], str] = ""  #: how to read the outcome


def judged(claim: Claim, results: Results, size: Size) -> Verdict:
    """Measure and judge a claim. Raises KeyError if a result is missing."""
    measured = {label: _by_rival(value) for label, value in claim.measure(results, size).items()}
    groups = [group for label, group in measured.items() if claim.only in ("", label)]
    limits = claim.above, claim.below
    if claim.denied:
        outcome = _opposite({judge(group.values(), *limits) for group in groups})
    else:
        outcome = judge([sample for group in groups for sample in group.values()], *limits)
    strongest = {label: min(group, key=lambda rival: interval(group[rival]).mean) for label, group in measured.items()}
    estimates = {label: interval(measured[label][rival]) for label, rival in strongest.items()}
    ahead: dict[str, list[str]] = {}
    for label, rival in strongest.items():
        if rival and not claim.denied and estimates[label].high < claim.above:
            ahead.setdefault(rival, []).append(label)
    said = claim.said(estimates, results, size) if callable(claim.said) else _said(claim.said, estimates, strongest)
    return Verdict(
        **{field.name: getattr(claim, field.name) for field in fields(Statement)}
        | {"because": claim.because or who_is_ahead(ahead)},
        outcome=outcome,
        measured=said,
        remark=claim.remark(results, size) if callable(claim.remark) else claim.remark,
    )


def _opposite(outcomes: Set[Outcome]) -> Outcome:
    """The outcome of the claim that something is the case nowhere."""
    if "holds" in outcomes:
        return "fails"
    return "holds" if outcomes == {"fails"} else "cannot be decided"


def _said(said: str, estimates: Mapping[str, Estimate], strongest: Mapping[str, str]) -> str:
    parts = (
        (f"{label}: " if label else "") + str(found) + (f" over {strongest[label]}" if strongest[label] else "")
        for label, found in estimates.items()
    )
    return f"{said}: {'; '.join(parts)}"


def _by_rival(value: Sample | Mapping[str, Sample]) -> Mapping[str, Sample]:
    """Return samples by the policy that another one is compared with, "" if there is none."""
    return value if isinstance(value, Mapping) else {"": value}


def who_is_ahead(panels: Mapping[str, Sequence[str]]) -> str:
    """Return a sentence on which policies are ahead in which panels.

    >>> who_is_ahead({"pmed": ["(a)", "(d)"], "mw": ["(b)"]})
    'pmed is ahead in (a), (d); mw is ahead in (b).'
    """
    said = "; ".join(f"{name} is ahead in {', '.join(where)}" for name, where in panels.items())
    return f"{said}." if said else ""
