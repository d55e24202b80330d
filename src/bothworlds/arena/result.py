"""The score of one policy in one world."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..warnings import BothworldsWarning

__all__ = ["COLUMNS", "Result", "UnchangedWorldWarning", "changes_not_shown", "no_change"]

COLUMNS = (
    "policy",
    "world",
    "seed",
    "replication",
    "round",
    "reward",
    "clicks",
    "regret_fixed",
    "regret_dynamic",
)


class UnchangedWorldWarning(BothworldsWarning):
    """A world that changes was played for so few rounds that its users never changed."""


def no_change(world: str, first_change: int | None, rounds: int) -> str | None:
    """Say that a changing world does not change in that many rounds; None if it does, or is not known to change.

    >>> print(no_change("year", 1_000, 200))
    the users of year do not change in 200 rounds: they change first after 1,000; play more or shorten the phase
    >>> print(no_change("year", 1_000, 1_001))
    None
    """
    if first_change is None or rounds > first_change:
        return None
    return (
        f"the users of {world} do not change in {rounds:,} rounds: they change first after {first_change:,}; "
        "play more or shorten the phase"
    )


@dataclass(frozen=True)
class Result:
    """What a policy earned in a world, in every replication and at every checkpoint.

    ``rounds`` (checkpoints,) are the rounds at which the score was taken; ``reward`` and ``clicks`` (seeds,
    checkpoints) are cumulative expected reward and cumulative realised clicks; ``best_fixed`` and ``best_dynamic``
    (checkpoints,) are what the best fixed ranking, and the best ranking of every single round, would have earned.
    ``seconds`` is the processor time of all replications, compilation not counted; ``adaptive`` is False for a policy
    that is there for comparison and does not learn. ``first_change`` is the first round in which the users of the world
    differ from those at the start, or None if the world is not known to change.
    """

    policy: str
    world: str
    settings: dict[str, Any] = field(repr=False)
    seed: int
    rounds: NDArray[np.int64] = field(repr=False)
    reward: NDArray[np.float64] = field(repr=False)
    clicks: NDArray[np.float64] = field(repr=False)
    best_fixed: NDArray[np.float64] = field(repr=False)
    best_dynamic: NDArray[np.float64] = field(repr=False)
    seconds: float
    adaptive: bool = True
    first_change: int | None = field(default=None, repr=False)

    @property
    def no_change(self) -> str | None:
        """The sentence that warns of a changing world that did not change in the rounds that were played, or None."""
        return no_change(self.world, self.first_change, int(self.rounds[-1]))

    def average_reward(self) -> NDArray[np.float64]:
        """Expected reward per round up to each checkpoint, (seeds, checkpoints).

        >>> import bothworlds
        >>> result = bothworlds.play("uniform", "paper/stochastic", rounds=1_000, seeds=2, checkpoints=5)
        >>> result.average_reward().shape
        (2, 5)
        """
        average: NDArray[np.float64] = self.reward / self.rounds
        return average

    def regret(self, against: Literal["fixed", "dynamic"] = "fixed") -> NDArray[np.float64]:
        """What the comparator would have earned more, (seeds, checkpoints).

        ``"fixed"`` is the best single ranking for the rounds so far, the comparator of the paper; ``"dynamic"`` is
        the best ranking in every round. In a world that does not change they are the same.

        >>> import bothworlds
        >>> result = bothworlds.play("uniform", "paper/stochastic", rounds=1_000, seeds=2, checkpoints=5)
        >>> bool(abs(result.regret("fixed") - result.regret("dynamic")).max() < 1e-6)
        True
        """
        if against not in ("fixed", "dynamic"):
            raise ValueError(f"against must be 'fixed' or 'dynamic'; got {against!r}")
        regret: NDArray[np.float64] = (self.best_fixed if against == "fixed" else self.best_dynamic) - self.reward
        return regret

    def final(self) -> tuple[float, float]:
        """Mean over replications of the final average reward, and its standard error (NaN for one replication)."""
        values = self.average_reward()[:, -1]
        spread = float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else float("nan")
        return float(values.mean()), spread

    def cost(self) -> float:
        """Seconds of processor time per round."""
        return self.seconds / (self.reward.shape[0] * int(self.rounds[-1]))

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """One row for every replication and checkpoint, in the order of ``COLUMNS``."""
        fixed, dynamic = self.regret("fixed"), self.regret("dynamic")
        for k in range(self.reward.shape[0]):
            for c, t in enumerate(self.rounds.tolist()):
                numbers = (self.reward[k, c], self.clicks[k, c], fixed[k, c], dynamic[k, c])
                yield (self.policy, self.world, self.seed, k, t, *map(float, numbers))


def changes_not_shown(results: Iterable[Result]) -> list[str]:
    """A sentence for every changing world among the results that did not change in the rounds that were played."""
    return list(dict.fromkeys(result.no_change for result in results if result.no_change))
