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
from bothworlds.serve.client.client import AsyncClient, Client, FeedbackEvent, FeedbackResult, Page
from bothworlds.serve.client.http import ClientError
from bothworlds.serve.model import Status
from tests.commands import run
from tests.serve.app_server import listening
from tests.serve.recorded_service import RecordedService

PATIENCE = 60.0  # a machine that is busy with other tests may take long


@pytest.fixture
def service():
    return RecordedService(["home", "für dich?"])


@pytest.fixture
def address(service):
    with listening(service, started=True) as address:
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
    ("client_type", "schema"), [(FeedbackEvent, schemas.FeedbackEvent), (FeedbackResult, schemas.Accepted)]
)
def test_the_types_of_the_client_are_those_of_the_schemas(client_type, schema):
    mine, theirs = get_type_hints(client_type, localns={"Status": Status}), get_type_hints(schema)
    assert (list(mine), mine) == (list(theirs), theirs)


def test_a_page_has_the_items_of_the_answer_in_order(client, service):
    page = client.rank("home", "r1")
    assert (page.items, page.event_id, page.learned) == (["d", "c", "b"], service.event("r1"), True)
    assert all(0.99 < p < 1.0 for p in page.p)


def test_a_page_has_the_segment_that_was_used(client):
    slots = [{"slot": 0, "item": "a", "p": 1.0, "pinned": False, "learn": True}]
    answer = {"surface": "home", "event_id": "e", "token": "t", "arm": "learner", "policy_id": "p", "slots": slots}
    assert Page.of({**answer, "segment": "mobile", "later": 1}).segment == "mobile"
    assert Page.of({**answer, "context": {"device": ""}}).context == {"device": ""}
    assert (Page.of(answer).segment, Page.of(answer).context) == ("", {})  # a service that does not say


def test_rank_sends_the_documented_fields(client, service):
    client.rank(
        "home", "r1", segment="mobile", context={"segment": "mobile"}, exclude=["d"], pins={0: "c"}, visitor="v1"
    )
    assert service.ranks == [
        {
            "request_id": "r1",
            "segment": "mobile",
            "context": {"segment": "mobile"},
            "visitor": "v1",
            "exclude": ["d"],
            "pins": [{"slot": 0, "item": "c"}],
        }
    ]


def test_names_of_surfaces_are_percent_encoded(client):
    assert client.rank("für dich?", "r").surface == "für dich?"


def test_the_key_is_sent_with_every_request(address, service):
    with Client(address, "bw_1_secret", timeout=PATIENCE) as client:
        client.rank("home")
    assert service.headers[0]["authorization"] == "Bearer bw_1_secret"


def test_request_ids_are_generated_and_unique(client, service):
    client.rank("home")
    client.rank("home")
    assert len({asked["request_id"] for asked in service.ranks}) == 2


def test_an_unavailable_service_is_retried_with_the_same_request(client, service, pauses):
    service.failing = [503, 503]
    assert client.rank("home", "r1").event_id == service.event("r1")
    assert len(pauses) == 2
    assert pauses[1] > pauses[0] / 3


@pytest.mark.slow
def test_a_timeout_is_retried(address, service, pauses):
    service.failing = [0]
    with Client(address, timeout=1.0, tries=20, pause=pauses.append) as client:
        assert client.rank("home", "r1").learned
    assert pauses


def test_a_refused_request_is_not_retried(client, service, pauses):
    service.failing = [422]
    with pytest.raises(ClientError, match="not now") as refused:
        client.rank("home")
    assert refused.value.status == 422
    assert not pauses


def test_with_a_fallback_rank_is_not_retried(client, service, pauses):
    service.failing = [503]
    page = client.rank("home", exclude=["b"], fallback=["a", "b", "c"])
    assert (page.items, page.learned, pauses) == (["a", "c"], False, [])


def test_the_fallback_is_used_if_the_connection_is_refused(nowhere):
    with Client(nowhere, timeout=0.5) as client:
        assert client.rank("home", fallback=["a", "b"]) == Page.own(["a", "b"], "home")


@pytest.mark.slow
def test_with_a_fallback_a_reused_connection_times_out_once(client, service):
    client.rank("home")
    client._http._idle.queue[0].sock.settimeout(0.1)
    service.failing = [0]
    assert not client.rank("home", fallback=["a"]).learned


@pytest.mark.parametrize("said", ["<html>Sign in to the network</html>", "", "[]"])
def test_a_response_of_a_proxy_is_an_error(said, pauses):
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


def test_without_a_fallback_no_response_is_an_error(nowhere):
    with Client(nowhere, tries=1, timeout=0.5) as client, pytest.raises(ClientError, match="no answer from") as error:
        client.rank("home")
    assert error.value.status == 0


def test_rewards_are_merged_by_the_maximum(client, service):
    page = client.rank("home", "r1")
    client.reward(page, {0: 0.5, 1: 0.25})
    client.reward(page, {1: 0.75, 0: 0.125}, final=True)
    client.reward(Page.own(["a"]), {0: 1.0})
    for value in (1.5, -0.1, float("nan")):
        with pytest.raises(ValueError, match="from 0 to 1"):
            client.reward(page, {0: value})
    assert client.flush()
    ((event,),) = service.batches
    assert (event["rewards"], event["clicks"], event["final"]) == ({"0": 0.5, "1": 0.75}, [], True)


def test_clicks_are_sent_together_and_merged(client, service):
    first, second = client.rank("home", "r1"), client.rank("home", "r2")
    client.click(first, 2)
    client.click(first, 0)
    client.done(second)
    assert client.flush()
    assert len(service.batches) == 1
    assert service.clicks == {service.event("r1"): ({0, 2}, False), service.event("r2"): (set(), True)}


def test_a_list_is_reported_as_shown_unless_the_caller_says_otherwise(client, service):
    client.rank("home", "r1")
    unsure, unseen = client.rank("home", "r2", shown=False), client.rank("home", "r3")
    client.click(unsure, 0)
    client.shown(unseen, False)
    assert client.flush()
    ((first, second, third),) = service.batches
    assert (first["shown"], second.get("shown"), third["shown"]) == (True, None, False)


def test_a_list_that_was_shown_stays_so_with_later_clicks(client, service):
    client.click(client.rank("home", "r1"), 2, final=True)
    assert client.flush()
    assert [(event["shown"], event["clicks"], event["final"]) for event in service.batches[0]] == [(True, [2], True)]


def test_no_feedback_is_sent_for_a_page_in_its_own_order(client, service):
    client.done(Page.own(["a"]), 0)
    assert client.flush()
    assert service.batches == []


def test_clicks_that_could_not_be_sent_stay_queued_and_merge_with_later_ones(client, service):
    page = client.rank("home", "r1")
    client.click(page, 0)
    service.failing = [503] * 4
    assert not client.flush()
    client.done(page, 2)
    assert client.flush()
    assert service.clicks == {service.event("r1"): ({0, 2}, True)}


def test_clicks_that_the_service_refuses_are_counted_as_dropped(client, service):
    client.click(client.rank("home"), 0)
    service.failing = [422]
    assert not client.flush()
    assert client.flush()
    assert client.dropped == 1


def test_a_refused_batch_does_not_affect_the_others(client, service, monkeypatch):
    monkeypatch.setattr("bothworlds.serve.client.client.BATCH", 2)
    pages = [client.rank("home", f"r{k}") for k in range(5)]
    with client._sending:  # otherwise a click would send a full batch
        for page in pages:
            client.click(page, 0)
    service.failing = [422]
    assert not client.flush()
    assert service.clicks.keys() == {service.event("r2"), service.event("r3"), service.event("r4")}
    assert client.dropped == 2


def test_clicks_that_the_service_rejects_one_by_one_are_counted_as_dropped(client, service, caplog):
    service.rejecting = True
    client.click(client.rank("home"), 0)
    assert client.flush() is True
    assert client.dropped == 1
    assert "rejected 1 events" in caplog.text


def test_queued_clicks_are_sent_by_the_timer(address, service):
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


def test_closing_sends_queued_clicks(address, service):
    with Client(address, timeout=PATIENCE, flush_seconds=3600) as client:
        client.click(client.rank("home", "r1"), 1)
    assert service.clicks == {service.event("r1"): ({1}, False)}


def ran(script, address):
    """A program of its own with a client, in which a visitor has clicked once."""
    start = f"""
import os, threading
from bothworlds.serve.client.client import Client
client = Client({address!r}, timeout={PATIENCE}, flush_seconds=3600)
client.click(client.rank("home", "r1"), 1)
"""
    subprocess.run([sys.executable, "-c", start + script], check=True, timeout=PATIENCE)


@pytest.mark.slow
def test_queued_clicks_are_sent_at_exit(address, service):
    ran("", address)
    assert service.clicks == {service.event("r1"): ({1}, False)}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_has_its_own_connections_and_queue(address, service):
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
    assert sent == [service.event("r2"), service.event("r1")]


class NoticedLock:
    """A lock that counts attempts to take it in ``attempts``."""

    def __init__(self):
        self._lock, self.attempts = threading.Lock(), threading.Semaphore(0)

    def __enter__(self):
        self.attempts.release()
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()


def test_closing_waits_for_a_running_flush_and_sends_what_that_could_not(address, service):
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
    assert service.clicks == {service.event("r1"): ({1}, False)}


def test_a_click_does_not_wait_for_a_running_flush(address, service, monkeypatch):
    monkeypatch.setattr("bothworlds.serve.client.client.BATCH", 1)
    with Client(address, timeout=PATIENCE, flush_seconds=3600) as client:
        page = client.rank("home", "r1")
        with client._sending:
            client.click(page, 1)
        assert service.batches == []
    assert service.clicks == {service.event("r1"): ({1}, False)}


def counting(statuses):
    """A route that gives these answers, and how often it was called."""
    calls = []

    async def answer(request):
        calls.append(request.method)
        return JSONResponse({"detail": "not now"}, statuses[len(calls) - 1], {"Retry-After": "0"})

    return calls, answer


@pytest.mark.parametrize(("method", "often"), [("GET", 3), ("PUT", 3), ("DELETE", 3), ("POST", 1), ("PATCH", 1)])
def test_only_idempotent_requests_are_retried(method, often):
    calls, answer = counting([503, 503, 200])
    service = RecordedService(more_routes=[Route("/v1/thing", answer, methods=[method])])
    with listening(service, started=True) as address, Client(address, timeout=PATIENCE, pause=lambda _: None) as client:
        if often == 1:
            with pytest.raises(ClientError, match="not now"):
                client.call(method, "/v1/thing", {})
        else:
            client.call(method, "/v1/thing", {})
    assert calls == [method] * often


def test_a_request_that_is_not_idempotent_gets_a_fresh_connection():
    calls, answer = counting([200])
    service = RecordedService(more_routes=[Route("/v1/keys", answer, methods=["POST"])])
    with listening(service, started=True) as address, Client(address, timeout=PATIENCE) as client:
        client.rank("home", "r1")
        client._http._idle.queue[0].sock.close()  # on this one, it could not be told whether the call was made
        client.call("POST", "/v1/keys", {})
        assert (calls, client._http._idle.qsize()) == (["POST"], 2)


@pytest.mark.slow
def test_a_client_is_thread_safe(client, service):
    with ThreadPoolExecutor(8) as threads:
        pages = list(threads.map(lambda i: client.rank("home", f"r{i}"), range(100)))
        list(threads.map(lambda page: client.done(page, 1), pages))
    assert client.flush()
    assert service.clicks == {service.event(f"r{i}"): ({1}, True) for i in range(100)}


def test_a_stale_connection_is_replaced(service, pauses):
    with listening(service, started=True) as address:
        client = Client(address, timeout=PATIENCE, pause=pauses.append)
        client.rank("home", "r1")
        client._http._idle.queue[0].sock.close()
        assert client.rank("home", "r2").learned
        assert not pauses
        client.close()


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://x", "http://"])
def test_a_malformed_url_is_refused(url):
    with pytest.raises(ValueError, match="url must be like"):
        Client(url)


def test_the_asynchronous_client(address, service):
    async def visits():
        async with AsyncClient(address, timeout=PATIENCE, flush_seconds=3600) as client:
            pages = await asyncio.gather(*(client.rank("home", f"r{i}") for i in range(20)))
            await asyncio.gather(*(client.done(page, 0) for page in pages))
            assert await client.flush()
            results = await client.feedback([{"event_id": "x", "token": "", "clicks": [], "final": True}])
            service.failing = [503]
            own = await client.rank("home", fallback=["z"])
            return results, own.items

    ((result,), own) = asyncio.run(visits())
    assert (result["event_id"], result["status"], own) == ("x", "rejected", ["z"])
    assert {event: clicks for event, clicks in service.clicks.items() if event != "x"} == {
        service.event(f"r{i}"): ({0}, True) for i in range(20)
    }


@pytest.fixture
def deletable(address):
    """The address of a service with a few pages."""
    with Client(address, timeout=PATIENCE) as client:
        client.rank("home", "r1", segment="mobile")
        client.rank("home", "r/1")
        for visitor in ("v", "v 1&surface=home"):
            for k in range(2):
                client.rank("home", f"{visitor} {k}", visitor=visitor)
    return address


def test_what_is_deleted_is_gone_the_second_time(deletable, service):
    with Client(deletable, timeout=PATIENCE) as client:
        event = service.event("r1")
        assert (client.delete_event(event), client.delete_event(event)) == (True, False)
        assert (client.delete_request("home", "r/1"), client.delete_visitor("v 1&surface=home")) == (1, 2)
        client.rank("home", "r2", segment="mobile")
        assert [client.delete_context("home", {"segment": "mobile"}) for _ in range(2)] == [1, 0]
        assert (client.delete_surface("home"), client.delete_surface("home")) == (True, False)
        with pytest.raises(ClientError, match="no surface"):
            client.delete_request("home", "r1")

    async def whole():
        async with AsyncClient(deletable, timeout=PATIENCE) as client:
            assert await client.delete_visitor("v") == 0  # they were deleted with their surface
            return [await client.delete_event("0" * 32), await client.delete_surface("home")]

    assert asyncio.run(whole()) == [False, False]


@pytest.mark.parametrize(
    ("arguments", "said", "status"),
    [
        (["EVENT"], "1 event deleted", 0),
        (["00" * 16], "0 events deleted", 1),
        (["--visitor", "v"], "2 events deleted", 0),
        (["--surface", "home", "--request-id", "r1"], "1 event deleted", 0),
        (["--surface", "away", "--request-id", "r"], "there is no surface 'away'", 2),
        (["--surface", "home"], "name the events by their ids", 2),
        (["--request-id", "r"], "--surface and --request-id need each other", 2),
        (["ab" * 16, "--visitor", "v"], "name the events by their ids", 2),
    ],
)
def test_events_are_deleted_from_the_command_line(deletable, service, arguments, said, status):
    named = [service.event("r1") if word == "EVENT" else word for word in arguments]
    result = run("events", "delete", *named, "--url", deletable)
    assert (said in result.output, result.exit_code) == (True, status)
