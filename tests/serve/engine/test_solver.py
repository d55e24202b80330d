"""New pins and exclusions are solved outside the event loop, in bounded number, once each."""

from __future__ import annotations

import asyncio
import threading
from itertools import combinations

import pytest

from bothworlds.serve.engine import served_surface, solver
from bothworlds.serve.model import Invalid, TooMany

from ..fakes import FakeStore
from ..running import ITEMS, Clock, answer, eventually, refreshed, running, visit, with_engine

PAIRS = [list(pair) for pair in combinations(ITEMS, 2)]


class Gate:
    """Blocks every solve until it is opened, and records the thread of each."""

    def __init__(self, patch):
        self.threads, self.opened = [], threading.Event()
        solve = served_surface.serving_policy

        def held(*arguments):
            self.threads.append(threading.current_thread())
            assert self.opened.wait(60)
            return solve(*arguments)

        patch.setattr(served_surface, "serving_policy", held)


@pytest.fixture
def gated(monkeypatch):
    """Runs a test with an engine whose solves wait for a gate and that does not refresh by itself."""

    def run(test, **body):
        async def whole():
            async with running(FakeStore(), clock=Clock(), refresh_ms=3_600_000) as engine:
                await engine.put_surface("home", {"slots": 3, "items": ITEMS, **body}, actor="test")
                gate = Gate(monkeypatch)
                try:
                    await test(engine, gate)
                finally:
                    gate.opened.set()

        asyncio.run(whole())

    return run


def request(engine, exclude, request_id="", **options):
    request_id = request_id or "-".join(exclude)
    return asyncio.create_task(engine.rank("home", request_id, exclude=exclude, **options))


def test_other_requests_are_answered_during_a_solve(gated):
    async def test(engine, gate):
        waiting = request(engine, ["a"])
        await eventually(lambda: gate.threads)
        assert (await engine.rank("home", "plain")).slots
        assert (await engine.rank("home", "other", segment="mobile")).segment == "mobile"
        assert not waiting.done()
        gate.opened.set()
        assert "a" not in {slot.item for slot in (await waiting).slots}
        solved = len(gate.threads)
        await engine.rank("home", "again", exclude=["a"])  # from the cache
        assert len(gate.threads) == solved
        assert threading.current_thread() not in gate.threads

    gated(test)


def test_the_same_exclusion_set_is_solved_once_for_all_who_wait(gated):
    async def test(engine, gate):
        waiting = [request(engine, ["a", "b"], f"r{k}") for k in range(50)]
        waiting += [request(engine, ["b", "a"], f"s{k}") for k in range(50)]
        await eventually(lambda: gate.threads)
        waiting[0].cancel()  # a cancelled request does not cancel the others
        gate.opened.set()
        pages = await asyncio.gather(*waiting[1:])
        assert len(pages) == 99
        assert len(gate.threads) == 1

    gated(test)


def test_solves_that_wait_are_bounded_in_all_and_for_each_client(gated, monkeypatch):
    monkeypatch.setattr(solver, "MAX_PENDING", 5)
    monkeypatch.setattr(solver, "MAX_PENDING_PER_CLIENT", 3)

    async def test(engine, gate):
        flood = [request(engine, pair, client="page") for pair in PAIRS[:8]]
        await eventually(lambda: sum(task.done() for task in flood) == 5)
        assert {type(task.exception()) for task in flood if task.done()} == {TooMany}
        others = [request(engine, pair, client="shop") for pair in PAIRS[8:12]]
        await eventually(lambda: sum(task.done() for task in others) == 2)
        assert (await engine.rank("home", "plain", client="page")).slots
        gate.opened.set()
        results = await asyncio.gather(*flood, *others, return_exceptions=True)
        assert sum(isinstance(result, TooMany) for result in results) == 7
        assert not engine.solver.pending
        assert not engine.solver.pending_clients
        assert await request(engine, PAIRS[7], client="page")

    gated(test)


def test_a_policy_solved_while_counters_changed_is_not_kept(gated):
    async def test(engine, gate):
        waiting = request(engine, ["a"])
        await eventually(lambda: gate.threads)
        served = engine.refresher.surfaces["home"]
        old = served.segments[""]
        served.segments[""] = new = old.copy(old.made_at)  # as the refresher does
        gate.opened.set()
        page = await waiting
        assert page.slots
        assert not new.cache_size
        assert page.policy_id == old.solve((frozenset({"a"}), ())).learner.id
        assert (await answer(engine, page, [0])).status == "accepted"

    gated(test)


def test_a_waiting_solve_uses_the_latest_counters(gated):
    async def test(engine, gate):
        first, second = request(engine, ["a"]), request(engine, ["b"])
        await eventually(lambda: gate.threads)
        served = engine.refresher.surfaces["home"]
        served.segments[""] = new = served.segments[""].copy(0)
        gate.opened.set()
        await asyncio.gather(first, second)
        assert new.recently_used() == [(frozenset({"b"}), ())]

    gated(test)


def test_an_item_that_is_paused_while_its_pin_is_solved_is_not_shown(gated):
    async def test(engine, gate):
        waiting = asyncio.create_task(engine.rank("home", "r1", pins={0: "a"}))
        await eventually(lambda: gate.threads)
        pausing = asyncio.create_task(engine.pause_item("home", "a", actor="test"))
        await eventually(lambda: len(gate.threads) > 1)
        before = engine.refresher.surfaces["home"]
        engine.refresher.surfaces["home"] = engine.refresher.by_id[1] = other = type(before)(
            before.surface, before.policy
        )
        other.active = {name: item for name, item in before.active.items() if name != "a"}
        other.empty_segment, other.segments = before.empty_segment, dict(before.segments)
        gate.opened.set()
        with pytest.raises(Invalid, match="not an active item"):
            await waiting
        await pausing

    gated(test)


def test_a_segment_that_is_deleted_while_it_is_solved_for_is_admitted_again(gated):
    async def test(engine, gate):
        await engine.rank("home", "r0", segment="mobile")
        first, second = (request(engine, exclude, segment="mobile") for exclude in (["a"], ["b"]))
        await eventually(lambda: gate.threads)
        await engine.delete_segment("home", "mobile", actor="test")
        gate.opened.set()
        assert [(await task).segment for task in (first, second)] == ["mobile", "mobile"]
        assert set(engine.refresher.surfaces["home"].segments) == {"", "mobile"}

    gated(test)


@with_engine()
async def test_recently_used_constraints_are_solved_again_by_the_refresher(engine, store, clock):
    await engine.rank("home", "r1", exclude=["a"])
    await visit(engine, "v", {"b"})
    await refreshed(engine)
    segment = engine.refresher.surfaces["home"].segments[""]
    assert segment.recently_used() == [(frozenset({"a"}), ())]
    assert segment.counters.rounds == 1
