"""The last step to the socket: the head of an answer and its body leave together, in one system call and one packet."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["Gathering"]

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
