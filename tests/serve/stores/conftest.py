"""Stores to test: an empty SQLite file, and an empty schema of a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bothworlds.serve.stores import Store, open_store


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    opened = open_store(place)
    yield opened
    opened.close()
