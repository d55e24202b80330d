"""CORS and CSRF: from which origins and hosts the API may be called."""

from __future__ import annotations

import itertools

import httpx
import pytest

from bothworlds.serve.config import Config
from bothworlds.serve.http.app import Service
from bothworlds.serve.http.auth import create_key
from tests.serve.app_server import listening

ORIGIN = {"origin": "https://shop.example"}
ASKING = {**ORIGIN, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}


def test_allowed_origins_get_cors_headers(serving):
    call = serving(Config(allowed_origins=("https://shop.example",), request_log=False))
    before = call("OPTIONS", "/v1/feedback", headers=ASKING)
    assert before.status_code == 200
    assert before.headers["access-control-allow-origin"] == "https://shop.example"
    assert "authorization" in before.headers["access-control-allow-headers"]
    for body in ({"events": []}, {}):
        answer = call("POST", "/v1/feedback", json=body, headers=ORIGIN)
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"
        assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("origins", [(), ("https://other.example",)])
def test_other_origins_get_no_cors_headers(serving, origins):
    call = serving(Config(allowed_origins=origins, request_log=False))
    for answer in (
        call("OPTIONS", "/v1/feedback", headers=ASKING),
        call("POST", "/v1/feedback", json={"events": []}, headers=ORIGIN),
    ):
        assert "access-control-allow-origin" not in answer.headers


def test_only_rank_and_feedback_have_cors_headers(serving):
    call = serving(Config(allowed_origins=("*",), request_log=False))
    answer = call("OPTIONS", "/v1/surfaces/home", headers=ASKING)
    assert "access-control-allow-origin" not in answer.headers


def test_without_keys_only_loopback_hosts_are_answered(serving):
    call = serving(hosts=["localhost", "127.0.0.1", "[::1]"])
    for host, status in (
        ("127.0.0.1:8080", 200),
        ("LOCALHOST", 200),
        ("[::1]:80", 200),
        ("[::1]", 200),
        ("evil.example", 403),
    ):
        assert call("POST", "/v1/feedback", json={"events": []}, headers={"host": host}).status_code == status
        assert call("GET", "/healthz", headers={"host": host}).status_code == status


CHANGES = [
    ("POST", "/v1/surfaces/home/reset", 204),
    ("POST", "/v1/secret/rotate", 204),
    ("POST", "/v1/surfaces/home/items/a/pause", 200),
    ("PUT", "/v1/surfaces/home/items/new", 201),
]
ELSEWHERE = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:3000"},  # another program on this machine
    {"origin": "https://127.0.0.1"},  # one that speaks TLS on the port next to this one
    {"origin": "https://127.0.0.1:80"},
    {"origin": "http://127.0.0.1:443"},
    {"origin": "127.0.0.1"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1"},
]


@pytest.mark.parametrize("origins", [(), ("*",)])
@pytest.mark.parametrize("headers", ELSEWHERE)
def test_without_keys_cross_origin_requests_change_nothing(serving, engine, headers, origins):
    call = serving(Config(allowed_origins=origins, request_log=False))
    call("PUT", "/v1/surfaces/home", json={"slots": 1, "items": ["a", "b", "c"]})
    before = engine.registry.surface("home")
    for method, path, _ in CHANGES:
        assert call(method, path, headers=headers).status_code == 403
    assert engine.registry.surface("home") == before


OWN = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}


@pytest.mark.parametrize("headers", [{}, OWN, {"origin": "http://127.0.0.1:80"}, {**OWN, "host": "127.0.0.1:80"}])
def test_without_keys_programs_and_same_origin_pages_can_make_changes(call, headers):
    for method, path, status in CHANGES:
        assert call(method, path, headers=headers).status_code == status


@pytest.mark.parametrize(("origins", "status"), [((), 403), (("https://shop.example",), 200), (("*",), 200)])
def test_without_keys_rank_and_feedback_are_for_allowed_origins_only(serving, origins, status):
    call = serving(Config(allowed_origins=origins, request_log=False))
    call("PUT", "/v1/surfaces/home", json={"slots": 1, "items": ["a", "b"]})
    headers = {**ORIGIN, "sec-fetch-site": "cross-site", "content-type": "text/plain"}
    assert call("POST", "/v1/feedback", content='{"events": []}', headers=headers).status_code == status
    headers["content-type"] = "application/json"
    asked = '{"request_id": "r"}'
    assert call("POST", "/v1/surfaces/home/rank", content=asked, headers=headers).status_code == status


def test_with_a_key_any_origin_is_accepted(call, store):
    call.sign(create_key(store, ["admin"], "", 0))
    assert call("POST", "/v1/surfaces/home/reset", headers=ELSEWHERE[0]).status_code == 204


@pytest.mark.parametrize(
    ("proxies", "own"),
    [
        ("127.0.0.1", {None: "http", "http": "http", "https": "https"}),
        ("10.0.0.1", dict.fromkeys([None, "http", "https"], "http")),
    ],
)
def test_only_a_trusted_proxy_sets_the_scheme(proxies, own, engine, store):
    service = Service(engine, store, Config(request_log=False))
    with listening(service, started=True, trusted_proxies=(proxies,)) as address:
        for forwarded, scheme in itertools.product(own, ("http", "https")):
            headers = {"origin": f"{scheme}://{address.removeprefix('http://')}"}
            headers |= {"x-forwarded-proto": forwarded} if forwarded else {}
            answer = httpx.post(f"{address}/v1/feedback", json={"events": []}, headers=headers, timeout=60)
            assert answer.status_code == (200 if scheme == own[forwarded] else 403)
