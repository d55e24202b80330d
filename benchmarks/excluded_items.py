"""Learning while some items are excluded or pinned: what a ``Ranker`` earns.

A shop with two slots, four items with click rates .5, .4, .3 and .05, and a second slot that is examined by 70% of
visitors. The result is the expected clicks of the last page, which is unrestricted unless all pages are restricted. An
item that could not be shown is charged the loss observed at the slots (the rule for specialists); the same runs are
repeated without this rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bothworlds import policy as policy_by_name
from bothworlds.core import NONE_ABSENT, Shape
from bothworlds.policies.pages import Page, part_for, rank_page

from .measurement import Measurement

POLICIES = ("all-weather", "ftrl-pbm", "gibbs-ts")
RATES = np.array([0.5, 0.4, 0.3, 0.05])
EXAMINATION = np.array([1.0, 0.7])
BEST = 0.78  # 0.71 with the third item second
PAGES, REUSED, SEEDS, DRAWS = 2_500, 20, 20, 200
ITEMS = range(4)  # the best one first

Restriction = tuple[tuple[int, ...], dict[int, int]]  # excluded items, items pinned to slots
RESTRICTIONS: dict[str, Callable[[int], Restriction]] = {
    "no restriction": lambda k: ((), {}),
    "worst item excluded on 30% of pages": lambda k: ((3,) if k % 10 < 3 else (), {}),
    "worst item excluded on 60% of pages": lambda k: ((3,) if k % 10 < 6 else (), {}),
    "best item excluded on 30% of pages": lambda k: ((0,) if k % 10 < 3 else (), {}),
    "worst item pinned first on 50% of pages": lambda k: ((), {} if k % 2 else {0: 3}),
    "third item pinned second on all pages": lambda k: ((), {1: 2}),
}


def simulate(name: str, restriction: Callable[[int], Restriction], seed: int, *, rule: bool = True) -> float:
    """Return the expected clicks of the last page, averaged over many draws; parts are used for 20 pages."""
    policy, rng, shape = policy_by_name(name), np.random.default_rng(seed), Shape(4, 2)
    state, parts, expected = policy.init(*shape), {}, 0.0
    for k in range(PAGES):
        if k % REUSED == 0:
            parts.clear()
        excluded, pins = restriction(k)
        key = excluded, tuple(pins.items())
        page = Page(np.array([i for i in ITEMS if i not in excluded and i not in pins.values()]), pins)
        if key not in parts:
            parts[key] = part_for(policy, state, page)
        if k == PAGES - 1:
            part = part_for(policy, state, page)
            lists = [rank_page(part, page, shape, rng).ranking for _ in range(DRAWS)]
            expected = float(np.mean([RATES[ranking] @ EXAMINATION for ranking in lists]))
        decision = rank_page(parts[key], page, shape, rng)
        if not rule:
            learned = np.ones(2, np.bool_) if decision.learned is None else decision.learned
            decision = decision._replace(absent=NONE_ABSENT, learned=learned)
        policy.learn(state, decision, (rng.random(2) < RATES[decision.ranking] * EXAMINATION).astype(np.float64))
    return expected


def measure() -> Measurement:
    """Return one row per policy and restriction."""
    rows = []
    for policy in POLICIES:
        for name, restriction in RESTRICTIONS.items():
            row: dict[str, Any] = {"policy": policy, "restriction": name}
            for column, rule in (("clicks per page", True), ("without the rule", False)):
                earned = [simulate(policy, restriction, seed, rule=rule) for seed in range(SEEDS)]
                row |= {column: float(np.mean(earned)), f"{column}, s.e.": float(np.std(earned, ddof=1) / SEEDS**0.5)}
            rows.append(row)
    title = f"Clicks per page after {PAGES:,} pages, {SEEDS} seeds; the best list gets {BEST}"
    return Measurement(title, rows, [])
