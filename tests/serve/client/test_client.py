"""The Python clients: requests, retries, fallbacks, and batches of clicks, also when the service fails."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import get_type_hints

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from bothworlds.serve import schemas
from bothworlds.serve.client import types
from bothworlds.serve.client.client import AsyncClient, Client, ClientError, Page
from bothworlds.serve.model import Arm, Status
from tests.serve.app_server import listening
from tests.serve.fake_service import FakeService

PATIENCE = 60.0  # a machine that is busy with other tests may take long


@pytest.fixture
def service():
    return FakeService()


@pytest.fixture
def address(service):
    with listening(service.app) as address:
        yield address


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def client(address, pauses):
    # The timer is out of the way: tests flush when they mean to.
    with Client(address, timeout=PATIENCE, flush_seconds=3600, pause=pauses.append) as client:
        yield client


@pytest.fixture
def nowhere():
    """An address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize(
    ("client_type", "schema"),
    [
        (types.FeedbackEvent, schemas.FeedbackEvent),
        (types.FeedbackResult, schemas.Accepted),
        (types.PlacedItem, schemas.PlacedItem),
        (types.Ranking, schemas.Ranking),
    ],
)
def test_the_types_of_the_client_are_those_of_the_schemas(client_type, schema):
    mine = get_type_hints(client_type, localns={"Arm": Arm, "Status": Status})
    theirs = get_type_hints(schema)
    assert list(mine) == list(theirs)
    for name in mine.keys() - {"slots"}:
        assert mine[name] == theirs[name], name


def test_a_page_has_the_items_of_the_answer_in_order(client):
    page = client.rank("home", "r1")
    assert (page.items, page.event_id, page.p, page.learned) == (["d", "c", "b"], "event of r1", (0.5, 0.5, 0.5), True)


def test_a_page_knows_the_segment_it_was_drawn_for(client):
    slots = [{"slot": 0, "item": "a", "p": 1.0, "pinned": False, "learn": True}]
    answer = {"surface": "home", "event_id": "e", "token": "t", "arm": "learner", "policy_id": "p", "slots": slots}
    assert Page.of({**answer, "segment": "mobile", "later": 1}).segment == "mobile"
    assert Page.of(answer).segment == ""  # a service that does not say


def test_what_is_asked_for_is_sent_as_documented(client, service):
    client.rank("home", "r1", segment="mobile", exclude=["d"], pins={0: "c"})
    assert service.ranks == [
        {"request_id": "r1", "segment": "mobile", "exclude": ["d"], "pins": [{"slot": 0, "item": "c"}]}
    ]


def test_a_surface_with_an_odd_name_is_reached(client):
    assert client.rank("für dich?", "r").surface == "für dich?"


def test_the_key_goes_with_every_call(address, service):
    with Client(address, "bw_1_secret", timeout=PATIENCE) as client:
        client.rank("home")
    assert service.headers[0]["authorization"] == "Bearer bw_1_secret"


def test_request_ids_are_made_up_and_differ(client, service):
    client.rank("home")
    client.rank("home")
    assert len({asked["request_id"] for asked in service.ranks}) == 2


def test_a_service_that_is_away_for_a_moment_is_asked_again_with_the_same_request(client, service, pauses):
    service.failing = [503, 503]
    assert client.rank("home", "r1").event_id == "event of r1"
    assert len(pauses) == 2
    assert pauses[1] > pauses[0] / 3


def test_an_answer_that_does_not_come_is_asked_for_again(address, service, pauses):
    service.failing = [0]
    with Client(address, timeout=1.0, tries=20, pause=pauses.append) as client:
        assert client.rank("home", "r1").learned
    assert pauses


def test_what_the_service_refuses_is_not_asked_again(client, service, pauses):
    service.failing = [422]
    with pytest.raises(ClientError, match="not now") as refused:
        client.rank("home")
    assert refused.value.status == 422
    assert not pauses


def test_a_fallback_makes_rank_fail_open_at_once(client, service, pauses):
    service.failing = [503]
    page = client.rank("home", exclude=["b"], fallback=["a", "b", "c"])
    assert (page.items, page.learned, pauses) == (["a", "c"], False, [])


def test_nobody_listening_fails_open_too(nowhere):
    with Client(nowhere, timeout=0.5) as client:
        assert client.rank("home", fallback=["a", "b"]) == Page.own(["a", "b"], "home")


def test_whoever_waits_for_a_list_waits_once_though_the_connection_was_used_before(client, service):
    client.rank("home")
    client._http._idle.queue[0].sock.settimeout(0.1)
    service.failing = [0]
    assert not client.rank("home", fallback=["a"]).learned


@pytest.mark.parametrize("said", ["<html>Sign in to the network</html>", "", "[]"])
def test_an_answer_that_is_none_of_the_service_is_none(said, pauses):
    async def proxy(request):
        return PlainTextResponse(said)

    app = Starlette(routes=[Route("/{path:path}", proxy, methods=["POST"])])
    with listening(app) as address:
        client = Client(address, timeout=PATIENCE, flush_seconds=3600, pause=pauses.append)
        assert client.rank("home", fallback=["a", "b"]) == Page.own(["a", "b"], "home")
        client.click(Page("home", ["a"], "event", "token"), 0)
        assert not client.flush()
        assert (client.queued, client.dropped) == (1, 0)
        client.close()
        assert client.dropped == 1


def test_without_a_fallback_no_answer_is_an_error(nowhere):
    with Client(nowhere, tries=1, timeout=0.5) as client, pytest.raises(ClientError, match="no answer from") as error:
        client.rank("home")
    assert error.value.status == 0


def test_clicks_are_sent_together_and_merged(client, service):
    first, second = client.rank("home", "r1"), client.rank("home", "r2")
    client.click(first, 2)
    client.click(first, 0)
    client.done(second)
    assert client.flush()
    assert len(service.batches) == 1
    assert service.clicks == {"event of r1": ({0, 2}, False), "event of r2": (set(), True)}


def test_nothing_is_reported_of_a_page_in_its_own_order(client, service):
    client.done(Page.own(["a"]), 0)
    assert client.flush()
    assert service.batches == []


def test_clicks_that_could_not_be_sent_wait_and_merge_with_later_ones(client, service):
    page = client.rank("home", "r1")
    client.click(page, 0)
    service.failing = [503] * 4
    assert not client.flush()
    client.done(page, 2)
    assert client.flush()
    assert service.clicks == {"event of r1": ({0, 2}, True)}


def test_clicks_that_the_service_refuses_are_counted_as_dropped(client, service):
    client.click(client.rank("home"), 0)
    service.failing = [422]
    assert not client.flush()
    assert client.flush()
    assert client.dropped == 1


def test_a_batch_that_the_service_refuses_takes_no_other_with_it(client, service, monkeypatch):
    monkeypatch.setattr("bothworlds.serve.client.client.BATCH", 2)
    pages = [client.rank("home", f"r{k}") for k in range(5)]
    with client._sending:  # otherwise a click would send a full batch
        for page in pages:
            client.click(page, 0)
    service.failing = [422]
    assert not client.flush()
    assert service.clicks.keys() == {"event of r2", "event of r3", "event of r4"}
    assert client.dropped == 2


def test_clicks_that_the_service_rejects_one_by_one_are_counted_as_dropped(client, service, caplog):
    service.rejecting = True
    client.click(client.rank("home"), 0)
    assert client.flush() is True
    assert client.dropped == 1
    assert "rejected 1 events" in caplog.text


def test_clicks_are_sent_by_themselves_after_a_while(address, service):
    arrived = threading.Event()
    service.batches = Noticed(arrived)
    with Client(address, timeout=PATIENCE, flush_seconds=0.01) as client:
        client.click(client.rank("home", "r1"), 1)
        assert arrived.wait(PATIENCE)


class Noticed(list):
    def __init__(self, event):
        super().__init__()
        self._event = event

    def append(self, value):
        super().append(value)
        self._event.set()


def test_closing_sends_what_waits(address, service):
    with Client(address, timeout=PATIENCE, flush_seconds=3600) as client:
        client.click(client.rank("home", "r1"), 1)
    assert service.clicks == {"event of r1": ({1}, False)}


def ran(script, address):
    """A program of its own with a client, in which a visitor has clicked once."""
    start = f"""
import os, threading
from bothworlds.serve.client.client import Client
client = Client({address!r}, timeout={PATIENCE}, flush_seconds=3600)
client.click(client.rank("home", "r1"), 1)
"""
    subprocess.run([sys.executable, "-c", start + script], check=True, timeout=PATIENCE)


def test_a_program_that_ends_sends_what_waits(address, service):
    ran("", address)
    assert service.clicks == {"event of r1": ({1}, False)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_process_that_is_forked_off_has_connections_and_clicks_of_its_own(address, service):
    forking = """
with client._lock:  # as another thread of the parent might
    pid = os.fork()
if pid:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
else:
    assert (client.queued, client._http._idle.qsize()) == (0, 0)
    sent, feedback = threading.Event(), client.feedback
    def noticed(events):
        results = feedback(events)
        sent.set()
        return results
    client.feedback, client._flush_seconds = noticed, 0.01
    client.click(client.rank("home", "r2"), 2)
    assert sent.wait(60)  # by the timer
    client.flush()
    os._exit(0)
"""
    ran(forking, address)
    sent = [event["event_id"] for batch in service.batches for event in batch]
    assert sent == ["event of r2", "event of r1"]


class NoticedLock:
    """A lock that counts attempts to take it in ``attempts``."""

    def __init__(self):
        self._lock, self.attempts = threading.Lock(), threading.Semaphore(0)

    def __enter__(self):
        self.attempts.release()
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()


def test_closing_waits_for_a_flush_under_way_and_sends_what_that_could_not(address, service):
    paused, go_on = threading.Event(), threading.Event()

    def pause(_):
        paused.set()
        assert go_on.wait(PATIENCE)

    client = Client(address, timeout=PATIENCE, flush_seconds=3600, tries=2, pause=pause)
    client.click(client.rank("home", "r1"), 1)
    service.failing = [503, 503]
    client._sending = sending = NoticedLock()
    with ThreadPoolExecutor(2) as threads:
        flushing = threads.submit(client.flush)
        assert paused.wait(PATIENCE)
        assert sending.attempts.acquire(timeout=PATIENCE)  # by flush
        closing = threads.submit(client.close)
        assert sending.attempts.acquire(timeout=PATIENCE)  # by close, which waits
        go_on.set()
        assert not flushing.result()
        closing.result()
    assert service.clicks == {"event of r1": ({1}, False)}


def test_a_click_does_not_wait_for_others_that_are_being_sent(address, service, monkeypatch):
    monkeypatch.setattr("bothworlds.serve.client.client.BATCH", 1)
    with Client(address, timeout=PATIENCE, flush_seconds=3600) as client:
        page = client.rank("home", "r1")
        with client._sending:
            client.click(page, 1)
        assert service.batches == []
    assert service.clicks == {"event of r1": ({1}, False)}


def counting(statuses):
    """A route that gives these answers, and how often it was called."""
    calls = []

    async def answer(request):
        calls.append(request.method)
        return JSONResponse({"detail": "not now"}, statuses[len(calls) - 1], {"Retry-After": "0"})

    return calls, answer


@pytest.mark.parametrize(("method", "often"), [("GET", 3), ("PUT", 3), ("DELETE", 3), ("POST", 1), ("PATCH", 1)])
def test_only_calls_that_come_to_the_same_are_made_again(method, often):
    calls, answer = counting([503, 503, 200])
    service = FakeService(more_routes=[Route("/v1/thing", answer, methods=[method])])
    with listening(service.app) as address, Client(address, timeout=PATIENCE, pause=lambda _: None) as client:
        if often == 1:
            with pytest.raises(ClientError, match="not now"):
                client.call(method, "/v1/thing", {})
        else:
            client.call(method, "/v1/thing", {})
    assert calls == [method] * often


def test_a_call_that_must_not_be_repeated_gets_a_connection_of_its_own():
    calls, answer = counting([200])
    service = FakeService(more_routes=[Route("/v1/keys", answer, methods=["POST"])])
    with listening(service.app) as address, Client(address, timeout=PATIENCE) as client:
        client.rank("home", "r1")
        client._http._idle.queue[0].sock.close()  # on this one, it could not be told whether the call was made
        client.call("POST", "/v1/keys", {})
        assert (calls, client._http._idle.qsize()) == (["POST"], 2)


def test_threads_may_share_a_client(client, service):
    with ThreadPoolExecutor(8) as threads:
        pages = list(threads.map(lambda i: client.rank("home", f"r{i}"), range(100)))
        list(threads.map(lambda page: client.done(page, 1), pages))
    assert client.flush()
    assert service.clicks == {f"event of r{i}": ({1}, True) for i in range(100)}


def test_an_idle_connection_that_was_closed_is_replaced(service, pauses):
    with listening(service.app) as address:
        client = Client(address, timeout=PATIENCE, pause=pauses.append)
        client.rank("home", "r1")
        client._http._idle.queue[0].sock.close()
        assert client.rank("home", "r2").learned
        assert not pauses
        client.close()


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://x", "http://"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ValueError, match="url must be like"):
        Client(url)


def test_the_asynchronous_client_does_the_same(address, service):
    async def visits():
        async with AsyncClient(address, timeout=PATIENCE, flush_seconds=3600) as client:
            pages = await asyncio.gather(*(client.rank("home", f"r{i}") for i in range(20)))
            await asyncio.gather(*(client.done(page, 0) for page in pages))
            assert await client.flush()
            results = await client.feedback([{"event_id": "x", "token": "", "clicks": [], "final": True}])
            service.failing = [503]
            own = await client.rank("home", fallback=["z"])
            return results, own.items

    assert asyncio.run(visits()) == ([{"event_id": "x", "status": "accepted"}], ["z"])
    assert {event: clicks for event, clicks in service.clicks.items() if event != "x"} == {
        f"event of r{i}": ({0}, True) for i in range(20)
    }
