"""The server over sockets: address, and misbehaving clients. Heads, bodies, pipelining, unread responses, junk."""

from __future__ import annotations

import hashlib
import itertools
import json
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from bothworlds.serve.config import Config, Limits
from bothworlds.serve.http.app import CLIENT_CLOSED
from bothworlds.serve.http.server import reserve
from bothworlds.serve.model import event_id_of
from tests.serve.app_server import listening

from . import attacks
from .attacks import HEAD, REQUEST, ask, connect, respond, status
from .service_process import PATIENCE, service, until

METRICS = REQUEST.replace(b"/healthz", b"/metrics")
DOCUMENT = REQUEST.replace(b"/healthz", b"/openapi.json")
EXPORT = REQUEST.replace(b"/healthz", b"/v1/surfaces/home/export")
LAST = REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
FEEDBACK = HEAD.replace(b"GET /healthz", b"POST /v1/feedback")
CHUNKED = FEEDBACK + b"Transfer-Encoding: chunked\r\n\r\n"
END_OF_CHUNKS = b"\r\n0\r\n\r\n"
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


@pytest.fixture(scope="module")
def impatient():
    with service(limits_head_seconds=0.5, limits_body_seconds=0.5) as (_, address):
        yield address


# The port


def test_a_port_is_reserved_before_and_while_a_service_listens():
    reservation, config = reserve(Config(port=0))
    in_use = f"cannot listen on 127.0.0.1 port {config.port}"
    with reservation, pytest.raises(ValueError, match=in_use):
        reserve(config)
    with listening(None, config.port):
        with pytest.raises(ValueError, match=in_use):
            reserve(config)
        with socket.socket() as other:  # what a second Granian does: the system would share the port
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            other.bind((config.host, config.port))


# Heads


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_head_that_never_ends_is_refused(address, kind):
    for before in (b"", REQUEST):
        with closing(connect(address)) as connection:
            assert not before or status(respond(connection, before)) == 200
            _, response = attacks.send_endlessly(connection, *ENDLESS[kind])
        assert status(response) == 431, before
    assert status(ask(address)) == 200


def test_a_long_head_and_one_in_pieces_are_answered(address):
    with closing(connect(address)) as connection:
        assert status(respond(connection, HEAD + b"X-Long: " + b"a" * 60_000 + b"\r\n\r\n")) == 200
        for byte in REQUEST[:-1]:
            connection.sendall(bytes([byte]))
        assert status(respond(connection, REQUEST[-1:])) == 200


@pytest.mark.slow
def test_a_head_that_arrives_too_slowly_or_never_ends_the_connection(impatient):
    def sent(before, start):
        with closing(connect(impatient)) as connection:
            assert not before or status(respond(connection, before)) == 200
            return attacks.send_slowly(connection, start, b"a" if b" " in start else b"")

    cases = list(itertools.product((b"", REQUEST), (b"", b"G", b"GET /", HEAD, HEAD + b"X-Slow: ")))
    with ThreadPoolExecutor(len(cases)) as threads:
        assert list(threads.map(sent, *zip(*cases))) == [b""] * len(cases)
    assert status(ask(impatient)) == 200


# Bodies


@pytest.mark.parametrize("start", [CHUNKED + b"0\r\nX-Trailer: ", CHUNKED + b"1;extension="])
def test_trailers_and_chunk_extensions_that_never_end_are_refused(address, start):
    with closing(connect(address)) as connection:
        _, response = attacks.send_endlessly(connection, start, b"a" * attacks.BLOCK)
    assert status(response) in (0, 400)  # 0: closed while the client was still sending


STARTS = (b"Content-Length: 9\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
UNFINISHED = [
    (b"v1/feedback", b"application/json", 408),
    (b"v1/feedback", b"text/html", 415),
    (b"v1/surfaces/home/rank", b"application/json", 408),
    (b"v1/surfaces/home/reset", b"application/json", 408),
    (b"v1/surfaces/home/import", b"application/x-ndjson", 408),
    (b"v1/keys", b"application/json", 408),
    (b"sign-in", b"application/x-www-form-urlencoded", 408),
    (b"new-surface", b"application/x-www-form-urlencoded", 408),
    (b"nowhere", b"text/plain", 404),
]


@pytest.mark.slow
def test_a_body_that_stops_arriving_does_not_keep_a_connection_open(impatient):
    """Also without garbage collection, which this service does not have."""
    with ExitStack() as stack:
        waiting = []
        for start, (path, kind, expected) in itertools.product(STARTS, UNFINISHED):
            connection = stack.enter_context(closing(connect(impatient)))
            head = HEAD.replace(b"GET /healthz", b"POST /" + path) + b"Content-Type: " + kind + b"\r\n"
            connection.sendall(head + start)
            waiting.append((connection, path, expected))
        for connection, path, expected in waiting:
            assert status(attacks.rest(connection)) == expected, path


@pytest.mark.slow
def test_an_unread_body_does_not_keep_a_connection_open(impatient):
    with closing(connect(impatient)) as connection:
        response = respond(connection, REQUEST.replace(b"\r\n\r\n", b"\r\nContent-Length: 1000000\r\n\r\n"))
        response += attacks.send_slowly(connection, b"a")
    assert status(response) == 200
    assert response.count(b"HTTP/1.1") == 1


@pytest.mark.slow
def test_a_request_may_take_longer_than_its_head(impatient):
    with closing(connect(impatient)) as connection:
        assert status(respond(connection, b"".join(rank_request("slow")))) == 200


def test_a_large_body_arrives_whole(address):
    body = b'{"events": [' + b" " * 900_000 + b"]}"
    head = FEEDBACK + b"Content-Length: %d\r\n\r\n" % len(body)
    with closing(connect(address)) as connection:
        for _ in range(3):
            assert respond(connection, head + body).endswith(b'{"results":[]}')


def test_a_client_that_waits_for_100_continue_sends_no_body_that_is_too_large(address):
    head = FEEDBACK + b"Expect: 100-continue\r\n"
    with closing(connect(address)) as connection:
        assert status(respond(connection, head + b"Content-Length: 9999999\r\n\r\n")) == 413
    with closing(connect(address)) as connection:
        connection.sendall(head + b"Content-Length: 13\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        assert respond(connection, b'{"events":[]}').endswith(b'{"results":[]}')


# Many requests, many connections


FLOOD = 20_000


@pytest.mark.slow
def test_a_client_that_pipelines_waits_its_turn():
    waiting, answered, seen = 0, 0, []
    other_done = threading.Event()

    async def app(scope, receive, send):
        nonlocal waiting, answered
        waiting += 1
        seen.append(waiting)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
        waiting -= 1
        answered += scope["path"] == "/flood"
        if scope["path"] == "/other":
            answered_meanwhile.append(answered)

    answered_meanwhile = []
    with listening(app) as address, closing(connect(address)) as client:

        def ask_until_done():
            with closing(connect(address)) as other:
                while not other_done.is_set():
                    assert status(respond(other, REQUEST.replace(b"/healthz", b"/other"))) == 200

        asking = threading.Thread(target=ask_until_done)
        asking.start()
        try:
            flood = b"GET /flood HTTP/1.1\r\nHost: a\r\n\r\n" * FLOOD
            received = attacks.flood(client, flood + b"GET /flood HTTP/1.1\r\nConnection: close\r\n\r\n")
        finally:
            other_done.set()
            asking.join()
    assert received.count(b"HTTP/1.1 200") == FLOOD + 1
    assert max(seen) <= 2  # one of each connection at a time
    assert sum(0 < count < FLOOD for count in answered_meanwhile) > 100  # the other client is served during the flood


@pytest.mark.slow
def test_pipelined_requests_are_answered_in_order_by_the_service(address):
    count = 2000
    requests = [part for number in range(count) for part in rank_request(f"r{number}")]
    with closing(connect(address)) as client:
        received = attacks.flood(client, b"".join([*requests, LAST]))
    events = [part.partition(b'"')[0] for part in received.split(b'"event_id":"')[1:]]
    assert events == [event_of(number) for number in range(count)]


def event_of(number):
    return event_id_of(1, f"r{number}", bytes(32)).hex().encode()


@pytest.mark.slow
def test_a_thousand_idle_connections_and_slow_heads_do_not_keep_others_out(address):
    with ExitStack() as stack:
        for number in range(1000):
            connection = stack.enter_context(closing(connect(address)))
            connection.sendall(b"" if number % 2 else HEAD)
        assert [status(ask(address)) for _ in range(20)] == [200] * 20


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="descriptors have no limit here")
def test_connections_leave_descriptors_to_the_store_and_go_on_when_others_end():
    with service(descriptors=128, limits_head_seconds=1) as (process, address), ExitStack() as stack:
        for _ in range(100):  # more than are accepted; the others wait
            stack.enter_context(closing(connect(address)))
        assert status(ask(address)) == 200  # once idle ones have been closed
        assert process.poll() is None


# Responses that nobody reads


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")


@pytest.fixture(scope="module")
def inattentive():
    with service(limits_write_seconds=0.5, limits_head_seconds=PATIENCE) as found:
        yield found


def descriptors_of(process):
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


@pytest.mark.slow
@needs_proc
def test_an_export_that_the_client_does_not_read_is_aborted_and_releases_the_store(inattentive):
    process, address = inattentive
    with closing(connect(address)) as friend:
        assert status(respond(friend)) == 200
        before = descriptors_of(process)
        with closing(connect(address)) as client:
            client.sendall(EXPORT)
            assert "export released\n" in iter(process.stdout.readline, "")
            until(lambda: descriptors_of(process) == before)
            assert END_OF_CHUNKS not in attacks.rest(client)  # the client sees that the response is truncated
        unfinished = f'route="/v1/surfaces/{{surface}}/export",status="{CLIENT_CLOSED}"'.encode()
        until(lambda: unfinished in respond(friend, METRICS))


@pytest.mark.slow
@needs_proc
def test_a_client_that_sends_requests_and_reads_no_response_does_not_keep_its_connection(inattentive):
    process, address = inattentive
    with closing(connect(address)) as friend:
        assert status(respond(friend)) == 200
        before = descriptors_of(process)
        with closing(connect(address)) as client, closing(connect(address)) as other:
            client.sendall(DOCUMENT * 500)
            other.sendall(DOCUMENT * 500 + LAST)
            until(lambda: descriptors_of(process) == before)
        assert status(respond(friend)) == 200


@pytest.mark.slow
def test_an_export_that_fails_midway_is_truncated_visibly():
    """Granian before 2.8.7 ended the response as if it were complete."""
    with service("failing") as (_, address), closing(connect(address)) as client:
        client.sendall(EXPORT)
        received = attacks.rest(client)
    assert status(received) == 200
    assert b'"event"' in received
    assert END_OF_CHUNKS not in received


@pytest.mark.slow
def test_a_client_that_reads_slowly_gets_all():
    size, block = 32 << 20, 1 << 20

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(size)})

    with listening(app, limits=Limits(write_seconds=0.5)) as address, closing(connect(address)) as client:
        client.sendall(LAST)
        received = 0
        while part := attacks.receive(client, block):
            received += len(part)
            time.sleep(0.05)  # all of it takes longer than the timeout
    assert received > size


# Other protocols, and junk


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
        assert body_of(respond(connection, whole[cut:])) == body_of(expected)
        assert status(respond(connection, HEAD + UPGRADE)) == 200
    tunnel = b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n" + UPGRADE
    assert status(ask(address, tunnel)) in (400, 404, 405)


def body_of(response):
    return response.partition(b"\r\n\r\n")[2]


JUNK = [
    b"\x00\xff\xfe" * 50 + b"\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # TLS
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(30),
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET  HTTP/1.1\r\n\r\n",
    b"GET /%ff%00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /\xc3\xa9?\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /sign-in?next=%ff HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: \xff\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n\r\n",
    b"GET http://evil.example/healthz HTTP/1.1\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"BREW /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    HEAD + b"a:b\r\n" * 150 + b"\r\n",
    HEAD + b"a\x00b: c\r\n\r\n",
    HEAD + b"Content-Length: -1\r\n\r\n",
    HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
    CHUNKED + b"zz\r\n\r\n",
    CHUNKED + b"fffffffffffffffffff\r\n",
    CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    CHUNKED[:-2] + b"Content-Encoding: gzip\r\n\r\n0\r\n\r\n",
]


@pytest.mark.parametrize("junk", JUNK)
def test_junk_is_refused_and_no_input_is_a_server_error(address, junk):
    with closing(connect(address)) as connection:
        connection.sendall(junk)
        connection.shutdown(socket.SHUT_WR)
        received = attacks.rest(connection)
    assert status(received) < 500
    assert status(ask(address)) == 200


@pytest.mark.slow
def test_random_bytes_after_a_valid_start_are_no_server_error(address):
    random = hashlib.shake_256(b"junk").digest(200 * 64)
    starts = (b"", HEAD, CHUNKED, b"".join(rank_request("r"))[:-3], b"POST /v1/surfaces/%")
    for number in range(200):
        with closing(connect(address)) as connection:
            connection.sendall(starts[number % len(starts)] + random[64 * number : 64 * number + 64] + b"\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
            assert status(attacks.rest(connection)) < 500
    assert status(ask(address)) == 200


def rank_request(request_id):
    """Head and body."""
    body = json.dumps({"request_id": request_id}).encode()
    return b"POST /v1/surfaces/home/rank HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body), body
