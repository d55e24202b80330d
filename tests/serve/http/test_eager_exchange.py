"""Requests that arrive whole: answered at once, as Uvicorn would answer them; coroutines that are started eagerly."""

from __future__ import annotations

import asyncio
import json

import pytest
import uvicorn
from uvicorn.server import ServerState

from bothworlds.serve.config import Limits
from bothworlds.serve.http.connection import PIECE_BYTES, Connection
from bothworlds.serve.http.eager_exchange import run_eagerly
from bothworlds.serve.http.problems import Problem
from bothworlds.serve.http.request_body import read_body
from bothworlds.serve.http.responses import send_problem, send_response
from bothworlds.serve.observability.metrics import Metrics

LIMITS = Limits(body_bytes=10_000)


class Transport:
    """Keeps what is written."""

    def __init__(self):
        self.sent, self.closed = b"", False

    def write(self, data):
        self.sent += data

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def get_extra_info(self, name, default=None):
        return default

    def get_write_buffer_size(self):
        return 0

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass


class Echo:
    """Answers with the body of the request; with ``waits``, after some turns of the event loop."""

    def __init__(self, waits=0, headers=()):
        self.waits, self.headers, self.tasks = waits, list(headers), []

    async def __call__(self, scope, receive, send):
        self.tasks.append(asyncio.current_task())
        try:
            body = await read_body(scope, receive, LIMITS)
        except Problem as problem:
            await send_problem(send, problem, [])
            return
        for _ in range(self.waits):
            await asyncio.sleep(0)
        await send_response(send, 200, scope["path"].encode() + body, b"text/plain", self.headers)


def connected(app):
    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, log_level="critical")
    config.load()
    connection = Connection(config, ServerState(), {}, limits=LIMITS, metrics=Metrics())
    transport = Transport()
    connection.connection_made(transport)
    return connection, transport


def request(body=b"{}", path="/v1/feedback", method="POST", headers=(), version="1.1"):
    lines = [f"{method} {path} HTTP/{version}", "Host: shop", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def exchange(app, *pieces, turns=20):
    """Return what was sent in the call that received the last piece, and after some turns of the event loop."""

    async def run():
        (connection, transport), sent = connected(app), []

        def deliver(piece):
            connection.data_received(piece)
            connection.transport.flush()
            sent.append(transport.sent)

        for piece in pieces:
            asyncio.get_running_loop().call_soon(deliver, piece)
            for _ in range(turns):
                await asyncio.sleep(0)
        closed = transport.closed
        connection.connection_lost(None)  # which closes the transport
        transport.closed = closed
        return sent[-1], transport

    return asyncio.run(run())


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/surfaces/home/rank"])
def test_a_whole_request_is_answered_before_the_event_loop_turns(path):
    app = Echo()
    at_once, transport = exchange(app, request(b'{"a": 1}', path))
    assert at_once.startswith(b"HTTP/1.1 200 OK\r\n")
    assert at_once.endswith(b"\r\n\r\n" + path.encode() + b'{"a": 1}')
    assert transport.sent == at_once
    assert not transport.closed
    assert app.tasks == [None]


@pytest.mark.parametrize(
    "unusual",
    [
        request(path="/v1/surfaces/home/report"),
        request(path="/v1/surfaces/a/b/rank"),
        request(path="/v1/surfaces/caf%C3%A9/rank"),
        request(path="/v1/feedback?page=1"),
        request(method="PUT"),
        request(headers=["Expect: 100-continue"]),
    ],
)
def test_other_requests_are_answered_in_a_task(unusual):
    app = Echo()
    at_once, transport = exchange(app, unusual)
    assert at_once == b""
    assert b"HTTP/1.1 200 OK\r\n" in transport.sent
    assert transport.sent.endswith(b"{}")
    assert None not in app.tasks


@pytest.mark.parametrize("size", [2, PIECE_BYTES, 5000])
@pytest.mark.parametrize("cut", [1, 30, -1])
def test_a_body_that_comes_later_is_waited_for(size, cut):
    whole, app = request(b"x" * size), Echo()
    _, transport = exchange(app, whole[:cut], whole[cut:])
    together, _ = exchange(Echo(), whole)
    bodies = [sent.partition(b"\r\n\r\n")[2] for sent in (transport.sent, together)]
    assert bodies == [b"/v1/feedback" + b"x" * size] * 2
    assert (app.tasks == [None]) is (cut > 0)  # the rest of a head completes the request; the rest of a body is late


def test_a_response_that_waits_is_sent_when_it_is_ready():
    app = Echo(waits=3)
    at_once, transport = exchange(app, request())
    assert at_once == b""
    assert transport.sent.endswith(b"\r\n\r\n/v1/feedback{}")


def test_pipelined_requests_are_answered_in_order_and_one_per_turn():
    bodies = [json.dumps({"number": number}).encode() for number in range(40)]
    at_once, transport = exchange(Echo(), b"".join(map(request, bodies)), turns=200)
    assert at_once.count(b"HTTP/1.1") == 1
    assert [part.rpartition(b"/v1/feedback")[2] for part in transport.sent.split(b"HTTP/1.1 200")[1:]] == bodies


@pytest.mark.parametrize(
    ("app", "whole"),
    [
        (Echo(), request(headers=["Connection: close"])),
        (Echo(), request(version="1.0")),
        (Echo(headers=[(b"connection", b"close")]), request()),
    ],
)
def test_a_connection_is_closed_if_either_side_wants_it(app, whole):
    at_once, transport = exchange(app, whole)
    assert transport.closed
    assert at_once.count(b"connection: close\r\n") == 1


def test_a_body_over_the_limit_is_refused():
    at_once, transport = exchange(Echo(), request(b"x" * (LIMITS.body_bytes + 1)))
    assert at_once.startswith(b"HTTP/1.1 413 ")
    assert transport.closed


def test_a_fault_of_the_application_closes_the_connection():
    async def broken(scope, receive, send):
        raise RuntimeError("broken")

    at_once, transport = exchange(broken, request())
    assert at_once == b""
    assert transport.closed


def test_nothing_is_sent_to_a_client_that_has_gone():
    async def run():
        connection, transport = connected(Echo(waits=2))
        connection.data_received(request())
        transport.closed = True
        connection.connection_lost(None)
        for _ in range(10):
            await asyncio.sleep(0)
        return transport.sent, connection.tasks

    assert asyncio.run(run()) == (b"", set())


def test_a_stopping_server_closes_the_connection_after_the_response():
    async def run():
        connection, transport = connected(Echo(waits=2))
        connection.data_received(request())
        connection.shutdown()
        closed_at_once = transport.closed
        for _ in range(10):
            await asyncio.sleep(0)
        return closed_at_once, transport.sent, transport.closed

    closed_at_once, sent, closed = asyncio.run(run())
    assert not closed_at_once
    assert b"connection: close" in sent
    assert sent.endswith(b"{}")
    assert closed


def test_a_coroutine_that_does_not_wait_needs_no_task():
    async def run():
        found = []

        async def work():
            found.append(True)

        assert run_eagerly(work(), asyncio.get_running_loop()) is None
        return found

    assert asyncio.run(run()) == [True]


def test_a_coroutine_that_waits_goes_on_in_a_task():
    async def run():
        future, found = asyncio.get_running_loop().create_future(), []

        async def work():
            found.append(await future)
            async with asyncio.timeout(10):
                await asyncio.sleep(0)
            try:
                await failing
            except ValueError as error:
                found.append(str(error))

        failing = asyncio.get_running_loop().create_future()
        task = run_eagerly(work(), asyncio.get_running_loop())
        assert not task.done()
        future.set_result(1)
        failing.set_exception(ValueError("no"))
        await task
        return found

    assert asyncio.run(run()) == [1, "no"]


def test_a_task_that_goes_on_can_be_cancelled():
    async def run():
        found = []

        async def work():
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                found.append("cleaned up")

        task = run_eagerly(work(), asyncio.get_running_loop())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return found

    assert asyncio.run(run()) == ["cleaned up"]


def test_an_exception_before_the_first_wait_is_raised():
    async def run():
        async def work():
            raise ValueError("at once")

        with pytest.raises(ValueError, match="at once"):
            run_eagerly(work(), asyncio.get_running_loop())

    asyncio.run(run())
