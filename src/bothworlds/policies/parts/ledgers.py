"""What a ledger says about items that were never shown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...core import Ledger

__all__ = ["never_shown_alike"]


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
