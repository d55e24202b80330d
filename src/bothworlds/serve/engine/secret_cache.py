"""The secrets of this process: read from the store, and read again when other processes may have rotated them."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..events import Event
from .store_calls import in_thread
from .tokens import Signer, open_secrets, rotate_secret

if TYPE_CHECKING:
    from ..stores import Store

LOOKUP_SECONDS = 0.1  # minimum time between two lookups of a secret that a token names
FOLLOW_SECONDS = 5.0  # between two checks whether another process has rotated secrets


class SecretCache:
    """Signs and reads tokens with the secrets of the store.

    ``on_forget`` is called when a secret has been deleted, in the thread that noticed it: all tokens signed with it are
    invalid. ``load`` must be called first.
    """

    signer: Signer
    draw_key: bytes

    def __init__(self, store: Store, on_forget: Callable[[], None]) -> None:
        self._store, self._on_forget = store, on_forget
        self._looked_up_at = self.followed_at = -math.inf
        self._lock = threading.Lock()  # secrets are used in the order in which they were read
        self._lookup: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Reads the secrets, or creates them. Blocks; raises StoreError."""
        self.signer, self.draw_key = open_secrets(self._store)

    def reload(self) -> None:
        """Reads the secrets again. Blocks; can be called from any thread. Raises StoreError."""
        with self._lock:
            before = self.signer.numbers
            self.signer, _ = open_secrets(self._store)
            if not before <= self.signer.numbers:
                self._on_forget()

    async def read(self, token: str) -> Event:
        """Returns the event of a token; looks for its secret in the store if it is unknown. Raises InvalidToken."""
        if not self.signer.knows(token):
            await self._look_up()
        return self.signer.read(token)

    async def _look_up(self) -> None:
        """Reads secrets that another process may have created, at most every ``LOOKUP_SECONDS``.

        The rate is limited because anybody can send a token that names an unknown secret. Concurrent callers wait for
        the same lookup, which runs in a thread, so that a slow store does not block the event loop.
        """
        if self._lookup is None or self._lookup.done():
            if time.monotonic() - self._looked_up_at <= LOOKUP_SECONDS:
                return
            self._lookup = asyncio.create_task(in_thread(self.reload))
        await asyncio.shield(self._lookup)
        self._looked_up_at = time.monotonic()

    def follow(self) -> None:
        """Reads the secrets again if ``FOLLOW_SECONDS`` have passed: another process may have rotated them."""
        now = time.monotonic()
        if now - self.followed_at > FOLLOW_SECONDS:
            self.followed_at = now
            self.reload()

    async def rotate(self, now: int, forget: bool) -> int:
        """Stores a new secret, signs with it from now on and returns its number."""
        number = await in_thread(rotate_secret, self._store, now, forget)
        await in_thread(self.reload)
        return number
