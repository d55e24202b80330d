"""Settings that several policies have, and the checks on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Ledger, Shape
from ..base import CompiledPolicy
from .counts import Counts, make_counts
from .epochs import Epochs, go_forward, make_epochs

__all__ = ["Forgetting", "Planning", "Restarting", "choice", "number", "probabilities", "whole"]


def number(policy: Any, setting: str, above: float = -math.inf, below: float = math.inf, closed: str = "") -> None:
    """Ask that a setting be a finite number between two limits; ``closed`` is "[", "]" or "[]" to include them.

    >>> from types import SimpleNamespace
    >>> number(SimpleNamespace(rate=0.0), "rate", above=0.0)
    Traceback (most recent call last):
    ...
    ValueError: rate must be a number above 0; got 0.0
    """
    value = getattr(policy, setting)
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and math.isfinite(value)
    if (
        not is_number
        or not (value > above or (value == above and "[" in closed))
        or not (value < below or (value == below and "]" in closed))
    ):
        limits = [
            f"{'at least' if '[' in closed else 'above'} {above:g}" if above > -math.inf else "",
            f"{'at most' if ']' in closed else 'below'} {below:g}" if below < math.inf else "",
        ]
        raise ValueError(f"{setting} must be a number {' and '.join(filter(None, limits))}; got {value!r}")


def whole(policy: Any, setting: str, least: int, *, optional: bool = False) -> None:
    """Ask that a setting be a whole number of at least ``least``, or None where it is ``optional``."""
    value = getattr(policy, setting)
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        either = ", or None" if optional else ""
        raise ValueError(f"{setting} must be a whole number of at least {least}{either}; got {value!r}")


def choice(policy: Any, setting: str, known: Sequence[str]) -> None:
    """Ask that a setting be one of a few words."""
    value = getattr(policy, setting)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{setting} must be one of {', '.join(known)}; got {value!r}")


def probabilities(policy: Any, setting: str) -> None:
    """Ask that a setting be a list of probabilities above 0, or None; it is kept as a tuple."""
    value = getattr(policy, setting)
    if value is None:
        return
    try:
        given = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{setting} must be a list of probabilities; got {value!r}") from error
    if given.ndim != 1 or not given.size or not ((given > 0.0) & (given <= 1.0)).all():
        raise ValueError(f"{setting} must be a list of probabilities above 0; got {value!r}")
    object.__setattr__(policy, setting, tuple(given.tolist()))


@dataclass(frozen=True, kw_only=True)
class Forgetting(CompiledPolicy):
    """A policy that counts, and may forget: ``window`` and ``discount``."""

    window: int | None = None
    discount: float = 1.0

    def __post_init__(self) -> None:
        whole(self, "window", 1, optional=True)
        number(self, "discount", above=0.0, below=1.0, closed="]")
        if self.window is not None and self.discount < 1.0:
            raise ValueError("window and discount are two ways to forget; give one of them")

    def counts(self, shape: Shape) -> Counts:
        """Empty counts that forget as the settings say."""
        return make_counts(*shape, self.window, self.discount)

    def recalled(self, ledger: Ledger) -> Any:
        """A state whose counts are those of a ledger, or ValueError if it forgets: a ledger does not say when."""
        if self.window is not None or self.discount < 1.0:
            raise ValueError(f"what {self.label} has learned depends on the order of events, since it forgets old ones")
        state = self.init(*ledger.shown.shape)
        state.counts.shown[:], state.counts.clicked[:] = ledger.shown, ledger.clicked
        state.counts.rounds[0] = state.counts.learned[0] = ledger.rounds
        return state

    def memory(self) -> float:
        """How many rounds it remembers at most; no confidence bound needs to hold for longer than that.

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
class Restarting(CompiledPolicy):
    """A policy that needs no horizon, and may start anew every ``restart`` rounds."""

    restart: int | None = None

    def __post_init__(self) -> None:
        whole(self, "restart", 1, optional=True)

    def at_round(self, epochs: Epochs, rounds: int) -> None:
        """Set the clock to a number of rounds, or ValueError if it restarts: a ledger does not say what came when."""
        if self.restart is not None:
            raise ValueError(f"what {self.label} has learned depends on the order of events, since it starts anew")
        go_forward(epochs, rounds)

    def epochs(self) -> Epochs:
        """The clock of its epochs: one without end, unless it restarts."""
        return make_epochs(None, self.restart, anytime=True)


@dataclass(frozen=True, kw_only=True)
class Planning(Restarting):
    """A policy that plans for a ``horizon``; where nobody tells it, by the doubling trick."""

    horizon: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self, "horizon", 1, optional=True)

    def epochs(self) -> Epochs:
        """The clock of its epochs: one of the length it is told, or doubling, or restarting."""
        return make_epochs(self.horizon, self.restart)
