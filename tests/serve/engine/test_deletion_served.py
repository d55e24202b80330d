"""Deletion while the service runs: surfaces, segments, events of requests and visitors, and events that are too old."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from bothworlds.serve.engine import retention
from bothworlds.serve.engine.engine import DELETED_EVENT, NO_SURFACE
from bothworlds.serve.engine.writer import Writer
from bothworlds.serve.model import Conflict, Unknown
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.schemas import FeedbackEvent
from bothworlds.serve.stores.factory import open_store

from ..fakes import FakeStore
from ..running import ITEMS, Clock, answer, eventually, running, visit, written

HOUR, DAY = 3_600_000, 86_400_000
HOME = {"slots": 3, "items": ITEMS, "policy": "comb-ucb", "holdout": 0.3}


@pytest.fixture
def stored(tmp_path):
    """A real store: it checks what the store in memory does not."""
    opened = open_store(str(tmp_path / "store.db"))
    yield opened
    opened.close()


@asynccontextmanager
async def serving(store, **options):
    clock = Clock()
    async with running(store, clock=clock, **({"refresh_ms": 5} | options)) as engine:
        await engine.put_surface("home", HOME, actor="test")
        yield engine, clock


def test_a_deleted_surface_is_gone_and_its_name_starts_from_nothing(stored):
    async def whole():
        async with serving(stored) as (engine, _):
            old = [await visit(engine, f"r{k}", {"a"}) for k in range(20)]
            waiting = await engine.rank("home", "waiting")  # not written yet
            with pytest.raises(Conflict):
                await engine.delete_surface("home", actor="ann", if_version=7)
            await engine.delete_surface("home", actor="ann", if_version=1)
            for call in (engine.rank("home", "r"), engine.state("home"), engine.delete_surface("home", actor="ann")):
                with pytest.raises(Unknown, match="no surface 'home'"):
                    await call
            late = await answer(engine, waiting, [0])
            assert (late.status, late.reason) == ("rejected", NO_SURFACE)
            with pytest.raises(Unknown):
                await engine.event(old[0].event_id)
            # The same name, and the same request ids.
            await engine.put_surface("home", HOME, actor="test")
            assert (await engine.state("home"))["rounds"] == 0
            for page in (*old, waiting):
                assert (await answer(engine, page, [0, 1, 2])).status == "rejected"
            assert (await engine.rank("home", "r0")).event_id != old[0].event_id
            await written(engine)
            assert (await engine.state("home"))["rounds"] == 0
            assert engine.health()["ready"]
            assert engine.writer.last_error is None
        entry = next(entry for entry in stored.audit(1, 9) if entry["action"] == "delete surface")
        assert (entry["actor"], entry["detail"]) == ("ann", '"home": 20 events deleted')
        assert verify(stored).clean

    asyncio.run(whole())


@pytest.mark.parametrize("at_once", [True, False])
def test_all_processes_notice_that_a_surface_was_deleted(at_once):
    """Before its next refresh, another process learns it from the store."""

    async def whole():
        store = FakeStore()
        slow = {"shared": True, "refresh_ms": 60_000 if at_once else 5}
        async with running(store, shared=True) as one, running(store, **slow) as two:
            await one.put_surface("home", HOME, actor="test")
            await two.catch_up()
            page = await two.rank("home", "r1")
            await one.delete_surface("home", actor="ann")
            if not at_once:
                await eventually(lambda: not two.knows("home"))
            result = await answer(two, page, [0])
            assert (result.status, result.reason) == ("rejected", NO_SURFACE)
            with pytest.raises(Unknown):
                await two.rank("home", "r2")
            assert not two.knows("home")
            # A surface of the same name that another process creates.
            await one.put_surface("home", HOME, actor="test")
            assert (await two.rank("home", "r1")).event_id != page.event_id

    asyncio.run(whole())


def test_a_rank_that_meets_the_deletion_gets_a_404():
    async def whole():
        store = FakeStore()
        async with running(store, shared=True) as one, running(store, shared=True, refresh_ms=60_000) as two:
            await one.put_surface("home", HOME, actor="test")
            await two.catch_up()
            await two.rank("home", "r1")
            await one.delete_surface("home", actor="ann")
            with pytest.raises(Unknown, match="no surface 'home'"):
                await two.rank("home", "r2")
            assert store.log == {}

    asyncio.run(whole())


def test_a_deleted_event_leaves_what_was_learned(stored):
    async def whole():
        async with serving(stored) as (engine, _):
            pages = [await visit(engine, f"r{k}", {"a"}) for k in range(20)]
            waiting = await engine.rank("home", "waiting")  # not written yet
            before = await engine.state("home")
            for page in (pages[0], waiting):
                await engine.delete_event(page.event_id, actor="ann")
                with pytest.raises(Unknown):
                    await engine.event(page.event_id)
                with pytest.raises(Unknown):
                    await engine.delete_event(page.event_id, actor="ann")
                late = await answer(engine, page, [0, 1, 2])
                assert (late.status, late.reason) == ("rejected", DELETED_EVENT)
            assert await engine.delete_request("home", "r1", actor="ann") == 1
            assert await engine.delete_request("home", "r1", actor="ann") == 0
            # A repeated request is answered, but nothing is stored about it.
            again = await engine.rank("home", "waiting")
            assert again.event_id == waiting.event_id
            await written(engine)
            assert (await answer(engine, again, [0])).status == "rejected"
            after = await engine.state("home")
            assert [after[key] for key in ("rounds", "loss", "clicked")] == [
                before[key] for key in ("rounds", "loss", "clicked")
            ]
            assert engine.health()["events_deleted"] == 3
            report = await engine.report("home")
            assert report["retention"] == {"days": None, "deleted": 3, "until": None}
            assert report["learning"]["outstanding"] == 0
            exported = {row["event"] for row in engine.export("home")}
            assert exported == {page.event_id for page in pages[2:]}
        found = verify(stored)
        assert (found.clean, found.events, found.deleted) == (True, 18, 2)
        details = [entry["detail"] for entry in stored.audit(1, 9) if entry["action"] == "delete events"]
        assert details[-1] == f"event {pages[0].event_id}: 1 deleted"

    asyncio.run(whole())


def test_many_rejections_are_explained_by_one_look_at_the_store(stored):
    async def whole():
        async with serving(stored) as (engine, _):
            pages = [await visit(engine, f"r{k}", {"a"}) for k in range(20)]
            for k in range(10):
                await engine.delete_request("home", f"r{k}", actor="ann")
            looks, deleted_ids = [], stored.deleted_ids
            stored.deleted_ids = lambda ids: looks.append(ids) or deleted_ids(ids)
            given = [FeedbackEvent(page.event_id, page.token, [], True) for page in pages]
            results = await engine.feedback(given)
            assert [result.reason for result in results] == [DELETED_EVENT] * 10 + [""] * 10
            assert len(looks) == 1

    asyncio.run(whole())


def test_deleted_events_are_not_answered_from_memory(stored):
    """Neither those of a deleted segment nor those that were too old."""

    async def whole():
        async with serving(stored) as (engine, clock):
            await engine.patch_surface("home", {"retention_days": 1}, actor="ann")
            old, mobile = await visit(engine, "r1", {"a"}), await visit(engine, "r2", {"a"}, segment="mobile")
            unwritten = await engine.rank("home", "r3")
            assert (await engine.event(unwritten.event_id))["settled"] is False
            await written(engine)
            await engine.delete_segment("home", "mobile", actor="ann")
            clock.at += 5 * DAY
            await asyncio.to_thread(engine.retention.run_due)
            for page in (old, mobile):
                with pytest.raises(Unknown):
                    await engine.event(page.event_id)
            # A repeated request of the deleted segment gets a list whose clicks count.
            again = await engine.rank("home", "r2", segment="mobile")
            assert (await answer(engine, again, [0])).status == "accepted"
        assert verify(stored).clean

    asyncio.run(whole())


def test_sums_by_visitors_are_kept_for_the_current_comparison_only(stored):
    async def whole():
        async with serving(stored) as (engine, clock):
            for k in range(40):
                await visit(engine, f"r{k}", {"a"}, visitor=f"v{k}")
                clock.at += HOUR // 10
            before = stored.visitor_sums(1, None, 0, 2 * clock.at)
            await asyncio.to_thread(engine.retention.forget_visitor_sums)
            assert stored.visitor_sums(1, None, 0, 2 * clock.at) == before
            await engine.restart_comparison("home", actor="ann")
            clock.at += HOUR
            await visit(engine, "later", {"a"}, visitor="v1")
            before = stored.visitor_sums(1, None, 0, 2 * clock.at)
            await asyncio.to_thread(engine.retention.forget_visitor_sums)
            assert stored.visitor_sums(1, None, 0, 2 * clock.at) == before  # the week before is still compared
            restarted = clock.at
            clock.at += 9 * DAY
            await visit(engine, "much later", {"a"}, visitor="v1")
            report = await engine.report("home", since=restarted - DAY)
            await asyncio.to_thread(engine.retention.forget_visitor_sums)
            assert stored.visitor_sums(1, None, 0, restarted - 2 * HOUR) == {}
            assert stored.visitor_sums(1, None, 0, 2 * clock.at) != {}
            after = await engine.report("home", since=restarted - DAY)
            compared = ("headline", "holdout", "uplift", "recent", "sample_ratio", "guard", "shift")
            assert [after[part] for part in compared] == [report[part] for part in compared]
        assert verify(stored).clean

    asyncio.run(whole())


def test_an_event_that_another_process_deleted_is_not_answered_from_memory():
    async def whole():
        store = FakeStore()
        async with running(store, shared=True) as one, running(store, shared=True) as two:
            await one.put_surface("home", HOME, actor="test")
            await two.catch_up()
            page = await two.rank("home", "r1")
            await one.delete_event(page.event_id, actor="ann")
            with pytest.raises(Unknown):
                await two.event(page.event_id)

    asyncio.run(whole())


def test_all_events_of_a_visitor_are_deleted(stored, monkeypatch):
    monkeypatch.setattr("bothworlds.serve.engine.event_deletion.BATCH", 4)

    async def whole():
        async with serving(stored) as (engine, _):
            visitors = ["lovelace"] * 11 + ["babbage"] * 5 + [None] * 4
            pages = [await visit(engine, f"r{k}", {"a"}, visitor=visitor) for k, visitor in enumerate(visitors)]
            ids = [bytes.fromhex(page.event_id) for page in pages[:11]]
            assert await engine.delete_visitor("adam", actor="ann") == 0
            assert await engine.delete_visitor("lovelace", actor="ann") == 11
            assert stored.find_events(ids) == {}
        assert (verify(stored).clean, verify(stored).deleted) == (True, 11)
        assert not any("lovelace" in str(entry) for entry in stored.audit(None, 100))

    asyncio.run(whole())


def test_old_events_are_deleted_when_no_click_can_change_them(stored, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 7)

    async def whole():
        async with serving(stored) as (engine, clock):
            await engine.patch_surface("home", {"retention_days": 2}, actor="ann")
            start = clock.at
            pages = [await visit(engine, f"r{k}", {"a"}) for k in range(20)]
            rows = list(engine.export("home"))
            await written(engine)
            run = engine.retention.run_due
            clock.at = start + 2 * DAY - 1
            assert await asyncio.to_thread(run) == 0
            young = await visit(engine, "young", {"a"})
            clock.at = start + 2 * DAY + 2 * retention.PASS_MS
            before = await engine.state("home")
            uplift = (await engine.report("home", since=start - 1000))["uplift"]
            assert await asyncio.to_thread(run) == 20
            assert await asyncio.to_thread(run) == 0
            assert (await engine.state("home"))["clicked"] == before["clicked"]
            assert {row["event"] for row in engine.export("home")} == {young.event_id}
            assert (await answer(engine, pages[0], [0, 1, 2])).status == "expired"
            report = await engine.report("home", since=start - 1000)
            assert report["retention"] == {"days": 2.0, "deleted": 20, "until": start}
            assert report["uplift"] == uplift  # pages are counted per minute, apart from events
            assert any("were deleted" in warning for warning in report["warnings"])
            assert not (await engine.report("home", since=start + 1))["warnings"]
            # They would be counted twice.
            imported = await engine.import_rows("home", rows, actor="ann")
            assert (imported.taken, imported.refused) == (0, 20)
            assert engine.health()["events_deleted"] == 20
            assert (await engine.state("home"))["clicked"] == before["clicked"]
        entry = next(entry for entry in stored.audit(1, 9) if entry["actor"] == retention.RETENTION_ACTOR)
        assert entry["detail"].startswith("20 events created before 2023-11-15T00:13:20.000Z")
        found = verify(stored)
        assert (found.clean, found.events, found.deleted) == (True, 1, 20)

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("events", "details"),
    [(5, ["5 events"]), (14, ["events", "14 events"]), (20, ["events", "20 events"])],
)
def test_no_old_event_is_deleted_without_an_audit_entry(stored, monkeypatch, events, details):
    """An entry that is written after the last transaction would be lost if the process is killed before."""
    monkeypatch.setattr(retention, "BATCH", 7)

    def audited():
        return [one["detail"] for one in stored.audit(1, 99) if one["actor"] == retention.RETENTION_ACTOR][::-1]

    async def whole():
        async with serving(stored) as (engine, clock):
            await engine.patch_surface("home", {"retention_days": 1}, actor="ann")
            for k in range(events):
                await visit(engine, f"r{k}", {"a"})
            await written(engine)
            clock.at += 5 * DAY
            delete, after = stored.delete_old_events, []

            def watched(*arguments):
                deleted = delete(*arguments)
                after.append((deleted, len(audited())))
                return deleted

            stored.delete_old_events = watched
            assert await asyncio.to_thread(engine.retention.run_due) == events
            assert all(entries for deleted, entries in after if deleted)
        assert [detail.partition(" created")[0] for detail in audited()] == details

    asyncio.run(whole())


def test_open_windows_keep_events_longer_than_retention(stored):
    async def whole():
        async with serving(stored) as (engine, clock):
            changes = {"retention_days": 1, "late_seconds": 10 * 86_400}
            await engine.patch_surface("home", changes, actor="ann")
            page = await visit(engine, "r1", set())
            await written(engine)
            clock.at += 5 * DAY
            assert await asyncio.to_thread(engine.retention.run_due) == 0
            assert (await answer(engine, page, [0])).status == "late_applied"
            clock.at += 6 * DAY
            assert await asyncio.to_thread(engine.retention.run_due) == 1
        assert verify(stored).clean

    asyncio.run(whole())


def test_an_event_is_not_deleted_while_its_decision_waits_to_be_written(stored, monkeypatch):
    """It would be stored again, and counted twice when it is settled."""

    async def whole():
        async with serving(stored) as (engine, clock):
            await engine.patch_surface("home", {"retention_days": 1}, actor="ann")
            await visit(engine, "r1", {"a"})
            await written(engine)
            with monkeypatch.context() as patch:
                patch.setattr(Writer, "oldest_decision", clock.at)
                clock.at += 5 * DAY
                assert await asyncio.to_thread(engine.retention.run_due) == 0
            clock.at += DAY
            assert engine.writer.oldest_decision is None
            assert await asyncio.to_thread(engine.retention.run_due) == 1

    asyncio.run(whole())


def test_the_thread_deletes_by_itself_and_reports_what_stops_it(stored, monkeypatch):
    monkeypatch.setattr(retention, "TICK_SECONDS", 0.005)

    async def whole():
        async with serving(stored) as (engine, clock):
            await engine.patch_surface("home", {"retention_days": 1}, actor="ann")
            await visit(engine, "r1", {"a"})
            await written(engine)
            clock.at += 5 * DAY
            await eventually(lambda: engine.retention.count == 1)
            await visit(engine, "r2", {"a"})
            await written(engine)
            stored.database.write(lambda session: session.run("UPDATE checkpoints SET signature = ?", (b"x",)))
            clock.at += 5 * DAY
            await eventually(lambda: engine.retention.last_error is not None)
            assert any("not as it was signed" in reason for reason in engine.health()["reasons"])
            assert engine.health()["ready"]
        assert len(verify(stored).forged) == 1
        assert verify(stored).events == 1

    asyncio.run(whole())


def test_a_deleted_segment_is_forgotten_when_its_tokens_have_expired(stored):
    async def whole():
        async with serving(stored) as (engine, clock):
            page = await visit(engine, "r1", {"a"}, segment="mobile")
            await engine.delete_segment("home", "mobile", actor="ann")
            assert (await answer(engine, page, [0, 1, 2])).status == "expired"
            assert stored.segment_names(1) <= {""}
            assert b"mobile" not in (stored.get("segment uses 1") or b"")
            await asyncio.to_thread(engine.retention.forget_segments)
            assert stored.count_rows(["deleted_segments"]) == 1
            clock.at += 121 * DAY
            await asyncio.to_thread(engine.retention.forget_segments)
            assert stored.count_rows(["deleted_segments"]) == 0
        assert verify(stored).clean

    asyncio.run(whole())
