"""View models: the data of each page, ready for its template.

``View`` is the range and the segment that the address of a page selects; the other functions make tables.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..model import Surface
from ..schemas import ItemLine, Marginals
from . import text
from .svg import probability_at

RANGES = {
    "1h": ("the last hour", 3600),
    "6h": ("the last 6 hours", 6 * 3600),
    "24h": ("the last 24 hours", 86400),
    "7d": ("the last 7 days", 7 * 86400),
    "30d": ("the last 30 days", 30 * 86400),
    "all": ("all time", None),
}
MAX_ITEMS = 50  # in a table, unless all are requested
LABEL = "label."  # before the name of a label in a query


@dataclass(frozen=True)
class View:
    """What the query of an address selects.

    The range, the value of the label segment (None: all visitors), and the labels of the visitor who sees the list.
    """

    range: str = "24h"
    segment: str | None = None
    all_items: bool = False
    context: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, query: Mapping[str, str]) -> View:
        """Parse a query; an invalid value is replaced by the default.

        >>> View.of({"range": "1h", "segment": "s:mobile"})
        View(range='1h', segment='mobile', all_items=False, context={})
        >>> View.of({"range": "century", "segment": "", "label.device": "phone"})
        View(range='24h', segment=None, all_items=False, context={'device': 'phone'})
        """
        requested, segment = query.get("range", ""), query.get("segment", "")
        # The prefix distinguishes the unknown value, which is empty, from no value.
        chosen = segment[2:] if segment.startswith("s:") else None
        context = {key.removeprefix(LABEL): query[key] for key in query if key.startswith(LABEL) and query[key]}
        return cls(requested if requested in RANGES else "24h", chosen, query.get("items") == "all", context)

    def since(self, surface: Surface) -> int:
        """Return the start of the range in milliseconds, at most a minute before the surface was created.

        A range without empty time has shorter buckets, so that the chart of a young surface shows every minute.
        """
        seconds, earliest = RANGES[self.range][1], surface.created_at - 60_000
        return earliest if seconds is None else max(earliest, int((time.time() - seconds) * 1000))

    @property
    def words(self) -> str:
        """The range in words."""
        return RANGES[self.range][0]

    def query(self, **changes: str) -> dict[str, str]:
        """Return the query of this view, with changes."""
        now = {"range": self.range, "segment": "" if self.segment is None else f"s:{self.segment}"}
        now |= {f"{LABEL}{name}": value for name, value in self.context.items()}
        return now | ({"items": "all"} if self.all_items else {}) | changes


def most_likely_rows(now: Marginals, most: int) -> list[int]:
    """Return the rows of the items that are most likely to be shown: one per slot in the order of slots, then others.

    >>> most_likely_rows({"items": ["a", "b", "c"], "slots": 1, "x": [[0.1], [0.7], [0.2]]}, 2)
    [1, 2]
    """

    def weight(row: int) -> float:
        return sum(probability_at(now["x"], row, slot) or 0.0 for slot in range(now["slots"]))

    def mean_slot(row: int) -> float:
        slots = range(now["slots"])
        return sum(slot * (probability_at(now["x"], row, slot) or 0.0) for slot in slots) / (weight(row) or 1.0)

    kept = sorted(range(len(now["items"])), key=lambda row: -weight(row))[:most]
    return sorted(kept[: now["slots"]], key=mean_slot) + kept[now["slots"] :]


def heat_table(now: Marginals, rows: Sequence[int]) -> list[tuple[str, list[tuple[int, str]]]]:
    """Return the items with, for every slot, a shade from 0 to 20 and the probability in words.

    >>> heat_table({"items": ["a"], "slots": 2, "x": [[0.6, 0.002]]}, [0])
    [('a', [(12, '60%'), (0, '<1%')])]
    """

    def cell(p: float | None) -> tuple[int, str]:
        if p is None:
            return 0, text.DASH
        return round(20 * p), "<1%" if 0 < p < 0.005 else text.percent(p, 0)

    slots = range(now["slots"])
    return [(now["items"][row], [cell(probability_at(now["x"], row, slot)) for slot in slots]) for row in rows]


def listed_items(lines: Sequence[ItemLine], show_all: bool) -> list[ItemLine]:
    """Return the items that were shown most often first; at most ``MAX_ITEMS`` unless ``show_all``."""
    ordered = sorted(lines, key=lambda line: (line["state"] == "removed", -line["shows"], line["name"]))
    return ordered if show_all else ordered[:MAX_ITEMS]


def event_view(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event for its page: an explanation, the slots with notes, and other fields that have a value."""
    slots = [{**slot, "notes": _slot_notes(slot)} for slot in event["slots"]]
    rewarded = any("reward" in slot for slot in slots)
    context = ", ".join(f"{name}: {value}" for name, value in event["context"].items())
    times = [(name, text.timestamp(event[name], with_seconds=True)) for name in TIMES if event[name] is not None]
    absent = ("could not be shown", ", ".join(event["absent"]))
    known = [(name, str(event[name])) for name in ("surface", "arm", "policy_id")]
    fields = [*known, ("context", context), *times, absent]
    settled = _SETTLED.get(event["settled_by"], "The event is open: it waits for feedback.")
    return {
        "explanation": [text.sentence(event["why"]), settled],
        "slots": slots,
        "fields": [(name.replace("_", " "), value) for name, value in fields if value],
        "rewarded": rewarded,
    }


def _slot_notes(slot: Mapping[str, Any]) -> str:
    notes = ["late reward" if "reward" in slot else "late click"] if slot.get("late") else []
    if slot.get("pinned"):
        notes.append("pinned by the request")
    elif not slot.get("learn", True):
        notes.append("not learned from")
    return "; ".join(notes)


TIMES = ("created_at", "expires_at", "late_until", "settled_at")
_SETTLED = {
    "final": "The event was settled by final feedback.",
    "deadline": "The event was settled by its deadline.",
    "import": "The event was settled by an import.",
    "unconfirmed": "Nothing has confirmed that the page was shown: it is neither learned from nor compared.",
    "void": "The page was not shown: it is neither learned from nor compared.",
}
