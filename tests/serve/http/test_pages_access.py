"""Who may look at pages, and from where the API may be called."""

from __future__ import annotations

import asyncio
import itertools

import httpx
import pytest
from starlette.responses import HTMLResponse
from starlette.routing import Route

from bothworlds.serve.config import Config
from bothworlds.serve.dashboard.routes import routes
from bothworlds.serve.http import auth, sessions
from bothworlds.serve.http.auth import create_key, revoke_key

from .service_process import PATIENCE, service

HTML = {"accept": "text/html"}


async def home(request):
    return HTMLResponse("hello")


@pytest.fixture
def site(serving):
    return serving(pages=[Route("/", home)])


def signed_in(site, key):
    answer = site("POST", "/sign-in", data={"key": key})
    return answer, {"cookie": answer.headers.get("set-cookie", "").partition(";")[0]}


def test_without_keys_everybody_on_the_machine_may_look(site):
    assert site("GET", "/").text == "hello"


def test_with_keys_one_has_to_sign_in(site, store):
    key = create_key(store, ["read"], "", 0)
    site.run(site.service.keyring.load())
    assert site("GET", "/").status_code == 401
    assert site("GET", "/", headers=HTML).headers["location"] == "/sign-in"
    assert "<form" in site("GET", "/sign-in").text
    answer, cookie = signed_in(site, key)
    said = answer.headers["set-cookie"].lower()
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "httponly" in said
    assert "samesite=strict" in said
    assert key.split("_", 2)[2].lower() not in said
    assert site("GET", "/", headers=cookie).text == "hello"
    assert site("GET", "/", headers={"authorization": f"Bearer {key}"}).text == "hello"


def test_the_way_in_looks_like_the_rest_and_there_is_a_way_out(serving, store, engine):
    site = serving(pages=routes(engine))
    key = create_key(store, ["read"], "", 0)
    site.run(site.service.keyring.load())
    form = site("GET", "/sign-in")
    assert "/static/style.css" in form.text
    assert "unsafe" not in form.headers["content-security-policy"]
    assert "Sign out" not in form.text
    _, cookie = signed_in(site, key)
    assert "Sign out" in site("GET", "/event", headers=cookie).text
    assert "not known" in signed_in(site, key + "x")[0].text


def test_a_session_opens_no_call_of_the_api(site, store):
    key = create_key(store, ["admin"], "", 0)
    site.run(site.service.keyring.load())
    _, cookie = signed_in(site, key)
    assert site("GET", "/v1/surfaces", headers=cookie).status_code == 401


def test_a_session_ends_with_its_key_and_with_its_time(site, store, monkeypatch):
    key = create_key(store, ["read"], "", 0)
    site.run(site.service.keyring.load())
    _, cookie = signed_in(site, key)
    revoke_key(store, key.split("_")[1], 1)  # by another process
    monkeypatch.setattr(auth, "REFRESH_SECONDS", 0.0)
    for _ in range(6000):  # keys are read in the background
        if site("GET", "/", headers=cookie).status_code == 401:
            break
        site.run(asyncio.sleep(0.01))
    assert site("GET", "/", headers=cookie).status_code == 401
    other = create_key(store, ["read"], "", 0)
    site.run(site.service.keyring.load())
    monkeypatch.setattr(sessions, "LIFETIME_SECONDS", -1)
    _, cookie = signed_in(site, other)
    assert site("GET", "/", headers=cookie).status_code == 401


def test_a_forged_or_odd_cookie_opens_nothing(site, store):
    key = create_key(store, ["read"], "", 0)
    site.run(site.service.keyring.load())
    key_id = key.split("_")[1]
    for value in (f"{key_id}.9999999999.00", f"{key_id}.9999999999", "..", "a.b.c", '"', f"{key_id}.{'9' * 5000}.x"):
        assert site("GET", "/", headers={"cookie": f"bothworlds_session={value}"}).status_code == 401


def test_a_key_without_the_role_read_cannot_sign_in(site, store):
    key = create_key(store, ["serve"], "", 0)
    site.run(site.service.keyring.load())
    answer, _ = signed_in(site, key)
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    assert signed_in(site, "nonsense")[0].status_code == 401


def test_signing_out_takes_the_cookie_back(site):
    assert "max-age=0" in site("POST", "/sign-out").headers["set-cookie"].lower()


def test_what_is_not_there_is_a_problem_like_any_other(site):
    for method, path, status in (
        ("GET", "/nowhere", 404),
        ("POST", "/", 405),
        ("GET", "/v1/x", 404),
        ("PUT", "/metrics", 405),
    ):
        answer = site(method, path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        assert answer.json()["status"] == status
        assert ("allow" in answer.headers) == (status == 405)


ORIGIN = {"origin": "https://shop.example"}
ASKING = {**ORIGIN, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}


def test_pages_of_allowed_origins_may_call(serving):
    call = serving(Config(allowed_origins=("https://shop.example",), request_log=False))
    before = call("OPTIONS", "/v1/feedback", headers=ASKING)
    assert before.status_code == 204
    assert before.headers["access-control-allow-origin"] == "https://shop.example"
    assert "authorization" in before.headers["access-control-allow-headers"]
    for body in ({"events": []}, {}):
        answer = call("POST", "/v1/feedback", json=body, headers=ORIGIN)
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"
        assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("origins", [(), ("https://other.example",)])
def test_pages_of_other_origins_may_not(serving, origins):
    call = serving(Config(allowed_origins=origins, request_log=False))
    for answer in (
        call("OPTIONS", "/v1/feedback", headers=ASKING),
        call("POST", "/v1/feedback", json={"events": []}, headers=ORIGIN),
    ):
        assert "access-control-allow-origin" not in answer.headers


def test_administration_is_never_for_pages_of_other_origins(serving):
    call = serving(Config(allowed_origins=("*",), request_log=False))
    answer = call("OPTIONS", "/v1/surfaces/home", headers=ASKING)
    assert "access-control-allow-origin" not in answer.headers


def test_without_keys_only_loopback_names_are_answered(serving):
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
    ("DELETE", "/v1/surfaces/home/items/b", 200),
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
def test_without_keys_a_page_elsewhere_can_change_nothing(serving, engine, headers, origins):
    call = serving(Config(allowed_origins=origins, request_log=False))
    call("PUT", "/v1/surfaces/home", json={"slots": 1, "items": ["a", "b", "c"]})
    before = engine.surface("home")
    for method, path, _ in CHANGES:
        assert call(method, path, headers=headers).status_code == 403
    assert engine.surface("home") == before


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_over_tls_the_cookie_is_for_tls_only(site, store, scheme):
    key = create_key(store, ["read"], "", 0)
    site.run(site.service.keyring.load())
    answer = site("POST", f"{scheme}://127.0.0.1/sign-in", data={"key": key})
    assert ("secure" in answer.headers["set-cookie"].lower()) == (scheme == "https")


OWN = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}


@pytest.mark.parametrize("headers", [{}, OWN, {"origin": "http://127.0.0.1:80"}, {**OWN, "host": "127.0.0.1:80"}])
def test_without_keys_programs_and_our_own_pages_can(call, headers):
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


def test_with_a_key_it_does_not_matter_where_a_call_is_from(call, store):
    call.sign(create_key(store, ["admin"], "", 0))
    assert call("POST", "/v1/surfaces/home/reset", headers=ELSEWHERE[0]).status_code == 204


@pytest.mark.parametrize(
    ("proxies", "own"),
    [
        ("127.0.0.1", {None: "http", "http": "http", "https": "https"}),
        ("10.0.0.1", dict.fromkeys([None, "http", "https"], "http")),
    ],
)
def test_only_a_trusted_proxy_can_say_that_pages_come_over_tls(proxies, own):
    with service(trusted_proxies=proxies) as (_, address):
        for forwarded, scheme in itertools.product(own, ("http", "https")):
            headers = {"origin": f"{scheme}://{address.removeprefix('http://')}"}
            headers |= {"x-forwarded-proto": forwarded} if forwarded else {}
            answer = httpx.post(f"{address}/v1/feedback", json={"events": []}, headers=headers, timeout=PATIENCE)
            assert answer.status_code == (200 if scheme == own[forwarded] else 403)
