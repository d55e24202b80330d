"""Growth of regret with the number of items and the number of positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arena.game import Game
from ..line_styles import PALETTE
from ..worlds import World, stochastic
from .question import Figure, Question, Size, draw_figure, game
from .result_lookup import Results
from .verdict import Claim, Estimate, estimate

NAME = "ftrl-pbm"
ITEMS = ((10, 5), (20, 5), (40, 5), (80, 5))
POSITIONS = ((40, 2), (40, 4), (40, 8), (40, 16))


def _stretched(n: int, m: int) -> World:
    """Build the paper's synthetic world with n items in the same range of attraction, and m positions."""
    world = stochastic(np.linspace(0.95, 0.68, n), 1.0 / np.arange(1, m + 1))
    world.name = f"stretched({n} items, {m} positions)"
    return world


class Shapes(Question):
    """Measure regret against n and m."""

    name = "shapes"
    title = "How regret grows with items and positions"
    about = (
        "FTRL-PBM in the synthetic world stretched to more items in the same range of attraction, and more positions."
    )

    def games(self, size: Size) -> list[Game]:
        shapes = dict.fromkeys(ITEMS + POSITIONS)
        return [game(NAME, _stretched(n, m), size.short_rounds * 4, size.replications) for n, m in shapes]

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        def draw(panels: Any) -> None:
            _draw(panels[0], results, [n for n, _ in ITEMS], ITEMS, 0.5, "sqrt(n)", "items, with 5 positions")
            _draw(panels[1], results, [m for _, m in POSITIONS], POSITIONS, 1.0, "m", "positions, with 40 items")
            panels[0].set_ylabel("regret")

        caption = (
            f"Regret after {size.short_rounds * 4:,} rounds, mean and standard error of {size.replications} "
            "replications. Dashed: growth like the bound of Theorem 1, from the first point."
        )
        return draw_figure(folder, Figure("shapes", self.title, caption), 2, draw)

    def claims(self, size: Size) -> Sequence[Claim]:
        return (
            Claim(
                statement="Regret grows no faster than m sqrt(n).",
                source="Theorem 1",
                measure=lambda results, size: {
                    "n": _exponent(results, ITEMS, 0),
                    "m": _exponent(results, POSITIONS, 1).over(2.0),
                },
                said=lambda found, results, size: f"exponent of n: {found['n']}; exponent of m: {found['m'].over(0.5)}",
                below=0.55,
                rule="the exponent of n is below 0.55 and that of m below 1.1",
                figure="shapes",
                remark="Growth alone shows little: the regret of a policy that learns nothing hardly depends on n.",
            ),
        )


def _regret(results: Results, shapes: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    """Return the regret (shapes, replications) after the last round."""
    return np.array([results[NAME, _stretched(*shape)].regret()[:, -1] for shape in shapes])


def _exponent(results: Results, shapes: Sequence[tuple[int, int]], axis: int) -> Estimate:
    """Estimate the exponent of the number of items (axis 0) or positions (axis 1) in the regret."""
    logarithms = np.log([shape[axis] for shape in shapes])
    return estimate(np.polyfit(logarithms, np.log(_regret(results, shapes)), 1)[0])


def _draw(
    panel: Any, results: Results, sizes: list[int], shapes: Sequence[tuple[int, int]], power: float, guide: str, x: str
) -> None:
    from matplotlib.ticker import LogLocator

    regret = _regret(results, shapes)
    error = regret.std(axis=1, ddof=1) / np.sqrt(regret.shape[1])
    panel.errorbar(sizes, regret.mean(axis=1), error, color=PALETTE[0], marker="o", markersize=3)
    line = regret[0].mean() * (np.array(sizes) / sizes[0]) ** power
    panel.plot(sizes, line, "--", color="0.6", linewidth=1)
    panel.annotate(guide, (sizes[-1], line[-1]), color="0.45", fontsize=7)
    panel.set(xscale="log", yscale="log", xticks=sizes, xticklabels=sizes)
    panel.minorticks_off()
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    panel.set_xlabel(x)
