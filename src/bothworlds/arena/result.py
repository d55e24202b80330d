"""The result of one policy in one world."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..data_frames import html_table, to_frame
from ..warnings import BothworldsWarning
from ..worlds import World, from_description

COLUMNS = ("policy", "world", "seed", "replication", "round", "reward", "clicks", "regret_fixed", "regret_dynamic")
ATTACK_COLUMNS = ("flips", "touched", "target_first", "target_shown")


class UnchangedWorldWarning(BothworldsWarning):
    """A world that changes was played for too few rounds: its users did not change."""


def no_change(world: str, first_change: int | None, rounds: int) -> str | None:
    """Return a warning if a changing world does not change in that many rounds; otherwise None.

    ``first_change`` is that of the world: None for a world that is not known to change.

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


@dataclass(frozen=True, repr=False)
class Result:
    """The rewards of a policy in a world, in every replication and at every checkpoint."""

    policy: str  #: its name in tables and figures
    world: str  #: its name in tables and figures
    settings: dict[str, Any]  #: those that the policy played with
    seed: int  #: of all replications
    rounds: NDArray[np.int64]  #: (checkpoints,) after which rewards were recorded
    reward: NDArray[np.float64]  #: (replications, checkpoints) cumulative expected reward
    clicks: NDArray[np.float64]  #: (replications, checkpoints) cumulative simulated clicks
    best_fixed: NDArray[np.float64]  #: (checkpoints,) cumulative expected reward of the best fixed ranking
    best_dynamic: NDArray[np.float64]  #: (checkpoints,) that of the best ranking of each round
    seconds: float  #: processor time of all replications without compilation; NaN if it is not known
    adaptive: bool = True  #: False for a policy that serves for comparison and does not learn
    first_change: int | None = None  #: of the world: see :meth:`bothworlds.worlds.World.first_change`
    policy_name: str = ""  #: the registered name of the policy, or that of its class
    world_description: dict[str, Any] = field(default_factory=dict)  #: from ``World.description``
    comparators: dict[str, str] = field(default_factory=dict)  #: how "fixed" and "dynamic" were computed
    attack: AttackScores | None = None  #: None in a world without an adversary

    def __repr__(self) -> str:
        """The final average reward, with its standard error if there is one.

        >>> import bothworlds
        >>> bothworlds.play("uniform", "paper/stochastic", rounds=1_000, replications=2)
        <Result: uniform in paper/stochastic, reward 1.8582 ±0.0022 per round, 1,000 rounds, 2 replications>
        """
        (reward, error), replications = self.final(), len(self.reward)
        spread = f" ±{error:.4f}" if replications > 1 else ""
        played = f"{int(self.rounds[-1]):,} rounds, {replications} replication{'s' * (replications > 1)}"
        return f"<Result: {self.policy} in {self.world}, reward {reward:.4f}{spread} per round, {played}>"

    def build_world(self) -> World:
        """Build the world that was played, from its description.

        Raises ValueError if no world can be built from it.

        >>> import bothworlds
        >>> world = bothworlds.world("paper/stochastic", gap=0.01)
        >>> result = bothworlds.play("uniform", world, rounds=10, replications=1)
        >>> result.build_world()
        <Stochastic 'paper/stochastic(gap=0.01)': 10 items, 5 positions>
        """
        world = from_description(self.world_description)
        world.name = self.world
        return world

    @property
    def no_change(self) -> str | None:
        """A warning if the world changes, but did not change in the rounds that were played; otherwise None."""
        return no_change(self.world, self.first_change, int(self.rounds[-1]))

    def average_reward(self) -> NDArray[np.float64]:
        """Expected reward per round up to each checkpoint, (replications, checkpoints)."""
        average: NDArray[np.float64] = self.reward / self.rounds
        return average

    def regret(self, against: Literal["fixed", "dynamic"] = "fixed") -> NDArray[np.float64]:
        """The reward of the comparator minus that of the policy, (replications, checkpoints).

        ``"fixed"`` is the best single ranking for the rounds so far, the comparator of the paper; ``"dynamic"`` is
        the best ranking of each round. They are the same in a world that does not change. Any other value of
        ``against`` raises ValueError.
        """
        if against not in ("fixed", "dynamic"):
            raise ValueError(f"against must be 'fixed' or 'dynamic'; got {against!r}")
        regret: NDArray[np.float64] = (self.best_fixed if against == "fixed" else self.best_dynamic) - self.reward
        return regret

    def gap_closed(self, rival: Result) -> NDArray[np.float64]:
        """The share of the gap between a rival and the best lists that the policy closes, (replications, checkpoints).

        It is 0 for the rival, and 1 for the best list of each context in each round. Raises ValueError if the two were
        not played in the same world, with the same users and checkpoints.
        """
        alike = (rival.world, rival.seed, rival.reward.shape) == (self.world, self.seed, self.reward.shape)
        if not alike or not np.array_equal(rival.rounds, self.rounds):
            raise ValueError(f"rival must be a game with the same users as {self!r}; got {rival!r}")
        share: NDArray[np.float64] = (self.reward - rival.reward) / (self.best_dynamic - rival.reward)
        return share

    def final(self) -> tuple[float, float]:
        """Return the mean over replications of the final average reward, and its standard error (NaN for one)."""
        values = self.average_reward()[:, -1]
        spread = float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else float("nan")
        return float(values.mean()), spread

    def cost(self) -> float:
        """Return the seconds of processor time per round."""
        return self.seconds / (self.reward.shape[0] * int(self.rounds[-1]))

    def columns(self) -> dict[str, list[Any]]:
        """Return a value for every replication and checkpoint, by the names of columns."""
        replications, marks = self.reward.shape
        whole = {"policy": self.policy, "world": self.world, "seed": self.seed}
        series = {"reward": self.reward, "clicks": self.clicks}
        series |= {"regret_fixed": self.regret("fixed"), "regret_dynamic": self.regret("dynamic")}
        series |= {} if self.attack is None else {name: getattr(self.attack, name) for name in ATTACK_COLUMNS}
        return {
            **{name: [value] * self.reward.size for name, value in whole.items()},
            "replication": np.repeat(np.arange(replications), marks).tolist(),
            "round": np.tile(self.rounds, replications).tolist(),
            **{name: values.ravel().tolist() for name, values in series.items()},
        }

    def to_frame(self, library: str | None = None) -> Any:
        """Return a data frame with one row for every replication and checkpoint.

        Columns: ``policy``, ``world``, ``seed``, ``replication`` (from 0), ``round`` (that of the checkpoint), and,
        summed up to it, ``reward`` (expected), ``clicks``, ``regret_fixed`` and ``regret_dynamic``. If there is an
        adversary also ``flips``, ``touched``, ``target_first`` and ``target_shown``, as in ``attack``.

        ``library`` is "pandas", "polars" or "arrow"; by default the first of them that is installed. Raises ValueError
        for another name, and ImportError without the library.

        >>> import bothworlds
        >>> result = bothworlds.play("uniform", "paper/stochastic", rounds=1_000, replications=2, checkpoints=5)
        >>> result.to_frame("arrow").shape
        (10, 9)
        """
        return to_frame(self.columns(), library)

    def _repr_html_(self) -> str:
        """A table of means over the replications, for notebooks."""
        some = np.unique(np.linspace(0, self.rounds.size - 1, 5).round().astype(np.int64))
        average, replications = self.average_reward()[:, some], len(self.reward)
        spread = average.std(axis=0, ddof=1) / np.sqrt(replications) if replications > 1 else np.full(some.size, np.nan)
        columns = {
            "round": self.rounds[some].tolist(),
            "average reward": average.mean(axis=0).tolist(),
            "standard error": spread.tolist(),
            "regret (fixed)": self.regret("fixed")[:, some].mean(axis=0).tolist(),
            "regret (dynamic)": self.regret("dynamic")[:, some].mean(axis=0).tolist(),
        }
        title = f"{self.policy} in {self.world}: mean of {replications} replication{'s' * (replications > 1)}"
        return html_table(title, columns, [self.no_change] if self.no_change else [])


def changes_not_shown(results: Iterable[Result]) -> list[str]:
    """Return a warning for every changing world that did not change in the rounds that were played."""
    return list(dict.fromkeys(result.no_change for result in results if result.no_change))
