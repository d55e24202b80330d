"""The HTTP service on a SQLite file: no request leads to a 500, and what pages, logs and arms do over HTTP."""

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

from bothworlds import Ranker
from bothworlds.export_format import EXPORT_FORMAT
from bothworlds.serve.config import Config
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.http.app import Service
from bothworlds.serve.http.auth import create_key
from bothworlds.serve.http.operations import OPERATIONS
from bothworlds.serve.schemas import EventView, ReportView, StateView
from bothworlds.serve.stores import open_store

from .conftest import Client
from .test_openapi import CHECKS

SURFACE = {"slots": 2, "items": ["a", "b", "c", "d"], "holdout": 0.2}
LINES = {"content-type": "application/x-ndjson"}
QUIET = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


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


@pytest.fixture(scope="module")
def described(client):
    found = schemathesis.openapi.from_dict(client("GET", "/openapi.json").json())
    return {
        f"{operation.ok().method.upper()} {operation.ok().path}": operation.ok()
        for operation in found.get_all_operations()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"{operation.method} {operation.path}" for operation in OPERATIONS])
def test_every_response_is_documented_and_none_is_a_500(name, client, described):
    @given(case=described[name].as_strategy())
    @settings(max_examples=12, **QUIET)
    def check(case):
        if "surface" in case.path_parameters and len(str(case.path_parameters["surface"])) % 3:
            case.path_parameters["surface"] = "home"
        sent = case.as_transport_kwargs(base_url="http://127.0.0.1")
        answer = client(sent["method"], sent["url"], **_options(sent, client.key))
        assert answer.status_code not in (401, 403)
        case.validate_response(schemathesis.Response.from_any(answer), checks=CHECKS)
        if answer.status_code == 204 and client("GET", "/v1/surfaces/home").status_code == 404:  # it was deleted
            assert client("PUT", "/v1/surfaces/home", json=SURFACE).status_code == 201

    check()


def _options(sent, key):
    body = {"content": sent["data"]} if sent.get("data") is not None else {}
    if sent.get("json") is not None:
        body = {"json": sent["json"]}
    generated = {name.lower(): value for name, value in (sent.get("headers") or {}).items()}
    headers = {**generated, "authorization": f"Bearer {key}"}
    return {"params": sent.get("params"), "headers": headers, "cookies": None, **body}


def feedback(client, **event):
    return client("POST", "/v1/feedback", json={"events": [event]}).json()["results"][0]["status"]


@pytest.mark.slow
@settings(max_examples=100, **QUIET)
@given(data=st.data())
def test_a_forged_token_changes_nothing(client, data):
    shown = client("POST", "/v1/surfaces/home/rank", json={"request_id": data.draw(st.uuids()).hex}).json()
    token = shown["token"]
    place, other = data.draw(st.integers(0, len(token) - 1)), data.draw(st.sampled_from("AZaz09_-=. \u00e9"))
    assume(other != token[place])
    forged = token[:place] + other + token[place + 1 :]
    before = losses(client)
    assert feedback(client, event_id=shown["event_id"], token=forged, clicks=[0], final=True) == "rejected"
    assert losses(client) == before


def test_an_exclusion_of_an_item_that_does_not_exist_is_named_in_the_answer(client):
    def ranked(request, *excluded):
        return client("POST", "/v1/surfaces/home/rank", json={"request_id": request, "exclude": excluded}).json()

    assert ranked("typing", "dsk", "a", "lmp")["unknown_items"] == ["dsk", "lmp"]
    assert ranked("typing", "dsk", "a", "lmp")["unknown_items"] == ["dsk", "lmp"]  # a repeated request
    assert "unknown_items" not in ranked("typed", "a")
    assert client("POST", "/v1/surfaces/home/items/d/pause").status_code == 200
    assert "unknown_items" not in ranked("paused", "d")
    assert client("POST", "/v1/surfaces/home/items/d/resume").status_code == 200


def settle(client):
    """Settle and learn what is due."""
    client.run(client.engine.recorder.refresh())


def losses(client):
    """What the surface has learned."""
    settle(client)
    state = client("GET", "/v1/surfaces/home/state").json()
    return state["rounds"], state["loss"]


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
def test_responses_have_exactly_the_documented_fields(client, path, kind):
    for k in range(3):
        shown = client("POST", "/v1/surfaces/home/rank", json={"request_id": f"documented-{kind.__name__}-{k}"}).json()
        feedback(client, event_id=shown["event_id"], token=shown["token"], clicks=[0], final=True)
    client.run(policies_saved(client.store))
    answer = client("GET", "/v1/" + path.format(event=shown["event_id"])).json()
    answer = in_milliseconds(answer) if kind is ReportView else answer
    assert json.loads(msgspec.json.encode(msgspec.convert(answer, kind))) == answer
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**answer, "surface": None}, kind)


async def policies_saved(store):
    """Wait until a policy was saved, which the history of the report contains."""
    (home,) = (surface.id for surface in store.surfaces() if surface.name == "home")
    async with asyncio.timeout(60):
        while not store.policies(home, 0, 0, 1):
            await asyncio.sleep(0.01)


def in_milliseconds(answer):
    """Returns a report as the engine made it: HTTP writes its times as RFC 3339."""
    if isinstance(answer, dict):
        return {
            name: milliseconds(value) if name in ("at", "since", "until") and value else in_milliseconds(value)
            for name, value in answer.items()
        }
    return [in_milliseconds(value) for value in answer] if isinstance(answer, list) else answer


def milliseconds(text):
    assert text.endswith("Z")
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def visited(client, surface, count, **feedback):
    """Pages of a new surface with feedback on all of them, learned."""
    assert client("PUT", f"/v1/surfaces/{surface}", json=SURFACE | {"holdout": 0, "policy": "ftrl-pbm"}).is_success
    pages = [client.page(f"{surface} {k}", surface) for k in range(count)]
    given = {"final": True, "clicks": [0]} | feedback
    events = [{"event_id": page["event_id"], "token": page["token"], **given} for page in pages]
    results = client("POST", "/v1/feedback", json={"events": events}).json()["results"]
    assert {result["status"] for result in results} <= {"accepted"}
    settle(client)
    return pages


def test_an_export_is_imported_once_and_makes_a_ranker(client, tmp_path):
    visited(client, "shop", 30)
    visited(client, "twin", 0)
    log = client("GET", "/v1/surfaces/shop/export").content
    assert json.loads(log.splitlines()[0])["format"] == EXPORT_FORMAT
    for taken in (30, 0):
        answer = client("POST", "/v1/surfaces/twin/import", content=log, headers=LINES).json()
        assert (answer["taken"], answer["known"], answer["refused"]) == (taken, 30 - taken, 0)
        settle(client)
        ours, theirs = (client("GET", f"/v1/surfaces/{name}/state").json() for name in ("shop", "twin"))
        assert ours["loss"] == theirs["loss"]
    assert client("POST", "/v1/surfaces/shop/import", content=log, headers=LINES).json()["known"] == 30
    (tmp_path / "log.ndjson").write_bytes(log)
    ranker = Ranker.from_export(tmp_path / "log.ndjson")
    floor = client("GET", "/v1/surfaces/shop").json()["floor"]
    x = (1 - floor) * ranker.learned().probabilities + floor / 4
    assert abs(x - ours["marginals"]["x"]).max() < 1e-12


def test_a_page_that_was_not_shown_is_not_learned_from(client):
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
    visited(client, "again", 12)
    changed = client("PATCH", "/v1/surfaces/again", json={"policy": "uniform"}).json()
    assert changed["learned_again"] == 12
    assert "12 settled, kept for ever" in client("GET", "/surfaces/again").text
    assert "12 events of the log are learned again" in client("GET", "/surfaces/again").text


def test_a_surface_with_labels_over_http_and_on_the_dashboard(client):
    path, items = "/v1/surfaces/labelled", ["a", {"name": "b", "labels": {"kind": "light"}}, "c"]
    body = {"slots": 2, "items": items, "labels": {"device": None, "age": [18, 30]}, "item_labels": ["kind"]}
    assert client("PUT", path, json=body).json()["labels"] == {"device": None, "age": [18.0, 30.0]}
    changed = client("PUT", f"{path}/items/c", json={"labels": {"kind": "<b>"}}).json()
    assert [item["labels"] for item in changed["items"]] == [{}, {"kind": "light"}, {"kind": "<b>"}]
    for k in range(40):
        asked = {"request_id": f"r{k}", "context": {"device": ["phone", "<i>"][k % 2], "age": 18 + k}}
        page = client("POST", f"{path}/rank", json=asked).json()
        feedback(client, event_id=page["event_id"], token=page["token"], clicks=[0], final=True)
    assert page["context"] == {"device": "<i>", "age": "30.."}
    settle(client)
    state = client("GET", path + '/state?context={"device":"phone","age":"30.."}').json()
    assert (state["context"], state["rounds"]) == ({"device": "phone", "age": "30.."}, 40)
    pairs = client("GET", f"{path}/effects").json()["effects"]
    assert {"visitor_label", "item_label", "sd", "values", "pages"} == set(pairs[0])
    values = client("GET", f"{path}/effects?visitor=device&item=kind").json()["effects"]
    assert {"visitor_value", "item_value", "effect", "standard_error"} == set(values[0])
    for query, pointer in (("context=[]", "?context"), ('context={"city":"x"}', "/context/city")):
        answer = client("GET", f"{path}/state?{query}")
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    for name in ("surfaces", "live"):
        shown = client("GET", f"/{name}/labelled?label.device=phone")
        assert shown.status_code == 200
        assert "What matters" in shown.text
        assert "device phone" in " ".join(shown.text.split())
        assert "<i>" not in shown.text
    assert client("DELETE", '/v1/events?surface=labelled&context={"device":"phone"}').json() == {"deleted": 20}


@pytest.mark.slow
def test_arms_are_compared_and_promoted_over_http(client):
    path = "/v1/surfaces/compared"
    arms = [{"name": "new", "policy": "ftrl-pbm", "policy_settings": {"rate": 0.5}, "share": 0.45}]
    arms.append({"name": "old", "policy": "uniform", "policy_settings": {}, "share": 0.45})
    created = client("PUT", path, json=SURFACE | {"holdout": 0.1, "arms": arms})
    assert (created.status_code, created.json()["arms"]) == (201, arms)
    requests = [{"request_id": f"r{k}", "visitor": f"v{k % 40}"} for k in range(80)]
    pages = [client("POST", f"{path}/rank", json=request).json() for request in requests]
    assert {page["arm"] for page in pages} >= {"new", "old"}  # the key of a new store is random
    assert [page["arm"] for page in pages[:40]] == [page["arm"] for page in pages[40:]]
    events = [{"event_id": page["event_id"], "token": page["token"], "clicks": [0], "final": True} for page in pages]
    client("POST", "/v1/feedback", json={"events": events})
    settle(client)
    report = client("GET", f"{path}/report").json()
    assert [(arm["name"], arm["share"]) for arm in report["arms"]] == [("new", 0.45), ("old", 0.45)]
    assert sum(arm["pages"] for arm in report["arms"]) == sum(page["arm"] != "holdout" for page in pages)
    assert report["arms"][1]["comparison"]["compared_with"] == "new"
    assert report["arms"][1]["comparison"]["since"].endswith("Z")
    assert b"bothworlds_arms 2.0" in client("GET", "/metrics").content

    def promoted(arm, **options):
        return client("POST", f"{path}/promote", json={"arm": arm} | options)

    for answer, status, detail in (
        (promoted("third"), 404, "surface 'compared' has no arm 'third'"),
        (promoted("holdout"), 409, "has no policy"),
        (promoted("new", version=99), 409, "version"),
        (client("POST", "/v1/surfaces/nowhere/promote", json={"arm": "new"}), 404, "nowhere"),
        (client("POST", f"{path}/promote", json={}), 422, "arm"),
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        assert detail in answer.json()["detail"]
    answer = promoted("new")
    assert answer.status_code == 200
    assert (answer.json()["policy"], answer.json()["policy_settings"], answer.json()["arms"]) == (
        "ftrl-pbm",
        {"rate": 0.5},
        [],
    )
    assert promoted("new").json() == answer.json()
    rounds = client("GET", f"{path}/state").json()["rounds"]
    assert rounds == sum(page["arm"] == "new" for page in pages)
    assert [entry["action"] for entry in client.store.audit(None, 1)] == ["promote arm"]
