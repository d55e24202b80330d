"""What an anonymous caller can do to a public page: a few pages a day count, the rest is stored and shown."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from bothworlds.serve.config import Config
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.http.app import Service
from bothworlds.serve.http.auth import create_key
from bothworlds.serve.http.rank_feedback import DAY_SECONDS, PageLimit
from tests.serve.running import temporary_store

from .conftest import Client


@contextmanager
def public_service(pages_a_day):
    """A service with keys and public pages, of which so many a day of each caller count; the client has no key."""
    store = temporary_store()
    admin = create_key(store, ["admin"], "", 0)
    config = Config(
        public_rank=True, public_feedback=True, public_rate=0, public_pages_a_day=pages_a_day, request_log=False
    )
    client = Client(Service(Engine(store, refresh_ms=3_600_000), store, config, keys_required=True))
    client.run(client.service.start())
    client.admin = {"headers": {"authorization": f"Bearer {admin}"}}
    surface = {"slots": 1, "items": ["best", "worst"], "policy": "ftrl-pbm", "holdout": 0.1, "guard_after": 50}
    assert client("PUT", "/v1/surfaces/home", json=surface, **client.admin).status_code == 201
    yield client
    client.run(client.service.stop())
    client.close()
    store.close()


def visit(client, names, liked, **options):
    """Pages whose visitor clicks one of the items."""
    pages = [client("POST", "/v1/surfaces/home/rank", json={"request_id": name}, **options).json() for name in names]
    events = [
        {"event_id": page["event_id"], "token": page["token"], "clicks": clicks, "final": True}
        for page in pages
        for clicks in [[0] if page["slots"][0]["item"] == liked else []]
    ]
    results = client("POST", "/v1/feedback", json={"events": events}, **options).json()["results"]
    assert {result["status"] for result in results} == {"accepted"}


def after_an_attack(pages_a_day):
    """The chance of the best item, and the report, after many pages of one caller who clicks the worst one only."""
    with public_service(pages_a_day) as client:
        engine = client.service.engine
        for part in range(4):  # the lists follow the clicks
            visit(client, [f"visitor {part} {k}" for k in range(40)], "best", **client.admin)
            visit(client, [f"attack {part} {k}" for k in range(100)], "worst")
            client.run(engine.recorder.refresh())
            engine.housekeeping.check(engine.registry.surface("home"))
        state = client("GET", "/v1/surfaces/home/state", **client.admin).json()
        report = client("GET", "/v1/surfaces/home/report", **client.admin).json()
        return dict(zip(state["marginals"]["items"], state["marginals"]["x"]))["best"][0], report


@pytest.mark.slow
def test_one_anonymous_caller_cannot_turn_the_order_around():
    chance, report = after_an_attack(pages_a_day=10)
    assert chance > 0.9
    assert report["feedback"]["not_counted"] == 390
    assert (report["guard"]["active"], report["sample_ratio"]["alarm"]) == (False, False)
    assert report["headline"]["pages"] + report["holdout"]["pages"] == 170


@pytest.mark.slow
def test_without_a_limit_one_caller_turns_the_order_around():
    assert after_an_attack(pages_a_day=0)[0] < 0.5


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
