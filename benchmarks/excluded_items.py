"""Learning while some items are excluded or pinned: every policy that the service can use.

A shop with two slots, four items with click rates .5, .4, .3 and .05, and a second slot that is examined by 70% of
visitors. The code of the service draws the lists and settles the events; policies are solved every hundred pages. The
result is the expected clicks per page of an unrestricted list at the end. The service charges an item that could not
be shown the loss observed at the slot (the rule for specialists); the same runs are repeated without this rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bothworlds import policies
from bothworlds.arena.figures import PALETTE, drawing
from bothworlds.serve.engine import surface_rules
from bothworlds.serve.engine.learner import SegmentCounters, blocks_of, counters_of, policy_of, serving_policy
from bothworlds.serve.model import ALL_ELIGIBLE, Event, Segment, Surface
from bothworlds.serve.settlement import increments_of
from bothworlds.serve.stores.batch_totals import BatchTotals

from .measurement import Measurement

RATES = {"best": 0.5, "good": 0.4, "fair": 0.3, "worst": 0.05}
EXAMINATION = (1.0, 0.7)
BEST = 0.78
PAGES, REFRESH, SEEDS = 4_000, 100, 10
FIGURE = Path("out/exclusions.png")
NOT_LEARNING = ("fixed", "uniform")

Restriction = tuple[tuple[str, ...], dict[int, str]]  # excluded items, items pinned to slots
RESTRICTIONS: dict[str, Callable[[int], Restriction]] = {
    "no restriction": lambda k: ((), {}),
    "worst item excluded on 30% of pages": lambda k: (("worst",) if k % 10 < 3 else (), {}),
    "worst item excluded on 60% of pages": lambda k: (("worst",) if k % 10 < 6 else (), {}),
    "worst item pinned first on 50% of pages": lambda k: ((), {0: "worst"} if k % 2 else {}),
}


def simulate(policy: str, restriction: Callable[[int], Restriction], seed: int, *, rule: bool = True) -> float:
    """Return the expected clicks per page of an unrestricted list after all pages."""
    surface, rng = _shop(policy), np.random.default_rng(seed)
    totals = BatchTotals()
    choices: dict[Restriction, Any] = {}
    for k in range(PAGES):
        if k % REFRESH == 0:
            choices.clear()
            counters = _counters(surface, totals)
        excluded, pinned = restriction(k)
        key = (excluded, tuple(pinned.items()))
        if key not in choices:
            pins = {slot: item for item in surface.items for slot, name in pinned.items() if item.name == name}
            eligible = [i for i in surface.items if i.name not in excluded and i.name not in pinned.values()]
            choices[key] = serving_policy(surface, policy_of(surface.settings), counters, eligible, pins)
        totals.add(increments_of(_visit(choices[key], rng, rule)))
    counters = _counters(surface, totals)
    x = serving_policy(surface, policy_of(surface.settings), counters, surface.items, {}).marginals
    return float((x * np.outer(list(RATES.values()), EXAMINATION)).sum())


def _shop(policy: str) -> Surface:
    known = {"examination": list(EXAMINATION)} if "examination" in policies.describe(policy).needs else {}
    body = {"slots": 2, "items": list(RATES), "policy": policy, "policy_settings": known}
    return msgspec.structs.replace(surface_rules.create_surface("shop", body, 0).surface, id=1)


def _visit(choice: Any, rng: np.random.Generator, rule: bool) -> Event:
    drawn = choice.draw(rng.bytes(16))
    clicks = sum(
        1 << slot for slot, item in enumerate(drawn.slots) if rng.random() < RATES[item.item] * EXAMINATION[slot]
    )
    return Event(
        id=b"",
        surface_id=1,
        segment="",
        arm="learner",
        policy_id="",
        created_at=0,
        expires_at=0,
        late_until=0,
        items=drawn.items,
        p=drawn.p,
        learn=choice.learn,
        clicks=clicks,
        eligibility=choice.eligibility if rule else ALL_ELIGIBLE,
        mixture=drawn.mixture,
    )


def _counters(surface: Surface, totals: BatchTotals) -> SegmentCounters:
    blocks = blocks_of(totals.blocks().get((1, ""), ()), surface)
    return counters_of(_segment(surface, totals), surface)._replace(blocks=blocks)


def _segment(surface: Surface, totals: BatchTotals) -> Segment:
    tables: tuple[dict[tuple[int, int], int], ...] = ({}, {}, {})
    for (_, _, item, slot), sums in totals.cells().items():
        for table, total in zip(tables, sums):
            table[item, slot] = total
    rounds = totals.rounds.get((1, ""), 0)
    return Segment(surface_id=1, name="", rounds=rounds, revision=0, loss=tables[0], shown=tables[1], clicked=tables[2])


def served_policies() -> list[str]:
    """Return the policies that the service can use and that learn."""
    described = ((name, policies.describe(name)) for name in policies.names())
    return [name for name, about in described if about.additive and name not in NOT_LEARNING]


def measure() -> Measurement:
    """Return one row per policy and restriction, and write the figure."""
    rows = []
    for policy in served_policies():
        for name, restriction in RESTRICTIONS.items():
            row: dict[str, Any] = {"policy": policy, "restriction": name}
            for column, rule in (("clicks per page", True), ("without the rule", False)):
                earned = [simulate(policy, restriction, seed, rule=rule) for seed in range(SEEDS)]
                row |= {column: float(np.mean(earned)), f"{column}, s.e.": float(np.std(earned, ddof=1) / SEEDS**0.5)}
            rows.append(row)
    draw(rows, FIGURE)
    title = f"Clicks per page of unrestricted lists after {PAGES:,} pages, {SEEDS} seeds; the best list gets {BEST}"
    return Measurement(title, rows, [f"figure: {FIGURE}"])


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw one line per policy and restriction: filled with the rule, hollow without it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(row["policy"] for row in rows))
    with drawing(path, 2, 2) as panels:
        figure = panels.flat[0].figure
        figure.set_size_inches(7.0, 4.6)
        for panel, (restriction, colour) in zip(panels.flat, zip(RESTRICTIONS, PALETTE)):
            chosen = [row for row in rows if row["restriction"] == restriction]
            heights = [len(names) - names.index(row["policy"]) for row in chosen]
            for column, face in (("without the rule", "white"), ("clicks per page", colour)):
                panel.errorbar(
                    [row[column] for row in chosen],
                    heights,
                    xerr=[1.96 * row[f"{column}, s.e."] for row in chosen],
                    fmt="o",
                    color=colour,
                    markerfacecolor=face,
                    markersize=5,
                    label=column.replace("clicks per page", "with the rule"),
                )
            panel.axvline(BEST, color="#888888", linewidth=0.8, linestyle="--")
            panel.set_yticks(range(1, len(names) + 1), names[::-1])
            panel.set_xlim(0.45, 0.8)
            panel.set_title(restriction)
        panels.flat[1].legend(loc="lower left", frameon=False)
        for panel in panels[-1]:
            panel.set_xlabel("clicks per page (dashed: the best list)")
