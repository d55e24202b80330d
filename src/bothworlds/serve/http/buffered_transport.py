"""Writing to a connection: one system call per response, and a timeout for a client that does not read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

__all__ = ["BufferedTransport", "WriteTimeout"]

MAX_BUFFERED_BYTES = 65_536  # more is passed on at once, so that the transport can apply back-pressure
CHECKS_PER_TIMEOUT = 4


class BufferedTransport:
    """A transport that joins all writes of one turn of the event loop, such as the head and the body of a response.

    Other attributes are those of the wrapped transport.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, timeout: WriteTimeout | None = None
    ) -> None:
        self._transport, self._loop, self._timeout = transport, loop, timeout
        self._buffer = b""

    def write(self, data: bytes) -> None:
        if not self._buffer:
            self._loop.call_soon(self.flush)
        self._buffer += data
        if len(self._buffer) > MAX_BUFFERED_BYTES:
            self.flush()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Pass the buffered bytes on to the transport; they are dropped if it is closing."""
        data, self._buffer = self._buffer, b""
        if data and not self._transport.is_closing():
            if self._timeout is not None:
                self._timeout.add(len(data))
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class WriteTimeout:
    """Calls ``on_timeout`` once the transport has held unsent bytes for ``seconds`` without sending any.

    A byte is sent once the system has accepted it, which depends on the client: the system buffers a limited number of
    bytes that the client has not read. Progress is checked ``CHECKS_PER_TIMEOUT`` times per timeout while bytes are
    unsent, so that the callback comes up to a quarter of ``seconds`` late. The checks go on after the transport was
    closed, since it keeps its descriptor until all bytes are sent. Used on the event loop.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
        on_timeout: Callable[[], None],
    ) -> None:
        self._transport, self._loop, self._seconds, self._on_timeout = transport, loop, seconds, on_timeout
        self._written = self._sent = 0
        self._progress_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, count: int) -> None:
        """Note that so many bytes are about to be written to the transport."""
        if self._timer is None:
            self._sent = self._written - self._transport.get_write_buffer_size()
            self._progress_at = self._loop.time()
            self._start_timer()
        self._written += count

    def cancel(self) -> None:
        """Stop checking; the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self) -> None:
        self._timer = self._loop.call_later(self._seconds / CHECKS_PER_TIMEOUT, self._check)

    def _check(self) -> None:
        self._timer = None
        unsent = self._transport.get_write_buffer_size()
        if not unsent:
            return
        sent, now = self._written - unsent, self._loop.time()
        if sent > self._sent:
            self._sent, self._progress_at = sent, now
        elif now - self._progress_at >= self._seconds:
            self._on_timeout()
            return
        self._start_timer()
