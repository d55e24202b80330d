"""Exact arithmetic and exact probabilities, for running the sampler's own source over all its outcomes.

Kernels mix their arrays with constants such as ``0.0``, and a ``Fraction`` plus a float is a float. An ``Exact`` stays
exact. A ``Chooser`` stands in for the random generator: what it hands out as a uniform number can only be scaled,
shifted and compared, and every comparison whose result is open splits the experiment in two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from bothworlds.core import leaves, with_leaves


class Exact:
    """A rational number that takes floats for the rational numbers they are."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = Fraction(_plain(value))

    def __add__(self, other):
        return Exact(self.value + _plain(other))

    def __sub__(self, other):
        return Exact(self.value - _plain(other))

    def __rsub__(self, other):
        return Exact(_plain(other) - self.value)

    def __mul__(self, other):
        if isinstance(other, Line):
            return NotImplemented
        return Exact(self.value * _plain(other))

    def __truediv__(self, other):
        return Exact(self.value / _plain(other))

    def __rtruediv__(self, other):
        return Exact(_plain(other) / self.value)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self):
        return Exact(-self.value)

    def __int__(self):
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __lt__(self, other):
        return self.value < _plain(other)

    def __le__(self, other):
        return self.value <= _plain(other)

    def __gt__(self, other):
        return self.value > _plain(other)

    def __ge__(self, other):
        return self.value >= _plain(other)

    def __eq__(self, other):
        return self.value == _plain(other)

    __hash__ = None

    def __repr__(self) -> str:
        return f"Exact({self.value})"


def _plain(value: Any) -> Fraction | float:
    """A Fraction, or infinity, which no Fraction is but which every Fraction can be compared with."""
    if isinstance(value, Exact):
        return value.value
    if isinstance(value, float) and math.isinf(value):
        return value
    return Fraction(value)


class Chooser:
    """One run of an experiment: answers from a script as long as it lasts, and True from then on."""

    def __init__(self, script: list[bool]) -> None:
        self.script = script
        self.path: list[bool] = []
        self.probability = Fraction(1)

    def random(self) -> Line:
        """A uniform number, of which nothing is known yet."""
        return Line(_Uniform(self))

    def happens(self, probability: Fraction) -> bool:
        """Whether something of this probability happens in this run."""
        step = len(self.path)
        outcome = self.script[step] if step < len(self.script) else True
        self.path.append(outcome)
        self.probability *= probability if outcome else 1 - probability
        return outcome


class _Uniform:
    """A number between 0 and 1; what comparisons have revealed about it so far is an interval."""

    def __init__(self, chooser: Chooser) -> None:
        self.chooser = chooser
        self.low, self.high = Fraction(0), Fraction(1)

    def below(self, threshold: Fraction) -> bool:
        if threshold <= self.low:
            return False
        if threshold >= self.high:
            return True
        outcome = self.chooser.happens((threshold - self.low) / (self.high - self.low))
        if outcome:
            self.high = threshold
        else:
            self.low = threshold
        return outcome


class Line:
    """slope * u + intercept, for a uniform number u."""

    def __init__(self, uniform: _Uniform, slope: Fraction = Fraction(1), intercept: Fraction = Fraction(0)) -> None:
        self.uniform, self.slope, self.intercept = uniform, slope, intercept

    def __mul__(self, factor):
        factor = _plain(factor)
        assert factor >= 0, "the sampler scales a uniform number by a mass"
        return Line(self.uniform, self.slope * factor, self.intercept * factor)

    __rmul__ = __mul__

    def __sub__(self, shift):
        return Line(self.uniform, self.slope, self.intercept - _plain(shift))

    def __int__(self) -> int:
        """The whole number below a number that is not negative."""
        whole = 0
        while not self < whole + 1:
            whole += 1
        return whole

    def __lt__(self, other):
        other = _plain(other)
        if self.slope == 0:
            return self.intercept < other
        return self.uniform.below((other - self.intercept) / self.slope)


def all_outcomes(experiment: Callable[[Chooser], Any]) -> Iterator[tuple[Fraction, Any]]:
    """Every outcome of an experiment with its probability: a walk through the tree of its choices."""
    script: list[bool] = []
    while True:
        chooser = Chooser(script)
        result = experiment(chooser)
        yield chooser.probability, result
        script = chooser.path
        while script and not script[-1]:
            script.pop()
        if not script:
            return
        script[-1] = False


def exact_array(values: Any) -> np.ndarray:
    """An array of Exact with the shape and values of ``values``."""
    values = np.asarray(values, dtype=object)
    result = np.empty(values.shape, dtype=object)
    for index, value in np.ndenumerate(values):
        result[index] = Exact(value)
    return result


def with_exact(state: Any, *paths: str) -> Any:
    """The state with these arrays, by their paths, as arrays of Exact."""
    values = dict(leaves(state))
    return with_leaves(state, values | {path: exact_array(values[path]) for path in paths})
