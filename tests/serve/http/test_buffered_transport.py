"""A response is one write, bytes are not held back for long, and a stalled write times out."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from bothworlds.serve.config import Limits
from bothworlds.serve.http.buffered_transport import MAX_BUFFERED_BYTES, BufferedTransport, WriteTimeout
from bothworlds.serve.http.connection import Connection
from bothworlds.serve.http.responses import send_response
from bothworlds.serve.observability.metrics import Metrics

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


class Transport:
    """Records what is written to it."""

    def __init__(self):
        self.written, self.closed = [], False

    def write(self, data):
        self.written.append(data)

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def get_extra_info(self, name):
        return None

    def get_write_buffer_size(self):
        return 0

    def pause_reading(self): ...

    def resume_reading(self): ...


def connected(protocol_class, app):
    """Return a connection to the application and its transport."""
    config, transport = Config(app, log_config=None), Transport()
    config.load()
    protocol = protocol_class(config, ServerState(), {})
    protocol.connection_made(transport)
    return protocol, transport


def written_for_an_answer(protocol_class):
    async def app(scope, receive, send):
        await send_response(send, 200, b"hello", b"text/plain", [])

    async def play():
        protocol, transport = connected(protocol_class, app)
        protocol.data_received(REQUEST)
        for _ in range(5):
            await asyncio.sleep(0)
        protocol.connection_lost(None)
        return transport.written

    return asyncio.run(play())


def test_a_response_is_one_write():
    (written,) = written_for_an_answer(partial(Connection, limits=Limits(), metrics=Metrics()))
    assert written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert written.endswith(b"\r\n\r\nhello")


def test_without_buffering_a_response_is_two_writes():
    """If this fails, Uvicorn has fixed it, and the class is no longer needed."""
    assert len(written_for_an_answer(HttpToolsProtocol)) == 2


@pytest.fixture
def buffering():
    loop = asyncio.new_event_loop()
    transport = Transport()
    yield BufferedTransport(transport, loop), transport
    loop.close()


def test_closing_writes_the_buffered_bytes(buffering):
    buffered, transport = buffering
    buffered.write(b"last ")
    buffered.write(b"words")
    buffered.close()
    assert (transport.written, transport.closed) == ([b"last words"], True)


def test_nothing_is_written_to_a_closing_transport(buffering):
    buffered, transport = buffering
    buffered.write(b"dropped")
    transport.closed = True
    buffered.flush()
    assert transport.written == []


def test_many_bytes_are_not_buffered(buffering):
    buffered, transport = buffering
    buffered.write(bytes(MAX_BUFFERED_BYTES + 1))
    assert len(transport.written) == 1


class StalledTransport:
    """A transport with ``unsent`` bytes."""

    def __init__(self, unsent=0):
        self.unsent = unsent

    def get_write_buffer_size(self):
        return self.unsent


class ManualLoop:
    """A clock and timers that a test advances."""

    def __init__(self):
        self.now, self.timers = 0.0, []

    def time(self):
        return self.now

    def call_later(self, delay, callback):
        timer = SimpleNamespace(at=self.now + delay, callback=callback)
        timer.cancel = lambda: self.timers.remove(timer)
        self.timers.append(timer)
        return timer

    def advance(self, seconds):
        end = self.now + seconds
        while due := sorted((timer for timer in self.timers if timer.at <= end), key=lambda timer: timer.at):
            self.timers.remove(due[0])
            self.now = due[0].at
            due[0].callback()
        self.now = end


@pytest.fixture
def timeout():
    """A write timeout of 8 seconds, its transport, loop and expirations."""
    transport, loop, expired = StalledTransport(), ManualLoop(), []
    made = WriteTimeout(transport, loop, 8.0, lambda: expired.append(loop.now))
    return SimpleNamespace(write=made.add, cancel=made.cancel, transport=transport, loop=loop, expired=expired)


def test_a_stalled_write_times_out_once(timeout):
    timeout.write(100)
    timeout.transport.unsent = 100
    timeout.loop.advance(7.9)
    assert timeout.expired == []
    timeout.loop.advance(100)
    assert timeout.expired == [8.0]


def test_progress_resets_the_write_timeout_even_if_more_is_written(timeout):
    timeout.write(100)
    for _ in range(10):
        timeout.write(60)
        timeout.transport.unsent = 100  # 60 more were sent
        timeout.loop.advance(6.0)
    assert timeout.expired == []
    timeout.loop.advance(10.0)
    assert len(timeout.expired) == 1


def test_a_write_that_was_sent_leaves_no_timer(timeout):
    timeout.write(100)
    timeout.loop.advance(2.0)
    assert timeout.loop.timers == []
    timeout.write(100)
    timeout.transport.unsent = 50
    timeout.cancel()
    timeout.loop.advance(100)
    assert timeout.expired == []
