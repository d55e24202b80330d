"""Figures of a fit: examination with intervals, and observed against fitted click rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import Floats
from ...line_styles import PALETTE
from ..counts import Counts
from .model import Model, Models
from .perplexity import probabilities
from .uncertainty import Z

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, GUIDE = PALETTE[0], "0.6"
FAINT = "#B3D4E8"
MOST = 1.8  # upper end of the axis of examination, since intervals may extend far above 1
CROWD = 30  # more pairs than this are drawn in bins
BINS = 12


def draw_curve(panel: Axes, model: Model | Models) -> None:
    """Draw the examination of every position with its 95% interval; for several models, median and quartiles."""
    if isinstance(model, Models):
        _draw_many(panel, model)
    else:
        _draw_one(panel, model)
    title = "Examination" if model.identified or isinstance(model, Models) else "Examination (not identified)"
    panel.set(xlabel="position", ylabel="examination", title=title, ylim=(0.0, min(panel.get_ylim()[1], MOST)))
    positions = model.flat().positions
    if len(positions) <= 12:
        panel.set_xticks(positions)


def _draw_one(panel: Axes, model: Model) -> None:
    rows = [row for row in model.curve() if np.isfinite(row["examination"])]
    for label in sorted({row["component"] for row in rows}):
        own = [row for row in rows if row["component"] == label]
        x, y, low, high = (np.array([row[key] for row in own]) for key in ("position", "examination", "low", "high"))
        sure = np.isfinite(low)
        reach = np.array([(y - low)[sure], (np.minimum(high, 2.0 * MOST) - y)[sure]])
        panel.plot(x, y, color=INK, linewidth=1.0, alpha=0.4 if len(rows) > 1 else 0.0)
        panel.errorbar(x[sure], y[sure], np.maximum(reach, 0.0), fmt="none", ecolor=INK, elinewidth=1.0, capsize=2)
        panel.plot(x, y, "o", color=INK, markersize=3)


def _draw_many(panel: Axes, models: Models) -> None:
    curves = models.flat().examination
    good = curves[models.each_identified & ~np.isnan(curves).any(axis=1)]
    note = "no query has a complete curve"
    if len(good):
        note = f"median and quartiles of the\n{len(good):,} of {len(models):,} queries with a complete curve"
        x = np.array(models.flat().positions)
        low, middle, high = np.quantile(good, (0.25, 0.5, 0.75), axis=0)
        panel.fill_between(x, low, high, color=INK, alpha=0.2, linewidth=0)
        panel.plot(x, middle, "o-", color=INK, markersize=3, linewidth=1.2)
    panel.annotate(
        note,
        (0.98, 0.98),
        xycoords="axes fraction",
        ha="right",
        va="top",
        fontsize=6.5,
        color="0.4",
    )


def draw_calibration(panel: Axes, model: Model | Models, counts: Counts) -> None:
    """Draw observed against fitted click rates with 95% intervals, for every pair or, if there are many, for bins."""
    p = probabilities(model.flat(), counts)
    use = np.isfinite(p) & (p > 0.0)
    p, shown, clicked = p[use], counts.shown[use].astype(float), counts.clicked[use].astype(float)
    binned = p.size > CROWD
    if binned:
        p, shown, clicked = _bins(p, shown, clicked)
    if not p.size:
        return
    rate, low, high = clicked / shown, *_wilson(clicked, shown)
    panel.errorbar(
        p,
        rate,
        np.maximum([rate - low, high - rate], 0.0),
        fmt="o",
        color=INK,
        markersize=2.5,
        elinewidth=0.8,
        ecolor=INK if binned else FAINT,
    )
    ends = _axes(panel, p, rate)
    panel.plot(ends, ends, "--", color=GUIDE, linewidth=1, zorder=0)
    panel.set(xlabel="fitted click rate", ylabel="observed click rate", title="Observed against fitted")
    if binned:
        panel.annotate(
            f"{len(p)} bins of {int(use.sum()):,} pairs,\nequal numbers of impressions",
            (0.98, 0.04),
            xycoords="axes fraction",
            ha="right",
            fontsize=6.5,
            color="0.4",
        )


def _axes(panel: Axes, p: Floats, rate: Floats) -> tuple[float, float]:
    """Set axes, logarithmic if rates differ by an order of magnitude, and return the ends of the diagonal."""
    from matplotlib.ticker import LogLocator, NullFormatter

    wide = p.max() > 10.0 * p.min()
    if not wide:
        top = 1.08 * float(max(p.max(), rate.max()))
        panel.set(xlim=(0.0, top), ylim=(0.0, top))
        return 0.0, top
    seen = np.concatenate([p, rate[rate > 0.0]])
    bottom, top = 0.7 * float(seen.min()), min(1.0, 1.4 * float(seen.max()))
    panel.set(xscale="log", yscale="log", xlim=(bottom, top), ylim=(bottom, top))
    several = LogLocator(subs=(1.0, 2.0, 5.0) if top < 100.0 * bottom else (1.0,))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(several)
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())
    return bottom, top


def _bins(p: Floats, shown: Floats, clicked: Floats) -> tuple[Floats, Floats, Floats]:
    """Sums over bins with about equal impressions, in the order of fitted rates."""
    order = np.argsort(p, kind="stable")
    reach = np.cumsum(shown[order])
    label = np.minimum((reach - 0.5 * shown[order]) * BINS / reach[-1], BINS - 1).astype(np.int64)
    expected, seen, got = (np.bincount(label, part[order], BINS) for part in (p * shown, shown, clicked))
    full = seen > 0.0
    return expected[full] / seen[full], seen[full].astype(float), got[full].astype(float)


def _wilson(clicked: Floats, shown: Floats) -> tuple[NDArray[Any], NDArray[Any]]:
    """Wilson's 95% interval of a rate."""
    middle = (clicked + 0.5 * Z**2) / (shown + Z**2)
    half = Z / (shown + Z**2) * np.sqrt(clicked * (shown - clicked) / shown + 0.25 * Z**2)
    return middle - half, middle + half
