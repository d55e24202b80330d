"""A store from what is written after ``--store``."""

from __future__ import annotations

from .base import StoreError
from .sql import SqlStore

__all__ = ["open_store"]


def open_store(place: str, *, read_only: bool = False) -> SqlStore:
    """The store at a path (SQLite), or at a ``postgresql://`` address; made or upgraded where that is needed.

    ``read_only`` looks without writing or locking, even at a SQLite file that a running service uses.
    """
    if place.startswith(("postgresql://", "postgres://")):
        try:
            from .postgres import open_postgres
        except ImportError as error:
            raise StoreError("PostgreSQL needs an extra: pip install 'bothworlds[service]'") from error
        return open_postgres(place, read_only=read_only)
    scheme, separator, rest = place.partition("://")
    if separator and scheme != "sqlite":
        raise ValueError(f"a store is a path or a postgresql:// address, and {scheme}:// is neither: choose one of these")
    from .sqlite import open_sqlite

    return open_sqlite(rest.removeprefix("/") if separator else place, read_only=read_only)
