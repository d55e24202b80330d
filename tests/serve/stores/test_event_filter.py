"""The filter of event ids never claims that a stored id is absent, and rarely that an absent one is stored."""

from __future__ import annotations

import threading
from hashlib import blake2b
from pathlib import Path

import pytest

from bothworlds.serve.stores import sqlite
from bothworlds.serve.stores.event_filter import IDS_PER_WORD, EventFilter
from bothworlds.serve.stores.sqlite import open_sqlite

from .samples import a_surface, an_event


def an_id(number: int) -> bytes:
    return blake2b(b"%d" % number, digest_size=16).digest()


def completed(filter: EventFilter) -> EventFilter:
    filter.complete = True
    return filter


def test_an_incomplete_filter_excludes_nothing():
    filter = EventFilter()
    assert filter.may_contain(an_id(1))
    assert not completed(filter).may_contain(an_id(1))


class DropsTheOldestGeneration(EventFilter):
    """As a cache would."""

    def _grow(self) -> None:
        super()._grow()
        self._generations = self._generations[-1:]


def absent(filter: EventFilter, count: int) -> int:
    """Returns how many of so many added ids the filter claims to be absent."""
    for first in range(0, count, 100):
        filter.add([an_id(k) for k in range(first, first + 100)])
    return sum(not completed(filter).may_contain(an_id(k)) for k in range(count))


def test_no_added_id_is_absent_however_often_the_filter_grows():
    filter = EventFilter(first_words=64, max_words=1024)
    assert absent(filter, 20_000) == 0
    assert filter.size_bytes == 8 * (64 + 128 + 256 + 512 + 1024)  # and it stops growing
    assert absent(DropsTheOldestGeneration(first_words=64, max_words=1024), 20_000) > 0


def test_few_other_ids_are_claimed_to_be_stored():
    words = 4096
    filter = EventFilter(first_words=words)
    filter.add([an_id(k) for k in range(IDS_PER_WORD * words)])
    claimed = sum(completed(filter).may_contain(an_id(-k)) for k in range(1, 20_001))
    assert claimed < 0.01 * 20_000


def test_ids_of_any_length_and_form_are_accepted():
    ids = [b"", b"1", bytes(16), bytes(range(20)), b"\xff" * 16]
    filter = EventFilter()
    filter.add(ids)
    filter.add([])
    assert all(map(completed(filter).may_contain, ids))


def test_threads_that_add_at_once_lose_no_bit():
    filter = EventFilter(first_words=16, max_words=64)

    def add(thread: int) -> None:
        for k in range(thread, 4000, 4):
            filter.add([an_id(k)])

    threads = [threading.Thread(target=add, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(completed(filter).may_contain(an_id(k)) for k in range(4000))


@pytest.mark.parametrize("per_page", [3, 20_000])
def test_a_store_that_is_opened_again_knows_its_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_page: int):
    monkeypatch.setattr(sqlite, "IDS_PER_PAGE", per_page)
    path = tmp_path / "store.db"
    events = [an_event(k, id=an_id(k)) for k in range(100)]
    first = open_sqlite(path)
    first.save_surface(a_surface(), [], [])
    first.save_events(events)
    first.close()
    again = open_sqlite(path)
    assert again.database._event_ids.may_contain(an_id(-1))  # nothing is known yet
    again.may_have_event(an_id(-1))  # starts to read
    again.database._id_reader.join()
    assert all(again.may_have_event(event.id) for event in events)
    assert not all(again.may_have_event(an_id(-k)) for k in range(1, 20))
    again.close()
    reader = open_sqlite(path, read_only=True)  # beside a process that writes
    assert reader.may_have_event(an_id(-1))
    reader.close()


def test_rows_of_another_store_are_known(tmp_path: Path):
    source, target = open_sqlite(tmp_path / "source.db"), open_sqlite(tmp_path / "target.db")
    target.may_have_event(b"")
    target.database._id_reader.join()
    source.save_surface(a_surface(), [], [])
    source.save_events([an_event(1, id=an_id(1))])
    for table in ("surfaces", "events"):
        columns = source.columns(table)
        target.fill(table, columns, list(source.rows(table, columns)))
    assert target.may_have_event(an_id(1))
    assert target.find_events([an_id(1)])
    source.close()
    target.close()
