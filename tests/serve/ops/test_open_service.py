"""The service as ``bothworlds serve`` assembles it: store, engine, pages, hosts."""

from __future__ import annotations

import asyncio
import re

import pytest

from bothworlds.serve.config import Config
from bothworlds.serve.ops.run import open_service
from tests.serve.http.conftest import Client


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens a service on a new file; services are stopped at the end."""
    made = []

    def make(**settings):
        found = open_service(Config(store=str(tmp_path / "opened.db"), request_log=False, **settings), True)
        made.append((Client(found.service), found))
        return made[-1][0]

    yield make
    for client, found in made:
        client.run(found.service.stop())
        client.close()
        found.store.close()


@pytest.mark.parametrize(
    ("host", "said"), [("127.0.0.2", "127.0.0.2:8080"), ("127.0.0.2", "localhost"), ("::1", "[::1]:80")]
)
def test_only_loopback_hosts_are_answered_without_keys(opened, host, said):
    call = opened(host=host)
    assert call("GET", "/healthz", headers={"host": said}).status_code == 200
    assert call("GET", "/healthz", headers={"host": "evil.example"}).status_code == 403


def test_the_dashboard_shows_the_audit_log(opened):
    call = opened()
    call.run(call.service.start())
    call("PUT", "/v1/surfaces/home", json={"slots": 2, "items": ["a", "b", "c"]})
    call("POST", "/v1/surfaces/home/items/b/pause")
    shown = call("GET", "/surfaces/home")
    assert shown.status_code == 200
    assert re.search(r"<td>local</td><td>pause[^<]*\bb\b", shown.text)
    assert "No changes." not in shown.text


def test_the_first_page_shows_the_headline_of_each_surface(opened):
    call = opened()
    call.run(call.service.start())
    call("PUT", "/v1/surfaces/home", json={"slots": 2, "items": ["a", "b", "c"]})
    assert "No settled pages in the last 24 hours" in call("GET", "/").text
    page = call("POST", "/v1/surfaces/home/rank", json={"request_id": "r"}).json()
    piece = {"event_id": page["event_id"], "token": page["token"], "clicks": [0], "final": True}
    call("POST", "/v1/feedback", json={"events": [piece]})
    call.run(call.service.engine.recorder.refresh())
    assert "1 page, 1.00 clicks per page" in call("GET", "/").text


def test_a_service_is_an_asgi_application_that_any_server_can_start_and_stop(tmp_path):
    found = open_service(Config(store=str(tmp_path / "asgi.db"), request_log=False), True)
    phases, said = iter(["lifespan.startup", "lifespan.shutdown"]), []

    async def receive():
        return {"type": next(phases)}

    async def send(message):
        said.append(message["type"])

    asyncio.run(found.service({"type": "lifespan"}, receive, send))
    found.store.close()
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
