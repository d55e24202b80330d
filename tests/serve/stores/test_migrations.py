"""Stores of another schema: older ones are upgraded, newer ones refused."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import psycopg
import pytest
from msgspec import structs

from bothworlds.serve.engine import surface_rules
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.engine.tokens import open_secrets
from bothworlds.serve.model import SurfaceSettings, VerifiedFeedback
from bothworlds.serve.ops.verify import verify
from bothworlds.serve.schemas import FeedbackEvent
from bothworlds.serve.stores import migrations
from bothworlds.serve.stores.base import StoreError
from bothworlds.serve.stores.batch_totals import BatchTotals
from bothworlds.serve.stores.factory import open_store
from bothworlds.serve.stores.sql_metadata import add_history
from bothworlds.serve.stores.sql_store import SqlStore

from .contract import counted, counters
from .samples import NOON, SLOTS, a_surface, an_event, feedback_on


def write_version_1(place: str) -> None:
    """Make a store as version 1 of the schema had it, from frozen SQL."""
    dialect = "postgres" if place.startswith("postgres") else "sqlite"
    sql = Path(__file__).with_name(f"version1.{dialect}.sql").read_text(encoding="utf-8")
    if dialect == "postgres":
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(sql)
    else:
        with closing(sqlite3.connect(place)) as connection:
            connection.executescript(sql)


def test_a_store_of_the_previous_schema_opens_with_all_that_is_in_it(place: str) -> None:
    write_version_1(place)
    store = open_store(place)
    assert store.get("schema_version") == str(migrations.SCHEMA_VERSION).encode()
    assert store.get("draw key") == b"\x00\x01key"
    assert [surface.name for surface in store.surfaces()] == ["home"]
    assert (store.open_events(), len(list(store.settled()))) == (3, 12)
    history = store.history(1, NOON, NOON + 60_000, 60_000)
    assert (sum(row["events"] for row in history), sum(row["settled"] for row in history)) == (15, 12)
    assert sum(row["clicks"] for row in history) == sum(event.clicks.bit_count() for event in store.settled())
    assert verify(store).clean
    assert verify(store).adjustments == 1
    assert store.apply_feedback([feedback_on(13, 1), feedback_on(1), feedback_on(20)], NOON) == [
        "accepted",
        "duplicate",
        "accepted",
    ]
    assert store.audit(1, 5)[0]["action"] == "created"
    assert all(event.pinned == (0b111 & ~event.learn if event.learn else 0) for event in store.events(1, 0, NOON + 19))
    assert verify(store).clean
    store.close()
    open_store(place).close()


def test_what_was_counted_before_blocks_is_one_block(place: str) -> None:
    write_version_1(place)
    store = open_store(place)
    (cut,) = store.boundaries(1, "")
    assert 1000 * (cut - 1) >= max(event.created_at for event in store.events(1, 0, 10**15))
    for name in store.segment_names(1):
        assert [key[:2] for key in store.blocks(1, name)] == [(0, cut)]
    # Events of that time that settle later, and new events; then all of it is merged, and reset.
    after = 1000 * cut + 5_000
    new = an_event(30, created_at=after, expires_at=after + 9, late_until=after + 99)
    later = VerifiedFeedback(event=new, clicks=1, final=True)
    assert store.apply_feedback([feedback_on(20), later], NOON) == ["accepted", "accepted"]
    assert verify(store).clean
    store.compact(1, "", after + 10**9)
    assert sorted(key[0] for key in store.blocks(1, "")) == [0, min(key[0] for key in store.blocks(1, "") if key[0])]
    assert verify(store).clean
    surface = store.surfaces()[0]
    store.adjust_by(1, lambda found: surface_rules.reset_adjustments(surface, found, after, "ann"), [])
    assert store.blocks(1, "") == {}
    assert verify(store).clean
    store.close()


def test_a_new_store_has_no_cut(place: str) -> None:
    store = open_store(place)
    store.save_surface(a_surface(), [], [])
    store.apply_feedback([feedback_on(2)], NOON)
    assert store.boundaries(1, "") == (0,)
    assert [key[:2] for key in store.blocks(1, "")] == [(NOON // 1000, NOON // 1000 + 1)]
    store.close()


# Of a page that was open when the store of version 3 was written: c at slot 0, e pinned at slot 1.
OPEN_TOKEN = (
    "AAHVszPxp9fNNC00jsdm3VU5nMQQINIwNomAZoajGrDEbJCs0gGguGEwYzU4MWU0NWMxZDRkMzFjNjMxMGYzM88AAAGLz-YEms8AAAGL0AF72s8AAAGL"
    "1SfX2pICBJLLP-stzpeG8KzLP_AAAAAAAAABp2xlYXJuZXIC"
)


def write_version_3(place: str) -> None:
    """Make a store as version 3 had it, when facts were stored on absent items: a is paused and d removed."""
    sql = Path(__file__).with_name("version3.sqlite.sql").read_text(encoding="utf-8")
    if not place.startswith("postgres"):
        with closing(sqlite3.connect(place)) as connection:
            connection.executescript(sql)
        return
    for pattern, other in (
        (r"X'([0-9A-F]*)'", r"'\\x\1'"),
        (r"\bINTEGER\b", "BIGINT"),
        (r"\bBLOB\b", "BYTEA"),
        (r" WITHOUT ROWID| REFERENCES surfaces \(id\)", ""),
    ):
        sql = re.sub(pattern, other, sql)
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute(sql)


def test_absent_items_are_charged_by_the_upgrade_and_then_by_events(place: str) -> None:
    write_version_3(place)
    store = open_store(place)
    assert not [key for key in range(5) if store.get(f"standing without 1/{key}")]
    charged = {
        (cell.item, cell.slot): cell.loss
        for one in store.adjustments()
        if one.actor == "upgrade"
        for cell in one.increments.cells
    }
    assert {item for item, _ in charged} == {0, 3}  # a and d; e started at the median, as before
    assert all(loss > 0 for loss in charged.values())
    assert verify(store).clean
    signer, _ = open_secrets(store)
    event = signer.read(OPEN_TOKEN)
    assert store.apply_feedback([VerifiedFeedback(event=event, clicks=0, final=True)], event.created_at) == ["accepted"]
    assert verify(store).clean
    store.close()


@pytest.mark.slow
def test_a_store_of_version_3_is_served_on(place: str) -> None:
    write_version_3(place)
    store = open_store(place)

    async def whole() -> None:
        engine = Engine(store)
        await engine.start()
        page = await engine.rank("home", "after the upgrade")
        (result,) = await engine.feedback([FeedbackEvent(page.event_id, page.token, [], True)])
        assert result.status == "accepted"
        assert set((await engine.event(page.event_id))["absent"]) == {"a", "d"}
        await engine.resume_item("home", "a", actor="ann")
        await engine.put_item("home", "d", actor="ann")
        assert (await engine.event((await engine.rank("home", "all are back")).event_id))["absent"] == []
        await engine.stop()

    asyncio.run(whole())
    assert verify(store).clean
    store.close()


def make_version_5(store: SqlStore) -> None:
    """Take away what version 6 of the schema has added."""
    added = migrations.versions_of("postgres" if store.database.shared else "sqlite")[6]
    drops = [f"DROP INDEX {name}" for name in re.findall(r"CREATE INDEX (\w+)", added)]
    drops += [f"DROP TABLE {name}" for name in re.findall(r"CREATE TABLE (\w+)", added)]
    columns = re.findall(r"ALTER TABLE (\w+) ADD COLUMN (\w+)", added)
    drops += [f"ALTER TABLE {table} DROP COLUMN {column}" for table, column in columns]
    assert len(drops) == len(re.findall("ALTER|CREATE", added)) > 5
    drops += [
        f"DELETE FROM numbers WHERE name = '{name}'" for name in re.findall(r"INTO numbers VALUES \('(\w+)'", added)
    ]
    for sql in drops:
        store.database.write(lambda session, sql=sql: session.run(sql))  # type: ignore[misc]
    store.put("schema_version", b"5")


@pytest.mark.slow
def test_a_store_of_version_5_gets_visitors_and_arms(place: str) -> None:
    store = open_store(place)
    store.save_surface(structs.replace(a_surface(), settings=SurfaceSettings(slots=SLOTS)), [], [])
    store.apply_feedback([feedback_on(number, number % 8) for number in range(1, 30)], NOON)
    store.save_events([an_event(40)])
    history = store.history(1, 0, 2 * NOON, NOON)
    imported = structs.replace(an_event(50), settled_at=NOON, settled_by="import")
    assert store.import_events([imported]) == 1
    totals = BatchTotals()  # version 5 counted imported pages as pages of their arms
    totals.count_decision(imported)
    totals.count_outcome(None, imported)
    store.database.write(lambda session: add_history(session, totals))
    assert store.history(1, 0, 2 * NOON, NOON) != history
    before = counters(store)
    make_version_5(store)
    store.close()
    store = open_store(place)
    assert store.get("schema_version") == str(migrations.SCHEMA_VERSION).encode()
    assert counters(store) == before
    assert store.history(1, 0, 2 * NOON, NOON) == history
    assert verify(store).clean
    assert {(event.visitor, event.learner) for event in store.events(1, 0, NOON + 100)} == {(None, 0)}
    assert store.visitor_sums(1, None, 0, 2 * NOON) == {}
    assert store.apply_feedback([feedback_on(40)], NOON) == ["accepted"]

    async def whole() -> None:
        engine = Engine(store)
        await engine.start()
        rounds = (await engine.state("home"))["rounds"]
        assert rounds > 10
        arms = [{"name": "new", "policy": "uniform", "share": 0.5}]
        surface = await engine.patch_surface("home", {"arms": arms}, actor="ann")
        assert surface.learner_of("new") == 1
        pages = [await engine.rank("home", f"r{k}", visitor=f"v{k}") for k in range(20)]
        await engine.feedback([FeedbackEvent(page.event_id, page.token, [0], True) for page in pages])
        assert {page.arm for page in pages} == {"new", "learner"}
        assert (await engine.state("home"))["rounds"] == rounds + sum(page.arm == "learner" for page in pages)
        await engine.stop()

    asyncio.run(whole())
    assert sum(row[0] for rows in store.visitor_sums(1, None, 0, 10**15).values() for row in rows.values()) == 20
    assert verify(store).clean
    store.close()


def test_an_upgrade_that_fails_changes_nothing(place: str) -> None:
    write_version_1(place)
    broken = {2: (lambda session: session.run("SELECT * FROM nowhere"),)}
    with patch.object(migrations, "DATA_MIGRATIONS", broken), pytest.raises((StoreError, psycopg.Error)):
        open_store(place)
    store = open_store(place)
    assert verify(store).clean
    assert store.history(1, NOON, NOON + 60_000, 60_000)
    store.close()


def test_a_store_of_a_later_schema_is_refused(place: str) -> None:
    store = open_store(place)
    store.put("schema_version", b"999")
    store.close()
    with pytest.raises(StoreError, match=r"newer version of bothworlds .* install that version or a later one"):
        open_store(place)


def test_a_new_store_is_at_the_current_version_and_empty(place: str) -> None:
    store = open_store(place)
    assert store.is_empty()
    assert store.get("schema_version") == str(migrations.SCHEMA_VERSION).encode()
    store.save_surface(a_surface(), [], [])
    store.save_events([an_event(1)])
    assert not store.is_empty()
    assert counters(store) == counted([])
    store.close()
