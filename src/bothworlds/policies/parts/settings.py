"""Settings that several policies share, and their validation."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Ledger, Shape
from ...geometry.item_rows import worth_sharing
from ..base import CompiledPolicy
from .change_detector import ChangeDetector, make_change_detector
from .counts import Counts, Remembered, make_counts, remembered
from .epochs import Epochs, go_forward, make_epochs
from .ledgers import check_blocks

__all__ = ["Detecting", "Forgetting", "Planning", "Restarting", "choice", "number", "probabilities", "truth", "whole"]


LARGEST, LARGEST_WHOLE = sys.float_info.max, 2**62  # that kernels can use; integers of Python may be larger


def number(policy: Any, setting: str, above: float = -math.inf, below: float = math.inf, closed: str = "") -> None:
    """Raise ValueError unless a setting is a finite number between two limits; ``closed`` is "[", "]" or "[]".

    >>> from types import SimpleNamespace
    >>> number(SimpleNamespace(rate=0.0), "rate", above=0.0)
    Traceback (most recent call last):
    ...
    ValueError: rate must be a number above 0; got 0.0
    """
    value = getattr(policy, setting)
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if (
        not is_number
        or not abs(value) <= LARGEST
        or not (value > above or (value == above and "[" in closed))
        or not (value < below or (value == below and "]" in closed))
    ):
        limits = [
            f"{'at least' if '[' in closed else 'above'} {above:g}" if above > -math.inf else "",
            f"{'at most' if ']' in closed else 'below'} {below:g}" if below < math.inf else "",
        ]
        raise ValueError(f"{setting} must be a number {' and '.join(filter(None, limits))}; got {_shortened(value)}")


def whole(policy: Any, setting: str, least: int, *, optional: bool = False) -> None:
    """Raise ValueError unless a setting is a whole number of at least ``least``, or None if it is ``optional``."""
    value = getattr(policy, setting)
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= LARGEST_WHOLE:
        either = ", or None" if optional else ""
        raise ValueError(f"{setting} must be a whole number of at least {least}{either}; got {_shortened(value)}")


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def truth(policy: Any, setting: str) -> None:
    """Raise ValueError unless a setting is True or False."""
    if not isinstance(getattr(policy, setting), (bool, np.bool_)):
        raise ValueError(f"{setting} must be True or False; got {getattr(policy, setting)!r}")


def choice(policy: Any, setting: str, known: Sequence[str]) -> None:
    """Raise ValueError unless a setting is one of the known words."""
    value = getattr(policy, setting)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{setting} must be one of {', '.join(known)}; got {value!r}")


def probabilities(policy: Any, setting: str) -> None:
    """Raise ValueError unless a setting is a list of probabilities above 0, or None; it is stored as a tuple."""
    value = getattr(policy, setting)
    if value is None:
        return
    try:
        given = np.array(value, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{setting} must be a list of probabilities; got {_shortened(value)}") from error
    if given.ndim != 1 or not given.size or not ((given > 0.0) & (given <= 1.0)).all():
        raise ValueError(f"{setting} must be a list of probabilities above 0; got {value!r}")
    object.__setattr__(policy, setting, tuple(given.tolist()))


@dataclass(frozen=True, kw_only=True)
class Forgetting(CompiledPolicy):
    """A policy with counts that may forget: ``window`` and ``discount``."""

    window: int | None = None
    discount: float = 1.0

    def __post_init__(self) -> None:
        whole(self, "window", 1, optional=True)
        number(self, "discount", above=0.0, below=1.0, closed="]")
        if self.window is not None and self.discount < 1.0:
            raise ValueError("window and discount are two ways to forget; give one of them")

    def counts(self, shape: Shape) -> Counts:
        """Return empty counts with the window and the discount of the settings."""
        return make_counts(*shape, self.window, self.discount)

    def keeps_totals(self, shape: Shape) -> bool:
        """Return whether sums over counts are kept from round to round: there are many items, and no count falls."""
        return worth_sharing(shape.n_items) and not self.needs_blocks

    @property
    def needs_blocks(self) -> bool:
        return self.window is not None or self.discount < 1.0

    def state_from_counts(self, ledger: Ledger) -> Any:
        """Return a state with the counts of a ledger: those in the window or since the last change, or discounted.

        The state can decide. If it learns on with a window, it forgets none of the rounds of the ledger, because it
        does not know them one by one. Raises ValueError if the ledger has no blocks, but the policy needs them.
        """
        if self.needs_blocks:
            check_blocks(ledger, self.label)
        state = self.init(*ledger.shown.shape)
        counts: Counts = state.counts
        if self.window is not None:
            counts = counts._replace(past=counts.past[:0])
            state = state._replace(counts=counts)
        known = (
            remembered(ledger, self.window, self.discount)
            if self.needs_blocks
            else Remembered(ledger.shown, ledger.clicked, float(ledger.rounds))
        )
        counts.shown[:], counts.clicked[:] = known.shown, known.clicked
        counts.rounds[0], counts.learned[0] = known.rounds, ledger.rounds
        return state

    def memory(self) -> float:
        """Return the largest number of rounds that it remembers; confidence bounds need not hold for longer.

        >>> import bothworlds
        >>> bothworlds.policy("comb-ts").memory(), bothworlds.policy("comb-ts", window=500).memory()
        (inf, 500.0)
        >>> bothworlds.policy("comb-ts", discount=0.5).memory()
        2.0
        """
        if self.window is not None:
            return float(self.window)
        return 1.0 / (1.0 - self.discount) if self.discount < 1.0 else math.inf


@dataclass(frozen=True, kw_only=True)
class Detecting(Forgetting):
    """A policy with counts that may also forget everything before a detected change: ``detect``."""

    detect: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        truth(self, "detect")
        if self.detect and self.memory() < math.inf:
            raise ValueError("window, discount and detect are ways to forget; give one of them")

    def detector(self, shape: Shape) -> ChangeDetector:
        """Return a change detector, which is active if ``detect`` is set."""
        return make_change_detector(*shape, active=self.detect)

    @property
    def needs_blocks(self) -> bool:
        return self.detect or super().needs_blocks

    def state_from_counts(self, ledger: Ledger) -> Any:
        """Return a state with the counts of a ledger; with ``detect``, those since the last change.

        The detector of the state has seen nothing: ``find_change`` detects changes in the blocks of the ledger.
        """
        state = super().state_from_counts(ledger)
        return state._replace(detector=make_change_detector(*ledger.shown.shape, active=False))


@dataclass(frozen=True, kw_only=True)
class Restarting(CompiledPolicy):
    """A policy that needs no horizon, and may start again every ``restart`` rounds."""

    restart: int | None = None

    def __post_init__(self) -> None:
        whole(self, "restart", 1, optional=True)

    def advance_epochs(self, epochs: Epochs, rounds: int) -> None:
        """Advance the epochs by a number of rounds; raises ValueError if it restarts: a ledger has no times."""
        if self.restart is not None:
            raise ValueError(f"the state of {self.label} depends on the order of events, since it restarts")
        go_forward(epochs, rounds)

    def epochs(self) -> Epochs:
        """Return its epochs: one without end, unless it restarts."""
        return make_epochs(None, self.restart, anytime=True)


@dataclass(frozen=True, kw_only=True)
class Planning(Restarting):
    """A policy that plans for a ``horizon``; without one, it uses the doubling trick."""

    horizon: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self, "horizon", 1, optional=True)

    def epochs(self) -> Epochs:
        """Return its epochs: one with the horizon of the settings, or doubling, or restarting."""
        return make_epochs(self.horizon, self.restart)
