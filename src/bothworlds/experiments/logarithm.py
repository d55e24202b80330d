"""Theorem 2 in long games: regret against the logarithm of T, with a straight line fitted to it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..arena import Result
from ..arena.figures import drawing
from ..arena.game import Game
from ..line_styles import PALETTE
from ..worlds import World, stochastic
from ..worlds import world as named_world
from .question import Figure, Size, figure_files, game
from .result_lookup import Results
from .verdict import Claim, Estimate, Measured, estimate

POLICIES = ("ftrl-pbm", "tsallis-rv", "gibbs-ts")
LINES = ("-", "--", ":")
# Under a logarithm, the last two factors of ten cost the same; under a square root, the last costs 3.2 times as much.
LARGEST_RATIO = 1.5


def _easy() -> World:
    world = stochastic([0.9, 0.6, 0.3, 0.1], [1.0, 0.5])
    world.name = "four items"
    return world


EASY = _easy()  # gaps of 0.3 and more: the logarithm shows after 10,000 rounds


def _worlds(size: Size) -> dict[str, tuple[World, int]]:
    """The worlds of the size and their rounds, by the label of their panel."""
    worlds = {}
    if size.easy_rounds:
        worlds["four items, two positions"] = (EASY, size.easy_rounds)
    if size.steady_rounds:
        worlds["the paper's steady world"] = (named_world("paper/stochastic"), size.steady_rounds)
    return worlds


def logarithm_games(size: Size) -> list[Game]:
    """Return FTRL-PBM and two other policies in the long games of the size; none in a size without them."""
    played = [(name, *game) for game in _worlds(size).values() for name in POLICIES]
    return [game(name, world, rounds, size.few_replications) for name, world, rounds in played]


def increments(result: Result) -> NDArray[np.float64]:
    """Return by how much regret grows over the last factor of ten and over the one before, (replications, 2)."""
    ends = result.rounds[-1] / np.array([1.0, 10.0, 100.0])
    places = [int(np.abs(result.rounds - end).argmin()) for end in ends]
    regret = result.regret()[:, places]
    return regret[:, :2] - regret[:, 1:]


def fitted_line(result: Result) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a and b of regret = a + b log T over the last two factors of ten, each (replications,)."""
    late = result.rounds >= result.rounds[-1] / 100
    slope, start = np.polyfit(np.log(result.rounds[late]), result.regret()[:, late].T, 1)
    return start, slope


def logarithm_figure(results: Results, size: Size, folder: str) -> list[Figure]:
    """Draw regret against log T with the fitted lines; nothing in a size without long games."""
    worlds = _worlds(size)
    if not worlds:
        return []
    for path, narrow in figure_files(folder, "logarithm").items():
        with drawing(path, across=len(worlds), narrow=narrow) as panels:
            for panel, (label, (world, rounds)) in zip(panels.flat, worlds.items()):
                for name, colour, line in zip(POLICIES, PALETTE, LINES):
                    result = results.of_length(rounds).first_replications(size.few_replications)[name, world]
                    start, slope = (values.mean() for values in fitted_line(result))
                    late = result.rounds[result.rounds >= result.rounds[-1] / 100]
                    text = f"{name}: {start:,.0f} + {slope:,.1f} log T"
                    panel.semilogx(result.rounds, result.regret().mean(axis=0), line, color=colour, label=text)
                    panel.semilogx(late, start + slope * np.log(late), color="0.6", linewidth=0.8)
                panel.set_title(label)
                panel.set_xlabel("rounds")
                panel.legend(frameon=False, fontsize=6.5)
            panels.flat[0].set_ylabel("regret against the best fixed list")
    caption = (
        f"Steady users, mean of {size.few_replications} replications. A logarithm is a straight line here. Grey: the "
        "line that was fitted to the last two factors of ten."
    )
    return [Figure("logarithm", "The logarithm of Theorem 2", caption)]


def logarithm_claims(size: Size) -> list[Claim]:
    """Return that regret grows like the logarithm of T in the long games of the size."""
    return [
        Claim(
            statement=f"In {label}, the regret of FTRL-PBM grows like log T up to {rounds:,} rounds.",
            source="ours, from Theorem 2",
            measure=partial(_ratios, world, rounds),
            said=partial(_with_lines, world, rounds),
            only=POLICIES[0],
            below=LARGEST_RATIO,
            rule=f"the ratio is below {LARGEST_RATIO}; it is 1 for a logarithm and 3.2 for a square root",
            figure="logarithm",
            remark="The ratio is that to the mean of the factor of ten before.",
        )
        for label, (world, rounds) in _worlds(size).items()
    ]


def _ratios(world: World, rounds: int, results: Results, size: Size) -> Measured:
    played = results.of_length(rounds).first_replications(size.few_replications)
    grown = {name: increments(played[name, world]).T for name in POLICIES}
    return {name: estimate(last / before.mean()) for name, (last, before) in grown.items()}


def _with_lines(world: World, rounds: int, ratios: Mapping[str, Estimate], results: Results, size: Size) -> str:
    played, said = results.of_length(rounds).first_replications(size.few_replications), []
    for name, ratio in ratios.items():
        start, slope = (estimate(values) for values in fitted_line(played[name, world]))
        said.append(f"{name}: {ratio}, regret {start} + {slope} log T")
    return f"growth over the last factor of ten, divided by that over the one before: {'; '.join(said)}"
