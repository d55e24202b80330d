"""The whole service, with the real engine on a SQLite file: whatever is sent, no answer is a fault."""

from __future__ import annotations

import asyncio
import json
import tempfile
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bothworlds.serve.config import Config
from bothworlds.serve.http.app import Service
from bothworlds.serve.schemas import EventView, ReportView, StateView

from .conftest import Client
from .test_openapi import CHECKS

engine_room = pytest.importorskip("bothworlds.serve.engine.engine")
opening = pytest.importorskip("bothworlds.serve.stores.factory")

SURFACE = {"slots": 2, "items": ["a", "b", "c", "d"], "holdout": 0.2}
QUIET = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


@pytest.fixture(scope="module")
def client():
    with tempfile.TemporaryDirectory() as folder:
        store = opening.open_store(str(Path(folder) / "whole.db"))
        found = Client(Service(engine_room.Engine(store), store, Config(request_log=False)))
        found.run(found.service.start())
        assert found("PUT", "/v1/surfaces/home", json=SURFACE).status_code == 201
        yield found
        found.run(found.service.stop())
        found.close()
        store.close()


@pytest.fixture(scope="module")
def described(client):
    found = schemathesis.openapi.from_dict(client("GET", "/openapi.json").json())
    return {
        f"{operation.ok().method.upper()} {operation.ok().path}": operation.ok()
        for operation in found.get_all_operations()
    }


def names():
    from bothworlds.serve.http.operations import OPERATIONS

    # A key would close the door for all other calls.
    return [f"{operation.method} {operation.path}" for operation in OPERATIONS if "/v1/keys" not in operation.path]


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_no_call_is_answered_with_a_fault_or_in_an_undocumented_way(name, client, described):
    @given(case=described[name].as_strategy())
    @settings(max_examples=12, **QUIET)
    def check(case):
        if "surface" in case.path_parameters and len(str(case.path_parameters["surface"])) % 3:
            case.path_parameters["surface"] = "home"
        sent = case.as_transport_kwargs(base_url="http://127.0.0.1")
        answer = client(sent["method"], sent["url"], **_options(sent))
        case.validate_response(schemathesis.Response.from_any(answer), checks=CHECKS[:-1])

    check()


def _options(sent):
    body = {"content": sent["data"]} if sent.get("data") is not None else {}
    if sent.get("json") is not None:
        body = {"json": sent["json"]}
    return {"params": sent.get("params"), "headers": dict(sent.get("headers") or {}), "cookies": None, **body}


def feedback(client, **event):
    return client("POST", "/v1/feedback", json={"events": [event]}).json()["results"][0]["status"]


@settings(max_examples=100, **QUIET)
@given(data=st.data())
def test_a_token_that_was_tampered_with_changes_nothing(client, data):
    shown = client("POST", "/v1/surfaces/home/rank", json={"request_id": data.draw(st.uuids()).hex}).json()
    token = shown["token"]
    place, other = data.draw(st.integers(0, len(token) - 1)), data.draw(st.sampled_from("AZaz09_-=. \u00e9"))
    assume(other != token[place])
    forged = token[:place] + other + token[place + 1 :]
    before = losses(client)
    assert feedback(client, event_id=shown["event_id"], token=forged, clicks=[0], final=True) == "rejected"
    assert losses(client) == before


def losses(client):
    kept = client.service.keyring._store.segments(1)
    return {segment.name: (segment.rounds, segment.loss) for segment in kept}


@pytest.mark.parametrize("final", [True, False])
def test_feedback_twice_is_counted_once(client, final):
    shown = client("POST", "/v1/surfaces/home/rank", json={"request_id": f"twice-{final}"}).json()
    event = {"event_id": shown["event_id"], "token": shown["token"], "clicks": [1], "final": final}
    assert feedback(client, **event) == "accepted"
    assert feedback(client, **event) == "duplicate"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("events/{event}", EventView), ("surfaces/home/state", StateView), ("surfaces/home/report", ReportView)],
)
def test_what_is_told_is_described_to_the_last_field(client, path, kind):
    for k in range(3):
        shown = client("POST", "/v1/surfaces/home/rank", json={"request_id": f"told-{kind.__name__}-{k}"}).json()
        feedback(client, event_id=shown["event_id"], token=shown["token"], clicks=[0], final=True)
    client.run(asyncio.sleep(1.2))  # policies are kept once a second
    told = client("GET", "/v1/" + path.format(event=shown["event_id"])).json()
    told = in_milliseconds(told) if kind is ReportView else told
    assert json.loads(msgspec.json.encode(msgspec.convert(told, kind))) == told
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**told, "surface": None}, kind)


def in_milliseconds(answer):
    """Returns a report as the engine made it: HTTP writes its times as RFC 3339."""
    if isinstance(answer, dict):
        return {
            name: milliseconds(value) if name in ("at", "since", "until") else in_milliseconds(value)
            for name, value in answer.items()
        }
    return [in_milliseconds(value) for value in answer] if isinstance(answer, list) else answer


def milliseconds(text):
    assert text.endswith("Z")
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def test_what_was_exported_is_known_when_it_comes_back(client):
    shown = client("POST", "/v1/surfaces/home/rank", json={"request_id": "exported"}).json()
    feedback(client, event_id=shown["event_id"], token=shown["token"], final=True)
    log = client("GET", "/v1/surfaces/home/export").content
    assert shown["event_id"] in {json.loads(line)["event"] for line in log.splitlines()}
    before = losses(client)
    answer = client("POST", "/v1/surfaces/home/import", content=log, headers={"content-type": "application/x-ndjson"})
    assert answer.json()["taken"] == 0
    assert losses(client) == before
