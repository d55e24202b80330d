"""Charts as SVG, drawn on the server: no script, printable, with a title on whatever can be pointed at.

Colours come from the style sheet by class, so that one drawing serves light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from ..schemas import Marginals, MarginalsThen, SeriesPoint
from .text import known, many, moment, number, percent

__all__ = ["merged", "rates", "strips"]

DAY = 86_400_000
# Round numbers, and into how many parts each divides without a remainder that would have to be rounded.
PARTS = {1.0: 5, 1.5: 3, 2.0: 4, 3.0: 3, 4.0: 4, 5.0: 5, 6.0: 3, 8.0: 4, 10.0: 5}
ARMS = {"learner": "learned order", "holdout": "holdout (the page's own order)"}


class Spot(NamedTuple):
    """Clicks per page in a stretch of time, with a 95% interval."""

    at: int
    rate: float
    low: float
    high: float
    pages: int


def merged(series: Iterable[SeriesPoint], arm: str, most: int = 48) -> list[Spot]:
    """The clicks per page of an arm, neighbouring stretches put together until there are at most ``most``.

    >>> [spot.rate for spot in merged([{"at": at, "arm": "learner", "pages": 10, "clicks": at} for at in range(4)],
    ...     "learner", most=2)]
    [0.05, 0.25]
    """
    points = sorted((p for p in series if p["arm"] == arm and p["pages"] > 0), key=lambda point: point["at"])
    size = math.ceil(len(points) / most) or 1
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [_spot(group[0]["at"], sum(p["pages"] for p in group), sum(p["clicks"] for p in group)) for group in groups]


def _spot(at: int, pages: int, clicks: int) -> Spot:
    # The score interval of a Poisson count: clicks of one page are taken as independent.
    middle, half = clicks + 1.92, 1.96 * math.sqrt(clicks + 0.96)
    return Spot(at, clicks / pages, max(0.0, (middle - half) / pages), (middle + half) / pages, pages)


def rates(series: Sequence[SeriesPoint], width: int = 720, height: int = 260) -> Markup:
    """Clicks per page over time, learner against holdout, each with its 95% band."""
    curves = {arm: spots for arm in ARMS if (spots := merged(series, arm, most=width // 15))}
    if not curves:
        return Markup('<p class="quiet">Nothing to draw yet.</p>')
    spots = [spot for curve in curves.values() for spot in curve]
    first, last = min(s.at for s in spots), max(s.at for s in spots)
    # A band wider than everything else would flatten the curves; it is cut off instead.
    top = nice(min(max(s.high for s in spots), 1.5 * max(s.rate for s in spots)) or 1.0)
    frame = Frame(width, height, first, last, top)
    drawn = [_grid(frame), *(_band(frame, arm, curve) for arm, curve in curves.items())]
    drawn += [_curve(frame, arm, curve) for arm, curve in curves.items()]
    label = "Clicks per page over time: " + "; ".join(
        f"{ARMS[arm]} from {number(curve[0].rate)} to {number(curve[-1].rate)}" for arm, curve in curves.items()
    )
    return _svg(width, height, label, "rates", drawn)


class Frame(NamedTuple):
    """Where data go on paper."""

    width: int
    height: int
    first: int
    last: int
    top: float
    left: int = 44
    foot: int = 24

    def x(self, at: float) -> float:
        """Across; what is alone stands in the middle."""
        part = (at - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        return round(self.left + (self.width - self.left - 10) * part, 1)

    def y(self, rate: float) -> float:
        """Down, cut off at the top."""
        return round(self.height - self.foot - (self.height - self.foot - 10) * min(rate / self.top, 1.0), 1)


def nice(value: float) -> float:
    """The next round number.

    >>> nice(0.37), nice(1.2), nice(8.0)
    (0.4, 1.5, 8.0)
    """
    unit = 10.0 ** math.floor(math.log10(value))
    return round(unit * next(s for s in PARTS if s >= value / unit - 1e-9), 12)


def ticks(top: float) -> list[tuple[float, str]]:
    """Where the lines of the grid are, and what is written there: round numbers, as they are.

    >>> [said for _, said in ticks(nice(2.6))], [said for _, said in ticks(nice(0.13))]
    (['0', '1', '2', '3'], ['0', '0.05', '0.10', '0.15'])
    """
    unit = 10.0 ** math.floor(math.log10(top) + 1e-9)
    parts = PARTS[min(PARTS, key=lambda step: abs(step - top / unit))]
    places = max(0, -math.floor(math.log10(top / parts) + 1e-9))
    return [(top * part / parts, f"{top * part / parts:,.{places}f}" if part else "0") for part in range(parts + 1)]


def _grid(frame: Frame) -> Markup:
    lines = []
    for value, text in ticks(frame.top):
        y = frame.y(value)
        lines += [
            _tag("line", x1=frame.left, x2=frame.width - 10, y1=y, y2=y, class_="grid"),
            _tag("text", text, x=frame.left - 6, y=y + 4, class_="axis end"),
        ]
    days = frame.last - frame.first > DAY
    last = max(2, frame.width // 160)
    said: dict[str, int] = {}  # short spans have fewer minutes than there is room for
    for tick in range(last + 1) if frame.last > frame.first else (0,):
        at = frame.first + (frame.last - frame.first) * tick / last
        if said.setdefault(moment(at, days), tick) != tick:
            continue
        side = "middle" if frame.last == frame.first else {0: "start", last: "end"}.get(tick, "middle")
        lines.append(_tag("text", moment(at, days), x=frame.x(at), y=frame.height - 6, class_=f"axis {side}"))
    return Markup("").join(lines)


def _band(frame: Frame, arm: str, curve: Sequence[Spot]) -> Markup:
    # A single spot has a band too, if a narrow one.
    wings = (-3, 3) if len(curve) == 1 else (0,)
    upper = [(frame.x(s.at) + wing, frame.y(s.high)) for s in curve for wing in wings]
    lower = [(frame.x(s.at) + wing, frame.y(s.low)) for s in reversed(curve) for wing in reversed(wings)]
    return _tag("polygon", points=_points(upper + lower), class_=f"band {arm}")


def _curve(frame: Frame, arm: str, curve: Sequence[Spot]) -> Markup:
    places = [(frame.x(s.at), frame.y(s.rate)) for s in curve]
    line = _tag("polyline", points=_points(places), class_=f"line {arm}")
    return line + Markup("").join(
        _tag("circle", _tag("title", _spot_title(arm, s)), cx=x, cy=y, r=3, class_=f"spot {arm}")
        for s, (x, y) in zip(curve, places, strict=True)
    )


def _spot_title(arm: str, spot: Spot) -> str:
    interval = f"95% interval {number(spot.low)} to {number(spot.high)}"
    when, pages = f"{moment(spot.at)} UTC", many(spot.pages, "page")
    return f"{when}, {ARMS[arm]}: {number(spot.rate)} clicks per page, {interval}, {pages}"


def strips(now: Marginals, history: Sequence[MarginalsThen], rows: Sequence[int], most: int = 30) -> list[Markup]:
    """For every slot, how likely each of the items ``rows`` was over time: one line an item, darker is likelier."""
    every = max(1, math.ceil(len(history) / most))
    kept = list(history)[::-1][::every][::-1]  # the latest is always among them
    return [_strip(now["items"], kept, rows, slot) for slot in range(now["slots"])] if len(kept) > 1 else []


def _strip(names: Sequence[str], history: Sequence[MarginalsThen], rows: Sequence[int], slot: int) -> Markup:
    left, line, width = 104, 20, 330
    cell = (width - left) / len(history)
    drawn = []
    for place, row in enumerate(rows):
        drawn.append(_tag("text", short(names[row], 15), x=left - 6, y=place * line + 14, class_="axis end"))
        for step, snapshot in enumerate(history):
            p = chance(snapshot["x"], row, slot)
            if p is not None:
                title = _tag("title", f"{names[row]}, slot {slot + 1}, {moment(snapshot['at'])} UTC: {percent(p, 0)}")
                x = round(left + step * cell, 1)
                drawn.append(
                    _tag(
                        "rect",
                        title,
                        x=x,
                        y=place * line,
                        width=round(cell + 0.1, 1),
                        height=line - 2,
                        class_="heat",
                        fill_opacity=round(p, 3),
                    )
                )
    foot = len(rows) * line + 12
    days = history[-1]["at"] - history[0]["at"] > DAY
    drawn.append(_tag("text", moment(history[0]["at"], days), x=left, y=foot, class_="axis start"))
    drawn.append(_tag("text", moment(history[-1]["at"], days), x=width, y=foot, class_="axis end"))
    return _svg(width, foot + 6, f"Slot {slot + 1}: how likely each item was over time", "strip", drawn)


def chance(x: Sequence[Sequence[float] | None], row: int, slot: int) -> float | None:
    """A probability that can be drawn, or None."""
    line = x[row] if row < len(x) else None
    if line is None or slot >= len(line) or not known(line[slot]):
        return None
    return min(1.0, max(0.0, line[slot]))


def short(name: str, most: int) -> str:
    """A name cut in its middle: names that begin alike often differ at the end.

    >>> short("A rather long name, number 7", 15)
    'A rathe…umber 7'
    """
    if len(name) <= most:
        return name
    return name[: most // 2] + "\N{HORIZONTAL ELLIPSIS}" + name[-(most - most // 2 - 1) :]


def _points(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in places)


def _svg(width: int, height: int, label: str, class_: str, drawn: Iterable[Markup]) -> Markup:
    return _tag(
        "svg",
        Markup("").join(drawn),
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=label,
        class_=class_,
        xmlns="http://www.w3.org/2000/svg",
    )


def _tag(name: str, inside: str | Markup = "", **attributes: object) -> Markup:
    said = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{said}>{escape(inside)}</{name}>")
