"""How settings are declared, with the values that are accepted, and settings that several policies share.

A declaration is the default of a field: ``rate: float = number(0.5, 1e-6, 1e3)``. ``Policy`` checks all of them when a
policy is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ...core import Shape
from ..base import CompiledPolicy
from .change_detector import LEAVES as DETECTOR_LEAVES
from .change_detector import ChangeDetector, make_change_detector
from .counts import LEAVES as COUNTS_LEAVES
from .counts import Counts, make_counts
from .epochs import Epochs, make_epochs

ROUNDS = 10**15  # the most rounds that a setting may count
LEAST_PROBABILITY = 1e-9


@dataclass(frozen=True)
class Bounds:
    """The numbers that a setting may have, from ``least`` to ``most``; ``optional``: or None."""

    least: float
    most: float
    whole: bool
    optional: bool

    def __call__(self, setting: str, value: Any) -> Any:
        """Return the value; raises ValueError if it is out of bounds."""
        kinds = (int, np.integer) if self.whole else (int, float, np.integer, np.floating)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        if (value is None and self.optional) or (is_number and self.least <= value <= self.most):
            return value
        kind, form = ("whole number", ",") if self.whole else ("number", "g")
        limits = f"from {self.least:{form}} to {self.most:{form}}{', or None' if self.optional else ''}"
        raise ValueError(f"{setting} must be a {kind} {limits}; got {_shortened(value)}")


def number(default: float | None, least: float, most: float) -> Any:
    """Declare a setting that is a number from ``least`` to ``most``; with the default None, it may also be None.

    >>> from bothworlds import policy
    >>> policy("ftrl-pbm", rate=1e308)
    Traceback (most recent call last):
    ...
    ValueError: rate must be a number from 1e-06 to 1000; got 1e+308
    """
    return _checked(default, Bounds(least, most, whole=False, optional=default is None))


def whole(default: int | None, least: int, most: int) -> Any:
    """Declare a setting that is a whole number from ``least`` to ``most``; with the default None, it may be None."""
    return _checked(default, Bounds(least, most, whole=True, optional=default is None))


def truth(default: bool) -> Any:
    """Declare a setting that is True or False."""

    def check(setting: str, value: Any) -> Any:
        if not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"{setting} must be True or False; got {_shortened(value)}")
        return value

    return _checked(default, check)


def choice(*known: str) -> Any:
    """Declare a setting that is one of these words; the first is the default."""

    def check(setting: str, value: Any) -> Any:
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"{setting} must be one of {', '.join(known)}; got {_shortened(value)}")
        return value

    return _checked(known[0], check)


def probabilities() -> Any:
    """Declare a setting that is a list of probabilities above 0, stored as a tuple, or None."""

    def check(setting: str, value: Any) -> tuple[float, ...] | None:
        if value is None:
            return None
        try:
            given = np.array(value, dtype=np.float64)
        except (OverflowError, TypeError, ValueError):
            given = np.empty(0)
        if given.ndim != 1 or not given.size or not ((given >= LEAST_PROBABILITY) & (given <= 1.0)).all():
            raise ValueError(
                f"{setting} must be a list of probabilities from {LEAST_PROBABILITY:g} to 1; got {_shortened(value)}"
            )
        return tuple(given.tolist())

    return _checked(None, check)


def indices() -> Any:
    """Declare a setting that is a list of different item indices, stored as a tuple, or None."""

    def check(setting: str, value: Any) -> tuple[int, ...] | None:
        if value is None:
            return None
        listed = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else []
        items = [i for i in listed if isinstance(i, (int, np.integer)) and not isinstance(i, bool) and i >= 0]
        if not items or len(items) < len(listed) or len(set(items)) < len(items):
            raise ValueError(
                f"{setting} must be a list of item indices, all different, like {setting}=[2,0,1]; "
                f"got {_shortened(value)}"
            )
        return tuple(int(i) for i in items)

    return _checked(None, check)


def _checked(default: Any, check: Callable[[str, Any], Any]) -> Any:
    """Return a field of a dataclass whose values ``Policy`` checks when it is made."""
    return field(default=default, metadata={"check": check})


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True, kw_only=True)
class Forgetting(CompiledPolicy):
    """A policy with counts that may forget, in one of three ways.

    Parameters
    ----------
    window
        Number of most recent rounds to remember; None for all.
    discount
        A round that is s rounds ago has the weight discount to the power s.
    detect
        Whether to forget everything before a detected change; see ``parts/change_detector.py``.
    """

    window: int | None = whole(None, 1, 10**7)
    discount: float = number(1.0, 1e-6, 1.0)
    detect = False  # a setting of those that have a detector

    exclusive: ClassVar[tuple[str, ...]] = ("window", "discount", "detect")
    learned_leaves: ClassVar[Mapping[str, str] | None] = {**COUNTS_LEAVES, **DETECTOR_LEAVES}

    def counts(self, shape: Shape) -> Counts:
        """Return empty counts with the window and the discount of the settings."""
        return make_counts(*shape, self.window, self.discount)

    def detector(self, shape: Shape) -> ChangeDetector:
        """Return a change detector, which is active if ``detect`` is set."""
        return make_change_detector(*shape, active=self.detect)

    def memory(self) -> float:
        """Return the largest number of rounds that it remembers; confidence bounds need not hold for longer."""
        if self.window is not None:
            return float(self.window)
        return 1.0 / (1.0 - self.discount) if self.discount < 1.0 else math.inf


@dataclass(frozen=True, kw_only=True)
class Restarting(CompiledPolicy):
    """A policy that needs no horizon, and may start again.

    Parameters
    ----------
    restart
        Number of rounds after which everything is forgotten; None for never.
    """

    restart: int | None = whole(None, 1, ROUNDS)

    def epochs(self) -> Epochs:
        """Return its epochs: one without end, unless it restarts."""
        return make_epochs(None, self.restart, anytime=True)


@dataclass(frozen=True, kw_only=True)
class Planning(Restarting):
    """A policy that plans for a number of rounds, and may start again.

    Parameters
    ----------
    horizon
        Number of rounds to plan for; ``play`` fills it in. None for the doubling trick, which starts with 1024.
    """

    horizon: int | None = whole(None, 1, ROUNDS)

    def epochs(self) -> Epochs:
        """Return its epochs: one with the horizon of the settings, or doubling, or restarting."""
        return make_epochs(self.horizon, self.restart)
