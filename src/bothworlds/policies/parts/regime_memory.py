r"""Users who return to earlier habits: counts from before earlier changes, recalled if they fit the clicks since then.

When a change is detected, the counts from before it are kept as a *regime*. The counts :math:`(N_2, C_2)` since the
change are compared with every other regime :math:`(N_1, C_1)` that is kept. The statistic is that of the change
detector, summed over the c pairs of item and position that were shown in both:

.. math::

    Z = \sum_{ij} N_1 \, kl\left(\frac{C_1}{N_1}, \frac CN\right) + N_2 \, kl\left(\frac{C_2}{N_2}, \frac CN\right)
      \le 0.7 \left( \frac c2 + \frac32 \sqrt c + 2 \right)

Of the regimes that satisfy this, the one with the smallest ratio of both sides is recalled: its counts are added to
those since the change. If it is the wrong one, clicks soon differ from its counts, which is a change.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...kernels import Floats, Ints, inner_kernel, kernel
from ...statistics.kl import kl
from .counts import Counts

LEAST_ROUNDS = 64.0  # a regime of fewer rounds is not kept
LARGEST_MISFIT = 0.7  # with 1, users who drift are taken for returning ones too often
LEAST_OVERLAP = 0.5  # the share of placements since the change whose pairs a regime must have shown


class RegimeMemory(NamedTuple):
    """The regimes that are kept, and the counts before the present bucket was tested for a change."""

    tables: Floats  # (slots, 2, n, m) shown and clicked
    rounds: Floats  # (slots,) rounds of each regime; 0: none
    before: Floats  # (2, n, m) shown and clicked
    rounds_before: Floats  # (1,)
    present: Ints  # (1,) the slot of the regime that was recalled last; -1: none
    next: Ints  # (1,) the slot that is overwritten next
    recalls: Ints  # (1,) regimes recalled so far


LEAVES = {
    "regimes.tables": "ij",
    "regimes.rounds": "",
    "regimes.before": "ij",
    "regimes.rounds_before": "",
    "regimes.present": "",
    "regimes.next": "",
    "regimes.recalls": "",
}


def make_regime_memory(n: int, m: int, slots: int) -> RegimeMemory:
    """Return an empty memory of so many regimes of n items at m positions; without slots it recalls nothing."""
    present, following, recalls = np.full(1, -1), np.zeros(1, np.int64), np.zeros(1, np.int64)
    shape = (2, n, m) if slots else (2, 0, 0)
    return RegimeMemory(
        np.zeros((slots, *shape)), np.zeros(slots), np.zeros(shape), np.zeros(1), present, following, recalls
    )


@inner_kernel
def keep_counts(memory: RegimeMemory, counts: Counts) -> None:
    """Copy the counts; to be called before the change detector may forget them."""
    n, m = counts.shown.shape
    for i in range(n):
        for j in range(m):
            memory.before[0, i, j] = counts.shown[i, j]
            memory.before[1, i, j] = counts.clicked[i, j]
    memory.rounds_before[0] = counts.rounds[0]


@kernel
def misfit(regime: Floats, shown: Floats, clicked: Floats) -> float:
    """Return Z of a regime (2, n, m) over c/2 + 3/2 sqrt(c) + 2; infinite if it knows too few of the pairs shown."""
    n, m = shown.shape
    distance, pairs, known, total = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        for j in range(m):
            n1, c1, n2, c2 = regime[0, i, j], regime[1, i, j], shown[i, j], clicked[i, j]
            total += n2
            if n1 > 0.0 and n2 > 0.0:
                rate = (c1 + c2) / (n1 + n2)
                distance += n1 * kl(c1 / n1, rate) + n2 * kl(c2 / n2, rate)
                pairs += 1.0
                known += n2
    if known == 0.0 or known < LEAST_OVERLAP * total:
        return math.inf
    return distance / (0.5 * pairs + 1.5 * math.sqrt(pairs) + 2.0)


@inner_kernel
def recall_regime(memory: RegimeMemory, counts: Counts) -> None:
    """Keep the regime that has ended, and add to the counts since the change those of the regime that fits them best.

    To be called after a change, when ``counts`` holds the rounds since the change only.
    """
    present, chosen, best = memory.present[0], -1, LARGEST_MISFIT
    for k in range(memory.rounds.size):
        if memory.rounds[k] > 0.0 and k != present:
            ratio = misfit(memory.tables[k], counts.shown, counts.clicked)
            if ratio <= best:
                chosen, best = k, ratio
    ended = memory.rounds_before[0] - counts.rounds[0]
    if ended >= LEAST_ROUNDS:
        _keep_regime(memory, counts, ended, chosen)
    memory.present[0] = chosen
    if chosen >= 0:
        memory.recalls[0] += 1
        counts.rounds[0] += memory.rounds[chosen]
        n, m = counts.shown.shape
        for i in range(n):
            for j in range(m):
                counts.shown[i, j] += memory.tables[chosen, 0, i, j]
                counts.clicked[i, j] += memory.tables[chosen, 1, i, j]


@inner_kernel
def _keep_regime(memory: RegimeMemory, counts: Counts, ended: float, chosen: int) -> None:
    """Keep the counts from before the change, in the slot that they were recalled from or else in the next one."""
    slot, slots = memory.present[0], memory.rounds.size
    if slot < 0:
        slot = memory.next[0]
        if slot == chosen:
            slot = (slot + 1) % slots
        memory.next[0] = (slot + 1) % slots
    if slot == chosen:  # there is only one slot
        return
    n, m = counts.shown.shape
    for i in range(n):
        for j in range(m):
            memory.tables[slot, 0, i, j] = max(0.0, memory.before[0, i, j] - counts.shown[i, j])
            memory.tables[slot, 1, i, j] = max(0.0, memory.before[1, i, j] - counts.clicked[i, j])
    memory.rounds[slot] = ended
