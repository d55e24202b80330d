"""The engine: the same request gives the same list, feedback counts once, and it learns."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import numpy as np
import pytest

from bothworlds.serve.engine import learning
from bothworlds.serve.engine import lists as lists_module
from bothworlds.serve.engine import served as served_module
from bothworlds.serve.engine.states import relearned, same_bits
from bothworlds.serve.model import Invalid, NotEnough, Unknown
from bothworlds.serve.schemas import FeedbackEvent
from tests.serve.running import (
    ITEMS,
    Clock,
    answer,
    changed,
    eventually,
    log_of,
    put_surface,
    refreshed,
    running,
    state_of,
    visits,
    with_engine,
    written,
)

NEW, OLD = {"name": "new", "policy": "ftrl-pbm", "share": 0.5}, {"name": "old", "policy": "uniform", "share": 0.2}


def marginals(engine, arm="learner"):
    return engine.registry.served("home").learner(arm).lists.marginals


@with_engine()
async def test_the_same_request_gives_the_same_list_though_the_policy_has_moved_on(engine, store, clock):
    first = await engine.rank("home", "r1")
    await visits(engine, [f"v{k}" for k in range(100)], {"a"})
    assert await engine.rank("home", "r1") == first
    assert await engine.rank("home", "r1") == first
    assert (await engine.rank("home", "r1", segment="other", exclude=["a", "b"])).slots == first.slots
    assert (await engine.rank("home", "r2")).event_id != first.event_id


def test_a_restarted_engine_has_learned_and_answered_the_same(store):
    async def whole():
        clock = Clock()
        async with running(store, clock=clock) as engine:
            await put_surface(engine)
            first = await engine.rank("home", "r1")
            await visits(engine, [f"v{k}" for k in range(20)], {"a"})
            before = state_of(engine)
        async with running(store, clock=clock) as engine:
            assert not engine.states.size  # states are read when they are used
            assert await engine.rank("home", "r1") == first
            assert same_bits(state_of(engine), before)
            assert (await answer(engine, first, [0])).status == "accepted"

    asyncio.run(whole())


@with_engine()
async def test_feedback_counts_once_however_often_it_is_sent(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    statuses = [(await answer(engine, ranked, clicks, final)).status for clicks, final in (([1], False), ([1], False))]
    statuses += [(await answer(engine, ranked, [1, 2], True)).status for _ in range(2)]
    assert statuses == ["accepted", "duplicate", "accepted", "duplicate"]
    await refreshed(engine)
    assert (await answer(engine, ranked, [1, 2], True)).status == "duplicate"
    assert (await answer(engine, ranked, [0], True)).status == "late_applied"  # it is settled: reported, not learned
    await refreshed(engine)
    state = state_of(engine)
    assert (state.pages, state.shown.sum(), state.clicked.sum()) == (1, 3, 2)
    assert engine.duplicates(1) == 3


@with_engine()
async def test_each_event_of_a_batch_gets_its_own_result(engine, store, clock):
    one, two = await engine.rank("home", "r1"), await engine.rank("home", "r2")
    batch = [(one, [0], False), (two, [], True), (one, [0], True), (one, [0], True)]
    results = await engine.feedback([FeedbackEvent(r.event_id, r.token, c, f) for r, c, f in batch])
    assert [r.status for r in results] == ["accepted", "accepted", "accepted", "duplicate"]
    assert [r.event_id for r in results] == [r.event_id for r, _, _ in batch]
    assert await engine.feedback([]) == []


@with_engine(attribution_seconds=60, late_seconds=600)
async def test_what_was_seen_is_learned_and_nothing_else(engine, store, clock):
    """Without a confirmation, nobody knows whether the list was shown; a click alone confirms nothing."""
    pages = {name: await engine.rank("home", name) for name in ("nothing", "clicked", "shown", "void", "both", "final")}
    assert (await answer(engine, pages["clicked"], [0], False)).status == "accepted"
    assert (await answer(engine, pages["shown"], [], False, shown=True)).status == "accepted"
    assert (await answer(engine, pages["void"], [], False, shown=False)).status == "accepted"
    assert (await answer(engine, pages["both"], [1], True, shown=True)).status == "accepted"
    assert (await answer(engine, pages["final"], [], True)).status == "accepted"
    await refreshed(engine)
    assert state_of(engine).pages == 2
    clock.at += 61_000
    await refreshed(engine)
    ends = {name: log_of(store)[bytes.fromhex(page.event_id)].settled_by for name, page in pages.items()}
    assert ends == {
        "nothing": "unconfirmed",
        "clicked": "unconfirmed",
        "shown": "deadline",
        "void": "void",
        "both": "final",
        "final": "final",
    }
    assert state_of(engine).pages == 3
    assert (await answer(engine, pages["shown"], [0, 1, 2])).status == "late_applied"
    clock.at += 700_000
    late = [
        await answer(engine, pages["nothing"], [0]),
        *await engine.feedback([FeedbackEvent(pages["void"].event_id, pages["void"].token, [1], False)]),
    ]
    assert {one.status for one in late} == {"expired"}
    await refreshed(engine)
    assert state_of(engine).clicked.sum() == 1


@with_engine(feedback="clicks", attribution_seconds=60)
async def test_where_only_clicks_are_sent_every_page_is_learned_at_its_deadline(engine, store, clock):
    pages = [await engine.rank("home", f"r{k}") for k in range(4)]
    assert (await answer(engine, pages[0], [0])).status == "accepted"
    await refreshed(engine)
    assert state_of(engine).pages == 0
    clock.at += 61_000
    await refreshed(engine)
    assert (state_of(engine).pages, state_of(engine).clicked.sum()) == (4, 1)


@with_engine(attribution_seconds=60, late_seconds=600)
async def test_clocks_may_jump(engine, store, clock):
    jumps = [0, -3_600_000, 30_000, 7_200_000, -60_000, 100_000]
    out = []
    for k, jump in enumerate(jumps):
        out.append(await engine.rank("home", f"r{k}"))
        clock.at += jump
        await answer(engine, out[k // 2], [0], k % 2 == 0)
        await refreshed(engine)
    clock.at += 10_000_000
    await written(engine)
    await refreshed(engine)
    log = log_of(store)
    assert store.open_events() == 0
    assert sorted(event.number for event in log.values()) == list(range(1, len(log) + 1))
    served = engine.registry.served("home")
    replayed = relearned(store, served.learner().learner, served.target(served.learner()))
    assert same_bits(state_of(engine), replayed)
    assert engine.health()["ready"]


@with_engine(holdout=0.25, baseline=["f", "e"])
async def test_the_holdout_gets_its_share_and_its_order_and_is_not_learned_from(engine, store, clock):
    pages = [await engine.rank("home", f"r{k}") for k in range(2000)]
    held = [page for page in pages if page.arm == "holdout"]
    assert abs(len(held) - 500) < 5 * np.sqrt(2000 * 0.25 * 0.75)
    assert {tuple(slot.item for slot in page.slots) for page in held} == {("f", "e", "a")}
    assert {(slot.p, slot.learn, slot.pinned) for page in held for slot in page.slots} == {(1.0, False, False)}
    await answer(engine, held[0], [0])
    await refreshed(engine)
    assert state_of(engine).pages == 0
    pinned = next(
        p for p in [await engine.rank("home", f"p{k}", pins={0: "c"}) for k in range(50)] if p.arm == "holdout"
    )
    assert [slot.item for slot in pinned.slots] == ["c", "f", "e"]


@with_engine(minimum_exposure=0.2)
async def test_every_item_gets_its_minimum_exposure_exactly(engine, store, clock):
    await visits(engine, [f"v{k}" for k in range(400)], {"a", "b", "c"})
    x = marginals(engine)
    assert np.isclose(x.sum(axis=1).min(), 0.2)
    assert x.sum(axis=1).max() > 0.7


@pytest.mark.slow
@with_engine()
async def test_it_learns_what_visitors_like(engine, store, clock):
    rng = np.random.default_rng(5)
    attraction, examination = dict(zip(ITEMS, (0.1, 0.1, 0.8, 0.1, 0.7, 0.1))), (1.0, 0.8, 0.6)
    earned = []
    for k in range(100):
        pages = [await engine.rank("home", f"v{k} {j}") for j in range(10)]
        batch = []
        for page in pages:
            chances = [attraction[slot.item] * examination[slot.slot] for slot in page.slots]
            earned.append(sum(chances))
            clicks = [j for j, p in enumerate(chances) if rng.random() < p]
            batch.append(FeedbackEvent(page.event_id, page.token, clicks, True))
        await engine.feedback(batch)
        await refreshed(engine)
    uniform = np.mean(list(attraction.values())) * sum(examination)
    assert np.mean(earned[-300:]) > 1.3 * uniform
    served = engine.registry.served("home")
    assert same_bits(state_of(engine), relearned(store, served.learner().learner, served.target(served.learner())))


@with_engine(arms=[NEW | {"share": 0.4}, OLD])
async def test_each_arm_learns_from_its_own_pages(engine, store, clock):
    pages = await visits(engine, [f"v{k}" for k in range(200)], {"a", "b"})
    for arm in ("learner", "new", "old"):
        assert state_of(engine, arm=arm).pages == sum(page.arm == arm for page in pages) > 0
    assert {page.policy_id.split(":")[0] for page in pages if page.arm == "new"} == {"ftrl-pbm"}
    new, old = (engine.registry.served("home").learner(arm).lists for arm in ("new", "old"))
    assert new.entropy < old.entropy


@with_engine()
async def test_limits_and_bad_requests_are_refused_with_reasons(engine, store, clock):
    for kind, arguments in (
        (Unknown, {"surface": "away"}),
        (Invalid, {"request_id": ""}),
        (Invalid, {"request_id": "x" * 257}),
        (Invalid, {"request_id": "a\x00b"}),
        (Invalid, {"segment": "a\nb"}),
        (Invalid, {"segment": "s" * 65}),
        (Invalid, {"visitor": "a\nb"}),
        (Invalid, {"visitor": "v" * 257}),
        (Invalid, {"pins": {3: "a"}}),
        (Invalid, {"pins": {0: "a", 1: "a"}}),
        (Invalid, {"pins": {0: "nobody"}}),
        (Invalid, {"pins": {0: "a"}, "exclude": ["a"]}),
        (Invalid, {"exclude": ["a", "b", "c", "d"]}),
        (Invalid, {"exclude": ["a"] * 1001}),
    ):
        with pytest.raises(kind) as caught:
            await engine.rank(**{"surface": "home", "request_id": "r9", **arguments})
        assert caught.value.detail
    with pytest.raises(NotEnough, match="3 slots need 3 items; 2 eligible") as caught:
        await engine.rank("home", "new", exclude=["a", "b", "c", "d", "someone else"])
    assert caught.value.errors == [{"pointer": "/exclude", "detail": "removes 4 of 6 items"}]
    assert (await engine.rank("home", "r9")).slots  # it was not left waiting for itself


@with_engine(policy="batchrank", policy_settings={"horizon": 1000})
async def test_a_policy_without_parts_serves_whole_pages_only(engine, store, clock):
    assert (await engine.rank("home", "r1", exclude=["nobody"])).slots
    for constraints in ({"exclude": ["a"]}, {"pins": {0: "a"}}):
        with pytest.raises(Invalid, match="its state has no parts"):
            await engine.rank("home", "r2", **constraints)


@with_engine()
async def test_a_request_may_pin_all_slots_or_leave_just_enough_items(engine, store, clock):
    pinned = await engine.rank("home", "r1", pins={0: "a", 1: "b", 2: "c"})
    assert [(slot.p, slot.learn) for slot in pinned.slots] == [(1.0, False)] * 3
    single = await engine.rank("home", "r2", pins={0: "a", 1: "b"}, exclude=["c", "d", "e"])
    assert (single.slots[2].item, single.slots[2].p, single.slots[2].learn) == ("f", 1.0, False)
    full = await engine.rank("home", "r3", exclude=["d", "e", "f"])
    assert sorted(slot.item for slot in full.slots) == ["a", "b", "c"]
    for ranked in (pinned, single, full):
        assert (await answer(engine, ranked, [2])).status == "accepted"
    await refreshed(engine)
    assert state_of(engine).pages == 1  # where there was nothing to choose, nothing is learned


@with_engine(holdout=0.5)
async def test_pins_are_the_same_in_the_first_and_in_a_repeated_answer(engine, store, clock):
    pages = {k: await engine.rank("home", f"r{k}", pins={1: "c"}) for k in range(20)}
    assert {page.arm for page in pages.values()} == {"learner", "holdout"}
    await written(engine)
    for k, page in pages.items():
        assert [slot.pinned for slot in page.slots] == [False, True, False]
        assert await engine.rank("home", f"r{k}") == page


def test_clicks_on_a_list_that_was_lost_do_not_count_for_another(store, monkeypatch):
    """Killed before a decision was written: the list that is stored first is valid."""

    async def whole():
        clock = Clock()
        async with running(store, clock=clock) as engine:
            await put_surface(engine, policy="uniform")
            monkeypatch.setattr(engine.recorder, "enqueue", lambda event: None)
            lost = [await engine.rank("home", f"r{k}") for k in range(2)]
        async with running(store, clock=clock) as engine:
            again = await engine.rank("home", "r0", exclude=[lost[0].slots[0].item])
            await written(engine)
            result = await answer(engine, lost[0], [0])
            assert (result.status, "another list" in result.reason) == ("rejected", True)
            assert (await answer(engine, again, [0])).status == "accepted"
            # Feedback restores a list that was lost, and then a repeated request gets it.
            assert (await answer(engine, lost[1], [0])).status == "accepted"
            assert (await engine.rank("home", "r1", exclude=[lost[1].slots[0].item])).slots == lost[1].slots
            await refreshed(engine)
            assert (state_of(engine).pages, state_of(engine).clicked.sum()) == (2, 2)

    asyncio.run(whole())


@with_engine()
async def test_pages_that_are_not_counted_are_stored_and_not_learned(engine, store, clock):
    ranked = await engine.rank("home", "r1", counted=False)
    assert (await answer(engine, ranked, [0])).status == "accepted"
    await refreshed(engine)
    assert state_of(engine).pages == 0
    (event,) = log_of(store).values()
    assert (event.counted, event.clicks, event.settled_by) == (False, 1, "final")


@with_engine()
async def test_exclusions_follow_what_is_learned(engine, store, clock):
    first = await engine.rank("home", "r1", exclude=["f"])
    await visits(engine, [f"v{k}" for k in range(200)], {"a"})
    old = await engine.rank("home", "r2", exclude=["f"])  # cached; made again meanwhile
    assert old.policy_id == first.policy_id
    served, one = engine.registry.served("home"), engine.registry.served("home").learner()
    constraints = served.constraints(["f"], {})
    await eventually(lambda: not served.is_outdated(one, constraints, served.cached(one, constraints)))
    ids = {(await engine.rank("home", f"s{k}", exclude=["f"])).policy_id for k in range(20)}
    assert old.policy_id not in ids
    assert len(ids) == 1


@with_engine()
async def test_lists_for_constraints_are_cached_up_to_a_limit(engine, store, clock):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served_module, "MAX_CACHED_CELLS", 4 * served_module.CELLS_OF_LISTS)
        for excluded in ([], ["a"]):
            for item in ITEMS:
                await engine.rank("home", f"{excluded} {item}", exclude=[item, *excluded])
    served = engine.registry.served("home")
    assert list(served.cache) == [
        (served.learner().learner.id, served.constraints([item, "a"], {})) for item in ITEMS[-4:]
    ]


def test_lists_are_not_made_on_the_event_loop(store, monkeypatch):
    threads = []
    make = served_module.make_lists

    def make_lists(*given, **named):
        threads.append(threading.current_thread())
        return make(*given, **named)

    monkeypatch.setattr(served_module, "make_lists", make_lists)

    async def whole():
        async with running(store, clock=Clock()) as engine:
            await put_surface(engine, policy="context-ts", labels=["device"])
            for device in ("", "one", "two"):
                assert (await engine.rank("home", device or "none", context={"device": device})).slots
                assert (await engine.rank("home", f"{device} more", context={"device": device}, exclude=["a"])).slots
            assert len(threads) >= 6
            assert threading.main_thread() not in threads

    asyncio.run(whole())


@with_engine()
async def test_a_request_repeated_while_its_lists_are_made_has_one_list(engine, store, clock):
    """The repetition without exclusions could be answered first; it must be the list that waits for the solver."""
    for k in range(40):
        waiting, plain = await asyncio.gather(
            engine.rank("home", f"r{k}", exclude=[ITEMS[k % 3], ITEMS[3 + k % 2]]), engine.rank("home", f"r{k}")
        )
        assert waiting == plain
        assert (await answer(engine, waiting, [0])).status == "accepted"


@with_engine()
async def test_new_items_and_settings_are_served_at_once_and_learned_from_then_on(engine, store, clock):
    await visits(engine, [f"v{k}" for k in range(50)], {"a"})
    before = await engine.rank("home", "before")
    surface = await changed(engine, floor=0.5)
    served = engine.registry.served("home")
    assert served.surface == surface
    assert marginals(engine).min() >= 0.5 / 6
    assert (await answer(engine, before, [0])).status == "accepted"
    assert (await engine.rank("home", "after")).policy_id != before.policy_id


@with_engine(policy="all-weather", arms=[NEW])
async def test_a_surface_whose_lists_cannot_be_made_is_served_by_its_own_order(engine, store, clock):
    await put_surface(engine, "other", policy="all-weather")
    await visits(engine, [f"v{k}" for k in range(20)], {"a"})
    pages = {page.arm: page for page in [await engine.rank("home", f"w{k}") for k in range(40)]}
    make = lists_module.known_marginals
    with pytest.MonkeyPatch.context() as patch:

        def broken(policy, *given):
            if policy.name == "ftrl-pbm":
                raise RuntimeError("no solution")
            return make(policy, *given)

        patch.setattr(lists_module, "known_marginals", broken)
        await answer(engine, pages["new"], [0])
        await refreshed(engine)
        assert "surface 'home'" in engine.health()["reasons"][0]
        assert "no solution" in engine.health()["reasons"][0]
        assert engine.health()["ready"]
        stale = [await engine.rank("home", f"x{k}") for k in range(40)]
        assert {page.policy_id for page in stale if page.arm == "new"} == {pages["new"].policy_id}  # as before
        await changed(engine, floor=0.5)
        kept = [await engine.rank("home", f"y{k}") for k in range(40)]
        own = {tuple(s.item for s in page.slots) for page in kept if page.arm == "new"}
        assert own == {("a", "b", "c")}
        assert {(s.p, s.learn) for page in kept if page.arm == "new" for s in page.slots} == {(1.0, False)}
        assert {page.policy_id.split(":")[0] for page in kept if page.arm == "learner"} == {"all-weather"}
        assert (await engine.rank("other", "r")).policy_id.startswith("all-weather")
        patch.undo()
        patch.setattr(learning, "RETRY_SECONDS", 0.0)
        for page in kept:
            await answer(engine, page, [0])
        await refreshed(engine)
    assert engine.health()["reasons"] == []


@with_engine()
async def test_a_policy_that_fails_to_learn_is_replaced_by_the_own_order_and_others_learn(engine, store, clock):
    await put_surface(engine, "other", policy="all-weather")
    pages = [await engine.rank(name, "r1") for name in ("home", "other")]
    with pytest.MonkeyPatch.context() as patch:
        learn = engine.states._learn

        def broken(held, events):
            if held.learner.surface_id == 1:
                raise RuntimeError("overflow")
            learn(held, events)

        patch.setattr(engine.states, "_learn", broken)
        for page in pages:
            await answer(engine, page, [0])
        await refreshed(engine)
    assert "overflow" in engine.health()["reasons"][0]
    own = await engine.rank("home", "r2")
    assert ([slot.item for slot in own.slots], own.policy_id) == (["a", "b", "c"], "baseline")
    assert engine.registry.served("other").learner().lists.source.rounds == 1
    await answer(engine, own, [])
    await changed(engine, floor=0.1)  # makes the lists again, from the log
    assert (await engine.rank("home", "r3")).policy_id != "baseline"
    assert state_of(engine).pages == 1


def test_a_surface_with_a_policy_that_does_not_exist_any_more_is_served_by_its_own_order(store):
    async def whole():
        async with running(store) as engine:
            made = await put_surface(engine, policy="ftrl-pbm")
            await put_surface(engine, "other")
            known = await engine.rank("home", "known")
        store.database.write(
            lambda session: session.run(
                "UPDATE surfaces SET body = ? WHERE id = ?",
                (msgspec.json.encode(made).replace(b'"ftrl-pbm"', b'"of a later version"'), made.id),
            )
        )
        async with running(store) as engine:
            assert "no policy named" in engine.health()["reasons"][0]
            assert (await engine.rank("home", "r")).policy_id == "baseline"
            assert (await engine.rank("home", "known")).slots == known.slots
            assert (await answer(engine, known, [0])).status == "accepted"
            assert (await engine.rank("other", "r")).policy_id.startswith("ftrl-pbm")
            await refreshed(engine)
            assert engine.health()["last_error"] is None

    asyncio.run(whole())
