"""Sums over settled pages for items that come and go: what a policy with a ledger has learned of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import Block, Decision, Ledger
from ..kernels import Floats, Ints, kernel
from .mixture import comparison_sums

__all__ = ["ItemLedger"]

NONE = np.zeros(0, np.int64)


class ItemLedger:
    """Sums of loss, shows and clicks, one row for every item that ever existed and one column for every slot.

    An item that could not be shown is charged the loss observed at every slot that was learned from (the rule for
    specialists of Freund, Schapire, Singer and Warmuth, 1997). Without it, such an item would gain nothing while the
    others pay, and would come to look best.
    """

    def __init__(self, n_items: int, n_slots: int) -> None:
        self.rounds = 0
        self.spread = self.difference = self.variance = 0.0  # of a policy that mixes two learners; see ``core.Block``
        self.loss, self.shown, self.clicked = np.zeros((3, n_items, n_slots))

    def settle(
        self,
        decision: Decision,
        clicks: Floats,
        pinned: Sequence[int],
        absent: Sequence[int],
        mixture: Sequence[float] = (),
    ) -> None:
        """Add a page. Slots that are ``pinned`` are not learned from; ``absent`` are the items it could not show.

        ``mixture`` is the record of a decision of two mixed learners (``Mixture.record``), with a g for every slot.

        >>> ledger = ItemLedger(3, 1)
        >>> ledger.settle(Decision(np.array([0]), np.array([0.5])), np.zeros(1), pinned=(), absent=(2,))
        >>> ledger.loss[:, 0].tolist()
        [2.0, 0.0, 1.0]
        """
        if len(pinned) == len(clicks):
            return
        skipped, missing = (np.array(given, np.int64) if given else NONE for given in (pinned, absent))
        _add_page(self.loss, self.shown, self.clicked, *decision, clicks, skipped, missing)
        self.rounds += 1
        if mixture:
            placements = [(mixture[1 + j], click) for j, click in enumerate(clicks.tolist()) if j not in pinned]
            spread, difference, variance = comparison_sums(mixture[0], placements, float)
            self.spread, self.difference = self.spread + spread, self.difference + difference
            self.variance += variance

    def add_item(self, others: Sequence[int]) -> None:
        """Add a row for a new item, which starts at the median loss of the others."""
        start = np.median(self.loss[others], axis=0)
        self.loss = np.vstack([self.loss, start])
        self.shown, self.clicked = (np.vstack([t, np.zeros(len(start))]) for t in (self.shown, self.clicked))

    def part(self, items: Ints, slots: Sequence[int]) -> Ledger:
        """Return the ledger of some items at some slots; losses are counted from the smallest at each slot.

        Its one block is everything: these sums do not record when a page was shown.
        """
        cells = np.ix_(items, np.asarray(slots))
        loss, shown, clicked = (table[cells] for table in (self.loss, self.shown, self.clicked))
        everything = Block(0.0, 1.0, self.rounds, shown, clicked, self.spread, self.difference, self.variance)
        return Ledger(self.rounds, loss - loss.min(axis=0), shown, clicked, (everything,))


@kernel
def _add_page(
    loss: Floats, shown: Floats, clicked: Floats, ranking: Ints, p: Floats, clicks: Floats, pinned: Ints, absent: Ints
) -> None:
    for j in range(ranking.size):
        learned = True
        for k in range(pinned.size):
            learned = learned and pinned[k] != j
        if learned:
            i = ranking[j]
            shown[i, j] += 1.0
            clicked[i, j] += clicks[j]
            if p[j] > 0.0:  # policies that do not know their propensities (NaN) do not use losses
                loss[i, j] += (1.0 - clicks[j]) / p[j]
            for k in range(absent.size):
                loss[absent[k], j] += 1.0 - clicks[j]
