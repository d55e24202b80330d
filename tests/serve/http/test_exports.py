"""Exports that become rankers, pages that were not shown, and changes of policy, over HTTP."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from bothworlds import Ranker
from bothworlds.export_format import EXPORT_FORMAT
from bothworlds.serve.config import Config
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.http.app import Service
from bothworlds.serve.http.auth import create_key
from bothworlds.serve.stores import open_store
from tests.serve.running import refreshed

from .conftest import Client
from .test_real_engine import SURFACE

LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def client():
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(str(Path(folder) / "whole.db"))
        engine = Engine(store)
        client = Client(Service(engine, store, Config(request_log=False)))
        client.store, client.engine = store, engine
        client.run(client.service.start())
        client.key = create_key(store, ["admin"], "", 0)
        client.sign(client.key)
        assert client("PUT", "/v1/surfaces/home", json=SURFACE).status_code == 201
        yield client
        client.run(client.service.stop())
        client.close()
        store.close()


def visited(client, surface, count, **feedback):
    """Pages of a surface with feedback on all of them, learned."""
    pages = []
    for k in range(count):
        request = {"request_id": f"{surface} {k} {feedback}"}
        pages.append(client("POST", f"/v1/surfaces/{surface}/rank", json=request).json())
    given = {"final": True, "clicks": [0]} | feedback
    events = [{"event_id": page["event_id"], "token": page["token"], **given} for page in pages]
    results = client("POST", "/v1/feedback", json={"events": events}).json()["results"]
    assert {result["status"] for result in results} == {"accepted"}
    client.run(refreshed(client.engine))
    return pages


def test_an_export_over_http_is_imported_and_makes_a_ranker(client, tmp_path):
    surface = {"slots": 2, "items": ["a", "b", "c", "d"], "policy": "ftrl-pbm"}
    for name in ("shop", "twin"):
        assert client("PUT", f"/v1/surfaces/{name}", json=surface).status_code == 201
    visited(client, "shop", 30)
    log = client("GET", "/v1/surfaces/shop/export").content
    assert json.loads(log.splitlines()[0])["format"] == EXPORT_FORMAT
    taken = client("POST", "/v1/surfaces/twin/import", content=log, headers=LINES).json()
    assert (taken["taken"], taken["refused"]) == (30, 0)
    client.run(refreshed(client.engine))
    ours, theirs = (client("GET", f"/v1/surfaces/{name}/state").json() for name in ("shop", "twin"))
    assert ours["loss"] == theirs["loss"]
    (tmp_path / "log.ndjson").write_bytes(log)
    ranker = Ranker.from_export(tmp_path / "log.ndjson")
    floor = client("GET", "/v1/surfaces/shop").json()["floor"]
    x = (1 - floor) * ranker.learned().probabilities + floor / 4
    assert abs(x - ours["marginals"]["x"]).max() < 1e-12


def test_a_page_that_was_not_shown_is_not_learned_from(client):
    assert client("PUT", "/v1/surfaces/unseen", json=SURFACE | {"holdout": 0}).status_code == 201
    page = visited(client, "unseen", 1, shown=False, clicks=[], final=False)[0]
    event = client("GET", f"/v1/events/{page['event_id']}").json()
    assert (event["settled_by"], event["shown"], event["learned"]) == ("void", False, False)
    assert "the page was not shown" in event["why"]
    assert client("GET", "/v1/surfaces/unseen/state").json()["rounds"] == 0
    report = client("GET", "/v1/surfaces/unseen/report").json()
    assert report["feedback"]["void"] == 1
    assert report["feedback"]["since"].endswith("Z")
    shown = client("GET", "/surfaces/unseen", headers={"accept": "text/html"}).text
    assert "Reported as not shown" in shown
    assert "The page was not shown" in client("GET", f"/event?id={page['event_id']}").text


def test_a_change_of_policy_says_what_is_learned_again(client):
    assert client("PUT", "/v1/surfaces/again", json=SURFACE | {"holdout": 0}).status_code == 201
    visited(client, "again", 12)
    changed = client("PATCH", "/v1/surfaces/again", json={"policy": "uniform"}).json()
    assert changed["learned_again"] == 12
    assert "12 settled, kept for ever" in client("GET", "/surfaces/again").text
    assert "12 events of the log are learned again" in client("GET", "/surfaces/again").text
