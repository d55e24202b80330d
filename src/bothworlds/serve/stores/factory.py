"""Opens the store that ``--store`` names: a SQLite file or a PostgreSQL database."""

from __future__ import annotations

from pathlib import Path

from ...extras import install_command
from .base import StoreError
from .sql_store import SqlStore

__all__ = ["MOVING", "open_store"]

MOVING = "moving"  # a fact that exists while a migration fills the store


def open_store(place: str, *, read_only: bool = False, alone: bool = False) -> SqlStore:
    """Opens the store at a path (SQLite) or at a ``postgresql://`` address; creates or upgrades it if needed.

    ``read_only`` does not write, and can read a store that a running service uses; with ``alone`` it refuses such a
    store, and no service can open a SQLite file meanwhile. Raises StoreError if the store cannot be opened, ValueError
    if ``place`` is neither a path nor an address.
    """
    store = _open(place, read_only, alone)
    if store.get(MOVING) is None:
        return store
    store.close()
    raise StoreError(f"the migration of a store to {place} was interrupted: delete the store there and migrate again")


def _open(place: str, read_only: bool, alone: bool) -> SqlStore:
    if place.startswith(("postgresql://", "postgres://")):
        try:
            from .postgres import open_postgres
        except ImportError as error:
            raise StoreError(f"PostgreSQL needs an extra: {install_command('service')}") from error
        return open_postgres(place, read_only=read_only, alone=alone)
    scheme, separator, rest = place.partition("://")
    if separator and scheme != "sqlite":
        raise ValueError(f"a store is a path or a postgresql:// address, not {scheme}://")
    from .sqlite import open_sqlite

    path = Path(rest.removeprefix("/") if separator else place).expanduser()
    if path.is_dir():
        raise StoreError(f"{path} is a folder: name the file in it, such as {path / 'bothworlds.db'}")
    return open_sqlite(path, read_only=read_only, alone=alone)
