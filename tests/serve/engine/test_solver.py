"""Lists for new pins and exclusions are made outside the event loop, in bounded number, once each."""

from __future__ import annotations

import asyncio
import threading
from itertools import combinations

import pytest

from bothworlds.serve.engine import solver
from bothworlds.serve.engine.served import Served
from bothworlds.serve.model import Invalid, TooMany
from tests.serve.running import ITEMS, answer, changed, eventually, refreshed, visits, with_engine

PAIRS = [list(pair) for pair in combinations(ITEMS, 2)]


class Gate:
    """Blocks every making of lists for constraints until it is opened, and records the thread of each."""

    def __init__(self, patch):
        self.threads, self.opened = [], threading.Event()
        make = Served.make

        def held(served, one, *constraints, **named):
            if constraints:
                self.threads.append(threading.current_thread())
                assert self.opened.wait(60)
            return make(served, one, *constraints, **named)

        patch.setattr(Served, "make", held)


def gated(test):
    """Runs a test with an engine whose lists for constraints wait for a gate."""

    @with_engine()
    async def run(engine, store, clock):
        with pytest.MonkeyPatch.context() as patch:
            gate = Gate(patch)
            try:
                await test(engine, gate)
            finally:
                gate.opened.set()

    return run


def request(engine, exclude, request_id="", **options):
    request_id = request_id or "-".join(exclude)
    return asyncio.create_task(engine.rank("home", request_id, exclude=exclude, **options))


@gated
async def test_other_requests_are_answered_meanwhile(engine, gate):
    waiting = request(engine, ["a"])
    await eventually(lambda: gate.threads)
    assert (await engine.rank("home", "plain")).slots
    assert not waiting.done()
    gate.opened.set()
    assert "a" not in {slot.item for slot in (await waiting).slots}
    solved = len(gate.threads)
    await engine.rank("home", "again", exclude=["a"])  # from the cache
    assert len(gate.threads) == solved
    assert threading.current_thread() not in gate.threads


@gated
async def test_the_same_constraints_are_solved_once_for_all_who_wait(engine, gate):
    waiting = [request(engine, ["a", "b"], f"r{k}") for k in range(50)]
    waiting += [request(engine, ["b", "a"], f"s{k}") for k in range(50)]
    await eventually(lambda: gate.threads)
    waiting[0].cancel()  # a cancelled request does not cancel the others
    gate.opened.set()
    pages = await asyncio.gather(*waiting[1:])
    assert len({page.event_id for page in pages}) == 99
    assert len(gate.threads) == 1


def test_what_waits_is_bounded_in_all_and_for_each_client(monkeypatch):
    monkeypatch.setattr(solver, "MAX_PENDING", 5)
    monkeypatch.setattr(solver, "MAX_PENDING_PER_CLIENT", 3)

    @gated
    async def check(engine, gate):
        flood = [request(engine, pair, client="page") for pair in PAIRS[:8]]
        await eventually(lambda: sum(task.done() for task in flood) == 5)
        assert {type(task.exception()) for task in flood if task.done()} == {TooMany}
        others = [request(engine, pair, client="shop") for pair in PAIRS[8:12]]
        await eventually(lambda: sum(task.done() for task in others) == 2)
        assert (await engine.rank("home", "plain", client="page")).slots
        gate.opened.set()
        results = await asyncio.gather(*flood, *others, return_exceptions=True)
        assert sum(isinstance(result, TooMany) for result in results) == 7
        await eventually(lambda: not engine.solver.pending and not engine.solver._of_client)
        assert await request(engine, PAIRS[7], client="page")

    check()


@gated
async def test_lists_that_wait_are_made_of_the_latest_state(engine, gate):
    waiting = request(engine, ["a"])
    await eventually(lambda: gate.threads)
    await visits(engine, [f"v{k}" for k in range(20)], {"b"})
    gate.opened.set()
    page = await waiting
    served = engine.registry.served("home")
    one = served.learner()
    assert served.cached(one, served.constraints(["a"], {})).source.rounds == 20
    assert (await answer(engine, page, [0])).status == "accepted"


@gated
async def test_lists_of_a_surface_that_was_changed_meanwhile_are_not_used(engine, gate):
    first, second = request(engine, ["a"]), request(engine, ["b", "c", "d"])
    await eventually(lambda: gate.threads)
    await changed(engine, slots=4)
    gate.opened.set()
    assert len((await first).slots) == 4
    with pytest.raises(Invalid, match="4 slots need 4 items"):  # enough for three slots
        await second


@with_engine()
async def test_cached_lists_are_made_again_one_at_a_time_while_the_old_ones_are_used(engine, store, clock):
    first = await engine.rank("home", "r", exclude=["a"])
    await visits(engine, [f"v{k}" for k in range(100)], {"b"})
    with pytest.MonkeyPatch.context() as patch:
        gate = Gate(patch)
        stale = [await engine.rank("home", f"s{k}", exclude=["a"]) for k in range(10)]
        await eventually(lambda: gate.threads)
        assert {page.policy_id for page in stale} == {first.policy_id}
        gate.opened.set()
        await eventually(lambda: not engine.solver.pending)
        assert len(gate.threads) == 1
    await refreshed(engine)
    assert (await engine.rank("home", "fresh", exclude=["a"])).policy_id != first.policy_id
