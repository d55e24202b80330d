"""Sessions: who may see the pages of the dashboard, and how to sign in and out."""

from __future__ import annotations

import asyncio
import html
import re
from urllib.parse import urlencode

import pytest

from bothworlds.serve.http import auth, sessions
from bothworlds.serve.http.auth import create_key, revoke_key

HTML = {"accept": "text/html"}


@pytest.fixture
def site(serving):
    return serving()


def signed_in(site, key):
    answer = site("POST", "/sign-in", data={"key": key})
    return answer, {"cookie": answer.headers.get("set-cookie", "").partition(";")[0]}


def test_with_keys_pages_need_a_session(site, store):
    assert site("GET", "/").text.count("<h1>The service is running") == 1
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
    assert site("GET", "/", headers=cookie).text.count("<h1>The service is running") == 1
    assert site("GET", "/", headers={"authorization": f"Bearer {key}"}).text.count("<h1>The service is running") == 1


def test_signing_in_leads_back_to_the_page_that_was_asked_for(serving, store, engine):
    site = serving()
    key = create_key(store, ["read"], "", 0)
    site.run(site.service.keyring.load())
    asked = "/surfaces/a%2Fb?range=7d&segment=s%3Amobile"
    location = site("GET", asked, headers=HTML).headers["location"]
    assert location == "/sign-in?next=%2Fsurfaces%2Fa%252Fb%3Frange%3D7d%26segment%3Ds%253Amobile"
    for form in (site("GET", location), site("POST", "/sign-in", data={"key": "wrong", "next": asked})):
        following = html.unescape(re.search(r'name="next" value="([^"]*)"', form.text)[1])
        assert following == asked
    answer = site("POST", "/sign-in", data={"key": key, "next": following})
    assert (answer.status_code, answer.headers["location"]) == (303, asked)


@pytest.mark.parametrize(
    "elsewhere",
    ["//example.org", "https://example.org", "/\\example.org", "\\\\example.org", "/\t/example.org", "/\n/example.org",
     "javascript:alert(1)", "example.org", " //example.org", "/\r\nSet-Cookie: a=b", "/\x00//example.org", "/a\\b",
     "/\u2028"],
)  # fmt: skip
def test_signing_in_leads_to_no_other_host(site, store, elsewhere):
    key = create_key(store, ["read"], "", 0)
    site.run(site.service.keyring.load())
    answer = site("POST", "/sign-in", data={"key": key, "next": elsewhere})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    form = site("GET", "/sign-in?" + urlencode({"next": elsewhere}))
    assert 'name="next" value="/"' in form.text


def test_the_sign_in_page_has_the_style_and_headers_of_the_dashboard(serving, store, engine):
    site = serving()
    key = create_key(store, ["read"], "", 0)
    site.run(site.service.keyring.load())
    form = site("GET", "/sign-in")
    assert "/static/style.css" in form.text
    assert "unsafe" not in form.headers["content-security-policy"]
    assert "Sign out" not in form.text
    _, cookie = signed_in(site, key)
    assert "Sign out" in site("GET", "/event", headers=cookie).text
    assert "not known" in signed_in(site, key + "x")[0].text


def test_a_session_does_not_authorise_the_api(site, store):
    key = create_key(store, ["admin"], "", 0)
    site.run(site.service.keyring.load())
    _, cookie = signed_in(site, key)
    assert site("GET", "/v1/surfaces", headers=cookie).status_code == 401


def test_a_session_ends_when_its_key_is_revoked_and_when_it_expires(site, store, monkeypatch):
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


def test_a_forged_or_malformed_cookie_is_refused(site, store):
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


def test_signing_out_deletes_the_cookie(site):
    assert "max-age=0" in site("POST", "/sign-out").headers["set-cookie"].lower()


def test_unknown_paths_and_methods_are_problems(site):
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


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_over_tls_the_cookie_is_secure(site, store, scheme):
    key = create_key(store, ["read"], "", 0)
    site.run(site.service.keyring.load())
    answer = site("POST", f"{scheme}://127.0.0.1/sign-in", data={"key": key})
    assert ("secure" in answer.headers["set-cookie"].lower()) == (scheme == "https")
