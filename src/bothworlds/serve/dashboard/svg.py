"""Charts as SVG, rendered on the server: no script, printable, with a tooltip on every data point.

Colours come from the style sheet by class, so that one chart serves the light and the dark scheme.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from ..schemas import DetectedChange, Marginals, MarginalsThen, SeriesPoint
from .text import change_sentence, is_number, number, percent, plural, timestamp

DAY = 86_400_000
# Upper ends of the axis, and into how many parts each divides so that all tick labels are round numbers.
PARTS = {1.0: 5, 1.5: 3, 2.0: 4, 3.0: 3, 4.0: 4, 5.0: 5, 6.0: 3, 8.0: 4, 10.0: 5}
HOLDOUT = "holdout"
ARMS = {"learner": "learned order", HOLDOUT: "holdout (the page's own order)"}


class RatePoint(NamedTuple):
    """Clicks per page in a bucket of time that starts at ``at``, with a 95% interval if it is known."""

    at: int
    rate: float
    low: float | None
    high: float | None
    pages: int


def merge_points(series: Iterable[SeriesPoint], arm: str, most: int = 48) -> list[RatePoint]:
    """Return the clicks per page of the holdout, or else of all other arms together.

    Neighbouring buckets are merged until there are at most ``most``.

    >>> series = [{"at": at, "arm": "learner", "pages": 10, "clicks": at, "design_effect": 1.0} for at in range(4)]
    >>> [point.rate for point in merge_points(series, "learner", most=2)]
    [0.05, 0.25]
    """
    points = [point for point in series if (point["arm"] == HOLDOUT) == (arm == HOLDOUT) and point["pages"] > 0]
    times = sorted({point["at"] for point in points})
    size = math.ceil(len(times) / most) or 1
    group_of = {at: times[k - k % size] for k, at in enumerate(times)}
    groups: dict[int, list[SeriesPoint]] = {at: [] for at in times[::size]}
    for point in points:
        groups[group_of[point["at"]]].append(point)
    return [_rate_point(at, group) for at, group in groups.items()]


def _rate_point(at: int, group: Sequence[SeriesPoint]) -> RatePoint:
    pages, clicks = sum(point["pages"] for point in group), sum(point["clicks"] for point in group)
    effects = [point["design_effect"] for point in group]
    known = [effect for effect in effects if effect is not None]
    if len(known) < len(effects):
        return RatePoint(at, clicks / pages, None, None, pages)
    # The score interval of a Poisson count: so many clicks and pages of independent visitors have the same variance.
    effect = max(known)
    middle, half = clicks / effect + 1.92, 1.96 * math.sqrt(clicks / effect + 0.96)
    scale = effect / pages
    return RatePoint(at, clicks / pages, max(0.0, scale * (middle - half)), scale * (middle + half), pages)


def rate_chart(
    series: Sequence[SeriesPoint],
    width: int = 720,
    height: int = 260,
    changes: Sequence[DetectedChange] = (),
    counted: str = "clicks",
) -> Markup:
    """Return the chart of clicks or reward per page over time, learner and holdout, each with its 95% band.

    Detected changes of visitors are dotted vertical lines.
    """
    curves = {arm: points for arm in ARMS if (points := merge_points(series, arm, most=width // 15))}
    if not curves:
        return Markup('<p class="quiet">No data to draw yet.</p>')
    points = [point for curve in curves.values() for point in curve]
    first, last = min(p.at for p in points), max(p.at for p in points)
    # The axis ends at 1.5 times the highest rate: a very wide band is clipped instead of flattening the curves.
    highest = max(p.rate for p in points)
    top = round_up(min(max(p.high or p.rate for p in points), 1.5 * highest) or 1.0)
    axes = Axes(width, height, first, last, top)
    elements = [_grid(axes), *(_band(axes, arm, curve) for arm, curve in curves.items())]
    elements += [_curve(axes, arm, curve, counted) for arm, curve in curves.items()]
    marked = [change for change in changes if first <= change["changed_at"] <= last]
    elements += [_mark(axes, change) for change in marked]
    label = f"{counted.capitalize()} per page over time: " + "; ".join(
        f"{ARMS[arm]} from {number(curve[0].rate)} to {number(curve[-1].rate)}" for arm, curve in curves.items()
    )
    if marked:
        label += f"; {plural(len(marked), 'detected change')} of visitors"
    return _svg(width, height, label, "rates", elements)


class Axes(NamedTuple):
    """The axes of a chart: convert times and rates to coordinates."""

    width: int
    height: int
    first: int
    last: int
    top: float
    left: int = 44
    foot: int = 24

    def x(self, at: float) -> float:
        """Return the x coordinate of a time; a single time is centred."""
        part = (at - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        return round(self.left + (self.width - self.left - 10) * part, 1)

    def y(self, rate: float) -> float:
        """Return the y coordinate of a rate, clipped at the top."""
        return round(self.height - self.foot - (self.height - self.foot - 10) * min(rate / self.top, 1.0), 1)


def round_up(value: float) -> float:
    """Return the next round number that can end an axis.

    >>> round_up(0.37), round_up(1.2), round_up(8.0)
    (0.4, 1.5, 8.0)
    """
    unit = 10.0 ** math.floor(math.log10(value))
    return round(unit * next(s for s in PARTS if s >= value / unit - 1e-9), 12)


def ticks(top: float) -> list[tuple[float, str]]:
    """Return the values and the labels of the grid lines; every label is exact.

    >>> [label for _, label in ticks(round_up(2.6))], [label for _, label in ticks(round_up(0.13))]
    (['0', '1', '2', '3'], ['0', '0.05', '0.10', '0.15'])
    """
    unit = 10.0 ** math.floor(math.log10(top) + 1e-9)
    parts = PARTS[min(PARTS, key=lambda step: abs(step - top / unit))]
    places = max(0, -math.floor(math.log10(top / parts) + 1e-9))
    return [(top * part / parts, f"{top * part / parts:,.{places}f}" if part else "0") for part in range(parts + 1)]


def _grid(axes: Axes) -> Markup:
    elements = []
    for value, label in ticks(axes.top):
        y = axes.y(value)
        elements += [
            _tag("line", x1=axes.left, x2=axes.width - 10, y1=y, y2=y, class_="grid"),
            _tag("text", label, x=axes.left - 6, y=y + 4, class_="axis end"),
        ]
    days = axes.last - axes.first > DAY
    last = max(2, axes.width // 160)
    first_tick: dict[str, int] = {}  # a short range has fewer minutes than ticks, and each label is written once
    for tick in range(last + 1) if axes.last > axes.first else (0,):
        at = axes.first + (axes.last - axes.first) * tick / last
        if first_tick.setdefault(timestamp(at, days), tick) != tick:
            continue
        anchor = "middle" if axes.last == axes.first else {0: "start", last: "end"}.get(tick, "middle")
        elements.append(_tag("text", timestamp(at, days), x=axes.x(at), y=axes.height - 6, class_=f"axis {anchor}"))
    return Markup("").join(elements)


def _band(axes: Axes, arm: str, curve: Sequence[RatePoint]) -> Markup:
    known = [(axes.x(p.at), axes.y(p.low), axes.y(p.high)) for p in curve if p.low is not None and p.high is not None]
    # The band of a single point is given some width, or it would be invisible.
    offsets = (-3, 3) if len(known) == 1 else (0,)
    upper = [(x + offset, high) for x, _, high in known for offset in offsets]
    lower = [(x + offset, low) for x, low, _ in reversed(known) for offset in reversed(offsets)]
    return _tag("polygon", points=_coordinates(upper + lower), class_=f"band {arm}")


def _curve(axes: Axes, arm: str, curve: Sequence[RatePoint], counted: str) -> Markup:
    places = [(axes.x(p.at), axes.y(p.rate)) for p in curve]
    line = _tag("polyline", points=_coordinates(places), class_=f"line {arm}")
    return line + Markup("").join(
        _tag("circle", _tag("title", _tooltip(arm, p, counted)), cx=x, cy=y, r=3, class_=f"spot {arm}")
        for p, (x, y) in zip(curve, places, strict=True)
    )


def _mark(axes: Axes, change: DetectedChange) -> Markup:
    """Return a vertical line at a detected change, with a word at its top."""
    x = axes.x(change["changed_at"])
    line = _tag("line", _tag("title", change_sentence(change)), x1=x, x2=x, y1=10, y2=axes.height - axes.foot,
                class_="change")  # fmt: skip
    left = x < axes.width / 2
    return line + _tag("text", "change", x=x + (4 if left else -4), y=20, class_=f"axis {'start' if left else 'end'}")


def _tooltip(arm: str, point: RatePoint, counted: str) -> str:
    interval = f"95% interval {number(point.low)} to {number(point.high)}"
    if point.low is None:
        interval = "too few visitors for an interval"
    when, pages = f"{timestamp(point.at)} UTC", plural(point.pages, "page")
    return f"{when}, {ARMS[arm]}: {number(point.rate)} {counted} per page, {interval}, {pages}"


def probability_charts(
    now: Marginals, history: Sequence[MarginalsThen], rows: Sequence[int], most: int = 30
) -> list[Markup]:
    """Return a chart per slot of the probabilities of the items ``rows`` over time; none for a single snapshot.

    A chart has one row per item, and a darker cell is a higher probability. At most ``most`` snapshots are drawn.
    """
    every = max(1, math.ceil(len(history) / most))
    kept = list(history)[::-1][::every][::-1]  # from the end, so that the latest is kept
    if len(kept) < 2:
        return []
    return [_probability_chart(now["items"], kept, rows, slot) for slot in range(now["slots"])]


def _probability_chart(
    names: Sequence[str], history: Sequence[MarginalsThen], rows: Sequence[int], slot: int
) -> Markup:
    left, line, width = 104, 20, 330
    cell = (width - left) / len(history)
    elements = []
    for place, row in enumerate(rows):
        label = truncate_middle(names[row], 15)
        elements.append(_tag("text", label, x=left - 6, y=place * line + 14, class_="axis end"))
        for step, snapshot in enumerate(history):
            p = probability_at(snapshot["x"], row, slot)
            if p is not None:
                tooltip = f"{names[row]}, slot {slot + 1}, {timestamp(snapshot['at'])} UTC: {percent(p, 0)}"
                elements.append(
                    _tag(
                        "rect",
                        _tag("title", tooltip),
                        x=round(left + step * cell, 1),
                        y=place * line,
                        width=round(cell + 0.1, 1),
                        height=line - 2,
                        class_="heat",
                        fill_opacity=round(p, 3),
                    )
                )
    foot = len(rows) * line + 12
    days = history[-1]["at"] - history[0]["at"] > DAY
    elements.append(_tag("text", timestamp(history[0]["at"], days), x=left, y=foot, class_="axis start"))
    elements.append(_tag("text", timestamp(history[-1]["at"], days), x=width, y=foot, class_="axis end"))
    return _svg(width, foot + 6, f"Slot {slot + 1}: probability of each item over time", "strip", elements)


def probability_at(x: Sequence[Sequence[float] | None], row: int, slot: int) -> float | None:
    """Return the probability of an item at a slot, clipped to [0, 1]; None if it is missing or not a number."""
    line = x[row] if row < len(x) else None
    if line is None or slot >= len(line) or not is_number(line[slot]):
        return None
    return min(1.0, max(0.0, line[slot]))


def truncate_middle(name: str, most: int) -> str:
    """Truncate a name in its middle, because names with the same start often differ at the end.

    >>> truncate_middle("A rather long name, number 7", 15)
    'A rathe…umber 7'
    """
    if len(name) <= most:
        return name
    return name[: most // 2] + "\N{HORIZONTAL ELLIPSIS}" + name[-(most - most // 2 - 1) :]


def _coordinates(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in places)


def _svg(width: int, height: int, label: str, class_: str, elements: Iterable[Markup]) -> Markup:
    return _tag(
        "svg",
        Markup("").join(elements),
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=label,
        class_=class_,
        xmlns="http://www.w3.org/2000/svg",
    )


def _tag(name: str, content: str | Markup = "", **attributes: object) -> Markup:
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{written}>{escape(content)}</{name}>")
