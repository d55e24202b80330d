"""What an adversary reached, and what it paid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

ATTACK_COLUMNS = ("flips", "touched", "target_first", "target_shown")


@dataclass(frozen=True)
class AttackScores:
    """The scores of an attack, cumulative: (replications, checkpoints) but for ``rounds``."""

    rounds: NDArray[np.int64] = field(repr=False)  #: (checkpoints,)
    flips: NDArray[np.float64] = field(repr=False)  #: clicks that were reported otherwise than users clicked: the cost
    touched: NDArray[np.float64] = field(repr=False)  #: rounds with at least one of them
    target_first: NDArray[np.float64] = field(repr=False)  #: rounds in which the target was at the first position
    target_shown: NDArray[np.float64] = field(repr=False)  #: rounds in which the target was in the list

    def share_first(self, since: int = 0) -> NDArray[np.float64]:
        """The share (replications,) of rounds with the target first, from the checkpoint at or after ``since`` on."""
        return self._share(self.target_first, since)

    def share_shown(self, since: int = 0) -> NDArray[np.float64]:
        """The share of rounds with the target in the list (replications,), as ``share_first``."""
        return self._share(self.target_shown, since)

    def _share(self, counts: NDArray[np.float64], since: int) -> NDArray[np.float64]:
        k = int(np.searchsorted(self.rounds, since)) if since else -1
        if k >= len(self.rounds) - 1:
            raise ValueError(f"since must be before the last checkpoint but one; got {since}")
        before, done = (counts[:, k], self.rounds[k]) if k >= 0 else (0.0, 0)
        share: NDArray[np.float64] = (counts[:, -1] - before) / (self.rounds[-1] - done)
        return share


def attack_scores(rounds: NDArray[np.int64], replications: Sequence[NDArray[np.float64] | None]) -> AttackScores | None:
    """Return the scores of the adversary in all replications, each (4, checkpoints); None if there was none."""
    scores = [score for score in replications if score is not None]
    return AttackScores(rounds, *np.array(scores).transpose(1, 0, 2)) if scores else None
