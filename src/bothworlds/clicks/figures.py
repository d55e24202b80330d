"""Figures of click models: parameters with intervals, observed against fitted click rates, and comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import Floats
from ..line_styles import DASHES, PALETTE
from ..statistics.click_users import ranks_of_column
from .comparison import Comparison
from .counts import Counts
from .model.model import ClickModel, Estimates, Z
from .model.predict import rates_of_counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .offpolicy.result import Evaluation

INK, GUIDE, FAINT = PALETTE[0], "0.6", "#B3D4E8"
HIGHEST = 1.8  # upper end of the axis of examination, since intervals may extend far above 1
CROWD = 30  # more pairs than this are drawn in bins
BINS = 12
MOST = 40  # items that are drawn
NAMED = 20  # items whose names are below the axis, if there are no more
WIDEST = 5.0  # the axis of differences reaches this many times as far below the reference as the better half is apart


def draw_shared(panel: Axes, model: ClickModel) -> None:
    """Draw the parameters that belong to positions or to all items, with 95% intervals."""
    if model.model == "ubm":
        return _draw_columns(panel, model)
    if model.model == "pbm":
        return _draw_curve(panel, model)
    positions = np.array(model.positions, float)
    if not model.shared_parameters:
        panel.annotate("no parameters of positions", (0.5, 0.5), xycoords="axes fraction", ha="center", color="0.4")
    single = [name for name, one in model.shared_parameters.items() if one.value.size == 1]
    for colour, (name, one) in zip(PALETTE, model.shared_parameters.items()):
        x = positions if name not in single else np.array([float(single.index(name))])
        _draw(panel, x, one, colour, name)
    if single:
        panel.set_xticks(range(len(single)), single)
        panel.set(xlim=(-0.5, len(single) - 0.5), ylim=(0.0, 1.02))
    else:
        _label_positions(panel, model.positions)
    if len(model.shared_parameters) > 1 and not single:
        panel.legend(frameon=False, fontsize=6.5)
    name = next(iter(model.shared_parameters), "")
    panel.set(title=model.title, ylabel=name if len(model.shared_parameters) == 1 and not single else "")


def _label_positions(panel: Axes, positions: tuple[int, ...]) -> None:
    panel.set_xlabel("position")
    if len(positions) <= 12:
        panel.set_xticks(positions)


def _draw_curve(panel: Axes, model: ClickModel) -> None:
    """Examination of positions; those of different components are not connected."""
    one, component = model.shared_parameters["examination"], model.components["columns"]
    for label in np.unique(component[np.isfinite(one.value)]).tolist():
        own = np.isfinite(one.value) & (component == label)
        x = np.array(model.positions, float)[own]
        part = one.take(own)
        panel.plot(x, part.value, color=INK, linewidth=1.0, alpha=0.4 if own.sum() > 1 else 0.0)
        _draw(panel, x, part._replace(high=np.minimum(part.high, 2.0 * HIGHEST)), INK, "")
    title = "Examination" if model.identified else "Examination (not identified)"
    panel.set(ylabel="examination", title=title, ylim=(0.0, min(panel.get_ylim()[1], HIGHEST)))
    _label_positions(panel, model.positions)


def _draw_columns(panel: Axes, model: ClickModel) -> None:
    """Examination by position, a line for every position of the last click."""
    gamma = model.examination
    ranks = [ranks_of_column(column) for column in range(gamma.size)]
    m = len(model.positions)
    for last in range(m):
        own = [k for k, (_, above) in enumerate(ranks) if above == last and np.isfinite(gamma[k])]
        if own:
            shade = PALETTE[0] if last == 0 else str(0.2 + 0.6 * last / m)
            label = "no click above" if last == 0 else f"last click at {model.positions[last - 1]}"
            x = [model.positions[ranks[k][0] - 1] for k in own]
            # The shades of grey in between follow from the first and the last one in the legend.
            shown = label if last in (0, 1, m - 1) else None
            panel.plot(x, gamma[own], "o-", color=shade, markersize=2.5, linewidth=1.0, label=shown)
    panel.set(xlabel="position", ylabel="examination", title=model.title, ylim=(0.0, None))
    panel.legend(frameon=False, fontsize=6.5)


def draw_items(panel: Axes, model: ClickModel) -> None:
    """Draw the parameters of the items with the most impressions, in the order of the first parameter."""
    if not model.item_parameters:
        panel.annotate("no parameters of items", (0.5, 0.5), xycoords="axes fraction", ha="center", color="0.4")
        return
    first = next(iter(model.item_parameters.values())).value
    often = np.argsort(-model.item_counts[0], kind="stable")[:MOST]
    order = often[np.argsort(-np.nan_to_num(first[often]), kind="stable")]
    for colour, (name, one) in zip(PALETTE, model.item_parameters.items()):
        _draw(panel, np.arange(order.size, dtype=float), one.take(order), colour, name)
    more = f"the {order.size} most shown of {first.size:,} items" if order.size < first.size else "items"
    panel.set(xlabel=more, ylim=(0.0, 1.0), title=" and ".join(model.item_parameters).capitalize())
    if order.size <= NAMED:
        names = [str(model.items[k]) for k in order.tolist()]
        panel.set_xticks(range(order.size), [name if len(name) <= 12 else f"{name[:11]}…" for name in names])
        panel.tick_params(axis="x", labelrotation=90 if max(map(len, names)) > 2 else 0, labelsize=6.5)
    else:
        panel.set_xticks([])
    if len(model.item_parameters) > 1:
        panel.legend(frameon=False, fontsize=6.5)


def _draw(panel: Axes, x: Floats, one: Estimates, colour: str, label: str) -> None:
    sure = np.isfinite(one.low) & np.isfinite(one.high)
    reach = np.maximum([(one.value - one.low)[sure], (one.high - one.value)[sure]], 0.0)
    panel.errorbar(x[sure], one.value[sure], reach, fmt="none", ecolor=colour, elinewidth=0.8, alpha=0.5)
    panel.plot(x, one.value, "o", color=colour, markersize=2.5, label=label)


def draw_calibration(panel: Axes, model: ClickModel, counts: Counts) -> None:
    """Draw observed against fitted click rates with 95% intervals, for every pair or, if there are many, bins."""
    p = rates_of_counts(model, counts)
    use = np.isfinite(p) & (p > 0.0) & (counts.shown > 0)
    p, shown, clicked = p[use], counts.shown[use].astype(float), counts.clicked[use].astype(float)
    binned = p.size > CROWD
    if binned:
        p, shown, clicked = _bins(p, shown, clicked)
    if not p.size:
        return
    rate, low, high = clicked / shown, *_wilson(clicked, shown)
    reach = np.maximum([rate - low, high - rate], 0.0)
    panel.errorbar(p, rate, reach, fmt="o", color=INK, markersize=2.5, elinewidth=0.8, ecolor=INK if binned else FAINT)
    ends = (float(p.min()), float(p.max()))
    panel.plot(ends, ends, "--", color=GUIDE, linewidth=1, zorder=0)
    if ends[1] > 10.0 * ends[0]:
        panel.set(xscale="log", yscale="log")
    panel.set(xlabel="fitted click rate", ylabel="observed click rate", title="Observed against fitted")
    if binned:
        note = f"{len(p)} bins of {int(use.sum()):,} pairs,\nequal numbers of impressions"
        panel.annotate(note, (0.98, 0.04), xycoords="axes fraction", ha="right", fontsize=6.5, color="0.4")


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


def draw_differences(panel: Axes, comparison: Comparison) -> None:
    """Draw how much more likely each model makes a test page than the reference, with 95% intervals.

    Thick lines are intervals over pages, thin ones over queries. Of models beyond the axis, the difference
    is written at its end.
    """
    rows = comparison.table()[::-1]
    for k, row in enumerate(rows):
        if np.isfinite(row["low_queries"]):
            panel.plot([row["low_queries"], row["high_queries"]], [k, k], color=FAINT, linewidth=1.0)
        panel.plot([row["low"], row["high"]], [k, k], color=PALETTE[0], linewidth=2.0)
        panel.plot(row["difference"], k, "o", color=PALETTE[0], markersize=3)
    panel.axvline(0.0, color=GUIDE, linestyle="--", linewidth=1, zorder=0)
    panel.locator_params(axis="x", nbins=5)
    panel.set_yticks(range(len(rows)), [row["model"] for row in rows])
    better = max(abs(row["difference"]) for row in rows[len(rows) // 2 :])
    left = max(panel.get_xlim()[0], -WIDEST * max(better, 1e-3))
    panel.set_xlim(left=left)
    for k, row in enumerate(rows):
        if row["difference"] < left:
            panel.annotate(f" ← {row['difference']:.2f}", (left, k), va="center", fontsize=6.5, color="0.4")
    panel.set(xlabel="nats per page", title=f"Log-likelihood above {comparison.reference}")


def draw_perplexities(panel: Axes, comparison: Comparison) -> None:
    """Draw how far the conditional perplexity of the best models is from that of the reference at every position."""
    base = comparison[comparison.reference].score.conditional_perplexities
    names = [entry.model for entry in comparison.entries if entry.model != comparison.reference]
    for colour, dash, name in zip(PALETTE, DASHES, names[: max(len(names) // 2, 1)]):
        gap = comparison[name].score.conditional_perplexities - base
        panel.plot(comparison.positions, gap, color=colour, linestyle=dash, marker="o", markersize=2.5, label=name)
        panel.legend(frameon=False, fontsize=6.5)
    panel.axhline(0.0, color=GUIDE, linestyle="--", linewidth=1, zorder=0)
    panel.set(ylabel=f"minus that of {comparison.reference}", title="Perplexity given the clicks above")
    _label_positions(panel, comparison.positions)


def draw_backtest(panel: Axes, evaluation: Evaluation) -> None:
    """Draw predicted against observed changes of the lists that were held out, with 95% intervals."""
    table = evaluation.backtest
    base, observed, predicted, error = (
        table[name].to_numpy() for name in ("baseline", "observed", "predicted", "standard_error")
    )
    panel.set(title=f"{base.size} lists held out", xlabel="predicted change, clicks per page", ylabel="observed change")
    if not base.size:
        return
    x, y, slope = predicted - base, observed - base, float(table["slope"][0].as_py())
    panel.errorbar(x, y, yerr=Z * error, fmt="o", color=INK, ecolor=FAINT, markersize=2.5, linewidth=0.8)
    ends = np.array([min(x.min(), 0.0), max(x.max(), 0.0)])
    panel.plot(ends, ends, color=GUIDE, linewidth=1, label="as predicted")
    panel.axhline(0.0, color=GUIDE, linewidth=0.6, linestyle=":")
    panel.plot(ends, slope * ends, color=PALETTE[1], linewidth=1.2, label=f"observed: {slope:.2f} times")
    panel.legend(frameon=False, fontsize=6.5)
