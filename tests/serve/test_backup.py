"""A backup of a SQLite store: made while the service runs, sound by itself, and open to later clicks."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest

from bothworlds.serve.ops.verify import verify
from bothworlds.serve.stores import open_store

from .running import ITEMS, answer, refreshed, running, visit


@pytest.mark.slow
def test_a_backup_made_while_the_service_runs_is_sound_and_accepts_later_clicks(tmp_path):
    live, copy = tmp_path / "live.db", tmp_path / "copy.db"

    async def serve_and_back_up():
        with closing(open_store(str(live))) as store:
            async with running(store) as engine:
                await engine.administration.put_surface("home", {"slots": 3, "items": ITEMS}, actor="test")
                for k in range(20):
                    await visit(engine, f"v{k}", {"a"})
                await refreshed(engine)
                # What the command .backup of the program sqlite3 does.
                with closing(sqlite3.connect(live)) as source, closing(sqlite3.connect(copy)) as target:
                    source.backup(target)
                return await engine.rank("home", "after the backup")

    async def restore(shown):
        with closing(open_store(str(copy))) as store:
            verified = verify(store)
            assert verified.clean
            assert verified.pages == 20
            async with running(store) as engine:
                assert (await answer(engine, shown, [0])).status == "accepted"
            verified = verify(store)
            assert verified.clean
            assert verified.pages == 21

    shown = asyncio.run(serve_and_back_up())
    asyncio.run(restore(shown))
