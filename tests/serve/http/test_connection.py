"""Misbehaving clients: endless and slow heads, held descriptors, pipelining, unread responses; Uvicorn's internals."""

from __future__ import annotations

import hashlib
import inspect
import json
import signal
import sys
import time
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from bothworlds.serve.config import Limits
from bothworlds.serve.http import descriptors
from bothworlds.serve.http.app import CLIENT_CLOSED
from bothworlds.serve.http.connection import PIECE_BYTES, Connection
from bothworlds.serve.http.responses import send_response
from bothworlds.serve.observability.metrics import Metrics
from tests.serve.app_server import listening

from . import attacks
from .attacks import REQUEST, ask, connect, respond, status
from .service_process import PATIENCE, service

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
METRICS = REQUEST.replace(b"/healthz", b"/metrics")
CHUNKED = b"POST /v1/feedback HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "value": (HEAD + b"X-Long: ", b"a" * attacks.BLOCK),
    "name": (HEAD, b"a" * attacks.BLOCK),
    "headers": (HEAD, b"a:b\r\n" * 10_000),
    "target": (b"GET /", b"a" * attacks.BLOCK),
    "blank lines": (b"", b"\r\n" * 30_000),
}


@pytest.fixture(scope="module")
def address():
    with service() as (_, address):
        yield address


def counted(address, reason):
    """Return how many connections were refused for a reason."""
    name = f'bothworlds_connections_refused_total{{reason="{reason}"}}'
    response = persistently(address, lambda connection: respond(connection, METRICS))
    return metric(response, name)


def metric(response, name):
    lines = response.decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(name)), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("before", [b"", REQUEST], ids=["first request", "second request"])
@pytest.mark.parametrize("kind", ENDLESS)
def test_a_head_that_never_ends_is_refused(address, kind, before):
    refused = counted(address, "head_too_large")
    with closing(connect(address)) as connection:
        if before:
            assert status(respond(connection, before)) == 200
        _, response = attacks.send_endlessly(connection, *ENDLESS[kind])
    assert status(response) == 431
    assert b"65536 bytes at most" in response
    assert counted(address, "head_too_large") == refused + 1
    assert status(ask(address)) == 200


@pytest.mark.parametrize("start", [CHUNKED + b"0\r\nX-Trailer: ", CHUNKED + b"1;extension="])
def test_trailers_and_chunk_extensions_have_the_limit_of_heads(address, start):
    refused = counted(address, "head_too_large")
    with closing(connect(address)) as connection:
        attacks.send_endlessly(connection, start, b"a" * attacks.BLOCK)
    assert counted(address, "head_too_large") == refused + 1


def test_a_long_head_and_one_in_pieces_are_answered(address):
    with closing(connect(address)) as connection:
        assert status(respond(connection, HEAD + b"X-Long: " + b"a" * 60_000 + b"\r\n\r\n")) == 200
        for byte in REQUEST[:-1]:
            connection.sendall(bytes([byte]))
        assert status(respond(connection, REQUEST[-1:])) == 200


@pytest.fixture(scope="module")
def impatient():
    with service(limits_head_seconds=0.5) as (_, address):
        yield address


def persistently(address, attempt):
    """Return the first response; a busy machine may connect so slowly that the service closes the connection before."""
    for _ in range(20):
        with closing(connect(address)) as connection:
            if response := attempt(connection):
                return response
    raise AssertionError("the service never responds")


@pytest.mark.slow
@pytest.mark.parametrize("before", [b"", REQUEST], ids=["first request", "second request"])
@pytest.mark.parametrize("start", [b"G", b"GET /", HEAD, HEAD + b"X-Slow: "])
def test_a_head_that_arrives_too_slowly_is_refused(impatient, start, before):
    def attempt(connection):
        if before and status(respond(connection, before)) != 200:
            return b""
        return attacks.send_slowly(connection, start, b"a" if b" " in start else b"")

    refused = counted(impatient, "head_too_slow")
    response = persistently(impatient, attempt)
    assert status(response) == 408
    assert b"within 0.5 seconds" in response
    assert counted(impatient, "head_too_slow") == refused + 1


@pytest.mark.slow
def test_a_connection_without_a_request_is_closed_without_a_response(impatient):
    refused = counted(impatient, "head_too_slow")
    with closing(connect(impatient)) as connection:
        assert attacks.rest(connection) == b""
    assert counted(impatient, "head_too_slow") == refused


@pytest.mark.slow
def test_an_unread_body_does_not_keep_a_connection_open(impatient):
    def attempt(connection):
        response = respond(connection, REQUEST.replace(b"\r\n\r\n", b"\r\nContent-Length: 1000000\r\n\r\n"))
        return response and response + attacks.send_slowly(connection, b"a")

    response = persistently(impatient, attempt)
    assert status(response) == 200
    assert response.count(b"HTTP/1.1") == 1


@pytest.mark.slow
def test_a_request_may_take_longer_than_its_head(impatient):
    head, body = rank_request("slow")

    def attempt(connection):
        connection.sendall(head)
        with closing(connect(impatient)) as idle:
            attacks.rest(idle)  # is closed when the time for a head is over
        return respond(connection, body)

    assert status(persistently(impatient, attempt)) == 200


needs_limit = pytest.mark.skipif(sys.platform == "win32", reason="descriptors have no limit here")


@pytest.mark.slow
@needs_limit
def test_connections_are_refused_before_descriptors_run_out():
    settings = {"limits_reserved_descriptors": 40, "limits_head_seconds": PATIENCE}
    with service(descriptors=128, **settings) as (process, address), closing(connect(address)) as friend:
        assert status(respond(friend)) == 200
        held, response = attacks.open_until_refused(address, 200)
        assert 40 < len(held) < 88
        assert status(response) == 503
        assert b"connection: close" in response
        assert b"retry-after" in response
        assert counted_by(friend, 'bothworlds_connections_refused_total{reason="descriptors_low"}') >= 1
        assert counted_by(friend, "bothworlds_descriptors_exhausted_total") == 0
        for connection in held:
            connection.close()
        until(lambda: status(ask(address)) == 200)
        assert {"event": "connection refused", "reason": "descriptors_low"} in logged(process)


@pytest.mark.slow
@needs_limit
def test_exhausted_descriptors_are_counted_and_logged():
    with service(descriptors=64) as (process, address), closing(connect(address)) as friend:
        assert status(rank(friend, "hungry")) == 200
        until(lambda: counted_by(friend, "bothworlds_descriptors_exhausted_total") > 0)
        assert status(rank(friend, "sated")) == 200
        until(lambda: status(ask(address)) == 200)
        assert {"event": "descriptors exhausted", "reason": None} in logged(process)


EXPORT = REQUEST.replace(b"/healthz", b"/v1/surfaces/home/export")
DOCUMENT = REQUEST.replace(b"/healthz", b"/openapi.json")
UNFINISHED_EXPORTS = (
    f'bothworlds_requests_total{{method="GET",route="/v1/surfaces/{{surface}}/export",status="{CLIENT_CLOSED}"}}'
)
REFUSED = 'bothworlds_connections_refused_total{reason="write_too_slow"}'


def descriptors_of(process):
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")


@pytest.mark.slow
@needs_proc
def test_an_export_that_the_client_does_not_read_is_aborted_and_releases_the_store():
    with service("log", limits_write_seconds=0.5) as (process, address), closing(connect(address)) as friend:
        assert status(respond(friend)) == 200
        before = descriptors_of(process)
        with closing(connect(address)) as client:
            client.sendall(EXPORT)
            assert "export released\n" in iter(process.stdout.readline, "")
            until(lambda: descriptors_of(process) == before)
            assert counted_by(friend, REFUSED) == 1
            assert b"\r\n0\r\n\r\n" not in attacks.rest(client)  # the client sees that the response is truncated
        until(lambda: counted_by(friend, UNFINISHED_EXPORTS) == 1)
        assert {"event": "connection refused", "reason": "write_too_slow"} in logged(process)


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("last", [b"", REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")])
def test_a_client_that_sends_requests_and_reads_no_response_does_not_keep_its_connection(last):
    with service(limits_write_seconds=0.5) as (process, address), closing(connect(address)) as friend:
        assert status(respond(friend)) == 200
        before = descriptors_of(process)
        with closing(connect(address)) as client:
            client.sendall(DOCUMENT * 500 + last)
            until(lambda: counted_by(friend, REFUSED) == 1)
            until(lambda: descriptors_of(process) == before)
        assert status(respond(friend)) == 200


def counted_by(connection, name):
    return metric(respond(connection, METRICS), name)


def rank(connection, request_id):
    return respond(connection, b"".join(rank_request(request_id)))


def rank_request(request_id):
    """Head and body."""
    body = json.dumps({"request_id": request_id}).encode()
    return b"POST /v1/surfaces/home/rank HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body), body


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def logged(process):
    """Stop the service and return its log."""
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    lines = [json.loads(line) for line in err.splitlines()]
    return [{"event": line["event"], "reason": line.get("reason")} for line in lines]


@needs_limit
@pytest.mark.parametrize(("limit", "ceiling"), [(1024, 896), (100, 50), (-1, float("inf"))])
def test_the_ceiling_leaves_a_reserve_or_half_of_the_descriptors(limit, ceiling, monkeypatch):
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    assert descriptors.descriptor_ceiling(128) == ceiling


FLOOD = 20_000


class Counting:
    """An application that answers ``/flood`` and ``/other``, and requests ``/other`` itself during the flood."""

    def __init__(self):
        self.parsed = self.most_waiting = self.answered = 0
        self.parsed_meanwhile = self.answered_meanwhile = None
        self.other = None

    async def __call__(self, scope, receive, send):
        if scope["path"] == "/other":
            self.parsed_meanwhile, self.answered_meanwhile = self.parsed - self._at[0], self.answered - self._at[1]
        else:
            self.most_waiting = max(self.most_waiting, self.parsed - self.answered)
            self.answered += 1
            if self.answered == 10:
                self._at = self.parsed, self.answered
                self.other.sendall(b"GET /other HTTP/1.1\r\n\r\n")
        await send_response(send, 200, b"", b"text/plain", [])


@contextmanager
def flooded(kind):
    """Yield the application after one client has pipelined many requests to it."""
    app = Counting()

    class Counted(kind):
        def on_headers_complete(self):
            app.parsed += self.url == b"/flood"
            super().on_headers_complete()

    options = {"limits": Limits(), "metrics": Metrics()} if kind is Connection else {}
    with listening(app, http=partial(Counted, **options)) as address:
        with closing(connect(address)) as app.other, closing(connect(address)) as client:
            last = b"GET /flood HTTP/1.1\r\nConnection: close\r\n\r\n"
            received = attacks.flood(client, b"GET /flood HTTP/1.1\r\n\r\n" * FLOOD + last)
            assert received.count(b"HTTP/1.1 200") == FLOOD + 1
            assert status(respond(app.other, b"")) == 200
        yield app


@pytest.mark.slow
def test_a_client_that_pipelines_waits_its_turn():
    with flooded(Connection) as app:
        assert app.most_waiting <= PIECE_BYTES // 23 + 1
        assert app.parsed_meanwhile <= 2 * PIECE_BYTES // 23
        assert app.answered_meanwhile <= 5


@pytest.mark.slow
def test_uvicorn_alone_parses_thousands_of_pipelined_requests_first():
    """If this fails, Uvicorn has fixed it, and requests need not be parsed in pieces."""
    with flooded(HttpToolsProtocol) as app:
        assert app.most_waiting > 1000


@pytest.mark.slow
def test_pipelined_requests_are_answered_in_order_by_the_service(address):
    count = 5000
    requests = [part for number in range(count) for part in rank_request(f"r{number}")]
    with closing(connect(address)) as client, closing(connect(address)) as other:
        received = attacks.flood(client, b"".join([*requests, HEAD, b"Connection: close\r\n\r\n"]))
        assert status(respond(other)) == 200
    events = [part.partition(b'"')[0] for part in received.split(b'"event_id":"')[1:]]
    assert events == [event_of(number) for number in range(count)]


def event_of(number):
    return hashlib.blake2b(f"home\0r{number}".encode(), digest_size=16).hexdigest().encode()


def test_a_large_body_arrives_whole(address):
    body = b'{"events": [' + b" " * 900_000 + b"]}"
    head = b"POST /v1/feedback HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    with closing(connect(address)) as connection:
        for _ in range(3):
            assert respond(connection, head + body).endswith(b'{"results":[]}')


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"


@pytest.mark.parametrize("cut", [0, 1, 60, 200, -5, -1])
@pytest.mark.parametrize("size", [2, 20_000])
def test_a_request_that_offers_another_protocol_is_answered_in_this_one(address, cut, size):
    """``curl --http2`` offers HTTP/2 with every request; RFC 9110 allows to ignore it."""
    plain, body = rank_request("upgrade")
    body += b" " * size
    head = plain.partition(b"Content-Length")[0] + b"Content-Length: %d\r\n" % len(body)
    with closing(connect(address)) as connection:
        expected = respond(connection, head + b"\r\n" + body)
        assert status(expected) == 200
        whole = head + UPGRADE + body
        connection.sendall(whole[:cut])
        assert without_date(respond(connection, whole[cut:])) == without_date(expected)
        assert status(respond(connection, HEAD + UPGRADE)) == 200
        assert status(respond(connection, b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: a\r\n" + UPGRADE)) in (400, 404, 405)


def without_date(response):
    return [line for line in response.split(b"\r\n") if not line.lower().startswith((b"date", b"server-timing"))]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (HttpToolsProtocol, "_unset_keepalive_if_required send_400_response"),
        (HttpToolsProtocol, "connection_made connection_lost data_received on_body on_headers_complete"),
        (HttpToolsProtocol, "on_message_complete on_response_complete"),
        (FlowControl, "pause_reading resume_reading"),
    ],
)
def test_uvicorn_has_the_methods_that_are_overridden(kind, names):
    assert not [name for name in names.split() if not callable(getattr(kind, name, None))]


def test_uvicorn_announces_an_asgi_version_in_which_receive_reports_disconnects():
    """Starlette stops a streamed response by ``receive`` up to 2.3; from 2.4 on, ``send`` has to raise OSError."""
    assert '"spec_version": "2.3"' in inspect.getsource(HttpToolsProtocol.on_message_begin)


@pytest.mark.slow
def test_uvicorn_has_the_attributes_that_are_read():
    cycle = inspect.getsource(RequestResponseCycle.__init__)
    names = ("body", "disconnected", "keep_alive", "message_event", "more_body", "response_complete")
    assert not [name for name in names if f"self.{name} = " not in cycle]
    protocol = inspect.getsource(HttpToolsProtocol)
    names = [
        "app",
        "cycle",
        "expect_100_continue",
        "flow",
        "loop",
        "parser",
        "scope",
        "server_state",
        "tasks",
        "transport",
        "url",
    ]
    assert not [name for name in names if f"self.{name}" not in protocol]
    assert "flow=self.flow" in protocol
    assert FlowControl(None).read_paused is False
