"""Reading request bodies: too large, too slow, endless, disconnected."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from bothworlds.serve.config import Config, Limits
from bothworlds.serve.http.app import CLIENT_CLOSED, Service
from tests.serve.running import temporary_store

from .conftest import engine_on

LONG, SHORT = 3600.0, 0.01  # seconds: longer than any test takes, and so short that they pass at once


def responses_to(messages, path="/v1/feedback", headers=(), method="POST", pause=0.0, seconds=LONG):
    """Call the application with a body in these pieces; return the messages sent, the pieces left, and the service."""
    left, sent = deque(messages), []

    async def receive():
        await asyncio.sleep(pause if left else LONG)
        return left.popleft()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    tiny = Config(limits=Limits(body_bytes=100, body_seconds=seconds), request_log=False)
    store = temporary_store()
    service = Service(engine_on(store), store, tiny)
    asyncio.run(service({**scope, "headers": list(headers)}, receive, send))
    return sent, left, service


def piece(body, more=True):
    return {"type": "http.request", "body": body, "more_body": more}


ENDLESS = [*[piece(b"")] * 100_000, piece(b"", more=False)]  # more than can come in before the timeout


def test_a_body_in_pieces_is_joined():
    sent, _, _ = responses_to([piece(b'{"eve'), piece(b'nts": '), piece(b"[]}", more=False)])
    assert (sent[0]["status"], sent[1]["body"]) == (200, b'{"results":[]}')


def test_a_body_that_is_too_large_is_413_and_the_rest_is_not_read():
    sent, left, _ = responses_to([piece(b"x"), piece(b"x", more=False)], headers=[(b"content-length", b"101")])
    assert (sent[0]["status"], len(left)) == (413, 2)
    assert (b"connection", b"close") in sent[0]["headers"]
    sent, left, _ = responses_to([piece(b"x" * 40)] * 9)
    assert (sent[0]["status"], len(left)) == (413, 6)


def test_the_end_of_a_body_of_known_length_is_not_awaited():
    sent, _, _ = responses_to([piece(b'{"events": []}')], headers=[(b"content-length", b"14")])
    assert sent[0]["status"] == 200


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.0, 1e-4, 1e-3])
def test_empty_pieces_do_not_extend_the_timeout(pause):
    for _ in range(10):  # a timeout that passes just when a piece comes in must not be forgotten
        sent, left, _ = responses_to(ENDLESS, headers=[(b"content-length", b"50")], pause=pause, seconds=SHORT)
        assert sent[0]["status"] == 408
        assert left


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/keys"])
@pytest.mark.parametrize("before", [[], [piece(b"{")]])
def test_a_body_that_is_incomplete_or_malformed_is_400_and_counted_as_closed(path, before):
    sent, _, service = responses_to([*before, {"type": "http.disconnect"}], path=path)
    assert sent[0]["status"] == 400
    assert f'status="{CLIENT_CLOSED}"' in service.metrics.exposition().decode()


def test_an_invalid_content_length_is_not_trusted():
    sent, _, _ = responses_to([piece(b'{"events": []}', more=False)], headers=[(b"content-length", b"9" * 5000)])
    assert sent[0]["status"] == 413
    sent, _, _ = responses_to([piece(b'{"events": []}', more=False)], headers=[(b"content-length", b"-1")])
    assert sent[0]["status"] == 200
