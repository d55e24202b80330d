"""The figure of an evaluation: every estimate with its interval, for the whole page and by position."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arena.figures import drawing
from ..line_styles import PALETTE

if TYPE_CHECKING:
    from ..clicks import Evaluation

SHORT_NAMES = {"ips": "inverse\npropensity", "snips": "self-\nnormalised", "direct": "direct", "dr": "doubly\nrobust"}


def draw_evaluations(evaluations: Sequence[Evaluation], path: str | Path) -> Path:
    """Draw evaluations to a file and return its path: on the left the whole page by every estimator, on the right each
    position by the last estimator.
    """
    with drawing(path, 2) as panels:
        whole, apart = panels[0]
        _draw_whole(whole, evaluations)
        _draw_positions(apart, evaluations)
        handles, labels = whole.get_legend_handles_labels()
        whole.figure.legend(
            handles, labels, loc="outside lower center", ncols=min(len(labels), 3), frameon=False, fontsize=7
        )
    return Path(path)


def _draw_whole(panel: Any, evaluations: Sequence[Evaluation]) -> None:
    names = [name for name in evaluations[0].estimators if name != "logged"]
    logged = evaluations[0].estimate("logged")
    panel.axhspan(logged.lower, logged.upper, color="0.88", linewidth=0)
    panel.axhline(logged.value, color="0.5", linewidth=1, label="the log itself")
    for k, evaluation in enumerate(evaluations):
        parts = [evaluation.estimate(name) for name in names]
        _draw_points(
            panel,
            np.arange(len(names)) + _offset(k, len(evaluations)),
            parts,
            PALETTE[k % len(PALETTE)],
            evaluation.target,
        )
    panel.set_xticks(range(len(names)), [SHORT_NAMES.get(name, name) for name in names], fontsize=7)
    panel.set_ylim(bottom=0.0)
    panel.set_ylabel("clicks per page")
    panel.set_title("whole page")


def _draw_positions(panel: Any, evaluations: Sequence[Evaluation]) -> None:
    best = evaluations[0].estimators[-1]
    positions = evaluations[0].positions
    x = np.arange(len(positions))
    logged = [evaluations[0].estimate("logged", position).value for position in positions]
    panel.hlines(logged, x - 0.4, x + 0.4, color="0.5", linewidth=1)
    for k, evaluation in enumerate(evaluations):
        parts = [evaluation.estimate(best, position) for position in positions]
        _draw_points(panel, x + _offset(k, len(evaluations)), parts, PALETTE[k % len(PALETTE)], evaluation.target)
    panel.set_xticks(x, positions)
    panel.set_ylim(bottom=0.0)
    panel.set_xlabel("position")
    panel.set_title(f"by position, {SHORT_NAMES[best].replace(chr(10), ' ')}")


def _draw_points(panel: Any, x: Any, parts: Sequence[Any], colour: str, label: str) -> None:
    value = np.array([part.value for part in parts])
    ends = np.array([[part.lower, part.upper] for part in parts]).T
    reach = np.maximum(np.abs(ends - value), 0.0)
    panel.errorbar(x, value, yerr=reach, fmt="o", color=colour, markersize=3.5, linewidth=1.2, label=label)


def _offset(k: int, of: int) -> float:
    return (k - (of - 1) / 2) * min(0.18, 0.7 / of)
