"""Items that cannot be shown: excluded, pinned elsewhere, paused or removed. None of it biases what is learned.

A shop with two slots, four items with click rates .5, .4, .3 and .05, and a second slot that is examined by 70% of
visitors. The best list earns .5 + .7 * .4 = .78 clicks a page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.model import LOSS_UNIT
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.schemas import FeedbackEvent

from ..fakes import FakeStore
from ..running import answer, eventually, refreshed, running

RATES = {"best": 0.5, "good": 0.4, "fair": 0.3, "worst": 0.05}
EXAMINED = (1.0, 0.7)
BEST = 0.78
PAGES = 3_000

Restriction = Callable[[int], dict[str, Any]]  # the arguments of rank for page k


def on(share: float, **restriction: Any) -> Restriction:
    """Returns a restriction of a share of the pages, spread evenly."""
    return lambda k: restriction if int(share * (k + 1)) > int(share * k) else {}


async def open_shop(engine: Engine, **settings: Any) -> None:
    await engine.put_surface("home", {"slots": 2, "items": list(RATES), **settings}, actor="shop")


async def visitors(
    engine: Engine, pages: int, restriction: Restriction, *, seed: int = 1, name: str = "v"
) -> dict[str, int]:
    """Simulates visitors, with a new policy after every hundred; returns how often each item was shown on pages
    without restrictions.
    """
    rng = np.random.default_rng(seed)
    shown = dict.fromkeys(RATES, 0)
    for first in range(0, pages, 100):
        feedback = []
        for k in range(first, min(first + 100, pages)):
            restricted = restriction(k)
            ranked = await engine.rank("home", f"{name}{k}", **restricted)
            clicks = [s.slot for s in ranked.slots if rng.random() < RATES[s.item] * EXAMINED[s.slot]]
            feedback.append(FeedbackEvent(ranked.event_id, ranked.token, clicks, True))
            for slot in ranked.slots:
                shown[slot.item] += not restricted
        await engine.feedback(feedback)
        await refreshed(engine)
    return shown


async def earned(engine: Engine) -> float:
    """Returns the expected clicks per page of lists without restrictions that are drawn now."""
    marginals = (await engine.state("home"))["marginals"]
    rates = np.array([RATES[item] for item in marginals["items"]])
    return float((np.array(marginals["x"]) * np.outer(rates, EXAMINED)).sum())


async def share_of(engine: Engine, item: str) -> float:
    """Returns the share of pages without restrictions that show an item."""
    marginals = (await engine.state("home"))["marginals"]
    return float(np.array(marginals["x"])[marginals["items"].index(item)].sum())


def in_a_shop(test: Callable[..., Any], **settings: Any) -> FakeStore:
    """Runs a test with an engine that serves the shop."""

    async def whole() -> FakeStore:
        store = FakeStore()
        async with running(store, refresh_ms=60_000, refresh_events=10**9) as engine:
            await open_shop(engine, **settings)
            await test(engine)
        return store

    return asyncio.run(whole())


RESTRICTED = {
    "the worst item excluded on 30% of pages": on(0.3, exclude=["worst"]),
    "the worst item excluded on 60% of pages": on(0.6, exclude=["worst"]),
    "the worst item pinned at the first slot on half of the pages": on(0.5, pins={0: "worst"}),
    "the best item excluded on half of the pages": on(0.5, exclude=["best"]),
    "the worst item and the best item excluded in turn": lambda k: {"exclude": ["worst" if k % 2 else "best"]},
}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["all-weather", "ftrl-pbm", "hybrid"])
@pytest.mark.parametrize("restriction", RESTRICTED.values(), ids=RESTRICTED)
def test_excluded_and_pinned_items_are_learned_about_without_bias(restriction: Restriction, policy: str) -> None:
    async def shop(engine: Engine) -> None:
        await visitors(engine, PAGES, restriction)
        assert await earned(engine) > 0.9 * BEST
        assert await share_of(engine, "worst") < 0.25
        assert await share_of(engine, "best") > 0.75

    store = in_a_shop(shop, policy=policy)
    assert verify(store).clean


@pytest.mark.slow
def test_the_test_shop_detects_a_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the charge for absence, the worst item comes to look best."""
    monkeypatch.setattr("bothworlds.serve.settlement.observed_losses", lambda event: ())

    async def shop(engine: Engine) -> None:
        await visitors(engine, PAGES, on(0.3, exclude=["worst"]))
        assert await earned(engine) < 0.9 * BEST
        assert await share_of(engine, "worst") > 0.25

    in_a_shop(shop, policy="ftrl-pbm")


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["comb-ucb", "kl-comb-ucb"])  # comb-ts draws with a seed made of all counters
def test_policies_that_count_shows_and_clicks_do_not_depend_on_the_rule(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def shop(engine: Engine) -> None:
        await visitors(engine, 300, on(0.5, exclude=["worst"]))

    with_rule = in_a_shop(shop, policy=policy)
    monkeypatch.setattr("bothworlds.serve.settlement.observed_losses", lambda event: ())
    without = in_a_shop(shop, policy=policy)
    assert [(e.items, e.p) for e in with_rule.settled()] == [(e.items, e.p) for e in without.settled()]
    assert with_rule.totals()[1, ""][1] != without.totals()[1, ""][1]


@pytest.mark.slow
def test_an_item_comes_back_from_a_pause_with_what_was_learned_of_it() -> None:
    async def shop(engine: Engine) -> None:
        await visitors(engine, 2_000, on(0.0))
        assert await share_of(engine, "best") > 0.9
        await engine.pause_item("home", "best", actor="shop")
        await visitors(engine, 2_000, on(0.0), seed=2, name="w")
        await engine.resume_item("home", "best", actor="shop")
        assert await share_of(engine, "best") > 0.9

    in_a_shop(shop)


@pytest.mark.slow
@pytest.mark.parametrize("away", ["pause", "remove"])
def test_a_reset_while_the_best_item_is_away_does_not_spoil_it(away: str) -> None:
    """The reset is one transaction, so that a crash cannot split it."""

    async def before(engine: Engine) -> None:
        await open_shop(engine)
        await visitors(engine, 2_000, on(0.0))
        await (engine.pause_item if away == "pause" else engine.delete_item)("home", "best", actor="shop")
        writes = store.count
        await engine.reset("home", segment=None, actor="shop")
        assert store.count == writes + 1

    async def after(engine: Engine) -> None:
        await engine.put_item("home", "best", actor="shop")
        shown = await visitors(engine, 2_000, on(0.0), seed=3, name="again")
        assert shown["best"] > 1_500

    async def whole() -> None:
        async with running(store, refresh_ms=60_000) as engine:
            await before(engine)
        async with running(store, refresh_ms=60_000) as engine:  # another process
            await after(engine)

    store = FakeStore()
    asyncio.run(whole())
    assert verify(store).clean


def test_which_items_were_eligible_is_fixed_when_the_list_is_made() -> None:
    """An event charges the items that were absent at decision time, regardless of their state when it settles."""

    async def shop(engine: Engine) -> None:
        await engine.pause_item("home", "worst", actor="shop")
        first = await engine.rank("home", "while it is paused")
        await engine.resume_item("home", "worst", actor="shop")
        second = await engine.rank("home", "after it came back")
        await engine.pause_item("home", "worst", actor="shop")
        for ranked in (second, first):
            await answer(engine, ranked, [0])
        await eventually(lambda: len(list(engine._store.settled())) == 2)
        view = await engine.event(first.event_id)
        assert view["absent"] == ["worst"]
        assert (await engine.event(second.event_id))["absent"] == []

    store = in_a_shop(shop)
    loss = {slot: n for (item, slot), n in store.totals()[1, ""][1].items() if item == 3}
    own = sum(round(LOSS_UNIT / e.p[1]) for e in store.settled() if e.items[1] == 3)
    assert loss == {1: LOSS_UNIT + own}


def test_an_export_teaches_another_surface_the_same() -> None:
    async def shop(engine: Engine) -> None:
        await engine.put_item("home", "gone", actor="shop")
        await engine.delete_item("home", "gone", actor="shop")
        await visitors(engine, 200, lambda k: {"exclude": ["worst", "fair"]} if k % 3 == 0 else {})
        rows = [msgspec.json.decode(msgspec.json.encode(row)) for row in engine.export("home")]
        assert any(row.get("absent") for row in rows)
        assert any(row.get("eligible") for row in rows)
        await engine.put_surface("copy", {"slots": 2, "items": [*reversed(RATES), "gone"]}, actor="shop")
        taken = await engine.import_rows("copy", rows, actor="shop")
        assert (taken.taken, taken.refused) == (200, 0)
        states = [await engine.state(name) for name in ("home", "copy")]
        losses = [dict(zip(state["items"], np.array(state["loss"]))) for state in states]
        for item in RATES:
            assert ((losses[0][item] - losses[0]["best"]) == (losses[1][item] - losses[1]["best"])).all()

    in_a_shop(shop, policy="ftrl-pbm")  # an import has no predicted losses


@pytest.mark.parametrize("column", ["absent", "eligible"])
def test_a_column_that_is_not_a_list_of_items_is_refused(column: str) -> None:
    async def shop(engine: Engine) -> None:
        rows = [{"event": "e", "position": 0, "item": "best", "click": 0, "propensity": 0.5, column: "worst"}]
        taken = await engine.import_rows("home", rows, actor="shop")
        assert taken.reasons == {f"a value of {column!r} that is not a list of items": 1}

    in_a_shop(shop)
