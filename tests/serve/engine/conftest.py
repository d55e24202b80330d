"""Temporary stores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bothworlds.serve.stores import Store, open_store


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    """A new SQLite store."""
    opened = open_store(str(tmp_path / "store.db"))
    yield opened
    opened.close()


@pytest.fixture
def other_store(tmp_path) -> Iterator[Store]:
    """Another one."""
    opened = open_store(str(tmp_path / "other.db"))
    yield opened
    opened.close()
