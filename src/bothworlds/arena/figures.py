"""Figures of results: average reward against rounds, one panel for every world."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ..extras import check_figures
from ..files import replacing
from ..line_styles import DASHES, PALETTE
from .fonts import MISSING_GLYPH, supply_glyphs
from .result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WARNING = "#B04000"
ALWAYS_COLOURED = ("all-weather", "ftrl-pbm", "uniform")
LABEL_HEIGHT = 0.062  # share of the height of a panel that one label takes
LEADER_LINE: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.5, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)}
LABEL_OFFSET = 12.0  # points between the end of a curve and its label
LEAST_GAP, MOST_GAP = -0.5, 1.05  # what is drawn of shares of a gap
NARROW = 3.0  # inches: on a screen of 400 pixels, a point is then more than one and a half pixels
REFERENCES = {"best_dynamic": ("best list of each round", "-"), "best_fixed": ("best fixed list", "--")}
STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "svg.fonttype": "none",
    "svg.hashsalt": "bothworlds",
}


def draw_results(
    results: Sequence[Result],
    path: str | Path,
    *,
    columns: int | None = None,
    titles: Mapping[str, str] | None = None,
    colours: Mapping[str, str] | None = None,
    emphasised: str | None = None,
    narrow: bool = False,
) -> Path:
    """Draw average reward against rounds, with standard errors and both comparators, one panel for every world.

    The format follows the ending of the name (.svg, .png, .pdf). Panels fill rows of ``columns``, three by default.
    ``titles`` of worlds and ``colours`` of policies are optional, by name; each colour also has its own line style. If
    there are more policies than colours, the best over all worlds are coloured, and a few that are always of interest;
    the others are grey. The line of the policy ``emphasised`` is thicker. The figure states what its bands are.
    ``narrow`` stacks all panels, for small screens. Returns the path. Raises ImportError without Matplotlib.
    """
    colours = dict(zip(_coloured_policies(results), PALETTE)) if colours is None else colours
    with _panels(results, path, "average reward per round", titles, columns, narrow) as panels:
        for world, panel in panels.items():
            _draw_panel(panel, [result for result in results if result.world == world], colours, emphasised)
    return Path(path)


def draw_gap_closed(
    results: Sequence[Result], path: str | Path, rival: str, *, titles: Mapping[str, str] | None = None
) -> Path:
    """Draw the share of the gap between a rival and the best lists that each policy closes, over the rounds.

    In a world with contexts, and with one learner for all visitors as the rival, this is what context is worth: 1 is
    the best list of every context. There is one panel for every world, which must have a result of the policy
    ``rival``; otherwise as ``draw_results``. Raises ValueError without that result.
    """
    others = list(dict.fromkeys(result.policy for result in results if result.policy != rival))
    styles = dict(zip(others, zip(PALETTE, DASHES)))
    with _panels(results, path, "share of the gap that is closed", titles) as panels:
        for world, panel in panels.items():
            here = {result.policy: result for result in results if result.world == world}
            if rival not in here:
                raise ValueError(f"rival must be a policy that was played in {world}; got {rival!r}")
            _draw_gap(panel, here, rival, styles)
    return Path(path)


@contextmanager
def _panels(
    results: Sequence[Result],
    path: str | Path,
    label: str,
    titles: Mapping[str, str] | None,
    columns: int | None = None,
    narrow: bool = False,
) -> Iterator[dict[str, Axes]]:
    """Yield a panel for each world, of a figure that is written after the block."""
    worlds = list(dict.fromkeys(result.world for result in results))
    across = min(columns or 3, len(worlds))
    with drawing(path, across, -(-len(worlds) // across), narrow=narrow) as panels:
        own = dict(zip(worlds, panels.flat))
        yield own
        for world, panel in own.items():
            panel.set_title((titles or {}).get(world, world))
            panel.set_xlim(0, next(result.rounds[-1] for result in results if result.world == world))
            panel.xaxis.set_major_formatter(thousands)
        for panel in panels.flat[len(worlds) :]:
            panel.set_axis_off()
        for panel in panels[:, 0]:
            panel.set_ylabel(label)
        panels.flat[0].figure.supxlabel(_band_note(results, narrow), fontsize=7, color="0.35")


def _draw_gap(panel: Axes, here: Mapping[str, Result], rival: str, styles: Mapping[str, tuple[str, Any]]) -> None:
    rounds = here[rival].rounds
    labels = [EndLabel(1.0, "best list of each context", "0.45"), EndLabel(0.0, rival, "0.45")]
    for level in (0.0, 1.0):
        panel.axhline(level, color="0.6", linewidth=1)
    for name, result in here.items():
        if name != rival:
            colour, dash = styles[name]
            end = _draw_mean(panel, rounds, result.gap_closed(here[rival]), colour, dash)
            labels.append(EndLabel(float(np.clip(end, LEAST_GAP, MOST_GAP)), name, colour))
    panel.set(ylim=(LEAST_GAP, MOST_GAP), xlabel="rounds")
    label_ends(panel, int(rounds[-1]), labels)


def _draw_mean(panel: Axes, rounds: Any, values: Any, colour: str, dash: Any, width: float = 1.4) -> float:
    """Draw the mean of values (replications, rounds) with a band of one standard error; return where it ends."""
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros_like(mean)
    panel.fill_between(rounds, mean - error, mean + error, color=colour, alpha=0.25, linewidth=0)
    panel.plot(rounds, mean, color=colour, linewidth=width, linestyle=dash)
    return float(mean[-1])


def thousands(value: float, _: float) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def _band_note(results: Sequence[Result], narrow: bool) -> str:
    """Return what the bands of the figure are."""
    replications = sorted({len(result.average_reward()) for result in results})
    if replications == [1]:
        return "one replication"
    number = f"{replications[0]}" if len(replications) == 1 else f"{replications[0]} to {replications[-1]}"
    parts = (f"lines: means of {number} replications;", "bands: plus and minus one standard error")
    return ("\n" if narrow else " ").join(parts)


@contextmanager
def drawing(path: str | Path, across: int = 1, down: int = 1, *, narrow: bool = False) -> Iterator[Any]:
    """Yield panels (down, across) to draw into, in the style of all figures; the file is written after the block.

    ``narrow`` puts all panels below each other, with text that is readable at the width of a phone; a panel without a
    label on its vertical axis gets that of the first panel in its row. The file is replaced as a whole or not at all.
    Raises ImportError without Matplotlib.
    """
    check_figures()
    import matplotlib
    from matplotlib.figure import Figure

    path = Path(path)
    wide, high = (1, across * down) if narrow else (across, down)
    with matplotlib.rc_context(cast(Any, STYLE)):
        size = (NARROW if narrow else 1.2 + 2.7 * wide, 0.2 + 2.6 * high)
        figure = Figure(figsize=size, layout="constrained", dpi=200)
        panels = figure.subplots(high, wide, squeeze=False).reshape(down, across)
        yield panels
        for row in panels if narrow else ():
            for panel in row[1:]:
                panel.set_ylabel(panel.get_ylabel() or row[0].get_ylabel())
        path.parent.mkdir(parents=True, exist_ok=True)
        supply_glyphs(figure, keeps_text=path.suffix == ".svg")
        # Without the date, the same results give the same file.
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
        with warnings.catch_warnings(), replacing(path) as file:
            warnings.filterwarnings("ignore", MISSING_GLYPH)  # supply_glyphs has replaced them
            figure.savefig(file, format=path.suffix.removeprefix("."), metadata=metadata)


def _coloured_policies(results: Sequence[Result]) -> list[str]:
    """The policies that are drawn in colour: all, or those with the best average rank over the worlds."""
    policies = list(dict.fromkeys(result.policy for result in results))
    if len(policies) <= len(PALETTE):
        return policies
    ranks: dict[str, list[int]] = {policy: [] for policy in policies}
    for world in {result.world for result in results}:
        learners = [result for result in results if result.world == world and result.adaptive]
        for rank, result in enumerate(sorted(learners, key=lambda result: -result.final()[0])):
            ranks[result.policy].append(rank)
    best = sorted((policy for policy in policies if ranks[policy]), key=lambda policy: np.mean(ranks[policy]))
    always = [policy for policy in ALWAYS_COLOURED if policy in policies]
    rest = [policy for policy in best if policy not in always]
    return always + rest[: len(PALETTE) - len(always)]


def _draw_panel(
    panel: Axes, results: Sequence[Result], colours: Mapping[str, str], emphasised: str | None = None
) -> None:
    labels: list[EndLabel] = []
    dashes = dict(zip(colours, DASHES))
    for name, (label, line) in REFERENCES.items():
        curve = getattr(results[0], name) / results[0].rounds
        if name == "best_fixed" and np.allclose(curve, results[0].best_dynamic / results[0].rounds):
            continue
        panel.plot(results[0].rounds, curve, line, color="0.6", linewidth=1)
        labels.append(EndLabel(float(curve[-1]), label, "0.45"))
    for result in results:
        average = result.average_reward()
        if result.policy not in colours:
            panel.plot(result.rounds, average.mean(axis=0), color="0.88", linewidth=0.7, zorder=0)
            continue
        colour, dash = colours[result.policy], dashes.get(result.policy, "-")
        end = _draw_mean(panel, result.rounds, average, colour, dash, 2.4 if result.policy == emphasised else 1.4)
        labels.append(EndLabel(end, result.policy, colour))
    label_ends(panel, int(results[0].rounds[-1]), labels)
    if any(result.no_change for result in results):
        panel.set_xlabel("rounds (too few for users to change)", color=WARNING)
    else:
        panel.set_xlabel("rounds")


class EndLabel(NamedTuple):
    """The label of a curve: the value at which the curve ends, the text, and its colour."""

    value: float
    text: str
    colour: str


def label_ends(panel: Axes, end: float, labels: Sequence[EndLabel]) -> None:
    """Label each curve at its end, with a thin line from the curve to a label that had to be moved.

    Labels that would overlap are moved apart, as little as possible, within the panel; its vertical axis may be
    logarithmic.
    """
    scale = panel.yaxis.get_transform()
    low, high = scale.transform(np.array(panel.get_ylim()))
    named = sorted(labels)
    ends = scale.transform(np.array([label.value for label in named])).tolist()
    places = spread_out(ends, LABEL_HEIGHT * (high - low), low, high)
    for end_place, place, label in zip(ends, places, named):
        moved = abs(place - end_place) > 0.3 * LABEL_HEIGHT * (high - low)
        panel.annotate(
            label.text,
            (end, label.value),
            xytext=(LABEL_OFFSET, float(scale.inverted().transform(np.array([place]))[0])),
            textcoords=cast(Any, ("offset points", "data")),
            color=label.colour,
            va="center",
            fontsize=7,
            annotation_clip=False,
            arrowprops=LEADER_LINE | {"color": label.colour} if moved else None,
        )


def spread_out(values: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Return places for sorted values that are at least ``apart`` from each other, between ``low`` and ``high``.

    The sum of squared distances between values and places is the smallest possible (isotonic regression by pooling
    adjacent violators). If there is not enough room, the places are evenly spaced.

    >>> spread_out([1.0, 1.0, 5.0], 1.0, 0.0, 10.0)
    [0.5, 1.5, 5.0]
    """
    if not values:
        return []
    room = (len(values) - 1) * apart
    if room >= high - low:
        return np.linspace(low, high, len(values)).tolist()
    # Without the distances between them, the places must not decrease; each pool of values has one mean.
    pools: list[tuple[float, int]] = []
    for k, value in enumerate(values):
        mean, size = value - k * apart, 1
        while pools and pools[-1][0] > mean:
            before, many = pools.pop()
            mean, size = (before * many + mean * size) / (many + size), many + size
        pools.append((mean, size))
    levels = [mean for mean, size in pools for _ in range(size)]
    return [min(max(level, low), high - room) + k * apart for k, level in enumerate(levels)]
