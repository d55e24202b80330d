"""One HTTP connection: limits on request heads, fair pipelining, and a timeout for clients that do not read.

This module overrides methods and reads attributes of Uvicorn's protocol that are not part of its public API.
``tests/serve/http/test_connection.py`` names each of these assumptions; pyproject.toml has the range of versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ..config import Limits
from ..observability.logs import warn_throttled
from ..observability.metrics import Metrics
from .buffered_transport import BufferedTransport, WriteTimeout
from .descriptors import descriptor_ceiling
from .eager_exchange import EagerExchange
from .paths import page_route
from .problems import Problem
from .responses import closing_response

__all__ = ["Connection"]

PIECE_BYTES = 1024  # parsed at a time: bounds how many pipelined requests are parsed before the first is answered
NO_BYTES = memoryview(b"")
TOO_MANY_CONNECTIONS = Problem(503, "the service has too many open connections; send it again later")


class Connection(HttpToolsProtocol):
    """Uvicorn's protocol with limits on request heads, fair pipelining, one write per response, and a write timeout.

    The parser receives at most ``PIECE_BYTES`` at a time, and nothing while a complete request waits for its response.
    Until then the received bytes stay unparsed and the transport is paused. Every pipelined request therefore takes at
    least one turn of the event loop, in which other connections are served.

    A rank or feedback request that arrives whole is answered by an ``EagerExchange``. All others, and those whose body
    is still to come when all received bytes are parsed, are answered by Uvicorn, each in a task.

    A head larger than ``limits.head_bytes`` (rounded up to a piece) gets a 431. A head that is not complete
    ``limits.head_seconds`` after its first byte gets a 408; the time for the first head starts with the connection. A
    connection that has sent nothing is closed without a response. The same limits apply to everything else that may
    arrive while no request is being answered: the rest of a body that no handler reads, and its trailers.

    A connection whose client reads nothing for ``limits.write_seconds`` while part of a response is unsent is aborted,
    also if it was closed before: until the unsent part is sent, it would keep its descriptor.

    A connection that would leave the process fewer descriptors than ``limits.reserved_descriptors`` gets a 503.

    All methods are called on the event loop.
    """

    def __init__(self, *args: Any, limits: Limits, metrics: Metrics, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits, self._metrics = limits, metrics
        self._ceiling = descriptor_ceiling(limits.reserved_descriptors)
        self._unparsed = NO_BYTES
        self._answered = False  # since ``_parse`` was called
        self._exchange: EagerExchange | None = None  # a request that may be answered eagerly, until it has arrived
        self._exchange_scope: Scope = {}
        self._paused = False
        self._in_head = True
        self._pending_bytes = 0  # received since the last complete head or piece of a body
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timeout: WriteTimeout | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._write_timeout = WriteTimeout(transport, self.loop, self._limits.write_seconds, self._write_timed_out)
        buffered = BufferedTransport(transport, self.loop, self._write_timeout)
        super().connection_made(cast(asyncio.Transport, buffered))
        self.flow = _Flow(self.transport, self._parse_later)
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.fileno() >= self._ceiling:
            self._refuse(TOO_MANY_CONNECTIONS, "descriptors_low")
        else:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        if self._write_timeout is not None:
            self._write_timeout.cancel()
        self._unparsed = NO_BYTES
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unparsed = memoryview(bytes(self._unparsed) + data if self._unparsed else data)
        self._parse()

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        self._in_head, self._pending_bytes = False, 0
        if self._offers_upgrade():  # its head is parsed again without the offer
            return
        if self._may_be_eager():
            self._start_exchange()
        else:
            super().on_headers_complete()

    def _may_be_eager(self) -> bool:
        """Whether the request is of the kind that is most of the load, with nothing unusual about it."""
        return (
            page_route(self.url.decode("latin-1")) != ""
            and self.parser.get_method() == b"POST"
            and not self.expect_100_continue
            and b"%" not in self.url
            and (self.cycle is None or self.cycle.response_complete)
            and not self._metrics.telemetry.enabled  # the span of a request belongs to a task
        )

    def _start_exchange(self) -> None:
        version = self.parser.get_http_version()
        keep_alive = version != "1.0" and self.parser.should_keep_alive()
        path = self.url.decode("latin-1")
        cast(Scope, self.scope).update(
            method="POST", http_version=version, path=path, raw_path=self.url, query_string=b""
        )
        self._exchange_scope = cast(Scope, self.scope)  # the next request may be parsed before this one is answered
        self._exchange = EagerExchange(
            self.transport, self.flow, self.server_state.default_headers, keep_alive, self.on_response_complete
        )
        self.cycle = cast(RequestResponseCycle, self._exchange)

    def on_body(self, body: bytes) -> None:
        self._pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._pending_bytes = True, 0
        if not self._offers_upgrade():
            super().on_message_complete()

    def _offers_upgrade(self) -> bool:
        """Whether the request may be answered in another protocol, such as HTTP/2 (``curl --http2``)."""
        return self.parser.should_upgrade() and any(name == b"upgrade" for name, _ in self.headers)

    def _without_offer(self) -> bytes:
        """Return the head that was just parsed without its offer: the parser does not read the body of an offer."""
        first = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        kept = [b"%b: %b" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([first, *kept, b"", b""])

    def on_response_complete(self) -> None:
        self._answered = True
        super().on_response_complete()
        self._parse_later()

    def _parse_later(self) -> None:
        if self._unparsed:
            self.loop.call_soon(self._parse)

    def _parse(self) -> None:
        """Parse the received bytes as far as requests can be handled; pause the transport while some are left."""
        self._answered = False
        while self._unparsed and not self._answered and not self._blocked():
            piece, self._unparsed = self._unparsed[:PIECE_BYTES], self._unparsed[PIECE_BYTES:]
            self._parse_piece(piece)
        if self._exchange is not None and not self.transport.is_closing():
            self._wait_for_body()
        if self._paused != bool(self._unparsed) and not self.transport.is_closing():
            self._paused = not self._paused
            (self.transport.pause_reading if self._paused else self.transport.resume_reading)()

    def _blocked(self) -> bool:
        """Whether parsing has to wait: for the response to a complete request, or until a body has been read."""
        waiting = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        return waiting or self.flow.read_paused or self.transport.is_closing()

    def _parse_piece(self, piece: memoryview) -> None:
        self._pending_bytes += len(piece)
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(cast(bytes, piece))
        except HttpParserUpgrade as error:
            self._unparsed = memoryview(b"".join([self._without_offer(), piece[error.args[0] :], self._unparsed]))
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if self._exchange is not None and not self._exchange.more_body:
            self._answer_eagerly()
        if self._pending_bytes > self._limits.head_bytes:
            detail = f"the request line and headers may have {self._limits.head_bytes} bytes at most"
            self._refuse(Problem(431, detail), "head_too_large")
        elif self._head_timer is None and self._is_receiving():
            self._start_head_timer()

    def _is_receiving(self) -> bool:
        """Whether part of a head, or of a body that nobody reads, has arrived while no request is being answered."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and (self._pending_bytes > 0 or not self._in_head)

    def _answer_eagerly(self) -> None:
        exchange, self._exchange = cast(EagerExchange, self._exchange), None
        task = exchange.start(cast(ASGIApp, self.app), self._exchange_scope, self.loop)
        if task is not None:
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    def _wait_for_body(self) -> None:
        """Let Uvicorn go on with a request whose body has not arrived whole."""
        body, self._exchange = cast(EagerExchange, self._exchange).body, None
        self.cycle = cast(RequestResponseCycle, None)
        super().on_headers_complete()
        self.cycle.body += body
        if body:
            self.cycle.message_event.set()

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self._limits.head_seconds, self._head_timed_out)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_timed_out(self) -> None:
        if self._pending_bytes:
            detail = f"the request line and headers did not arrive within {self._limits.head_seconds:g} seconds"
            self._refuse(Problem(408, detail), "head_too_slow")
        else:
            self.transport.close()

    def _write_timed_out(self) -> None:
        self._record_refusal("write_too_slow")
        self.transport.abort()

    def _refuse(self, problem: Problem, reason: str) -> None:
        """Close the connection, with a response unless one would be taken for that to the request under way."""
        self._record_refusal(reason)
        if self._in_head:
            self.transport.write(closing_response(problem))
        self.transport.close()

    def _record_refusal(self, reason: str) -> None:
        self._metrics.count_refused_connection(reason)
        warn_throttled("connection refused", reason=reason)


class _Flow(FlowControl):
    """Uvicorn's flow control, except that reading is paused and resumed by the connection, which has a buffer."""

    def __init__(self, transport: asyncio.Transport, on_resume: Callable[[], None]) -> None:
        super().__init__(transport)
        self._on_resume = on_resume

    def pause_reading(self) -> None:
        self.read_paused = True

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._on_resume()
