"""The OpenAPI document describes all routes and all statuses; test_real_engine.py sends generated requests."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from bothworlds.serve.config import Config, Limits
from bothworlds.serve.engine.surface_rules import create_surface
from bothworlds.serve.http.app import Service
from bothworlds.serve.http.auth import create_key
from bothworlds.serve.http.operations import OPERATIONS
from bothworlds.serve.model import Conflict, Invalid, TooMany, Unavailable
from tests.serve.running import broken, temporary_store

from .conftest import engine_on, failing

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SURFACE = {"slots": 1, "items": ["a", "b", "c"]}
ROW = {"event": "e1", "position": 0, "item": "a", "click": 0, "propensity": 0.5}


def made():
    """Return a service with one surface, and an administrator's key."""
    store = temporary_store()
    surface = create_surface("home", SURFACE, 0).surface
    store.save_surface(surface, [])
    key = create_key(store, ["admin"], "", 0)
    config = Config(request_log=False, limits=Limits(surfaces=10**9, items=10**6))
    return Service(engine_on(store), store, config), key


@schemathesis.serializer("application/x-ndjson")
def as_bytes(context, value):
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def test_every_route_is_documented_and_every_documented_route_exists(call):
    paths = call("GET", "/openapi.json").json()["paths"]
    assert {(path, method.upper()) for path in paths for method in paths[path]} == {
        (operation.path, operation.method) for operation in OPERATIONS
    }
    for path, methods in paths.items():
        allowed = call("OPTIONS", path.replace("{", "").replace("}", "")).headers["allow"].split(", ")
        assert {method.upper() for method in methods} == set(allowed) - {"HEAD", "OPTIONS"}
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - set(allowed):
            answer = call(method, path.replace("{", "").replace("}", ""))
            assert (answer.status_code, answer.headers["allow"]) == (405, ", ".join(allowed)), (method, path)


def test_every_reference_of_the_document_exists(call):
    text = call("GET", "/openapi.json").text
    names = set(json.loads(text)["components"]["schemas"])
    mentioned = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert mentioned <= names


# Documented statuses that no request of this test causes, and why.
JUSTIFIED = {408: "a body that stops arriving; tested in test_server"}


def provoked(serving, engine, store):
    """Call every operation in all ways that lead to a documented status; return the statuses and the client."""
    seen = set()

    def note(client, method, path, template, fault=None, **options):
        if "home" not in engine.registry.surfaces:  # it was deleted
            client("PUT", "/v1/surfaces/home", json=SURFACE)
        if "a" not in engine.registry.served("home").active and not path.endswith("/resume"):
            client("PUT", "/v1/surfaces/home/items/a")
        client.page("m", segment="mobile")
        with fault or nullcontext():
            seen.add((method, template, client(method, path, **options).status_code))

    client = serving(Config(request_log=False, limits=Limits(body_bytes=2000, import_bytes=2000)))
    client("PUT", "/v1/surfaces/home", json=SURFACE)
    doomed = create_key(store, ["serve"], "", 0).split("_")[1]
    client.sign(create_key(store, ["admin"], "", 0))
    event = client("POST", "/v1/surfaces/home/rank", json={"request_id": "r"}).json()["event_id"]
    good = good_bodies()
    for operation in OPERATIONS:
        filled = operation.path.format(surface="home", item="a", event_id=event, key_id=doomed)
        method, template, body = operation.method, operation.path, good.get(operation.name, {})
        variants = variants_of(operation, body)
        for _ in range(2 if method == "PUT" else 1):
            note(client, method, filled, template, **body)
        for options in variants:
            note(client, method, filled, template, **options)
        absent = {"surface": f"not-{operation.name}", "event_id": "0" * 32, "key_id": "nobody"}
        note(client, method, operation.path.format(item="new", **absent), template, **body)
        for surface, item in (("home", "new"), ("home", "x" * 200), ("%FF", "a")):
            path = operation.path.format(surface=surface, item=item, event_id="", key_id="k")
            note(client, method, path, template)
        for fault in (Conflict("somebody was quicker"), Invalid("this cannot be")):
            note(client, method, filled, template, failing(engine, fault), **body)
    return seen, client


def good_bodies():
    return {
        "rank": {"json": {"request_id": "r"}},
        "feedback": {"json": {"events": []}},
        "put_surface": {"json": SURFACE},
        "patch_surface": {"json": {"floor": 0.1}},
        "reset": {"json": {}},
        "promote": {"json": {"arm": "learner"}},
        "warm_start": {"json": {"baseline": True, "rounds": 1}},
        "delete_events": {"params": {"visitor": "v"}},
        "create_key": {"json": {"roles": ["read"]}},
        "import_log": {"content": json.dumps(ROW), "headers": {"content-type": "application/x-ndjson"}},
    }


def variants_of(operation, body):
    """Return invalid requests of all known kinds."""
    kind = body.get("headers", {}).get("content-type", "application/json")
    return [
        {"content": "{", "headers": {"content-type": kind}},
        {"content": "[]", "headers": {"content-type": kind}},
        {"content": b" " * 3000, "headers": {"content-type": kind}},
        {"content": "{}", "headers": {"content-type": "text/html"}},
        {**body, "headers": {"if-match": '"999"', **body.get("headers", {})}},
        {"json": {"version": 999, **body.get("json", {})}},
        {"headers": {"if-none-match": '"1", "2", "3", "4", "5", "6", "7", "8", "9"'}},
        {"params": {"context": "[]", "visitor": "x", "format": "xml"}},
        {"params": {"surface": "nowhere", "request_id": "r"}},
        {"headers": {"accept": "image/png"}},
    ]


@pytest.mark.slow
def test_every_documented_status_occurs(serving, engine, store):
    seen, client = provoked(serving, engine, store)
    feedback = {"json": {"events": [{"event_id": "e", "token": "t"}]}}
    with failing(engine, TooMany("the queue is full")):
        seen.add(("POST", "/v1/feedback", client("POST", "/v1/feedback", **feedback).status_code))
        asked = client("POST", "/v1/surfaces/home/rank", json={"request_id": "r"})
    seen.add(("POST", "/v1/surfaces/{surface}/rank", asked.status_code))
    assert int(asked.headers["retry-after"]) > 0
    documented = {
        (operation.method, operation.path, status)
        for operation in OPERATIONS
        for status in operation.statuses - JUSTIFIED.keys() - {401, 403, 503}
    }
    missing = sorted(documented - seen)
    assert not missing, missing


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_without_key_role_or_store_the_documented_status_is_returned(operation, serving, store, monkeypatch):
    client = serving(hosts=["localhost"])
    path = operation.path.format(surface="home", item="a", event_id="0" * 32, key_id="k")
    body = good_bodies().get(operation.name, {})
    if operation.name == "feedback":
        body = {"json": {"events": [{"event_id": "e", "token": "t"}]}}
    assert client(operation.method, path, **body).status_code == 403  # another host than loopback, and no keys
    client = serving()
    client("PUT", "/v1/surfaces/home", json=SURFACE)
    if operation.role is None:
        return
    monkeypatch.setattr(client.service.engine, "health", lambda: {"ready": False})
    if operation.name not in ("metrics", "get_surface", "list_surfaces"):
        with broken(store), failing(client.service.engine, Unavailable("the store is away")):
            assert client(operation.method, path, **body).status_code == 503
    other = create_key(store, ["ingest" if operation.role != "ingest" else "read"], "", 0)
    client.run(client.service.keyring.load())
    assert client(operation.method, path, **body).status_code == 401
    head = {"headers": {"authorization": f"Bearer {other}", **body.get("headers", {})}}
    assert client(operation.method, path, **{**body, **head}).status_code == 403


@pytest.mark.slow
def test_the_checks_can_fail():
    """They notice a 500 and an undocumented status."""
    service, key = made()
    # Before anything fails: this imports modules, whose source Python 3.11 cannot parse in one thread while another one
    # writes a traceback (CPython issue 106905).
    described = schemathesis.openapi.from_asgi("/openapi.json", service)
    service.engine.health = lambda: 1 / 0
    head = {"authorization": f"Bearer {key}"}
    with pytest.raises(FailureGroup, match="Server error"):
        described["/readyz"]["GET"].Case().call_and_validate(headers=head, checks=CHECKS)
    del described.raw_schema["paths"]["/v1/events/{event_id}"]["get"]["responses"]["404"]
    broken = schemathesis.openapi.from_dict(described.raw_schema)
    broken.app = service
    case = broken["/v1/events/{event_id}"]["GET"].Case(path_parameters={"event_id": "0"})
    with pytest.raises(FailureGroup, match="Undocumented"):
        case.call_and_validate(headers=head, checks=CHECKS)
