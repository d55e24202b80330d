"""The Question base class: the games that an experiment plays, its figures and its verdicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arena.figures import drawing
from ..arena.game import Game, checkpoint_rounds
from ..policies import Policy
from ..worlds import Stochastic, World
from .result_lookup import Results
from .verdict import Claim, Verdict, judged

CHECKPOINTS = 100  # evenly spaced; half as many more are spaced logarithmically


class Size(NamedTuple):
    """How much is played; ``name`` is the name of the size on the command line.

    The panels of the paper's figures have ``rounds`` rounds and users that change every ``phase`` rounds. Policies play
    ``replications`` replications, those that take long ``few_replications``, those with very skewed rewards
    ``many_replications``. Growth is measured in games of ``long_rounds`` rounds, expensive policies play
    ``short_rounds``. ``fitted``, if not None, is a world that replaces the one which the paper fitted to a search log.
    The logarithm of Theorem 2 is measured in games of ``easy_rounds`` rounds of a small world and of ``steady_rounds``
    rounds of the paper's; they are not played if these are 0.
    """

    name: str
    rounds: int
    phase: int
    many_replications: int
    replications: int
    few_replications: int
    long_rounds: int
    short_rounds: int
    fitted: Stochastic | None = None
    easy_rounds: int = 0
    steady_rounds: int = 0


def game(policy: str | Policy, world: World, rounds: int, replications: int) -> Game:
    """Return a game of an experiment: the policy gets what it needs to know of the world."""
    return Game.of(policy, world, rounds, replications, checkpoints=game_checkpoints(rounds), inform=True)


def game_checkpoints(rounds: int) -> NDArray[np.int64]:
    """Return the rounds at which rewards are recorded: evenly spaced, and logarithmically spaced ones in addition."""
    even = checkpoint_rounds(CHECKPOINTS, rounds)
    logarithmic = np.geomspace(min(10, rounds), rounds, CHECKPOINTS // 2).round().astype(np.int64)
    return np.unique(np.concatenate([even, logarithmic]))


class Figure(NamedTuple):
    """A figure of the report: the stem of its file names, its title, and its caption."""

    stem: str
    title: str
    caption: str


def figure_files(folder: str | Path, stem: str) -> dict[Path, bool]:
    """Return the files of a figure, and whether each is the version for narrow screens.

    >>> [path.name for path in figure_files("figures", "growth")]
    ['growth.svg', 'growth.png', 'growth-narrow.svg', 'growth-narrow.png']
    """
    ends = (".svg", ".png", "-narrow.svg", "-narrow.png")
    return {Path(folder) / f"{stem}{end}": "narrow" in end for end in ends}


def draw_figure(folder: str | Path, figure: Figure, across: int, draw: Callable[[Any], None]) -> list[Figure]:
    """Draw a figure into its files: ``draw`` gets its panels, a row of ``across``. Returns the figure, in a list."""
    for path, narrow in figure_files(folder, figure.stem).items():
        with drawing(path, across, narrow=narrow) as panels:
            draw(panels[0])
    return [figure]


class Question(ABC):
    """One experiment: what is played, the figures, and the verdicts. A question has no state.

    ``name`` is its name on the command line, ``title`` and ``about`` are its heading and its introduction in the
    report. ``of_paper`` is whether it tests statements of the paper; the others are played on request only.
    """

    name: str
    title: str
    about: str
    of_paper: bool = True

    def played(self, size: Size) -> str:
        """Return how much is played, in words."""
        return (
            f"{size.rounds:,} rounds, phases of {size.phase:,}, "
            f"{size.replications} replications ({size.few_replications} of policies that take long, "
            f"{size.many_replications} of PBM-PIE, whose rewards are very skewed)"
        )

    @abstractmethod
    def games(self, size: Size) -> list[Game]:
        """Return the games that have to be played to answer the question."""

    @abstractmethod
    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        """Draw the figures into a folder, each in the files of ``figure_files``, and return what they show.

        ``results`` has the results of all games of this question and size, and possibly others. Raises KeyError if one
        is missing, and ImportError without Matplotlib.
        """

    def claims(self, size: Size) -> Sequence[Claim]:
        """Return the statements that this question tests; none by default."""
        return ()

    def verdicts(self, results: Results, size: Size) -> list[Verdict]:
        """Return the verdicts on the claims; ``results`` is as in ``figures``. Raises KeyError if one is missing."""
        return [judged(claim, results, size) for claim in self.claims(size)]
