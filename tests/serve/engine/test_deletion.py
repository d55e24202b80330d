"""Deletion of events: at once for everybody who looks, later for good, and without a trace in what was learned."""

from __future__ import annotations

import asyncio

import pytest

from bothworlds.serve.engine import housekeeping
from bothworlds.serve.model import Unknown
from bothworlds.serve.schemas import FeedbackEvent
from bothworlds.serve.stores import open_store
from tests.serve.running import DAY, HOUR, ITEMS, Clock, answer, looked, refreshed, serving, visit, visits, with_engine

DELETED = "this event was deleted"


@with_engine()
async def test_a_deleted_event_leaves_what_was_learned(engine, store, clock):
    pages = [await visit(engine, f"r{k}", {"a"}) for k in range(20)]
    await refreshed(engine)
    waiting, before = await engine.rank("home", "waiting"), await engine.reports.state("home")  # not written yet
    for page in (pages[0], waiting):
        await engine.log.delete_event(page.event_id, actor="ann")
        with pytest.raises(Unknown):
            await engine.reports.event(page.event_id)
        with pytest.raises(Unknown):
            await engine.log.delete_event(page.event_id, actor="ann")
        late = await answer(engine, page, [0, 1, 2])
        assert (late.status, late.reason) == ("rejected", DELETED)
    assert await engine.log.delete_request("home", "r1", actor="ann") == 1
    assert await engine.log.delete_request("home", "r1", actor="ann") == 0
    # A repeated request is answered, but nothing is stored about it.
    again = await engine.rank("home", "waiting")
    assert again.event_id == waiting.event_id
    assert (await answer(engine, again, [0])).status == "rejected"
    await looked(engine)
    after = await engine.reports.state("home")
    assert [after[key] for key in ("rounds", "loss", "clicked")] == [
        before[key] for key in ("rounds", "loss", "clicked")
    ]
    assert store.deleted(1).events == 3
    report = await engine.reports.report("home")
    assert report["retention"] == {"days": None, "deleted": 3, "until": None, "events": 17}
    assert report["learning"]["outstanding"] == 0
    assert {row["event"] for row in list(engine.log.export("home"))[1:]} == {page.event_id for page in pages[2:]}
    details = [entry["detail"] for entry in store.audit(1, 9) if entry["action"] == "delete events"]
    assert details[-1] == f"event {pages[0].event_id}: 1 deleted"


@with_engine()
async def test_many_rejections_are_explained_one_by_one(engine, store, clock):
    pages = await visits(engine, [f"r{k}" for k in range(20)], {"a"})
    for k in range(10):
        await engine.log.delete_request("home", f"r{k}", actor="ann")
    results = await engine.feedback([FeedbackEvent(page.event_id, page.token, [], True) for page in pages])
    assert [result.reason for result in results] == [DELETED] * 10 + [""] * 10


@with_engine(policy="uniform")
async def test_all_events_of_a_visitor_are_deleted(engine, store, clock):
    visitors = ["lovelace"] * 11 + ["babbage"] * 5 + [""] * 4
    pages = [await visit(engine, f"r{k}", {"a"}, visitor=visitor) for k, visitor in enumerate(visitors)]
    await refreshed(engine)
    unsent = await engine.rank("home", "unsent", visitor="lovelace")
    assert await engine.log.delete_visitor("adam", actor="ann") == 0
    assert await engine.log.delete_visitor("lovelace", actor="ann") == 12
    assert store.find_events([bytes.fromhex(page.event_id) for page in [*pages[:11], unsent]]) == {}
    assert not any("lovelace" in str(entry) for entry in store.audit(None, 100))
    await looked(engine)
    assert (await engine.reports.state("home"))["rounds"] == 20


@with_engine(retention_days=2, attribution_seconds=600)
async def test_old_events_are_deleted_when_no_click_can_change_them(engine, store, clock):
    start = clock.at
    pages = await visits(engine, [f"r{k}" for k in range(20)], {"a"})
    await looked(engine)
    clock.at = start + 2 * DAY - 1
    await looked(engine)
    assert store.deleted(1).events == 0
    young = await visit(engine, "young", {"a"})
    clock.at = start + 2 * DAY + 2 * housekeeping.PASS_MS
    await refreshed(engine)
    before, uplift = (
        await engine.reports.state("home"),
        (await engine.reports.report("home", since=start - 1000))["uplift"],
    )
    await looked(engine)
    assert store.deleted(1).events == 20
    assert (await engine.reports.state("home"))["clicked"] == before["clicked"]
    assert {row["event"] for row in list(engine.log.export("home"))[1:]} == {young.event_id}
    assert (await answer(engine, pages[0], [0, 1, 2])).status == "expired"
    report = await engine.reports.report("home", since=start - 1000)
    assert report["retention"] == {"days": 2.0, "deleted": 20, "until": start, "events": 1}
    assert report["uplift"] == uplift  # pages are counted per minute, apart from events
    assert any("were deleted" in warning for warning in report["warnings"])
    entry = next(entry for entry in store.audit(1, 9) if entry["actor"] == housekeeping.RETENTION_ACTOR)
    assert entry["detail"].startswith("events created before 2023-11-15T00:13:20.000Z")


@pytest.mark.parametrize("events", [5, 14])
def test_no_old_event_is_deleted_without_an_audit_entry(monkeypatch, events):
    """An entry that is written after the last transaction would be lost if the process is killed before."""
    monkeypatch.setattr(housekeeping, "BATCH", 7)

    @with_engine(retention_days=1)
    async def run(engine, store, clock):
        def audited():
            return [one["detail"] for one in store.audit(1, 99) if one["actor"] == housekeeping.RETENTION_ACTOR][::-1]

        await visits(engine, [f"r{k}" for k in range(events)], {"a"})
        await refreshed(engine)
        clock.at += 5 * DAY
        delete, after = store.delete_old_events, []

        def watched(*arguments):
            deleted = delete(*arguments)
            after.append((deleted, len(audited())))
            return deleted

        monkeypatch.setattr(store, "delete_old_events", watched)
        await looked(engine)
        assert sum(deleted for deleted, _ in after) == events
        assert all(entries for deleted, entries in after if deleted)
        assert len(audited()) == 1

    run()


@pytest.mark.parametrize("broken", [False, True])
def test_events_that_another_policy_has_not_learned_yet_are_kept(tmp_path, monkeypatch, broken):
    """The snapshots of the policy before cover them."""
    place, clock = str(tmp_path / "store.db"), Clock()

    async def first():
        store = open_store(place)
        async with serving(store, clock) as engine:
            monkeypatch.setattr(engine.states, "_due_seconds", 0.0)  # a snapshot is saved at the end
            body = {"slots": 3, "items": ITEMS, "policy": "ftrl-pbm", "retention_days": 1}
            await engine.administration.put_surface("home", body, actor="test")
            await visits(engine, [f"v{k}" for k in range(20)], {"a"})
            await refreshed(engine)
        store.close()

    async def second():
        store = open_store(place)
        async with serving(store, clock) as engine:
            if broken:
                monkeypatch.setattr(engine.housekeeping, "_save_present", lambda *arguments: None)
            await engine.administration.patch_surface("home", {"policy": "comb-ucb"}, actor="ann")
            clock.at += 5 * DAY
            await refreshed(engine)
            await asyncio.to_thread(engine.housekeeping.look)
            assert store.deleted(1).events == 20
        store.close()

    async def third():
        store = open_store(place)
        async with serving(store, clock) as engine:
            state = await engine.reports.state("home")
        store.close()
        return state["policy_id"].partition(":")[0], state["rounds"]

    for run in (first, second):
        asyncio.run(run())
    monkeypatch.undo()
    assert asyncio.run(third()) == ("comb-ucb", 0 if broken else 20)


@with_engine(retention_days=1, late_seconds=10 * 86_400)
async def test_open_windows_keep_events_longer_than_retention(engine, store, clock):
    page = await visit(engine, "r1", set())
    await refreshed(engine)
    clock.at += 5 * DAY
    await looked(engine)
    assert (await answer(engine, page, [0])).status == "late_applied"
    clock.at += 6 * DAY
    await looked(engine)
    assert store.deleted(1).events == 1


@with_engine(retention_days=1, attribution_seconds=600)
async def test_a_clock_that_is_set_ahead_and_back_teaches_nothing_twice(engine, store, clock):
    """With times instead of numbers, 40 pages were learned as 80 rounds, and clicks after a reset were expired."""
    pages = await visits(engine, [f"r{k}" for k in range(40)], {"a"})
    await refreshed(engine)
    start = clock.at
    clock.at += 3 * DAY
    await looked(engine)
    assert store.deleted(1).events == 40
    clock.at = start
    results = await engine.feedback([FeedbackEvent(page.event_id, page.token, [0, 1, 2], True) for page in pages])
    assert {result.status for result in results} == {"expired"}
    await looked(engine)
    assert (await engine.reports.state("home"))["rounds"] == 40
    # An hour back: later pages are learned, also after a reset and a deletion.
    clock.at -= HOUR
    await engine.administration.reset("home", actor="ann")
    assert (await engine.reports.state("home"))["rounds"] == 0
    page = await engine.rank("home", "after")
    assert (await answer(engine, page, [0])).status == "accepted"
    await refreshed(engine)
    assert (await engine.reports.state("home"))["rounds"] == 1
    await engine.log.delete_event(page.event_id, actor="ann")
    again = await engine.rank("home", "later")
    assert (await answer(engine, again, [0])).status == "accepted"
    await refreshed(engine)
    assert (await engine.reports.state("home"))["rounds"] == 2


@with_engine()
async def test_sums_by_visitors_are_kept_for_the_current_comparison_only(engine, store, clock):
    for k in range(40):
        await visit(engine, f"r{k}", {"a"}, visitor=f"v{k}")
        clock.at += HOUR // 10
    await looked(engine)
    before = store.visitor_sums(1, None, 0, 2 * clock.at)
    clock.at += 2 * HOUR
    await looked(engine)
    assert store.visitor_sums(1, None, 0, 2 * clock.at) == before != {}
    await engine.administration.restart_comparison("home", actor="ann")
    restarted = clock.at
    clock.at += 9 * DAY
    await visit(engine, "much later", {"a"}, visitor="v1")
    await looked(engine)
    assert store.visitor_sums(1, None, 0, restarted - 2 * HOUR) == {}
    assert store.visitor_sums(1, None, 0, 2 * clock.at) != {}


@with_engine()
async def test_a_deleted_surface_takes_everything_with_it_but_the_audit_log(engine, store, clock):
    page = await visit(engine, "r1", {"a"})
    await refreshed(engine)
    await engine.administration.delete_surface("home", actor="ann")
    with pytest.raises(Unknown, match="no surface 'home'"):
        await engine.rank("home", "r2")
    rejected = await answer(engine, page, [0])
    assert rejected.status == "rejected"
    assert store.audit(1, 1)[0]["detail"] == "home"
    assert await asyncio.to_thread(store.count_rows, ["events", "learners", "surfaces", "minutes"]) == 0
    await engine.administration.put_surface("home", {"slots": 1, "items": ["x"]}, actor="ann")
    assert (await engine.rank("home", "r1")).slots[0].item == "x"
