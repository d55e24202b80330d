"""Answers requests that arrived whole at once: without a task, a timeout or a turn of the event loop, unless they wait.

Uvicorn runs the application in a task of its own for each request, which waits for the body and starts in the next turn
of the event loop. A rank request seldom waits for anything: its list is drawn from a policy that is already solved.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import FlowControl

from ..observability.logs import logger
from .request_body import ARRIVED

__all__ = ["EagerExchange", "run_eagerly"]

CLOSE = (b"connection", b"close")
_status_lines = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class _NoEvent:
    """Takes the place of the event by which Uvicorn wakes an application that waits for a body."""

    def set(self) -> None:
        pass


class EagerExchange:
    """A request whose body arrives with its head, and its response; takes the place of Uvicorn's cycle.

    The application may send one response, with a ``Content-Length`` and a body in one piece, which is written at once.
    ``body``, ``more_body``, ``disconnected`` and ``keep_alive`` are set by Uvicorn's protocol.
    """

    message_event = _NoEvent()

    def __init__(
        self,
        transport: asyncio.Transport,
        flow: FlowControl,
        default_headers: list[tuple[bytes, bytes]],
        keep_alive: bool,
        on_response: Callable[[], None],
    ) -> None:
        self._transport, self._flow, self._default_headers = transport, flow, default_headers
        self._on_response = on_response
        self._head = b""
        self.body = bytearray()
        self.more_body = True
        self.keep_alive = keep_alive
        self.disconnected = self.response_complete = self.started = False

    def start(self, app: ASGIApp, scope: Scope, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None] | None:
        """Run the application until it has answered or has to wait; return the task that waits."""
        self.started = True
        scope[ARRIVED] = True
        return run_eagerly(self._run(app, scope), loop)

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self.receive, self.send)
        except Exception as error:
            logger.error("fault", exc_info=error)
        finally:
            if not self.response_complete:
                self._transport.close()

    async def receive(self) -> Message:
        """Return the body; it has arrived."""
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": bytes(self.body), "more_body": False}

    async def send(self, message: Message) -> None:
        """Take the head of the response, or write the response once its body is here."""
        if message["type"] == "http.response.start":
            self._head = self._head_of(message["status"], message["headers"])
            return
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if not self.disconnected:
            self.response_complete = True
            self._transport.write(self._head + message["body"])
            if not self.keep_alive:
                self._transport.close()
            self._on_response()

    def _head_of(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        if CLOSE in headers:
            self.keep_alive = False
        elif not self.keep_alive:
            headers = [*headers, CLOSE]
        lines = [b"%b: %b\r\n" % pair for pair in self._default_headers + headers]
        return b"".join([_status_lines[status], *lines, b"\r\n"])


def run_eagerly(coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> asyncio.Task[None] | None:
    """Run a coroutine up to its end, and return None, or until it waits, and return a task that runs the rest.

    Until it waits for the first time, it has no current task: it may not use ``asyncio.timeout``. As the eager tasks of
    Python 3.12 and later, but without the cost of a task for a coroutine that does not wait.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration:
        return None
    return loop.create_task(_rest(coroutine, awaited))


async def _rest(coroutine: Coroutine[Any, Any, None], awaited: Any) -> None:
    await _steps(coroutine, awaited)  # a task takes the coroutine of an async function only, from Python 3.12 on


@types.coroutine
def _steps(coroutine: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, Any, None]:
    """Run a coroutine that waits for ``awaited`` up to its end."""
    while True:
        try:
            value = yield awaited
        except BaseException as error:  # of what it waits for, or because the task is cancelled
            resume = partial(coroutine.throw, error)
        else:
            resume = partial(coroutine.send, value)
        try:
            awaited = resume()
        except StopIteration:
            return
