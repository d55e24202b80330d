"""The last step to the socket: the head of an answer and its body leave together, in one system call and one packet."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["OneWrite"]

HEAD_SECONDS = 60.0  # in which whoever connects must have sent the head of a request
ENOUGH = 65_536  # bytes: more are not held back, so that whoever writes without end is told to wait


class Gathering:
    """A transport that writes all it is given within one turn of the loop at once."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop, self._held = transport, loop, b""

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held += data
        if len(self._held) > ENOUGH:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():  # whoever hung up meanwhile is told nothing
            self._transport.write(held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class OneWrite(HttpToolsProtocol):
    """Uvicorn's protocol, which writes twice for every answer; on a busy machine each write costs as much as a draw."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast(asyncio.Transport, Gathering(transport, self.loop)))
        self._patience = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def connection_lost(self, error: Exception | None) -> None:
        self._patience.cancel()
        super().connection_lost(error)

    def _give_up(self) -> None:
        """Hang up on who has connected and asked for nothing: descriptors are few."""
        if self.cycle is None:
            self.transport.close()
