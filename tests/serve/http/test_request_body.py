"""Reading request bodies: too large, too slow, endless, disconnected."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from bothworlds.serve.config import Config, Limits
from bothworlds.serve.http import request_body
from bothworlds.serve.http.app import CLIENT_CLOSED, Service
from tests.serve.fake_engine import FakeEngine
from tests.serve.fakes import FakeStore

LONG, SHORT = 3600.0, 0.01  # seconds: longer than any test takes, and so short that they pass at once


@pytest.fixture(autouse=True)
def without_lingering_timeouts(monkeypatch):
    monkeypatch.setattr(request_body, "LINGER_SECONDS", LONG)
    monkeypatch.setattr(request_body, "SILENCE_SECONDS", LONG)


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
    service = Service(FakeEngine([]), FakeStore(), tiny)
    asyncio.run(service({**scope, "headers": list(headers)}, receive, send))
    return sent, left, service


def piece(body, more=True):
    return {"type": "http.request", "body": body, "more_body": more}


ENDLESS = [*[piece(b"")] * 100_000, piece(b"", more=False)]  # more than can come in before the timeout


def test_a_body_in_pieces_is_joined():
    sent, _, _ = responses_to([piece(b'{"eve'), piece(b'nts": '), piece(b"[]}", more=False)])
    assert (sent[0]["status"], sent[1]["body"]) == (200, b'{"results":[]}')


def test_the_rest_of_a_too_large_body_is_discarded_before_the_413():
    sent, left, _ = responses_to([piece(b"x"), piece(b"x", more=False)], headers=[(b"content-length", b"101")])
    assert (sent[0]["status"], len(left)) == (413, 0)
    assert (b"connection", b"close") in sent[0]["headers"]
    sent, left, _ = responses_to([piece(b"x" * 40)] * 9 + [piece(b"x", more=False)])
    assert (sent[0]["status"], len(left)) == (413, 0)


def test_only_a_limited_part_of_a_too_large_body_is_discarded(monkeypatch):
    monkeypatch.setattr(request_body, "LINGER_BYTES", 200)
    sent, left, _ = responses_to([piece(b"x" * 40)] * 10)
    assert (sent[0]["status"], len(left)) == (413, 2)
    for told in ((b"content-length", b"201"), (b"expect", b"100-continue")):
        sent, left, _ = responses_to([piece(b"x")], headers=[told, (b"content-length", b"150")])
        assert (sent[0]["status"], len(left)) == (413, 1)


@pytest.mark.parametrize("patience", ["LINGER_SECONDS", "SILENCE_SECONDS"])
def test_a_client_that_pauses_gets_the_413(patience, monkeypatch):
    monkeypatch.setattr(request_body, patience, SHORT)
    sent, _, _ = responses_to([piece(b"x")], headers=[(b"content-length", b"101")])
    assert sent[0]["status"] == 413


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/surfaces/home/rank", "/v1/keys"])
@pytest.mark.parametrize("arrived", [[], [piece(b"{")]])
def test_a_body_that_stops_arriving_is_408(path, arrived):
    sent, _, _ = responses_to(arrived, path=path, seconds=SHORT)
    assert sent[0]["status"] == 408


@pytest.mark.slow
@pytest.mark.parametrize(("said", "status"), [(b"50", 408), (b"150", 413)])
@pytest.mark.parametrize("pause", [0.0, 1e-4, 1e-3])
def test_empty_pieces_do_not_extend_the_timeout(said, status, pause, monkeypatch):
    monkeypatch.setattr(request_body, "LINGER_SECONDS", SHORT)
    for _ in range(10):  # a timeout that passes just when a piece comes in must not be forgotten
        sent, left, _ = responses_to(ENDLESS, headers=[(b"content-length", said)], pause=pause, seconds=SHORT)
        assert sent[0]["status"] == status
        assert left


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/keys"])
@pytest.mark.parametrize("before", [[], [piece(b"{")]])
def test_a_disconnected_client_gets_no_response(path, before):
    sent, _, service = responses_to([*before, {"type": "http.disconnect"}], path=path)
    assert sent == []
    assert f'status="{CLIENT_CLOSED}"' in service.metrics.exposition().decode()


def test_an_invalid_content_length_is_not_trusted():
    sent, _, _ = responses_to([piece(b'{"events": []}', more=False)], headers=[(b"content-length", b"9" * 5000)])
    assert sent[0]["status"] == 413
    sent, _, _ = responses_to([piece(b'{"events": []}', more=False)], headers=[(b"content-length", b"-1")])
    assert sent[0]["status"] == 200
