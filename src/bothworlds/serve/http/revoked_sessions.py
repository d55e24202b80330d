"""Sessions that were signed out before they expire: kept in the store, for all processes of the service."""

from __future__ import annotations

import asyncio
import time

import msgspec

from ..model import Unavailable
from ..stores.base import Store, StoreError

__all__ = ["RevokedSessions"]

FACT = "signed-out-sessions"
REFRESH_SECONDS = 1.0  # a session that was signed out in another process shows no more pages after about so long
ATTEMPTS = 20  # to write while other processes write


class RevokedSessions:
    """The ids of the sessions that were signed out, until they would have expired. Called on the event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, int] = {}  # id of a session: when it expires, in seconds
        self._read_at = -1e9

    async def add(self, session_id: str, expires_at: int) -> None:
        """Revoke a session; durable on return. Raises Unavailable."""
        try:
            self._merge(await asyncio.to_thread(self._write, session_id, expires_at))
        except StoreError as error:
            raise Unavailable(f"the session cannot be ended: {error}") from error

    async def contains(self, session_id: str, *, fresh: bool) -> bool:
        """Return whether a session was signed out.

        With ``fresh`` the store is read now, and Unavailable is raised if it cannot be. Otherwise the answer may be
        ``REFRESH_SECONDS`` old, or older while the store cannot be read.
        """
        if session_id not in self._known and (fresh or time.monotonic() - self._read_at > REFRESH_SECONDS):
            try:
                self._merge(await asyncio.to_thread(self._read))
                self._read_at = time.monotonic()
            except StoreError as error:
                if fresh:
                    raise Unavailable(f"the sessions cannot be read: {error}") from error
        return session_id in self._known

    def _merge(self, stored: dict[str, int]) -> None:
        """Add what was read; a slow read must not undo a later one."""
        now = time.time()
        self._known = {key: at for key, at in (self._known | stored).items() if at > now}

    def _read(self) -> dict[str, int]:
        return _decoded(self._store.get(FACT))

    def _write(self, session_id: str, expires_at: int) -> dict[str, int]:
        for _ in range(ATTEMPTS):
            stored, now = self._store.get(FACT), time.time()
            kept = {key: at for key, at in _decoded(stored).items() if at > now} | {session_id: expires_at}
            value = msgspec.json.encode(kept)
            if self._store.put(FACT, value, only_if_absent=stored is None, expected=stored) == value:
                return kept
        raise StoreError("other processes sign out at the same time")


def _decoded(stored: bytes | None) -> dict[str, int]:
    return msgspec.json.decode(stored or b"{}", type=dict[str, int])
