"""Figures of a comparison: differences of the log-likelihood with intervals, and conditional perplexity by position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .result import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_differences", "draw_perplexities"]

# Okabe and Ito's palette, which is distinguishable with any kind of colour vision.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GUIDE, FAINT = "0.6", "#B3D4E8"
WIDEST = 5.0  # models that are further below the reference than this many times the best is above are not drawn


def draw_differences(panel: Axes, comparison: Comparison) -> None:
    """Draw how much more likely each model makes a test page than the reference, with 95% intervals.

    Thick lines are intervals over pages, thin ones over queries. Models far below the reference are listed instead.
    """
    table = comparison.table()
    scale = max(max(abs(row["difference"]) for row in table[: max(len(table) // 2, 1)]), 1e-3)
    drawn = [row for row in table if row["difference"] > -WIDEST * scale]
    for k, row in enumerate(reversed(drawn)):
        if np.isfinite(row["low_queries"]):
            panel.plot([row["low_queries"], row["high_queries"]], [k, k], color=FAINT, linewidth=1.0)
        panel.plot([row["low"], row["high"]], [k, k], color=PALETTE[0], linewidth=2.0)
        panel.plot(row["difference"], k, "o", color=PALETTE[0], markersize=3)
    panel.axvline(0.0, color=GUIDE, linestyle="--", linewidth=1, zorder=0)
    panel.set_yticks(range(len(drawn)), [row["model"] for row in reversed(drawn)])
    panel.set(xlabel="nats per page", title=f"Log-likelihood above {comparison.reference}")
    left = [f"{row['model']} {row['difference']:.2f}" for row in table if row not in drawn]
    if left:
        panel.annotate(
            f"not drawn: {', '.join(left)}",
            (0.98, 0.02),
            xycoords="axes fraction",
            ha="right",
            fontsize=6.5,
            color="0.4",
        )


def draw_perplexities(panel: Axes, comparison: Comparison) -> None:
    """Draw how far the conditional perplexity of the best models is from that of the reference at every position."""
    base = comparison[comparison.reference].score.conditional_perplexities
    close = [
        entry
        for entry in comparison.entries
        if entry.model != comparison.reference and entry.score.conditional_perplexity - 1.0 < 1.5 * (base.mean() - 1.0)
    ]
    for colour, entry in zip(PALETTE, close):
        gap = entry.score.conditional_perplexities - base
        panel.plot(comparison.positions, gap, "o-", color=colour, markersize=2.5, linewidth=1.0, label=entry.model)
    panel.axhline(0.0, color=GUIDE, linestyle="--", linewidth=1, zorder=0)
    title = "Perplexity given the clicks above"
    panel.set(xlabel="position", ylabel=f"minus that of {comparison.reference}", title=title)
    if len(comparison.positions) <= 12:
        panel.set_xticks(comparison.positions)
    if close:
        panel.legend(frameon=False, fontsize=6.5)
