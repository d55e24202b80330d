"""What an experiment is: a question, the games that answer it, figures, and verdicts that can come out negative."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arena import Result
from ..policies import Policy
from ..worlds import Stochastic, World

__all__ = [
    "Estimate",
    "Figure",
    "Game",
    "Outcome",
    "Question",
    "Results",
    "Size",
    "Verdict",
    "estimate",
    "figure_files",
    "judge",
    "judge_samples",
    "judge_within",
]

Outcome = Literal["holds", "fails", "cannot be decided"]


class Size(NamedTuple):
    """How much is run: rounds and phases of the paper's panels, replications, and those of the other questions.

    ``fitted`` are users who take the place of those that the paper fitted to a search log.
    """

    name: str
    rounds: int
    phase: int
    seeds: int
    few_seeds: int
    long_rounds: int
    short_rounds: int
    fitted: Stochastic | None = None


class Game(NamedTuple):
    """A policy in a world, for so many rounds and replications."""

    policy: Policy
    world: World
    rounds: int
    seeds: int


class Figure(NamedTuple):
    """A figure in the folder of a report: the stem of its file names, what it shows, and how it is to be read."""

    stem: str
    title: str
    caption: str


def figure_files(folder: str | Path, stem: str) -> dict[Path, bool]:
    """The files of a figure, and whether each is the version for narrow screens.

    >>> [path.name for path in figure_files("figures", "growth")]
    ['growth.svg', 'growth.png', 'growth-narrow.svg']
    """
    return {Path(folder) / f"{stem}{end}": "narrow" in end for end in (".svg", ".png", "-narrow.svg")}


class Estimate(NamedTuple):
    """A mean over replications with its 95% interval."""

    mean: float
    low: float
    high: float

    def __neg__(self) -> Estimate:
        return Estimate(-self.mean, -self.high, -self.low)

    def over(self, scale: float) -> Estimate:
        """In units of a positive scale."""
        return Estimate(self.mean / scale, self.low / scale, self.high / scale)

    def __str__(self) -> str:
        digits = 4 if abs(self.mean) < 10 else 0
        return f"{self.mean:,.{digits}f} [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"


@dataclass(frozen=True)
class Verdict:
    """A statement put to the test: one of the paper's, or (``source`` begins with "ours") one of our own.

    ``measured`` says what was measured and ``rule`` when the statement counts as true.
    """

    statement: str
    source: str
    outcome: Outcome
    measured: str
    rule: str
    figure: str = ""
    remark: str = ""


def estimate(values: ArrayLike, level: float = 0.95) -> Estimate:
    """Mean and Student's interval of independent replications.

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
    """Whether all of several quantities lie above a limit: they do, one of them does not, or the intervals reach over.

    >>> judge([Estimate(2.0, 1.0, 3.0)]), judge([Estimate(2.0, -1.0, 5.0)]), judge([Estimate(-2.0, -3.0, -1.0)])
    ('holds', 'cannot be decided', 'fails')
    """
    given = list(estimates)
    if any(one.high < above for one in given):
        return "fails"
    return "holds" if all(one.low > above for one in given) else "cannot be decided"


def judge_samples(samples: Iterable[ArrayLike], above: float = 0.0) -> Outcome:
    """Whether the means of several samples of replications all lie above a limit.

    They do if every 95% interval does. One does not if its interval lies below, with a level that allows for the number
    of samples (Bonferroni): the unluckiest of many is easily below by chance.

    >>> judge_samples([[1.0, 1.1, 1.2], [2.0, 2.1, 2.2]]), judge_samples([[-1.0, -1.01], [2.0, 2.1]])
    ('holds', 'fails')
    """
    given = list(samples)
    if any(estimate(one, 1.0 - 0.05 / len(given)).high < above for one in given):
        return "fails"
    return "holds" if all(estimate(one).low > above for one in given) else "cannot be decided"


def judge_within(estimates: Iterable[Estimate], low: float, high: float) -> Outcome:
    """Whether all of several quantities lie between two limits.

    >>> judge_within([Estimate(0.2, 0.1, 0.3)], 0.0, 1.0), judge_within([Estimate(2.0, 1.5, 2.5)], 0.0, 1.0)
    ('holds', 'fails')
    """
    given = list(estimates)
    if any(one.high < low or one.low > high for one in given):
        return "fails"
    return "holds" if all(low < one.low and one.high < high for one in given) else "cannot be decided"


class Results:
    """Results by policy and world, and differences between policies that met the same users."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._found = {(result.policy, result.world): result for result in results}
        self.all = list(results)

    def __getitem__(self, key: tuple[str, str]) -> Result:
        return self._found[key]

    def of(self, policies: Sequence[str], worlds: Sequence[str]) -> list[Result]:
        """Those of some policies in some worlds, worlds first."""
        return [self._found[policy, world] for world in worlds for policy in policies if (policy, world) in self._found]

    def earned(self, policy: str, world: str) -> NDArray[np.float64]:
        """(seeds,) final average reward."""
        values: NDArray[np.float64] = self._found[policy, world].average_reward()[:, -1]
        return values

    def ahead(self, policy: str, other: str, world: str) -> NDArray[np.float64]:
        """(seeds,) how much more a policy earns per round than another, over users they have in common."""
        mine, theirs = self.earned(policy, world), self.earned(other, world)
        common = min(mine.size, theirs.size)
        difference: NDArray[np.float64] = mine[:common] - theirs[:common]
        return difference

    def lead(self, policy: str, other: str, world: str) -> Estimate:
        """By how much a policy earns more per round than another."""
        return estimate(self.ahead(policy, other, world))

    def best_other(self, policy: str, others: Sequence[str], world: str) -> str:
        """Who of the others earned the most."""
        return max((other for other in others if other != policy), key=lambda other: self.earned(other, world).mean())

    def span(self, world: str, floor: float) -> float:
        """The range between a floor (what uniform lists earn) and the best list of each round, per round."""
        one = next(result for result in self.all if result.world == world)
        return float(one.best_dynamic[-1] / one.rounds[-1]) - floor


class Question(ABC):
    """One file each: what is run, the figures, and the verdicts."""

    name: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str]

    @abstractmethod
    def games(self, size: Size) -> list[Game]:
        """What has to be played to answer it."""

    @abstractmethod
    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        """Draw into the folder."""

    def verdicts(self, results: Results, size: Size) -> list[Verdict]:
        """What follows for the statements of the paper; none for questions that are our own."""
        return []
