"""Deletion over HTTP: what is gone gets a 404, and an export says what is missing."""

from __future__ import annotations

import pytest

from bothworlds.serve.http.auth import create_key
from bothworlds.serve.stores import DeletedEvents

EVENT = "ab" * 16


def test_a_surface_is_deleted_only_at_the_version_that_was_read(call):
    tag = call("GET", "/v1/surfaces/home").headers["etag"]
    assert call("PATCH", "/v1/surfaces/home", json={"floor": 0.1}).status_code == 200
    answer = call("DELETE", "/v1/surfaces/home", headers={"if-match": tag})
    assert (answer.status_code, answer.json()["title"]) == (412, "Changed by somebody else")
    assert call("DELETE", "/v1/surfaces/home").status_code == 204
    for method, path in (("DELETE", ""), ("GET", ""), ("POST", "/rank"), ("GET", "/export")):
        body = {"json": {"request_id": "r"}} if method == "POST" else {}
        answer = call(method, f"/v1/surfaces/home{path}", **body)
        assert (answer.status_code, answer.json()["detail"]) == (404, "there is no surface 'home'")


def test_events_are_deleted_by_id_request_and_visitor(call):
    event = call.page("first")["event_id"]
    call.page("r")
    for name in ("second", "third"):
        call.page(name, visitor="v1")
    assert call("DELETE", f"/v1/events/{event}").status_code == 204
    assert call("DELETE", f"/v1/events/{event}").status_code == 404
    assert call("GET", f"/v1/events/{event}").status_code == 404
    assert call("DELETE", "/v1/events", params={"visitor": "v1"}).json() == {"deleted": 2}
    assert call("DELETE", "/v1/events", params={"surface": "home", "request_id": "r"}).json() == {"deleted": 1}
    assert call("DELETE", "/v1/events", params={"surface": "away", "request_id": "r"}).status_code == 404


@pytest.mark.parametrize("query", ["", "?surface=home", "?visitor=a&visitor=b", "?visitor=a&surface=home", "?all=1"])
def test_it_must_be_clear_which_events_are_meant(call, query):
    answer = call("DELETE", f"/v1/events{query}")
    assert answer.status_code == 422
    assert "by visitor, or by surface and request_id" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/v1/surfaces/home", f"/v1/events/{EVENT}", "/v1/events?visitor=v"])
@pytest.mark.parametrize("role", ["serve", "ingest", "read"])
def test_only_administrators_delete(call, store, path, role):
    call.sign(create_key(store, [role], "", 0))
    assert call("DELETE", path).status_code == 403


def test_an_export_says_what_is_missing(call, store, monkeypatch):
    answer = call("GET", "/v1/surfaces/home/export")
    assert [name for name in answer.headers if name.startswith("bothworlds-")] == ["bothworlds-not-exported"]
    assert answer.headers["bothworlds-not-exported"] == "visitors, late clicks"
    monkeypatch.setattr(store, "deleted", lambda surface_id: DeletedEvents(59, 1_700_000_000_000, 60))
    answer = call("GET", "/v1/surfaces/home/export")
    assert answer.headers["bothworlds-deleted-events"] == "59"
    assert answer.headers["bothworlds-deleted-until"] == "2023-11-14T22:13:20.000Z"
