"""Figures of click models other than the position-based one: shared parameters and items, with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...kernels import Floats
from ...line_styles import PALETTE
from ...statistics.browsing import ranks_of_column
from .click_model import ClickModel, Estimates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 40  # items that are drawn
NAMED = 20  # items whose names are below the axis, if there are no more


def draw_shared(panel: Axes, model: ClickModel) -> None:
    """Draw the parameters that belong to positions or to all items, with 95% intervals."""
    if model.model == "ubm":
        return _draw_columns(panel, model)
    positions = np.array(model.positions, float)
    if not model.shared_parameters:
        panel.annotate("no parameters of positions", (0.5, 0.5), xycoords="axes fraction", ha="center", color="0.4")
    single = [name for name, one in model.shared_parameters.items() if one.values.size == 1]
    for colour, (name, one) in zip(PALETTE, model.shared_parameters.items()):
        x = positions if name not in single else np.array([float(single.index(name))])
        _draw(panel, x, one, colour, name)
    if single:
        panel.set_xticks(range(len(single)), single)
        panel.set(xlim=(-0.5, len(single) - 0.5), ylim=(0.0, 1.02))
    else:
        panel.set_xlabel("position")
        if len(positions) <= 12:
            panel.set_xticks(model.positions)
    if len(model.shared_parameters) > 1 and not single:
        panel.legend(frameon=False, fontsize=6.5)
    name = next(iter(model.shared_parameters), "")
    panel.set(title=model.title, ylabel=name if len(model.shared_parameters) == 1 and not single else "")


def _draw_columns(panel: Axes, model: ClickModel) -> None:
    """Examination by position, a line for every position of the last click."""
    gamma = model.shared("examination")
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
    first = next(iter(model.item_parameters.values())).values
    often = np.argsort(-model.item_counts[0], kind="stable")[:MOST]
    order = often[np.argsort(-np.nan_to_num(first[often]), kind="stable")]
    for colour, (name, one) in zip(PALETTE, model.item_parameters.items()):
        part = Estimates(one.values[order], type(one.spread)(*(values[order] for values in one.spread)))
        _draw(panel, np.arange(order.size, dtype=float), part, colour, name)
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


def _draw(panel: Axes, x: Floats, estimates: Estimates, colour: str, label: str) -> None:
    values, spread = estimates
    sure = np.isfinite(spread.low) & np.isfinite(spread.high)
    reach = np.maximum([(values - spread.low)[sure], (spread.high - values)[sure]], 0.0)
    panel.errorbar(x[sure], values[sure], reach, fmt="none", ecolor=colour, elinewidth=0.8, alpha=0.5)
    panel.plot(x, values, "o", color=colour, markersize=2.5, label=label)
