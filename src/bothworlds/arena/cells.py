"""Games, their cells, and what an engine does with them.

A cell is one replication of one game. Cells do not depend on each other: they may be played in any order, in threads,
in processes, or on several machines. An engine plays cells; ``parallel.LocalEngine`` and ``ray_engine.RayEngine`` are
the two engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .loop import Score, Simulation

__all__ = ["Cell", "Engine", "ReportRounds", "ScoredGame"]

#: Called with the index of a game, and the number of its rounds that were played since the last call.
ReportRounds = Callable[[int, int], None]


class ScoredGame(NamedTuple):
    """A simulation, the rounds after which it is scored, and its number of replications."""

    simulation: Simulation
    marks: NDArray[np.int64]
    replications: int


class Cell(NamedTuple):
    """One replication of the game with this index."""

    game: int
    replication: int


class Engine(Protocol):
    """Plays cells, several at a time."""

    def prepare(self, games: Sequence[ScoredGame], progress: bool | None) -> None:
        """Do what has to be done once before the games, such as compiling; called before there is a progress bar."""

    def play(
        self, games: Sequence[ScoredGame], cells: Sequence[Cell], seed: int, report: ReportRounds
    ) -> Iterator[tuple[Cell, Score | Exception]]:
        """Play the cells and yield each with its score, or with the exception that it raised, when it has ended.

        The cells are started in the given order. If ``report`` raises, nothing more is started, and the exception is
        passed on.
        """
