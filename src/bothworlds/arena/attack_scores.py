"""What an adversary reached, and what it paid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

ATTACK_COLUMNS = ("flips", "touched", "target_first", "target_shown")


@dataclass(frozen=True)
class AttackScores:
    """The scores of an attack, cumulative, in every replication and at every checkpoint.

    Attributes
    ----------
    rounds
        (checkpoints,)
    flips
        (replications, checkpoints) Clicks that were reported otherwise than users clicked: the cost.
    touched
        (replications, checkpoints) Rounds with at least one of them.
    target_first
        (replications, checkpoints) Rounds in which the target was at the first position.
    target_shown
        (replications, checkpoints) Rounds in which the target was in the list.
    """

    rounds: NDArray[np.int64] = field(repr=False)
    flips: NDArray[np.float64] = field(repr=False)
    touched: NDArray[np.float64] = field(repr=False)
    target_first: NDArray[np.float64] = field(repr=False)
    target_shown: NDArray[np.float64] = field(repr=False)

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

    def last_flip(self) -> NDArray[np.int64]:
        """The first checkpoint after which nothing was flipped, for every replication (replications,)."""
        return self.rounds[np.argmax(self.flips == self.flips[:, -1:], axis=1)]

    def recovery(self, share: float = 0.01) -> NDArray[np.float64]:
        """Rounds (replications,) from the last flip until the target is first in less than ``share`` of the rest.

        It is measured between checkpoints, and is infinite for a replication that does not recover.
        """
        steps = np.diff(self.rounds, prepend=0)
        high = np.diff(self.target_first, prepend=0.0, axis=1) >= share * steps
        last = np.where(high.any(axis=1), high.shape[1] - 1 - np.argmax(high[:, ::-1], axis=1), -1)
        ends = np.append(self.rounds, 0)[last].astype(np.float64)  # index -1: never high
        recovered = np.where(last == high.shape[1] - 1, np.inf, np.maximum(0.0, ends - self.last_flip()))
        return np.asarray(recovered, np.float64)

    def flips_per_round_gained(self) -> NDArray[np.float64]:
        """Flips for each round with the target first (replications,); infinite if it never was."""
        first = self.target_first[:, -1]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(first > 0.0, self.flips[:, -1] / first, np.inf)


def attack_scores(rounds: NDArray[np.int64], replications: Sequence[NDArray[np.float64] | None]) -> AttackScores | None:
    """Return the scores of the adversary in all replications, each (4, checkpoints); None if there was none."""
    scores = [one for one in replications if one is not None]
    return AttackScores(rounds, *np.array(scores).transpose(1, 0, 2)) if scores else None
