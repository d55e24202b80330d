"""An export that is learned by the library gives the state of the service, bit for bit, whatever has happened to it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, closing
from importlib.metadata import EntryPoint

import msgspec
import numpy as np
import pytest

import bothworlds
from bothworlds import Ranker, policies
from bothworlds.core import Decision
from bothworlds.policies.logged_pages import LogState
from bothworlds.serve.engine.states import page_of
from bothworlds.serve.stores import open_store
from tests.policies.logs import same_bits
from tests.serve.conftest import on_both
from tests.serve.running import ITEMS, Clock, answer, put_surface, refreshed, running, state_of

PLAIN = "plain"
SETTINGS = {"ftrl-pbm": {}, "all-weather": {}, "gibbs-ts": {}, "toprank": {"horizon": 1000}, PLAIN: {}}
PAGES = 60


@pytest.fixture
def plain(monkeypatch):
    """A policy in plain Python that another package registers."""
    entry = EntryPoint(PLAIN, "tests.policies.plain:Divisible", "bothworlds.policies")
    monkeypatch.setattr(policies, "entry_points", lambda group: [entry])
    policies._registered.cache_clear()
    yield
    monkeypatch.undo()
    policies._registered.cache_clear()


def clicks_on(page):
    """The slots that a visitor clicks, who likes two items."""
    return [slot.slot for slot in page.slots if slot.item in ("a", "g")]


async def visited(engines, divisible):
    """Pages with exclusions, pins, a pause and a new item; feedback that comes late, twice, and to another process."""
    late = []
    for k in range(PAGES):
        engine, other = engines[k % len(engines)], engines[(k + 1) % len(engines)]
        constraints = {}
        if divisible:
            constraints |= {"exclude": ["b"]} if k % 5 == 1 else {}
            constraints |= {"pins": {1: "e"}} if k % 7 == 2 else {}
            if k == 20:
                await engine.administration.change_item("home", "c", "pause", actor="test")
            if k == 40:
                await engine.administration.change_item("home", "c", "resume", actor="test")
                await engine.administration.change_item("home", "g", "add", actor="test")
            await engine.registry.catch_up()
        page = await engine.rank("home", f"v{k}", **constraints)
        if k % 6 == 5:
            late.append(page)
            continue
        assert (await answer(engine, page, clicks_on(page))).status == "accepted"
        if k % 4 == 0:
            assert (await answer(other, page, clicks_on(page))).status in ("duplicate", "settled")
        if k % 10 == 0:
            await refreshed(engine)
    for page in reversed(late):
        await answer(engines[0], page, clicks_on(page))
    for _ in engines:  # one settles, and the others then learn
        for engine in engines:
            await refreshed(engine)


@pytest.mark.slow
@pytest.mark.parametrize("policy", SETTINGS)
@on_both
def test_a_replay_of_an_export_is_the_state_of_every_process(place, policy, plain, tmp_path):
    async def whole():
        clock, divisible = Clock(), policy != "toprank"
        async with AsyncExitStack() as stack:
            stores = [stack.enter_context(closing(open_store(place))) for _ in range(1 + place.startswith("postgres"))]
            engines = [await stack.enter_async_context(running(store, clock, refresh_ms=5)) for store in stores]
            await put_surface(engines[0], policy=policy, policy_settings=SETTINGS[policy])
            for engine in engines:
                await engine.registry.catch_up()
            await visited(engines, divisible)
            rows = await asyncio.to_thread(list, engines[-1].log.export("home"))
            (tmp_path / "log.ndjson").write_bytes(msgspec.json.Encoder().encode_lines(rows))
            ranker = Ranker.from_export(tmp_path / "log.ndjson")
            assert {row["number"] for row in rows[1:]} == set(range(1, PAGES + 1))
            for engine in engines:
                state = state_of(engine)
                assert state.pages == PAGES
                assert same_bits(ranker._state, state.present(len(ITEMS) + divisible))
            if policy in ("ftrl-pbm", "all-weather"):
                served, floor = await engines[0].reports.state("home"), 0.005
                x = (1 - floor) * ranker.learned().probabilities + floor / len(ranker.items)
                order = [ranker.items.index(item) for item in served["marginals"]["items"]]
                assert abs(x[order] - served["marginals"]["x"]).max() < 1e-12

    asyncio.run(whole())


@pytest.mark.parametrize("policy", ["ftrl-pbm", "all-weather"])
def test_the_same_clicks_one_by_one_give_the_state_of_the_loop(store, policy):
    """The loop of ``play`` calls ``learn`` after each page; the service calls it for many pages at a time."""

    async def whole():
        async with running(store, Clock(), refresh_ms=3_600_000) as engine:
            await put_surface(engine, policy=policy)
            for k in range(PAGES):
                page = await engine.rank("home", f"v{k}")
                await answer(engine, page, clicks_on(page))
                if k % 9 == 0:
                    await refreshed(engine)
            await refreshed(engine)
            return state_of(engine)

    state = asyncio.run(whole())
    learns = bothworlds.policy(policy)
    learned = learns.init(len(ITEMS), 3)
    for event in store.settled():
        decision = Decision(np.array(event.listed.items), np.array(event.listed.p))
        clicks = np.array([event.clicks >> slot & 1 for slot in range(3)], float)
        learned = learns.learn(learned, decision, clicks)
    assert same_bits(learned, state.state)
    shuffled = LogState(learns, len(ITEMS), 3)  # the order counts: what is compared can differ
    events = list(store.settled())
    shuffled.learn([page_of(msgspec.structs.replace(event, number=k)) for k, event in enumerate(events[::-1], 1)])
    assert not same_bits(shuffled.state, state.state)
