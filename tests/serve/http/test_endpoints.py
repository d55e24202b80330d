"""The endpoints of the API: fields of requests and responses, errors, versions, limits."""

from __future__ import annotations

import msgspec
import pytest

from bothworlds.serve.config import Config, Limits
from bothworlds.serve.http.app import Service
from bothworlds.serve.http.operations import OPERATIONS
from bothworlds.serve.model import Conflict

from .conftest import Client, engine_on, failing

RANK = "/v1/surfaces/home/rank"


def ranked(call, **more):
    return call("POST", RANK, json={"request_id": "r1", **more})


def test_every_operation_has_a_handler(call):
    assert call.service.handlers().keys() == {operation.name for operation in OPERATIONS} - {"rank", "feedback"}


def test_rank_has_the_documented_fields(call):
    answer = ranked(call, segment="mobile", exclude=["d"], pins=[{"slot": 0, "item": "c"}])
    said = answer.json()
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert list(said) == [
        "event_id", "surface", "arm", "policy_id", "expires_at", "token", "slots", "segment", "context",
    ]  # fmt: skip
    assert said["segment"] == "mobile"
    assert said["slots"][0] == {"slot": 0, "item": "c", "p": 1.0, "pinned": True, "learn": False}
    assert {slot["item"] for slot in said["slots"][1:]} == {"a", "b"}
    assert said["slots"][1] == said["slots"][1] | {"slot": 1, "p": 0.5, "pinned": False, "learn": True}
    assert said["expires_at"] == "2023-11-14T22:23:20.000Z"


def test_a_problem_has_the_documented_fields(call):
    answer = ranked(call, exclude=["a", "b"])
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "urn:bothworlds:problem:not-enough-eligible-items",
        "title": "Not enough eligible items",
        "status": 422,
        "detail": "3 slots need 3 items; 2 eligible",
        "errors": [{"pointer": "/exclude", "detail": "removes 2 of 4 items"}],
    }


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"pins": [{"slot": "x", "item": "a"}]}, "/pins/0/slot"),
        ({"exclude": ["a", 3]}, "/exclude/1"),
        ({"exlude": []}, "/exlude"),
        ({"request_id": ""}, "/request_id"),
        ({"pins": [{"slot": 0, "item": "a"}, {"slot": 0, "item": "b"}]}, "/pins"),
    ],
)
def test_a_problem_points_to_the_wrong_field(call, more, pointer):
    answer = ranked(call, **more)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_feedback_has_the_documented_fields(call):
    said = ranked(call).json()
    event = {"event_id": said["event_id"], "token": said["token"], "clicks": [1], "final": True}
    answer = call("POST", "/v1/feedback", json={"events": [event]})
    assert answer.json() == {"results": [{"event_id": said["event_id"], "status": "accepted"}]}
    stored = call("GET", f"/v1/events/{said['event_id']}").json()
    assert [slot["clicked"] for slot in stored["slots"]] == [False, True, False]


def test_an_invalid_event_is_rejected_alone(call):
    good = ranked(call).json()
    good = {"event_id": good["event_id"], "token": good["token"], "clicks": [1]}
    bad = [{"event_id": "x", "token": 7}, 3, {**good, "clicks": [-1]}, {**good, "token": "forged"}, {}]
    results = call("POST", "/v1/feedback", json={"events": [bad[0], good, *bad[1:]]}).json()["results"]
    assert [result["status"] for result in results] == ["rejected", "accepted"] + ["rejected"] * 4
    assert results[0]["event_id"] == "x"
    assert all(result["reason"] for result in results if result["status"] == "rejected")


@pytest.mark.parametrize(
    ("rewards", "reason"),
    [
        ('{"0": 0.25, "2": 1}', ""),
        ("{}", ""),
        ('{"0": 1.5}', "1.0"),
        ('{"0": -0.5}', "0.0"),
        ('{"63": 1}', "62"),
        ('{"first": 1}', "int"),
        ('{"0": "1"}', "float"),
        ('{"0": null}', "float"),
        ('{"1": 0.5, "1": 0.7}', ""),  # the last one counts
        ('{"01": 0.5}', "int"),
        ("[0.5]", "object"),
    ],
)
def test_rewards_are_validated_event_by_event(call, rewards, reason):
    surface = {"slots": 3, "items": ["a", "b", "c", "d"], "objective": "rewards"}
    assert call("PUT", "/v1/surfaces/sold", json=surface).status_code == 201
    pieces = [
        f'{{"event_id": "{said["event_id"]}", "token": "{said["token"]}", "final": true, "rewards": {given}}}'
        for k, given in enumerate(('{"1": 0.5}', rewards, '{"1": 0.5}'))
        for said in [call.page(f"r{k}", "sold")]
    ]
    answer = call("POST", "/v1/feedback", content=f'{{"events": [{", ".join(pieces)}]}}')
    results = answer.json()["results"]
    assert [result["status"] for result in results] == ["accepted", "rejected" if reason else "accepted", "accepted"]
    assert reason in results[1].get("reason", "")


def test_nan_is_not_json(call):
    said = ranked(call).json()
    event = f'{{"event_id": "{said["event_id"]}", "token": "{said["token"]}", "rewards": {{"0": NaN}}}}'
    assert call("POST", "/v1/feedback", content=f'{{"events": [{event}]}}').status_code == 400


@pytest.mark.parametrize("body", ['{"events": 3}', "[]", '{"event": []}', "{}", '{"events": [], "more": 1}'])
def test_a_malformed_batch_is_refused_as_a_whole(call, body):
    answer = call("POST", "/v1/feedback", content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


@pytest.mark.parametrize("body", [b"", b"{", b'{"events": [NaN]}', b'{"events": ["\xff"]}', b'{"x":' + b"[" * 100_000])
def test_a_body_that_is_not_json_is_refused(call, body):
    assert call("POST", "/v1/feedback", content=body).status_code in (400, 422)
    assert call("POST", RANK, content=body).status_code in (400, 422)


def test_deep_nesting_is_refused(call):
    for opening in (b'{"events": ', b'{"slots": 1, "policy_settings": {"a": ', b'{"model": {"a": '):
        for path, method in (
            ("/v1/feedback", "POST"),
            ("/v1/surfaces/x", "PUT"),
            ("/v1/surfaces/home/warm-start", "POST"),
        ):
            assert call(method, path, content=opening + b"[" * 100_000).status_code in (400, 422)


def test_feedback_may_be_sent_as_text_by_a_beacon(call):
    said = ranked(call).json()
    body = f'{{"events": [{{"event_id": "{said["event_id"]}", "token": "{said["token"]}", "clicks": [0]}}]}}'
    answer = call("POST", "/v1/feedback", content=body, headers={"content-type": "text/plain;charset=UTF-8"})
    assert answer.json()["results"][0]["status"] == "accepted"


def test_a_surface_has_its_settings_and_items(call):
    said = call("GET", "/v1/surfaces/home").json()
    assert (said["name"], said["slots"], said["version"]) == ("home", 3, 1)
    assert [item["name"] for item in said["items"]] == ["a", "b", "c", "d"]
    assert call("GET", "/v1/surfaces").json() == {"surfaces": [said]}


def test_putting_a_surface_again_adds_items_and_removes_none(call):
    answer = call("PUT", "/v1/surfaces/home", json={"slots": 2, "items": ["e"]})
    assert answer.status_code == 200
    assert [item["name"] for item in answer.json()["items"]] == ["a", "b", "c", "d", "e"]
    assert answer.json()["slots"] == 2


def test_settings_change_one_at_a_time(call):
    changed = call("PATCH", "/v1/surfaces/home", json={"holdout": 0.1}).json()
    assert (changed["holdout"], changed["slots"], changed["version"]) == (0.1, 3, 2)


def test_a_change_says_how_many_events_are_learned_again(call):
    for k in range(2):
        call.click(call.page(f"r{k}"))
    call.settle()
    for change in ({"policy": "ftrl-pbm"}, {"policy_settings": {"rate": 0.5}}, {"slots": 2}):
        assert call("PATCH", "/v1/surfaces/home", json=change).json()["learned_again"] == 2
    assert call("PUT", "/v1/surfaces/home", json={"slots": 1}).json()["learned_again"] == 2
    for change in ({"floor": 0.1}, {"slots": 1}):
        assert "learned_again" not in call("PATCH", "/v1/surfaces/home", json=change).json()
    assert "learned_again" not in call("GET", "/v1/surfaces/home").json()


@pytest.mark.parametrize("body", [{"holdot": 0.1}, {"items": ["x"]}, {"holdout": "a lot"}, {"slots": 0}])
def test_unknown_and_invalid_settings_are_refused(call, body):
    answer = call("PATCH", "/v1/surfaces/home", json=body)
    assert answer.status_code == 422
    assert call("GET", "/v1/surfaces/home").json()["version"] == 1


def test_a_change_of_an_outdated_version_is_refused(call):
    tag = call("GET", "/v1/surfaces/home").headers["etag"]
    change = {"json": {"floor": 0.1}, "headers": {"if-match": tag}}
    assert call("PATCH", "/v1/surfaces/home", **change).status_code == 200
    assert call("PATCH", "/v1/surfaces/home", **change).status_code == 412
    assert call("PUT", "/v1/surfaces/home/items/x", headers={"if-match": tag}).status_code == 412
    now = call("GET", "/v1/surfaces/home").headers["etag"]
    for match in (now, "*"):  # the version in the body counts as well
        stale = {"json": {"floor": 0.2, "version": 1}, "headers": {"if-match": match}}
        assert call("PATCH", "/v1/surfaces/home", **stale).status_code == 412
    assert call("PATCH", "/v1/surfaces/home", json={"floor": 0.1, "version": 1}).status_code == 409
    assert call("PATCH", "/v1/surfaces/home", json={"floor": 0.1, "version": 2}).status_code == 200
    assert (
        call("PUT", "/v1/surfaces/new", json={"slots": 1, "items": ["a"]}, headers={"if-match": "*"}).status_code == 412
    )
    assert call("PUT", "/v1/surfaces/home", json={}, headers={"if-none-match": "*"}).status_code == 412


def test_a_conflict_raised_by_the_engine_is_409_or_412(call, engine):
    tag = {"if-match": '"1"'}
    with failing(engine, Conflict("somebody was quicker")):
        assert call("PATCH", "/v1/surfaces/home", json={"floor": 0.1}).status_code == 409
        assert call("PATCH", "/v1/surfaces/home", json={"floor": 0.1}, headers=tag).status_code == 412


def test_only_one_of_two_requests_creates_a_surface_that_must_not_exist(call, engine):
    """Both pass the first check; the engine must then be called with a version that no surface has."""
    put_surface, versions = engine.administration.put_surface, []

    async def after_another_request(name, body, *, actor, if_version=None):
        versions.append(if_version)
        await put_surface(name, body, actor="another")
        return await put_surface(name, body, actor=actor, if_version=if_version)

    engine.administration.put_surface = after_another_request
    body, absent = {"slots": 1, "items": ["a", "b"]}, {"if-none-match": "*"}
    assert call("PUT", "/v1/surfaces/new", json=body, headers=absent).status_code == 412
    assert call("PUT", "/v1/surfaces/other", json=body).status_code == 200
    assert versions == [0, None]


@pytest.mark.parametrize("prefix", ["", "W/"])
def test_an_unchanged_surface_is_304(call, prefix):
    tag = call("GET", "/v1/surfaces/home").headers["etag"]
    assert call("GET", "/v1/surfaces/home", headers={"if-none-match": prefix + tag}).status_code == 304


def test_items_are_added_paused_resumed_and_removed(call):
    item = "/v1/surfaces/home/items/e"
    assert call("PUT", item).status_code == 201
    assert call("PUT", item).status_code == 200
    assert call("POST", f"{item}/pause").json()["items"][-1]["state"] == "paused"
    assert call("POST", f"{item}/resume").json()["items"][-1]["state"] == "active"
    assert call("DELETE", item).json()["items"][-1]["state"] == "removed"
    assert call("POST", "/v1/surfaces/home/items/nobody/pause").status_code == 404


def test_names_may_contain_any_printable_character(call):
    assert (
        call("PUT", "/v1/surfaces/menu%2Fleft%20%C3%A9", json={"slots": 2, "items": ["x/y", "z", "é"]}).status_code
        == 201
    )
    assert call("GET", "/v1/surfaces/menu%2Fleft%20%C3%A9").json()["name"] == "menu/left é"
    answer = call("POST", "/v1/surfaces/menu%2Fleft%20%C3%A9/rank", json={"request_id": "1", "exclude": ["z"]})
    assert {slot["item"] for slot in answer.json()["slots"]} == {"x/y", "é"}
    assert call("POST", "/v1/surfaces/menu%2Fleft%20%C3%A9/items/x%2Fy/pause").status_code == 200
    assert call("GET", "/v1/surfaces/%FF").status_code == 404


def test_the_comparison_is_restarted_at_a_version(call):
    path = "/v1/surfaces/home/restart-comparison"
    version = call("GET", "/v1/surfaces/home").json()["version"]
    assert call("POST", path, headers={"if-match": '"99"'}).status_code == 412
    assert call("POST", path).json()["version"] == version + 1
    assert call("POST", "/v1/surfaces/nowhere/restart-comparison").status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"baseline": True, "rounds": 500}, 204),
        ({"baseline": True, "rounds": 500, "segment": "mobile"}, 422),
        ({"baseline": True}, 422),
        ({"rounds": 500}, 422),
        ({"baseline": False, "rounds": 500}, 422),
        ({"baseline": True, "model": {"attraction": {}}, "rounds": 500}, 422),
        ({"baseline": True, "rounds": 0}, 422),
    ],
)
def test_a_warm_start_is_from_the_baseline(call, body, status):
    assert call("POST", "/v1/surfaces/home/warm-start", json=body).status_code == status


def test_reset(call):
    call.page("r", segment="mobile")
    assert call("POST", "/v1/surfaces/home/reset").status_code == 204
    assert call("POST", "/v1/surfaces/home/reset", json={"segment": "mobile"}).status_code == 422  # not all


def test_times_are_rfc_3339_in_requests_and_responses(call):
    event = ranked(call, segment="x").json()["event_id"]
    assert call("GET", f"/v1/events/{event}").json()["created_at"] == "2023-11-14T22:13:20.000Z"
    report = call("GET", "/v1/surfaces/home/report?since=2023-01-01T00:00:00%2B01:00&segment=x").json()
    assert (report["since"], report["segment"]) == ("2022-12-31T23:00:00.000Z", "x")
    assert report["until"] == "2023-11-14T22:13:20.000Z"
    assert call("GET", "/v1/surfaces/home/state").json()["rounds"] == 0


WRONG = [
    "since=yesterday",
    "since=2026-01-01",
    "until=9999-99-99",
    "until=9999-12-31T23:59:59.9999Z",  # rounded up, it is in a year that cannot be written
    "until=9999-01-01T00:00:00Z",
    "since=1969-12-31T23:59:59Z",
    "since=0001-01-01T00:00:00%2B14:00",
    "context=x",
    "context=[]",
]


@pytest.mark.parametrize("query", WRONG)
def test_an_invalid_query_is_refused(call, query):
    answer = call("GET", f"/v1/surfaces/home/report?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith("?")


def test_limits_of_surfaces_and_batches(serving):
    call = serving(Config(limits=Limits(body_bytes=300, batch=2, items=3, slots=2, surfaces=2)))
    event = {"event_id": "e", "token": "t"}
    assert call("PUT", "/v1/surfaces/home", json={"slots": 2, "items": ["a", "b", "c"]}).status_code == 201
    assert call("PUT", "/v1/surfaces/wide", json={"slots": 3}).status_code == 422
    assert call("PUT", "/v1/surfaces/home", json={"items": ["d"]}).status_code == 422
    assert call("PUT", "/v1/surfaces/home/items/d").status_code == 422
    assert call("PUT", "/v1/surfaces/home", json={"items": ["a"]}).status_code == 200
    assert call("PUT", "/v1/surfaces/second", json={"slots": 1, "items": ["a"]}).status_code == 201
    assert call("PUT", "/v1/surfaces/third", json={"slots": 1, "items": ["a"]}).status_code == 422
    assert call("POST", "/v1/feedback", json={"events": [event] * 2}).status_code == 200
    assert call("POST", "/v1/feedback", json={"events": [event] * 3}).status_code == 422
    assert call("POST", "/v1/feedback", json={"events": [event, 3, 3]}).status_code == 422
    assert call("POST", RANK, content=b" " * 301).status_code == 413


def test_a_secret_is_rotated_and_old_ones_are_forgotten_on_request(call, store):
    for body in (None, {}, {"forget": True}):
        options = {} if body is None else {"json": body}
        assert call("POST", "/v1/secret/rotate", **options).status_code == 204
    details = [entry["detail"] for entry in store.audit(None, 3)]
    assert details == ["number 4; all earlier tokens were invalidated", "number 3", "number 2"]
    assert call("POST", "/v1/secret/rotate", json={"forget": "yes"}).status_code == 422


@pytest.mark.parametrize("made_for", [{"headers": {"if-match": '"7"'}, "json": {}}, {"json": {"version": 7}}])
def test_a_version_that_another_worker_has_just_made_is_known(call, store, made_for):
    worker = Client(Service(engine_on(store, shared=True), store, Config(request_log=False)))
    worker.run(worker.service.start())
    for version in range(2, 8):
        (home,) = store.surfaces()
        store.save_surface(msgspec.structs.replace(home, version=version), [])
    assert worker("PATCH", "/v1/surfaces/home", **made_for).status_code == 200
    worker.run(worker.service.stop())
    worker.close()


def test_a_restart_and_the_first_page_load_no_state(serving):
    """With thousands of surfaces, they would take half a minute: a state is loaded when it is used."""
    before = serving()
    for k in range(3):
        before("PUT", f"/v1/surfaces/s{k}", json={"slots": 1, "items": ["a", "b"], "policy": "ftrl-pbm"})
        pages = [before.page(f"r{segment}", f"s{k}", segment=segment) for segment in ("", "m1", "m2")]
        assert {before.click(page) for page in pages} == {"accepted"}
    before.settle()
    assert before.service.engine.registry.states.size > 0
    after = serving()
    states = after.service.engine.registry.states
    assert after("GET", "/").status_code == 200
    assert states.size == 0
    for k in (1, 2):
        loaded = states.size
        assert after("GET", f"/v1/surfaces/s{k}/report").status_code == 200
        assert states.size > loaded


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
    assert "by visitor, by surface and request_id" in answer.json()["detail"]
