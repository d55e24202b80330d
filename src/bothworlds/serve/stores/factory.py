"""A store from what is written after ``--store``."""

from __future__ import annotations

from pathlib import Path

from .base import StoreError
from .sql import SqlStore

__all__ = ["MOVING", "open_store"]

MOVING = "moving"  # a fact that is there while a store is being filled from another one


def open_store(place: str, *, read_only: bool = False) -> SqlStore:
    """The store at a path (SQLite), or at a ``postgresql://`` address; made or upgraded where that is needed.

    ``read_only`` looks without writing or locking, even at a SQLite file that a running service uses.
    """
    store = _opened(place, read_only)
    if store.get(MOVING) is None:
        return store
    store.close()
    raise StoreError(f"moving a store to {place} was interrupted: remove what is there, and migrate again")


def _opened(place: str, read_only: bool) -> SqlStore:
    if place.startswith(("postgresql://", "postgres://")):
        try:
            from .postgres import open_postgres
        except ImportError as error:
            raise StoreError("PostgreSQL needs an extra: pip install 'bothworlds[service]'") from error
        return open_postgres(place, read_only=read_only)
    scheme, separator, rest = place.partition("://")
    if separator and scheme != "sqlite":
        raise ValueError(
            f"a store is a path or a postgresql:// address, and {scheme}:// is neither: choose one of these"
        )
    from .sqlite import open_sqlite

    path = Path(rest.removeprefix("/") if separator else place).expanduser()
    if path.is_dir():
        raise StoreError(f"{path} is a folder: name the file in it, such as {path / 'bothworlds.db'}")
    return open_sqlite(path, read_only=read_only)
