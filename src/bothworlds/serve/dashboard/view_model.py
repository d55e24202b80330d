"""What a page shows of a report: the range and segment that were asked for, and tables ready to be printed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..model import Surface
from ..schemas import ItemLine, Marginals, SegmentView
from . import text
from .svg import chance

__all__ = ["RANGES", "View", "heat_table", "latest_segments", "likeliest", "pages_of_items", "story"]

RANGES = {
    "1h": ("the last hour", 3600),
    "6h": ("the last 6 hours", 6 * 3600),
    "24h": ("the last 24 hours", 86400),
    "7d": ("the last 7 days", 7 * 86400),
    "30d": ("the last 30 days", 30 * 86400),
    "all": ("all time", None),
}
FEW_ITEMS = 50
FEW_SEGMENTS = 50


@dataclass(frozen=True)
class View:
    """What was asked for, as it stands in the address."""

    range: str = "24h"
    segment: str | None = None
    all_items: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str]) -> View:
        """What an address asks for; what it asks for wrongly is left at its default.

        >>> View.of({"range": "1h", "segment": "s:mobile"})
        View(range='1h', segment='mobile', all_items=False)
        >>> View.of({"range": "century", "segment": ""})
        View(range='24h', segment=None, all_items=False)
        """
        asked, segment = query.get("range", ""), query.get("segment", "")
        # The marker tells the segment without a name from no segment chosen.
        chosen = segment[2:] if segment.startswith("s:") else None
        return cls(asked if asked in RANGES else "24h", chosen, query.get("items") == "all")

    def since(self, surface: Surface) -> int:
        """The start of the range in milliseconds, not before the surface: young ones are told of minute by minute."""
        seconds, birth = RANGES[self.range][1], surface.created_at - 60_000
        return birth if seconds is None else max(birth, int((time.time() - seconds) * 1000))

    @property
    def words(self) -> str:
        """The range in words."""
        return RANGES[self.range][0]

    def query(self, **changes: str) -> dict[str, str]:
        """The address's query again, with changes."""
        now = {"range": self.range, "segment": "" if self.segment is None else f"s:{self.segment}"}
        return now | ({"items": "all"} if self.all_items else {}) | changes


def likeliest(now: Marginals, most: int) -> list[int]:
    """The rows of the items that are most likely to be shown: a page's worth in the order of slots, then the others.

    >>> likeliest({"items": ["a", "b", "c"], "slots": 1, "x": [[0.1], [0.7], [0.2]]}, 2)
    [1, 2]
    """

    def weight(row: int) -> float:
        return sum(chance(now["x"], row, slot) or 0.0 for slot in range(now["slots"]))

    def slot_of(row: int) -> float:
        return sum(slot * (chance(now["x"], row, slot) or 0.0) for slot in range(now["slots"])) / (weight(row) or 1.0)

    kept = sorted(range(len(now["items"])), key=lambda row: -weight(row))[:most]
    return sorted(kept[: now["slots"]], key=slot_of) + kept[now["slots"] :]


class HeatLine(NamedTuple):
    """An item with, for every slot, a shade from 0 to 20 and what is written on it."""

    name: str
    cells: list[tuple[int, str]]


def heat_table(now: Marginals, rows: Sequence[int]) -> list[HeatLine]:
    """The item-by-slot table of probabilities.

    >>> heat_table({"items": ["a"], "slots": 2, "x": [[0.6, 0.002]]}, [0])
    [HeatLine(name='a', cells=[(12, '60%'), (0, '<1%')])]
    """
    return [
        HeatLine(now["items"][row], [_shade(chance(now["x"], row, slot)) for slot in range(now["slots"])])
        for row in rows
    ]


def _shade(p: float | None) -> tuple[int, str]:
    if p is None:
        return 0, text.DASH
    return round(20 * p), "<1%" if 0 < p < 0.005 else text.percent(p, 0)


class ItemPage(NamedTuple):
    """The lines that are shown, and how many there are in all."""

    lines: list[ItemLine]
    total: int


def pages_of_items(lines: Sequence[ItemLine], everything: bool) -> ItemPage:
    """Items by how often they were shown; the first of them unless all are asked for."""
    ordered = sorted(lines, key=lambda line: (line["state"] == "removed", -line["shows"], line["name"]))
    return ItemPage(ordered if everything else ordered[:FEW_ITEMS], len(ordered))


class SegmentPage(NamedTuple):
    """The segments that are shown, and how many there are in all."""

    lines: list[SegmentView]
    total: int


def latest_segments(lines: Sequence[SegmentView]) -> SegmentPage:
    """Segments by their last use, the first of them; none where there is only the default one."""
    ordered = sorted(lines, key=lambda line: (-(line["used_at"] or 0), line["name"]))
    return SegmentPage(ordered[:FEW_SEGMENTS] if len(lines) > 1 else [], len(lines))


def story(event: Mapping[str, Any]) -> dict[str, Any]:
    """One event for its page: sentences, the slots, and whatever else is known of it."""
    rest = [text.plain(key, value) for key, value in event.items() if key not in _TOLD_ELSEWHERE]
    slots = [{**slot, "notes": _notes(slot)} for slot in event.get("slots", [])]
    return {"story": _why(event), "slots": slots, "rest": rest}


def _notes(slot: Mapping[str, Any]) -> str:
    said = ["late click"] if slot.get("late") else []
    if slot.get("pinned"):
        said.append("pinned by the request")
    elif not slot.get("learn", True):
        said.append("not learned from")
    return "; ".join(said)


_TOLD_ELSEWHERE = {"event_id", "policy", "settled", "slots", "token", "why"}


def _why(event: Mapping[str, Any]) -> list[str]:
    if event.get("arm") == "holdout":
        why = "This visitor was in the holdout, so the page's own order was shown; nothing is learned from it."
    else:
        rounds = (event.get("policy") or {}).get("rounds")
        learned = f", as learned from {text.many(rounds, 'page')}" if rounds else ""
        why = f"This list was drawn at random, each item at each slot with the probability given below{learned}."
    if event.get("settled_at") is None:
        return [why, "It is still open: clicks are waited for."]
    by = {"final": "by final feedback", "deadline": "by its deadline", "import": "by an import"}
    how = by.get(str(event.get("settled_by")), "")
    return [why, f"It is settled{' ' + how if how else ''}: what it had to teach has been learned."]
