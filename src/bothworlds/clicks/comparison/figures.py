"""Figures of a comparison: differences of the log-likelihood with intervals, and conditional perplexity by position."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from ...line_styles import DASHES, PALETTE
from .result import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GUIDE, FAINT = "0.6", "#B3D4E8"
WIDEST = 5.0  # models that are further below the reference than this many times the best is above are not drawn


def draw_differences(panel: Axes, comparison: Comparison) -> None:
    """Draw how much more likely each model makes a test page than the reference, with 95% intervals.

    Thick lines are intervals over pages, thin ones over queries. Models far below the reference are listed instead.
    """
    drawn, others = _split(comparison)
    for k, row in enumerate(reversed(drawn)):
        if np.isfinite(row["low_queries"]):
            panel.plot([row["low_queries"], row["high_queries"]], [k, k], color=FAINT, linewidth=1.0)
        panel.plot([row["low"], row["high"]], [k, k], color=PALETTE[0], linewidth=2.0)
        panel.plot(row["difference"], k, "o", color=PALETTE[0], markersize=3)
    panel.axvline(0.0, color=GUIDE, linestyle="--", linewidth=1, zorder=0)
    panel.locator_params(axis="x", nbins=5)
    panel.set_yticks(range(len(drawn)), [row["model"] for row in reversed(drawn)])
    listed = ", ".join(f"{row['model']} {row['difference']:.2f}" for row in others)
    note = "\n" + fill(f"not drawn: {listed}", 44) if others else ""
    panel.set(xlabel=f"nats per page{note}", title=f"Log-likelihood above {comparison.reference}")


def draw_perplexities(panel: Axes, comparison: Comparison) -> None:
    """Draw how far the conditional perplexity of models is from that of the reference at every position.

    The models are those of ``draw_differences``, as far as there are colours.
    """
    base = comparison[comparison.reference].score.conditional_perplexities
    drawn, _ = _split(comparison)
    names = [row["model"] for row in drawn if row["model"] != comparison.reference]
    for colour, dash, name in zip(PALETTE, DASHES, names):
        gap = comparison[name].score.conditional_perplexities - base
        panel.plot(comparison.positions, gap, color=colour, linestyle=dash, marker="o", markersize=2.5, label=name)
    panel.axhline(0.0, color=GUIDE, linestyle="--", linewidth=1, zorder=0)
    title = "Perplexity given the clicks above"
    panel.set(xlabel="position", ylabel=f"minus that of {comparison.reference}", title=title)
    if len(comparison.positions) <= 12:
        panel.set_xticks(comparison.positions)
    if names:
        panel.legend(frameon=False, fontsize=6.5)


def _split(comparison: Comparison) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of the models to draw, and of those that are too far below the reference."""
    table = comparison.table()
    scale = max(max(abs(row["difference"]) for row in table[: max(len(table) // 2, 1)]), 1e-3)
    drawn = [row for row in table if row["difference"] > -WIDEST * scale]
    return drawn, [row for row in table if row not in drawn]
