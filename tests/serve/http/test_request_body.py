"""Bodies that are too large, too slow, or never end."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from bothworlds.serve.config import Config, Limits
from bothworlds.serve.http import request_body
from bothworlds.serve.http.app import CLIENT_CLOSED, Service
from tests.serve.fake_engine import FakeEngine
from tests.serve.fakes import FakeStore

LONG, SHORT = 3600.0, 0.01  # seconds that nothing here takes, however slow the machine, and that pass at once


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    monkeypatch.setattr(request_body, "LINGER_SECONDS", LONG)
    monkeypatch.setattr(request_body, "SILENCE_SECONDS", LONG)


def answered(messages, path="/v1/feedback", headers=(), method="POST", pause=0.0, seconds=LONG):
    """Call the application with a body that comes in these pieces; the status, the answer, and the pieces left."""
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


def test_a_body_in_pieces_is_put_together():
    sent, _, _ = answered([piece(b'{"eve'), piece(b'nts": '), piece(b"[]}", more=False)])
    assert (sent[0]["status"], sent[1]["body"]) == (200, b'{"results":[]}')


def test_whoever_sends_too_much_is_heard_out_and_then_refused():
    sent, left, _ = answered([piece(b"x"), piece(b"x", more=False)], headers=[(b"content-length", b"101")])
    assert (sent[0]["status"], len(left)) == (413, 0)
    assert (b"connection", b"close") in sent[0]["headers"]
    sent, left, _ = answered([piece(b"x" * 40)] * 9 + [piece(b"x", more=False)])
    assert (sent[0]["status"], len(left)) == (413, 0)


def test_whoever_sends_without_end_is_not_heard_out(monkeypatch):
    monkeypatch.setattr(request_body, "LINGER_BYTES", 200)
    sent, left, _ = answered([piece(b"x" * 40)] * 10)
    assert (sent[0]["status"], len(left)) == (413, 2)
    for told in ((b"content-length", b"201"), (b"expect", b"100-continue")):
        sent, left, _ = answered([piece(b"x")], headers=[told, (b"content-length", b"150")])
        assert (sent[0]["status"], len(left)) == (413, 1)


@pytest.mark.parametrize("patience", ["LINGER_SECONDS", "SILENCE_SECONDS"])
def test_whoever_listens_before_sending_the_rest_is_answered(patience, monkeypatch):
    monkeypatch.setattr(request_body, patience, SHORT)
    sent, _, _ = answered([piece(b"x")], headers=[(b"content-length", b"101")])
    assert sent[0]["status"] == 413


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/surfaces/home/rank", "/v1/keys"])
@pytest.mark.parametrize("arrived", [[], [piece(b"{")]])
def test_a_body_that_stops_arriving_is_given_up(path, arrived):
    sent, _, _ = answered(arrived, path=path, seconds=SHORT)
    assert sent[0]["status"] == 408


@pytest.mark.parametrize(("said", "status"), [(b"50", 408), (b"150", 413)])
@pytest.mark.parametrize("pause", [0.0, 1e-4, 1e-3])
def test_whoever_sends_nothing_again_and_again_does_not_stay_for_ever(said, status, pause, monkeypatch):
    monkeypatch.setattr(request_body, "LINGER_SECONDS", SHORT)
    for _ in range(10):  # a timeout that passes just when a piece comes in must not be forgotten
        sent, left, _ = answered(ENDLESS, headers=[(b"content-length", said)], pause=pause, seconds=SHORT)
        assert sent[0]["status"] == status
        assert left


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/keys"])
@pytest.mark.parametrize("before", [[], [piece(b"{")]])
def test_nobody_is_answered_who_has_hung_up(path, before):
    sent, _, service = answered([*before, {"type": "http.disconnect"}], path=path)
    assert sent == []
    assert f'status="{CLIENT_CLOSED}"' in service.metrics.exposition().decode()


def test_a_length_that_is_no_number_is_not_believed():
    sent, _, _ = answered([piece(b'{"events": []}', more=False)], headers=[(b"content-length", b"9" * 5000)])
    assert sent[0]["status"] == 413
    sent, _, _ = answered([piece(b'{"events": []}', more=False)], headers=[(b"content-length", b"-1")])
    assert sent[0]["status"] == 200
