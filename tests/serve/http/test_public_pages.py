"""What an anonymous caller can do to a public page: a few pages a day count, the rest is stored and shown."""

from __future__ import annotations

import pytest

from bothworlds.serve.config import Config
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.http.app import Service
from bothworlds.serve.http.auth import create_key
from bothworlds.serve.http.rank_feedback import DAY_SECONDS, PageLimit
from tests.serve.running import temporary_store

from .conftest import Client


@pytest.fixture
def opened():
    """A service with keys and public pages, of which three a day of each caller count; the client has no key."""
    store = temporary_store()
    admin = create_key(store, ["admin"], "", 0)
    config = Config(public_rank=True, public_feedback=True, public_rate=0, public_pages_a_day=3, request_log=False)
    client = Client(Service(Engine(store, refresh_ms=3_600_000), store, config, keys_required=True))
    client.run(client.service.start())
    client.admin = {"headers": {"authorization": f"Bearer {admin}"}}
    surface = {"slots": 1, "items": ["best", "worst"], "policy": "ftrl-pbm"}
    assert client("PUT", "/v1/surfaces/home", json=surface, **client.admin).status_code == 201
    yield client
    client.run(client.service.stop())
    client.close()
    store.close()


def visit(client, number, **options):
    """A page whose visitor clicks the worst item."""
    page = client("POST", "/v1/surfaces/home/rank", json={"request_id": f"r{number}"}, **options).json()
    clicks = [0] if page["slots"][0]["item"] == "worst" else []
    piece = {"event_id": page["event_id"], "token": page["token"], "clicks": clicks, "final": True}
    (result,) = client("POST", "/v1/feedback", json={"events": [piece]}, **options).json()["results"]
    assert result["status"] == "accepted"


def test_of_one_anonymous_caller_a_few_pages_a_day_are_learned_from(opened):
    for k in range(12):
        visit(opened, k)
    for k in range(5):
        visit(opened, f"with a key {k}", **opened.admin)
    opened.run(opened.service.engine.recorder.refresh())
    assert opened("GET", "/v1/surfaces/home/state", **opened.admin).json()["rounds"] == 3 + 5
    report = opened("GET", "/v1/surfaces/home/report", **opened.admin).json()
    assert report["headline"]["pages"] == 8
    assert report["feedback"]["not_counted"] == 9


def test_each_address_and_each_visitor_has_a_limit_of_its_own():
    now = [0.0]
    limit = PageLimit(2, lambda: now[0])

    def counts(host, visitor="", surface="home"):
        return limit.counts({"client": (host, 1)}, surface, visitor)

    assert [counts("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert counts("10.0.0.2")
    assert counts("10.0.0.1", surface="other")
    assert [counts(f"10.0.1.{k}", "v1") for k in range(3)] == [True, True, False]
    assert [counts("2001:db8::1"), counts("2001:db8::2"), counts("2001:db8::3")] == [True, True, False]  # one /64
    now[0] = DAY_SECONDS
    assert counts("10.0.0.1")
