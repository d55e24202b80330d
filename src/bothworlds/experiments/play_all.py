"""Play the games of questions, with finished replications kept in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..arena import Result
from ..arena.cells import ScoredGame
from ..arena.loop import Simulation
from ..arena.play import checkpoint_rounds, warn_of_no_change
from ..arena.sweep import engine_named, play_games
from .question import Game

__all__ = ["game_checkpoints", "play_all"]

CHECKPOINTS = 100  # evenly spaced; half as many more are spaced logarithmically


def play_all(
    games: Sequence[Game],
    folder: str | Path,
    *,
    seed: int = 0,
    jobs: int | None = None,
    engine: str = "local",
    address: str | None = None,
    progress: bool | None = None,
) -> list[Result]:
    """Play all replications that are not in the folder yet, and return the results of all games, in order.

    The arguments are those of :func:`bothworlds.play`; ``folder`` is its ``cells``, and is created. Policies get what
    they need to know of their world. An UnchangedWorldWarning is issued for a world that changes, but not within its
    rounds. Raises ValueError for a world without a name.

    >>> import tempfile, bothworlds
    >>> game = Game(bothworlds.policy("uniform"), bothworlds.world("paper/stochastic"), 100, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, again = play_all([game], folder), play_all([game], folder)
    >>> bool((first[0].reward == again[0].reward).all())
    True
    """
    scored = [
        ScoredGame(
            Simulation(game.policy, game.world, game.rounds, shuffle=True, tell=True),
            game_checkpoints(game.rounds),
            game.seeds,
        )
        for game in games
    ]
    warn_of_no_change(scored)
    return play_games(scored, seed, engine_named(engine, address, jobs), cells=folder, progress=progress)


def game_checkpoints(rounds: int) -> NDArray[np.int64]:
    """Return the rounds at which rewards are recorded: evenly spaced, and logarithmically spaced ones in addition."""
    even = checkpoint_rounds(CHECKPOINTS, rounds)
    logarithmic = np.geomspace(min(10, rounds), rounds, CHECKPOINTS // 2).round().astype(np.int64)
    return np.unique(np.concatenate([even, logarithmic]))
