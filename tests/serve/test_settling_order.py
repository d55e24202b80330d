"""A learned order settles, and what it earns now is told apart from what exploration cost at the start."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from bothworlds.serve.dashboard import text
from bothworlds.serve.dashboard.view_model import likeliest
from bothworlds.serve.engine.learner import Sums, policy_of
from bothworlds.serve.engine.served_surface import Display, Shelf
from bothworlds.serve.model import ONE, Item, Surface, SurfaceSettings
from bothworlds.serve.reports.exploration_cost import LITTLE, cost_of, is_settled
from bothworlds.serve.reports.item_rates import MINUTE
from bothworlds.serve.reports.recent_window import DAY, HOUR, Recency, window_of

from .running import ITEMS, answer, refreshed, with_engine

ATTRACTION = dict(zip(ITEMS, (0.95, 0.6, 0.05, 0.05, 0.05, 0.05)))
EXAMINATION = (1.0, 0.5)
OWN_ORDER = ITEMS[:2]  # what the holdout is shown, and the best there is


async def visits(engine, clock, rng, numbers, apart_ms):
    """Visitors who click by the position-based model; probabilities follow at least every 50 pages."""
    for number in numbers:
        ranked = await engine.rank("home", f"v{number}")
        chances = [(slot.slot, ATTRACTION[slot.item] * EXAMINATION[slot.slot]) for slot in ranked.slots]
        await answer(engine, ranked, [slot for slot, chance in chances if rng.random() < chance])
        clock.at += apart_ms
        if number % 50 == 49:
            await refreshed(engine)


def headlines(report, headline):
    return [" ".join((said.sentence, said.meaning)) for said in (text.verdict(report), text.in_short(headline))]


@with_engine(holdout=0.2, slots=2)
async def test_a_young_surface_that_has_found_the_right_order_is_not_said_to_lose(engine, store, clock):
    rng = np.random.default_rng(5)
    await visits(engine, clock, rng, range(600), 20)
    report, headline = await engine.report("home", until=clock.at + 1), await engine.headline("home")
    assert [ITEMS[row] for row in likeliest(report["marginals"], 2)] == OWN_ORDER
    assert report["uplift"]["enough"]
    assert report["uplift"]["high"] < 0.0  # exploration is averaged in
    assert not report["learning"]["settled"]
    for said in headlines(report, headline):
        assert "Still learning" in said
        assert "fewer clicks" not in said

    clock.at += 10 * MINUTE
    start, number = clock.at, 600
    while not report["learning"]["settled"]:
        assert number < 20_000
        await visits(engine, clock, rng, range(number, number + 500), 100)
        number += 500
        report, headline = await engine.report("home", until=clock.at + 1), await engine.headline("home")
    assert report["learning"]["exploration"] <= LITTLE
    assert report["recent"]["since"] >= start - MINUTE
    assert report["recent"]["headline"]["pages"] <= report["learning"]["rounds"] - 1000
    for said in headlines(report, headline):
        assert text.against_holdout(report["recent"]["uplift"]) in said
        assert "Still learning" not in said


def shelf_of(rates, rounds, floor=0.0):
    """A shelf that has learned ``rounds`` pages of items with these click rates, all cells alike and without noise."""
    rates = np.asarray(rates, float)
    n, m = rates.shape
    settings = SurfaceSettings(slots=m, floor=floor)
    items = tuple(Item(name=str(k), index=k, state="active", added_at=0, changed_at=0) for k in range(n))
    surface = Surface(id=1, name="home", version=1, settings=settings, items=items, created_at=0, changed_at=0)
    shown = np.full((n, m), rounds // n)
    loss = np.round(rounds * (1.0 - rates) * ONE).astype(np.int64)
    return Shelf(Display(surface, policy_of(settings)), Sums(rounds, 1, loss, shown, (shown * rates).astype(int)), 0)


CLEAR = np.outer([0.9, 0.5, 0.2, 0.1], [1.0, 0.5])


def test_exploration_costs_less_and_less():
    costs = [cost_of([shelf_of(CLEAR, rounds)]) for rounds in (100, 1000, 10_000, 100_000)]
    assert all(after < before for before, after in pairwise(costs))
    assert costs[0] > LITTLE > costs[-1] > 0.0


def test_the_cost_is_what_the_best_list_would_get_more():
    shelf = shelf_of(CLEAR, 1000)
    best = CLEAR[0, 0] + CLEAR[1, 1]
    served = (CLEAR * shelf.plain.learner.marginals).sum()
    assert cost_of([shelf]) == pytest.approx(1000 * (best - served) / shelf.sums.clicked.sum())
    assert cost_of([shelf, shelf]) == pytest.approx(cost_of([shelf]))


def test_items_that_do_equally_well_cost_nothing_although_they_take_turns():
    shelf = shelf_of(np.full((6, 3), 0.3), 5000)
    assert shelf.plain.learner.entropy == pytest.approx(np.log(6))
    assert cost_of([shelf]) == pytest.approx(0.0, abs=1e-9)
    assert is_settled(5000, 100, cost_of([shelf]))


def test_lists_that_are_kept_uniform_never_settle():
    floor = shelf_of(CLEAR, 100_000, floor=0.2)
    assert cost_of([floor]) > LITTLE
    assert not is_settled(100_000, 100, cost_of([floor]))
    assert is_settled(100_000, 100, cost_of([shelf_of(CLEAR, 100_000)]))


def test_without_a_click_nothing_has_settled():
    assert cost_of([]) is None
    assert cost_of([shelf_of(np.zeros((3, 2)), 5000)]) is None
    assert not is_settled(5000, 0, None)


class Steady:
    """A history with the same number of pages every minute since ``start``."""

    def __init__(self, start, pages, clicks):
        self.start, self.pages, self.clicks = start, pages, clicks

    def history(self, surface_id, since, until, step):
        minutes = len(range(max(since, self.start), until, MINUTE))
        return [
            {"at": since, "segment": segment, "arm": arm, "settled": minutes * self.pages, "clicks": clicks}
            for segment in ("", "mobile")
            for arm in ("learner", "holdout")
            for clicks in [int(minutes * self.clicks)]
        ]


NOW = 40 * DAY


@pytest.mark.parametrize(
    ("age", "clicks", "length"),
    [(MINUTE, 50, MINUTE), (3 * MINUTE, 50, MINUTE), (11 * MINUTE, 50, 5 * MINUTE), (3 * HOUR, 50, HOUR),
     (3 * DAY, 50, DAY), (39 * DAY, 50, DAY), (39 * DAY, 0.02, 7 * DAY), (3 * DAY, 0.02, DAY),
     (39 * DAY, 0.001, 7 * DAY)],
)  # fmt: skip
def test_the_recent_window_is_the_longest_that_has_at_most_half_of_the_pages(age, clicks, length):
    store = Steady(NOW - age, 100, clicks)
    window = window_of(store, Recency(1, "mobile", NOW, 100 * age // MINUTE, True))
    assert window.length == length
    assert window.since == NOW - length
    assert window.learner.pages == 100 * min(length, age) // MINUTE


def test_without_a_holdout_the_window_is_a_day_however_few_clicks_there_are():
    window = window_of(Steady(0, 100, 0.001), Recency(1, None, NOW, 2 * 100 * 40 * 1440, False))
    assert window.length == DAY
