"""The engine: the same request gives the same list, feedback counts once, and it learns."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from bothworlds.serve.engine import surface_rules
from bothworlds.serve.model import Conflict, Invalid, Unknown
from bothworlds.serve.reports import item_rates
from bothworlds.serve.schemas import FeedbackEvent

from ..fakes import FakeStore
from ..running import ITEMS, Clock, answer, eventually, refreshed, running, visit, with_engine, written


@with_engine()
async def test_the_same_request_gives_the_same_list_though_the_policy_has_moved_on(engine, store, clock):
    first = await engine.rank("home", "r1")
    for k in range(100):
        await visit(engine, f"v{k}", {"a"})
    await refreshed(engine)
    assert await engine.rank("home", "r1") == first
    engine.clear_recent()  # as after many other requests, or a restart
    assert await engine.rank("home", "r1") == first
    assert (await engine.rank("home", "r1", segment="other", exclude=["a", "b"])).slots == first.slots
    assert (await engine.rank("home", "r2")).event_id != first.event_id


def test_a_restarted_engine_has_all_counters_and_surfaces():
    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock) as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
            first = await engine.rank("home", "r1")
            await visit(engine, "r2", {"a"})
        async with running(store, clock=clock) as engine:
            assert await engine.rank("home", "r1") == first
            assert (await engine.state("home"))["rounds"] == 1
            assert (await answer(engine, first, [0])).status == "accepted"
        assert store.totals() == store.rebuilt()

    asyncio.run(whole())


@with_engine()
async def test_feedback_counts_once_however_often_it_is_sent(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    statuses = [(await answer(engine, ranked, clicks, final)).status for clicks, final in (([1], False), ([1], False))]
    statuses += [
        (await answer(engine, ranked, [1, 2], True)).status,
        (await answer(engine, ranked, [1, 2], True)).status,
    ]
    statuses += [(await answer(engine, ranked, [0], True)).status]
    assert statuses == ["accepted", "duplicate", "accepted", "duplicate", "accepted"]
    rounds, loss, shown, clicked = store.totals()[1, ""]
    assert (rounds, loss, sum(shown.values()), sum(clicked.values())) == (1, {}, 3, 3)
    assert store.totals() == store.rebuilt()


def test_the_state_includes_feedback_as_soon_as_it_is_acknowledged():
    async def whole():
        store = FakeStore()
        async with running(store, shared=True, refresh_ms=60_000) as one, running(store, shared=True) as two:
            await one.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
            await two.catch_up()
            for k in range(1, 5):
                await visit(two, f"r{k}", {"a"})
                assert [(await engine.state("home"))["rounds"] for engine in (one, two)] == [k, k]
            await visit(two, "r5", {"a"}, segment="new here")
            assert (await one.state("home", "new here"))["rounds"] == 1

    asyncio.run(whole())


@with_engine()
async def test_each_event_of_a_batch_gets_its_own_result(engine, store, clock):
    one, two = await engine.rank("home", "r1"), await engine.rank("home", "r2")
    batch = [(one, [0], False), (two, [], True), (one, [0], True), (one, [0], True)]
    results = await engine.feedback([FeedbackEvent(r.event_id, r.token, c, f) for r, c, f in batch])
    assert [r.status for r in results] == ["accepted", "accepted", "accepted", "duplicate"]
    assert [r.event_id for r in results] == [r.event_id for r, _, _ in batch]
    assert await engine.feedback([]) == []


@pytest.mark.slow
@with_engine(attribution_seconds=60, late_seconds=600)
async def test_the_deadline_adds_a_loss_and_a_late_click_subtracts_it(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    await written(engine)
    clock.at += 61_000
    await eventually(lambda: store.open_events() == 0)
    rounds, loss, *_ = store.totals()[1, ""]
    assert (rounds, len(loss)) == (1, 3)
    assert (await answer(engine, ranked, [0, 1, 2])).status == "late_applied"
    rounds, loss, _, clicked = store.totals()[1, ""]
    assert (rounds, loss, sum(clicked.values())) == (1, {}, 3)
    assert store.totals() == store.rebuilt()


@with_engine(attribution_seconds=60, late_seconds=600)
async def test_clocks_may_jump(engine, store, clock):
    likes, jumps = {"a", "b"}, [0, -3_600_000, 30_000, 7_200_000, -60_000, 100_000]
    out = []
    for k, jump in enumerate(jumps):
        out.append(await engine.rank("home", f"r{k}"))
        clock.at += jump
        await answer(engine, out[k // 2], [s.slot for s in out[k // 2].slots if s.item in likes], k % 2 == 0)
    clock.at += 10_000_000
    await written(engine)
    await eventually(lambda: store.open_events() == 0)
    assert store.totals() == store.rebuilt()
    assert engine.health()["ready"]


@with_engine(holdout=0.25, baseline=["f", "e"])
async def test_the_holdout_gets_its_share_and_its_order_and_is_not_learned_from(engine, store, clock):
    pages = [await engine.rank("home", f"r{k}") for k in range(2000)]
    held = [page for page in pages if page.arm == "holdout"]
    assert abs(len(held) - 500) < 5 * np.sqrt(2000 * 0.25 * 0.75)
    assert {tuple(slot.item for slot in page.slots) for page in held} == {("f", "e", "a")}
    assert {(slot.p, slot.learn, slot.pinned) for page in held for slot in page.slots} == {(1.0, False, False)}
    await answer(engine, held[0], [0])
    assert store.totals() == {(1, ""): (0, {}, {}, {})}
    pinned = next(
        p for p in [await engine.rank("home", f"p{k}", pins={0: "c"}) for k in range(50)] if p.arm == "holdout"
    )
    assert [slot.item for slot in pinned.slots] == ["c", "f", "e"]


@pytest.mark.slow
@with_engine(minimum_exposure=0.2)
async def test_every_item_gets_its_minimum_exposure_exactly(engine, store, clock):
    for k in range(400):
        await visit(engine, f"v{k}", {"a", "b", "c"})
    await refreshed(engine)
    x = np.array((await engine.state("home"))["marginals"]["x"])
    assert np.isclose(x.sum(axis=1).min(), 0.2)
    assert x.sum(axis=1).max() > 0.7


@pytest.mark.slow
@with_engine()
async def test_it_learns_what_visitors_like(engine, store, clock):
    rng = np.random.default_rng(5)
    attraction, examination = dict(zip(ITEMS, (0.1, 0.1, 0.8, 0.1, 0.7, 0.1))), (1.0, 0.8, 0.6)
    earned = []
    for k in range(1000):
        ranked = await engine.rank("home", f"v{k}")
        chances = [attraction[slot.item] * examination[slot.slot] for slot in ranked.slots]
        earned.append(sum(chances))
        await engine.feedback(
            [FeedbackEvent(ranked.event_id, ranked.token, [j for j, p in enumerate(chances) if rng.random() < p], True)]
        )
    uniform = np.mean(list(attraction.values())) * sum(examination)
    assert np.mean(earned[-300:]) > 1.3 * uniform
    assert store.totals() == store.rebuilt()
    x = (await engine.state("home"))["marginals"]
    assert x["items"] == ITEMS


@pytest.mark.slow
@with_engine()
async def test_segments_learn_apart(engine, store, clock):
    for k in range(300):
        await visit(engine, f"m{k}", {"a"}, segment="mobile")
        await visit(engine, f"d{k}", {"f"}, segment="desktop")
    await refreshed(engine)
    for segment, best in (("mobile", 0), ("desktop", 5)):
        x = np.array((await engine.state("home", segment))["marginals"]["x"])
        assert x.sum(axis=1).argmax() == best


@with_engine()
async def test_limits_and_bad_requests_are_refused_with_reasons(engine, store, clock):
    for kind, arguments in (
        (Unknown, {"surface": "away"}),
        (Invalid, {"request_id": ""}),
        (Invalid, {"request_id": "x" * 257}),
        (Invalid, {"request_id": "a\x00b"}),
        (Invalid, {"segment": "a\nb"}),
        (Invalid, {"segment": "s" * 129}),
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
    with pytest.raises(Invalid, match="3 slots need 3 items; 2 eligible") as caught:
        await engine.rank("home", "new", exclude=["a", "b", "c", "d", "someone else"])
    assert caught.value.errors == [{"pointer": "/exclude", "detail": "removes 4 of 6 items"}]


@with_engine()
async def test_a_request_may_pin_all_slots_or_leave_just_enough_items(engine, store, clock):
    pinned = await engine.rank("home", "r1", pins={0: "a", 1: "b", 2: "c"})
    assert [slot.p for slot in pinned.slots] == [1.0] * 3
    single = await engine.rank("home", "r2", pins={0: "a", 1: "b"}, exclude=["c", "d", "e"])
    assert (single.slots[2].item, single.slots[2].p, single.slots[2].learn) == ("f", 1.0, True)
    full = await engine.rank("home", "r3", exclude=["d", "e", "f"])
    assert sorted(slot.item for slot in full.slots) == ["a", "b", "c"]
    for ranked in (pinned, single, full):
        assert (await answer(engine, ranked, [2])).status == "accepted"
    assert store.totals()[1, ""][0] == 2
    assert store.totals() == store.rebuilt()


@with_engine()
async def test_policies_for_exclusions_are_cached_up_to_a_limit(engine, store, clock):
    from bothworlds.serve.engine import served_surface

    for k in range(served_surface.MAX_CACHED + 40):
        pins = {k % 3: ITEMS[k % 6]}
        exclude = [name for j, name in enumerate(ITEMS) if k >> 3 >> j & 1 and name != ITEMS[k % 6]][:2]
        await engine.rank("home", f"r{k}", pins=pins, exclude=exclude)
    old = engine.refresher.surfaces["home"].segments[""]
    assert 0 < old.cache_size <= served_surface.MAX_CACHED
    await visit(engine, "v", {"a"})
    await refreshed(engine)
    fresh = engine.refresher.surfaces["home"].segments[""]
    assert 0 < fresh.cache_size <= served_surface.MAX_PRESOLVED
    assert fresh is not old


@with_engine()
async def test_the_cache_limit_is_shared_by_the_segments_of_a_surface(engine, store, clock):
    from bothworlds.serve.engine import served_surface

    names = ["", "one", "two", "three"]
    for name in names:
        await engine.rank("home", f"first {name}", segment=name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served_surface, "MAX_CACHED_CELLS", 8 * len(ITEMS) * 3)
        for name in names:
            for item in ITEMS:
                await engine.rank("home", f"{name} {item}", segment=name, exclude=[item])
    kept = [engine.refresher.surfaces["home"].segments[name].cache_size for name in names]
    assert kept == [2, 2, 2, 2]


@with_engine()
async def test_an_event_can_be_looked_up(engine, store, clock):
    ranked = await visit(engine, "r1", {"a", "b", "c", "d", "e", "f"}, pins={0: "a"})
    view = await engine.event(ranked.event_id)
    assert [slot["item"] for slot in view["slots"]] == [slot.item for slot in ranked.slots]
    assert view["settled_by"] == "final"
    assert view["slots"][0]["pinned"]
    assert "the request pinned some slots" in view["why"]
    assert "pinned" not in (await engine.event((await visit(engine, "r2", set())).event_id))["why"]
    assert all(slot["clicked"] for slot in view["slots"])
    for nonsense in ("", "zz", "0" * 32, "é"):
        with pytest.raises(Unknown):
            await engine.event(nonsense)


@with_engine(policy="uniform")
async def test_an_event_is_explained_by_the_policy_of_its_own_surface(engine, store, clock):
    """Two surfaces of the same size with equal probabilities; items of one are nobody's business on the other."""
    await engine.put_surface("other", {"slots": 3, "items": list("uvwxyz"), "policy": "uniform"}, actor="test")
    views = []
    for surface in ("home", "other"):
        ranked = await engine.rank(surface, "r1")
        await answer(engine, ranked, [0])
        await refreshed(engine)
        views.append(await engine.event(ranked.event_id))
        ranked = await engine.rank(surface, "r2")
        views.append(await engine.event(ranked.event_id))
    for view in views:
        listed = {slot["item"] for slot in view["slots"]}
        assert view["policy"] is None or listed <= set(view["policy"]["items"])
    assert views[0]["policy_id"] != views[2]["policy_id"]


def test_several_engines_on_one_store_give_one_list():
    async def whole():
        store, clock = FakeStore(), Clock()
        options = {"clock": clock, "shared": True, "refresh_ms": 5}
        async with running(store, **options) as one, running(store, **options) as two:
            await one.put_surface("home", {"slots": 3, "items": ITEMS, "floor": 0.02}, actor="test")
            await eventually(two.surfaces)
            for k in range(100):
                await visit(one, f"v{k}", {"a"})
            first = await one.rank("home", "r1")
            clock.at += 5
            assert (await two.rank("home", "r1")) == first
            assert (await answer(two, first, [0])).status == "accepted"
            await refreshed(two)
            assert (await two.state("home"))["rounds"] == 101

    asyncio.run(whole())


def two_engines(test):
    """Runs a test with two engines on one store; neither refreshes by itself."""

    def run():
        async def whole():
            store, clock = FakeStore(), Clock()
            options = {"clock": clock, "shared": True, "refresh_ms": 3_600_000}
            async with running(store, **options) as one, running(store, **options) as two:
                await one.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
                await test(one, two, store, clock)

        asyncio.run(whole())

    return run


@two_engines
async def test_changes_of_several_processes_are_serialised(one, two, store, clock):
    await two.put_item("home", "g", actor="test")
    await one.put_item("home", "h", actor="test")
    await two.pause_item("home", "h", actor="test")
    changed = await one.patch_surface("home", {"floor": 0.05}, actor="test")
    again = await two.patch_surface("home", {"floor": 0.06}, actor="test", if_version=changed.version)
    assert (again.version, again.items[7].state) == (changed.version + 1, "paused")
    with pytest.raises(Conflict, match="version"):
        await one.patch_surface("home", {"floor": 0.07}, actor="test", if_version=changed.version)
    _, created = await two.put_surface("home", {"slots": 2}, actor="test")
    assert not created
    _, created = await one.put_surface("home", {"slots": 2}, actor="test")
    assert not created


@two_engines
async def test_a_change_is_retried_after_a_version_conflict(one, two, store, clock):
    await two.catch_up()
    save, overtaken = store.save_surface, []

    def slow(surface, adjustments, audit):
        store.save_surface = save
        quicker = surface_rules.change_settings(store.surfaces()[0], {"floor": 0.09}, clock()).surface
        overtaken.append(save(quicker, [], []))
        return save(surface, adjustments, audit)

    store.save_surface = slow
    changed = await two.put_item("home", "g", actor="test")
    assert overtaken
    assert (changed.settings.floor, changed.items[-1].name) == (0.09, "g")
    store.save_surface = slow
    with pytest.raises(Conflict, match="read it again"):
        await two.patch_surface("home", {"slots": 2}, actor="test", if_version=changed.version)


@two_engines
async def test_a_list_with_an_item_that_another_process_added_is_returned(one, two, store, clock):
    await two.catch_up()
    await one.put_item("home", "new", actor="test")
    ranked = await one.rank("home", "r1", pins={0: "new"})
    assert [slot.item for slot in (await two.rank("home", "r1")).slots] == [slot.item for slot in ranked.slots]
    await one.put_item("home", "newer", actor="test")
    ranked = await one.rank("home", "r2", pins={0: "newer"})
    assert (await two.event(ranked.event_id))["slots"][0]["item"] == "newer"
    await one.put_item("home", "newest", actor="test")
    ranked = await one.rank("home", "r3", pins={0: "newest"})
    assert (await answer(one, ranked, [0])).status == "accepted"
    assert "newest" in {row["item"] for row in two.export("home")}
    assert (await two.report("home"))["items"]
    await one.put_item("home", "last", actor="test")
    ranked = await one.rank("home", "r4", pins={0: "last"})
    assert (await answer(two, ranked, [0])).status == "accepted"


def test_clicks_on_a_list_that_was_lost_do_not_count_for_another():
    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock) as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
            engine.writer.enqueue_decision = lambda event: None  # killed before it was written
            lost = await engine.rank("home", "r1")
        async with running(store, clock=clock) as engine:
            await engine.patch_surface("home", {"floor": 0.5, "policy": "uniform"}, actor="test")
            again = await engine.rank("home", "r1", exclude=[lost.slots[0].item])
            await written(engine)
            result = await answer(engine, lost, [0])
            assert (result.status, "another list" in result.reason) == ("rejected", True)
            assert (await answer(engine, again, [0])).status == "accepted"
        assert store.totals() == store.rebuilt()
        assert sum(store.totals()[1, ""][3].values()) == 1

    asyncio.run(whole())


@with_engine()
async def test_a_late_click_after_a_reset_changes_nothing(engine, store, clock):
    ranked = await visit(engine, "r1", set())
    await engine.reset("home", segment=None, actor="test")
    assert (await answer(engine, ranked, [0, 1])).status == "expired"
    assert not np.any((await engine.state("home"))["loss"])
    clock.at += 1
    ranked = await visit(engine, "r2", set())
    assert (await answer(engine, ranked, [0, 1])).status == "accepted"
    assert min(store.totals()[1, ""][1].values()) > 0
    assert store.totals() == store.rebuilt()


@with_engine(holdout=0.5)
async def test_pins_are_the_same_in_the_first_and_in_a_repeated_answer(engine, store, clock):
    pages = {k: await engine.rank("home", f"r{k}", pins={1: "c"}) for k in range(20)}
    assert {page.arm for page in pages.values()} == {"learner", "holdout"}
    await written(engine)
    engine.clear_recent()
    for k, page in pages.items():
        assert [slot.pinned for slot in page.slots] == [False, True, False]
        assert await engine.rank("home", f"r{k}") == page
        view = await engine.event(page.event_id)
        assert [slot["pinned"] for slot in view["slots"]] == [False, True, False]
        await answer(engine, page, [])
    assert {(row["position"], row["pinned"]) for row in engine.export("home")} == {(1, False), (2, True), (3, False)}


def test_the_first_request_does_not_solve_on_the_event_loop(monkeypatch):
    from bothworlds.serve.engine import served_surface

    threads = []
    solve = served_surface.serving_policy
    monkeypatch.setattr(
        served_surface,
        "serving_policy",
        lambda *arguments: threads.append(threading.current_thread()) or solve(*arguments),
    )

    async def whole():
        async with running(FakeStore(), clock=Clock()) as engine:
            await engine.put_surface("home", {"slots": 3, "items": ITEMS, "policy": "comb-ts"}, actor="test")
            assert (await engine.state("home"))["rounds"] == 0
            first = await engine.rank("home", "r1")
            for segment in ("one", "two"):
                await engine.rank("home", segment, segment=segment)
            assert first.slots
            assert threads
            assert threading.main_thread() not in threads
            await engine.rank("home", "r2", segment="one", exclude=["a"])  # each segment has a cache of its own
            one, two = (engine.refresher.surfaces["home"].segments[name] for name in ("one", "two"))
            assert (one.cache_size, two.cache_size) == (1, 0)

    asyncio.run(whole())


@with_engine(holdout=0.5)
async def test_a_headline_equals_the_report_and_reads_no_events(engine, store, clock):
    for k in range(60):
        await visit(engine, f"v{k}", {"a", "b"})
    report = await engine.report("home", until=clock() + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_rates, "latest_events", None)
        headline = await engine.headline("home")
    assert headline["uplift"] == report["uplift"]
    assert headline["pages"] == report["headline"]["pages"] > 0
    assert headline["clicks_per_page"] == report["headline"]["clicks_per_page"]
    with pytest.raises(Unknown):
        await engine.headline("away")


@with_engine()
async def test_item_rates_of_reports_are_cached(engine, store, clock):
    await visit(engine, "v", {"a"})
    read, latest = [], item_rates.latest_events
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_rates, "latest_events", lambda *arguments: read.append(arguments) or latest(*arguments))
        for _ in range(5):
            clock.at += 1000
            await engine.report("home")
        assert len(read) == 1
        await engine.report("home", since=clock() - 5000, until=clock() - 1)
        await engine.report("home", segment="")
        assert len(read) == 3
        clock.at += 10_000
        await engine.report("home")
        assert len(read) == 4


@with_engine()
async def test_policies_are_stored_to_explain_events_later(engine, store, clock):
    for k in range(20):
        await visit(engine, f"v{k}", {"a"})
        clock.at += 400
        await refreshed(engine)
    times = [at for _, _, _, at, _ in store.saved]
    assert len(times) >= 3
    assert min(np.diff(times)) >= 1000


@with_engine()
async def test_losses_that_grow_too_large_are_reported_long_before(engine, store, clock):
    from bothworlds.serve.model import Adjustment, Cell, Increments

    huge = Increments(surface_id=1, segment="", rounds=1, cells=(Cell(0, 0, loss=(1 << 60) + 1),))
    store.adjust([Adjustment(increments=huge, at=0, actor="test", reason="test")], [])
    await refreshed(engine)
    assert any("reset" in reason for reason in engine.health()["reasons"])
    assert (await engine.rank("home", "r1")).slots
    await engine.reset("home", segment=None, actor="test")
    assert engine.health()["reasons"] == []


def test_two_workers_give_one_answer_to_a_request_that_both_get_at_once():
    """One worker has newer policies than the other: lists with the same items differ in their probabilities."""

    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock, shared=True) as one:
            await one.put_surface("home", {"slots": 2, "items": ["a", "b", "c"], "holdout": 0.2}, actor="test")
            async with running(store, clock=clock, shared=True, refresh_ms=10**9) as other:
                for k in range(30):
                    await visit(one, f"v{k}", {"a"})
                await refreshed(one)
                pairs = [
                    await asyncio.gather(one.rank("home", f"r{k}"), other.rank("home", f"r{k}")) for k in range(50)
                ]
                assert one.refresher.surfaces["home"].segments[""].counters.rounds
                assert not other.refresher.surfaces["home"].segments[""].counters.rounds
                for first, second in pairs:
                    assert (first.slots, first.arm, first.policy_id) == (second.slots, second.arm, second.policy_id)
                    assert {(await answer(one, first, [0])).status, (await answer(other, second, [0])).status} == {
                        "accepted",
                        "duplicate",
                    }
        assert store.totals() == store.rebuilt()

    asyncio.run(whole())


@with_engine()
async def test_a_request_repeated_while_its_policy_is_solved_has_one_list(engine, store, clock):
    """The repetition without exclusions is answered first; the list that waited for the solver must be the same."""
    for k in range(40):
        waiting, plain = await asyncio.gather(
            engine.rank("home", f"r{k}", exclude=[ITEMS[k % 3], ITEMS[3 + k % 2]]), engine.rank("home", f"r{k}")
        )
        assert waiting == plain
        assert (await answer(engine, waiting, [0])).status == "accepted"
