"""What policies read from a ledger: blocks of time, and which items were never shown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...core import Ledger

__all__ = ["check_blocks", "never_shown_alike"]


def check_blocks(ledger: Ledger, label: str) -> None:
    """Raise ValueError, for the policy with this label, if the ledger has rounds but no blocks."""
    if ledger.rounds and not ledger.blocks:
        raise ValueError(f"{label} forgets old events, and the ledger has no blocks with the times of its events")


def never_shown_alike(ledger: Ledger) -> NDArray[np.bool_]:
    """Return which items (n_items,) have the losses of the first item that was never shown.

    Losses of items that were never shown can differ, if some were added later.

    >>> loss = np.array([[2.0], [0.0], [1.0], [0.0]])
    >>> never_shown_alike(Ledger(3, loss, shown=np.array([[2.0], [0.0], [1.0], [0.0]]), clicked=np.zeros((4, 1))))
    array([False,  True, False,  True])
    """
    never = np.flatnonzero(~ledger.shown.any(axis=1))
    if not len(never):
        return np.zeros(len(ledger.loss), np.bool_)
    return (ledger.loss == ledger.loss[never[0]]).all(axis=1)
