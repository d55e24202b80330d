"""Creating and editing surfaces on the dashboard: the same as by the API, and closed to everybody else."""

from __future__ import annotations

import html
import re
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothworlds.serve.config import Config
from bothworlds.serve.dashboard import routes, surface_form, text
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.http import forms
from bothworlds.serve.http.app import Service
from bothworlds.serve.http.auth import create_key, revoke_key
from bothworlds.serve.http.sessions import Editor
from bothworlds.serve.model import SurfaceSettings, Unknown
from bothworlds.serve.surface_input import SETTINGS
from tests.serve.markup import Markup
from tests.serve.running import broken, temporary_store

from .conftest import Client

HTML = {"accept": "text/html"}
ORIGIN = "http://127.0.0.1"
EVIL = '"><script>alert(1)</script>'


class Visitor:
    """A browser: sends its cookie with every request, and forms with the token of the page."""

    def __init__(self, client, key=""):
        self.client, self.headers = client, dict(HTML)
        if key:
            answer = client("POST", "/sign-in", data={"key": key})
            client._client.cookies.clear()
            self.headers["cookie"] = answer.headers.get("set-cookie", "").partition(";")[0]

    def get(self, path):
        return self.client("GET", path, headers=self.headers)

    def post(self, path, data, **headers):
        return self.client("POST", path, data=data, headers={**self.headers, "origin": ORIGIN, **headers})

    def token(self, path="/new-surface"):
        found = re.search(r'name="token" value="(\w+)"', self.get(path).text)
        return found[1] if found else ""

    def create(self, name, items="a\nb\nc\nd", slots="2", **texts):
        data = {"token": self.token(), "name": name, "items": items, "slots": slots, **texts}
        return self.post("/new-surface", data)

    def edit(self, name, version=None, **texts):
        now = self.client.engine.registry.surface(name).version if version is None else version
        return self.post(f"/edit/{name}", {"token": self.token(), "version": str(now), **texts})


@pytest.fixture(scope="module")
def client():
    """A service on a real engine, with keys of three roles."""
    store = temporary_store()
    engine = Engine(store, refresh_ms=3_600_000)
    client = Client(Service(engine, store, Config(request_log=False)))
    client.store, client.engine = store, engine
    client.keys = {role: create_key(store, [role], "", 0) for role in ("admin", "read", "serve")}
    client.run(client.service.start())
    yield client
    client.run(client.service.stop())
    client.close()


@pytest.fixture(scope="module")
def admin(client):
    return Visitor(client, client.keys["admin"])


@pytest.fixture
def home(client, admin, request):
    """The name of a surface that only this test uses."""
    name = request.node.name
    assert admin.create(name).status_code == 303
    return name


def by_api(client, method, path, body=None):
    return client(method, path, json=body, headers={"authorization": f"Bearer {client.keys['admin']}"})


def page_of(answer, status=200):
    assert answer.status_code == status, answer.text
    page = Markup(answer.text)
    assert page.faults == []
    return page


def errors_of(answer):
    """The messages beside fields, by the name of the field, and the one of the whole form."""
    page_of(answer, answer.status_code)
    return dict(re.findall(r'id="error-(\w+)">([^<]*)<', answer.text)), re.findall(
        r'role="alert">([^<]*)<', answer.text
    )


# Settings


def test_every_setting_has_a_field_and_a_sentence(client, admin):
    names = {field.name for field in msgspec.structs.fields(SurfaceSettings)}
    assert names == set(SETTINGS), "SETTINGS of serve/surface_input.py has one sentence for each setting"
    page = page_of(admin.get("/new-surface"))
    assert names | {"name", "items"} <= {name.removeprefix("field-") for name in page.ids}
    shown = [field.name for group in surface_form.groups(surface_form.texts_of(), {}) for field in group.fields]
    assert sorted(shown) == sorted(names)


settings_of_surfaces = st.builds(
    SurfaceSettings,
    slots=st.integers(1, 50),
    policy_settings=st.dictionaries(
        st.from_regex(r"[a-z_]{1,9}", fullmatch=True),
        st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.text(max_size=9)),
    ),
    floor=st.floats(0.001, 1),
    baseline=st.lists(st.from_regex(r"[a-z][a-z ]{0,9}[a-z]", fullmatch=True)).map(tuple),
    guard=st.booleans(),
    attribution_seconds=st.floats(1, 1e6),
    labels=st.none() | st.dictionaries(st.from_regex(r"[a-z]{1,9}", fullmatch=True), st.none(), max_size=3),
)


@pytest.mark.slow
@settings(max_examples=30)
@given(settings_of_surfaces)
def test_a_form_that_is_not_changed_changes_nothing(stored):
    values = surface_form.values_of(surface_form.texts_of(stored))
    assert msgspec.convert(values, SurfaceSettings) == stored


def test_a_form_creates_the_same_surface_as_the_api(client, admin):
    texts = {
        "policy": "gibbs-ts",
        "policy_settings": "window = 5000\n",
        "holdout": "0.1",
        "baseline": "d\na",
        "guard": "false",
        "guard_after": "77",
        "floor": "0.02",
        "late_seconds": "",
    }
    answer = admin.create("by form", items="a\r\n\r\n  b \r\nc\r\nd", slots="3", **texts)
    assert (answer.status_code, answer.headers["location"]) == (303, "/edit/by%20form?saved")
    body = {
        "slots": 3,
        "items": ["a", "b", "c", "d"],
        "policy": "gibbs-ts",
        "policy_settings": {"window": 5000},
        "holdout": 0.1,
        "baseline": ["d", "a"],
        "guard": False,
        "guard_after": 77,
        "floor": 0.02,
    }
    assert by_api(client, "PUT", "/v1/surfaces/by-api", body).status_code == 201
    one, other = client.engine.registry.surface("by form"), client.engine.registry.surface("by-api")
    assert one.settings == other.settings
    assert [item.name for item in one.items] == [item.name for item in other.items]
    entries = client.store.audit(one.id, 9)
    assert [(entry["action"], entry["actor"]) for entry in entries] == [
        ("create surface", client.keys["admin"].split("_")[1])
    ]
    assert "Saved." in page_of(admin.get("/edit/by%20form?saved")).text


@pytest.mark.parametrize(
    ("texts", "body", "field"),
    [
        ({"slots": "three"}, {"slots": "three"}, "slots"),
        ({"slots": "1e400"}, {"slots": "1e400"}, "slots"),
        ({"slots": "5"}, {"slots": 5}, "items"),
        ({"slots": "51"}, {"slots": 51}, "slots"),
        ({"holdout": "2"}, {"holdout": 2}, "holdout"),
        ({"guard_after": "0.5"}, {"guard_after": 0.5}, "guard_after"),
        ({"policy": "oracle"}, {"policy": "oracle"}, "policy"),
        ({"policy_settings": "nonsense = 1"}, {"policy_settings": {"nonsense": 1}}, "policy_settings"),
        ({"baseline": "z"}, {"baseline": ["z"]}, "baseline"),
        ({"items": "a\na\nb"}, {"items": ["a", "a", "b"]}, "items"),
        ({"minimum_exposure": "0.9"}, {"minimum_exposure": 0.9}, "minimum_exposure"),
    ],
)
def test_errors_of_the_api_are_shown_beside_the_field(client, admin, texts, body, field):
    answer = admin.create("never", **texts)
    refused = by_api(client, "PUT", "/v1/surfaces/never", {"slots": 2, "items": ["a", "b", "c", "d"], **body})
    assert answer.status_code == refused.status_code == 422
    (error,) = refused.json()["errors"]
    fields, _ = errors_of(answer)
    assert field in error["pointer"]
    assert fields.keys() == {field}
    assert html.unescape(fields[field]) == text.sentence(error["detail"])
    assert all(Markup(answer.text).count("textarea", name=name) for name in ("items", "baseline"))
    with pytest.raises(Unknown):
        client.engine.registry.surface("never")


def test_an_error_in_a_list_of_items_names_the_line(admin):
    fields, _ = errors_of(admin.create("never", items="a\n\n" + "x" * 200 + "\nb"))
    assert fields["items"].startswith("Line 3: expected")


def test_an_empty_or_existing_name_is_an_error_of_the_name(admin, home):
    assert "name" in errors_of(admin.create("  "))[0]
    answer = admin.create(home, slots="3")
    assert errors_of(answer)[0] == {"name": "The surface exists already."}
    assert answer.status_code == 412
    assert admin.client.engine.registry.surface(home).settings.slots == 2


@pytest.mark.parametrize("written", ["rate", "= 3", "rate = 1\nrate = 2"])
def test_settings_that_cannot_be_read_are_an_error_of_their_field(admin, written):
    assert "policy_settings" in errors_of(admin.create("never", policy_settings=written))[0]


# Bodies


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("multipart/form-data; boundary=x", b"--x--", 415),
        ("application/x-www-form-urlencoded", b"a=1&" * 1000, 400),
        ("application/x-www-form-urlencoded", b"a=%ff", 403),  # read, and without the token
        ("text/plain", b"token=1", 415),
        ("application/json", b"{}", 415),
        ("application/x-www-form-urlencoded", b"token=" + b"x" * (4 << 20), 413),
    ],
)
def test_a_malformed_or_huge_form_is_refused(client, admin, kind, body, status):
    answer = client(
        "POST", "/new-surface", content=body, headers={**admin.headers, "content-type": kind, "origin": ORIGIN}
    )
    page_of(answer, status)


@settings(max_examples=30)
@given(st.binary(max_size=200))
def test_any_body_is_a_form_or_refused(client, admin, body):
    headers = {**admin.headers, "content-type": "application/x-www-form-urlencoded", "origin": ORIGIN}
    assert client("POST", "/new-surface", content=body, headers=headers).status_code in (400, 403)


odd_texts = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["1e999", "-1", "9" * 400, "NaN", "null", "true", "[]", "{}", '{"a": 1}', "0x1", "1_0", "[" * 3000]
    ),
    st.from_regex(r"[a-z_]{1,9} = ([0-9.e-]{1,9}|[\[\]{}\"',a-z]{1,9})", fullmatch=True),
)


@pytest.mark.slow
@settings(max_examples=25)
@given(texts=st.dictionaries(st.sampled_from(["name", "items", "version", *SETTINGS]), odd_texts, max_size=4))
def test_no_text_in_a_form_is_a_fault_of_the_service(client, admin, texts):
    form = {"name": "odd", "items": "a\nb\nc", "slots": "2", "version": "1", **texts}
    sent = {name: text.encode("utf-8", "surrogatepass") for name, text in form.items()}
    answers = [admin.post("/new-surface", {"token": admin.token(), **sent})]
    answers.append(admin.post("/edit/odd", {"token": admin.token(), "action": "settings", **sent}))
    answers.append(admin.post("/edit/odd", {"token": admin.token(), "action": "add", **sent}))
    assert {answer.status_code for answer in answers} <= {303, 400, 404, 412, 422}


# Editing


def test_settings_are_changed_and_others_stay(client, admin, home):
    before = client.engine.registry.surface(home)
    assert admin.edit(home, action="settings", holdout="0.2", policy_settings="", floor="").status_code == 303
    after = client.engine.registry.surface(home)
    assert after.settings == msgspec.structs.replace(before.settings, holdout=0.2)
    assert admin.edit(home, action="settings", **surface_form.texts_of(after.settings)).status_code == 303
    assert client.engine.registry.surface(home).version == after.version  # nothing changed


def test_an_error_keeps_what_was_entered(admin, home):
    answer = admin.edit(home, action="settings", holdout="2", guard_after="123")
    assert answer.status_code == 422
    assert errors_of(answer)[0].keys() == {"holdout"}
    assert Markup(answer.text).count("input", name="guard_after", value="123") == 1
    assert "details" in re.findall(r"<(details) class=\"group\" open>", answer.text)


def test_two_editors_do_not_overwrite_each_other(client, admin, home):
    assert admin.edit(home, 1, action="settings", holdout="0.2").status_code == 303
    answer = admin.edit(home, 1, action="settings", holdout="0.3", floor="0.01")
    page = page_of(answer, 412)
    assert "Somebody else has changed this surface" in page.text
    assert "The surface has: 0.2" in page.text
    assert page.count("input", name="holdout", value="0.3") == 1  # the entry is kept
    assert page.count("input", name="version", value="2") == 5
    assert client.engine.registry.surface(home).settings.holdout == 0.2
    deletion = {"action": "delete", "confirmation": home}
    for change in ({"action": "add", "items": "z"}, {"pause": "a"}, {"action": "restart"}, deletion):
        assert admin.edit(home, 1, **change).status_code == 412
    assert client.engine.registry.surface(home).version == 2
    assert admin.edit(home, 2, action="settings", holdout="0.3").status_code == 303


@pytest.mark.parametrize("version", ["", "0", "-1", "1.0", "9" * 400, "*", '1", "2', "\u0663"])
def test_a_form_without_the_version_changes_nothing(client, admin, home, version):
    token = admin.token()
    for change in ({"action": "settings", "holdout": "0.2"}, {"pause": "a"}):
        assert admin.post(f"/edit/{home}", {"token": token, "version": version, **change}).status_code == 412
    assert client.engine.registry.surface(home).version == 1


def test_items_are_paused_resumed_removed_restored_and_added(client, admin, home):
    def states():
        return {item.name: item.state for item in client.engine.registry.surface(home).items}

    for change, item, state in (
        ("pause", "a", "paused"),
        ("resume", "a", "active"),
        ("remove", "b", "removed"),
        ("restore", "b", "active"),
    ):
        answer = admin.edit(home, **{change: item})
        assert answer.headers["location"] == f"/edit/{home}?saved#items"
        assert states()[item] == state
    assert admin.edit(home, action="add", items="e\n\nf").status_code == 303
    assert states() == dict.fromkeys("abcdef", "active")
    actions = [entry["action"] for entry in client.store.audit(client.engine.registry.surface(home).id, 9)]
    assert sorted(actions) == sorted(
        ["create surface", "pause item", "resume item", "remove item", "resume item", "change surface"]
    )


def test_of_many_items_some_are_listed_and_others_are_found_by_name(client, admin, home, monkeypatch):
    """A page of 20,000 items takes seconds, for which ranking would wait."""
    page = page_of(admin.get(f"/edit/{home}"))
    assert (page.count("button", name="pause"), page.count("input", name="find")) == (4, 0)
    monkeypatch.setattr(forms, "LISTED_ITEMS", 3)
    page = page_of(admin.get(f"/edit/{home}"))
    assert (page.count("button", name="pause"), page.count("input", name="find")) == (3, 1)
    assert "3 of 4 items" in page.text
    page = page_of(admin.get(f"/edit/{home}?find=D"))
    assert (page.count("button", name="pause"), page.count("button", value="d")) == (1, 2)
    assert admin.edit(home, pause="d").status_code == 303
    assert page_of(admin.get(f"/edit/{home}?find=<b>")).count("button", name="pause") == 0


def test_an_arm_that_cannot_be_promoted_is_explained(client, admin, home):
    """It is not said that somebody else has changed the surface."""
    arms = '[{"name": "new", "policy": "gibbs-ts", "share": 0.5}]'
    admin.edit(home, action="settings", arms=arms, holdout="0.1")
    assert client.engine.administration.activate_guard(client.engine.registry.surface(home), "new")
    answer = admin.edit(home, promote="new")
    page_of(answer, 409)
    assert "the guard has replaced it" in html.unescape(answer.text)
    assert "somebody else" not in answer.text.lower()


def test_an_arm_is_promoted(client, admin, home):
    assert page_of(admin.get(f"/edit/{home}")).count("button", name="promote") == 0
    arms = '[{"name": "old", "share": 0.5}, {"name": "new", "policy": "gibbs-ts", "share": 0.5}]'
    assert admin.edit(home, action="settings", arms=arms).status_code == 303
    assert page_of(admin.get(f"/edit/{home}")).count("button", name="promote") == 2
    page_of(admin.edit(home, promote="nothing"), 404)
    assert admin.edit(home, 1, promote="new").status_code == 412
    assert admin.edit(home, promote="new").status_code == 303
    settings = client.engine.registry.surface(home).settings
    assert (settings.policy, settings.arms) == ("gibbs-ts", ())
    admin.edit(home, action="settings", arms=arms.replace('"share": 0.5}]', '"share": 0.3}]'))
    assert page_of(admin.get(f"/edit/{home}")).count("button", name="promote", value="learner") == 1
    assert admin.edit(home, promote="learner").status_code == 303
    assert client.engine.registry.surface(home).settings.arms == ()


def test_a_surface_is_deleted_only_with_its_name(client, admin, home):
    for confirmation in ("", "another", home.upper()):
        answer = admin.edit(home, action="delete", confirmation=confirmation)
        assert "type its name" in page_of(answer, 422).text
    assert client.engine.registry.surface(home).version == 1
    answer = admin.edit(home, action="delete", confirmation=home)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    page_of(admin.get(f"/edit/{home}"), 404)
    with pytest.raises(Unknown):
        client.engine.registry.surface(home)


def test_the_last_items_cannot_be_paused(client, admin, home):
    assert admin.edit(home, pause="a").status_code == 303
    assert admin.edit(home, pause="b").status_code == 303
    answer = admin.edit(home, pause="c")
    assert answer.status_code == 422
    assert "2 slots need 2 active items; there are 1." in errors_of(answer)[1][0]
    assert page_of(admin.get(f"/edit/{home}")).count("button", name="resume") == 2


def test_unknown_surfaces_items_and_actions(admin, home):
    page_of(admin.get("/edit/nothing"), 404)
    page_of(admin.post("/edit/nothing", {"token": admin.token(), "version": "1", "pause": "a"}), 404)
    page_of(admin.edit(home, pause="nothing"), 404)
    page_of(admin.edit(home), 422)
    page_of(admin.edit(home, action="explode"), 422)


def test_names_are_escaped_everywhere(client, admin):
    name, item = f"{EVIL} a/b?#%", f"{EVIL}&amp;'"
    assert admin.create(name, items=f"{item}\nb\nc").status_code == 303
    path = quote(name, safe="")
    paths = [f"/edit/{path}", f"/surfaces/{path}", "/"]
    assert [breaks_out(admin.get(one)) for one in paths] == [False] * 3
    assert admin.edit(path, 1, pause=item).status_code == 303
    assert client.engine.registry.surface(name).items[0].state == "paused"
    answer = admin.create(EVIL, items=EVIL, slots=EVIL, policy=EVIL, policy_settings=EVIL)
    assert answer.status_code == 422
    page_of(answer, 422)
    assert not breaks_out(answer)


def breaks_out(answer):
    """Whether a name became markup."""
    return Markup(answer.text).count("script") != 1


def test_the_check_of_escaping_can_fail(admin, monkeypatch):
    monkeypatch.setattr(routes._environment(), "autoescape", False)
    routes._environment().cache.clear()
    answer = admin.create("", items=f"</textarea>{EVIL}")
    routes._environment().cache.clear()
    assert breaks_out(answer)


# Who may edit, and attacks


def test_only_administrators_see_the_pages(client, admin, home):
    assert page_of(admin.get(f"/surfaces/{home}")).count("a", href=f"/edit/{home}") == 1
    assert page_of(admin.get("/")).count("a", href="/new-surface") == 1
    reader = Visitor(client, client.keys["read"])
    for path in ("/new-surface", f"/edit/{home}"):
        page = page_of(reader.get(path), 403)
        assert "does not have the role &#39;admin&#39;" in reader.get(path).text
        assert page.count("textarea") == 0
    for path in ("/", f"/surfaces/{home}"):
        page = page_of(reader.get(path))
        assert "New surface" not in page.text
        assert page.count("a", href=f"/edit/{home}") == 0
    assert not Visitor(client, client.keys["serve"]).headers.get("cookie")
    stranger = Visitor(client)
    assert stranger.get("/new-surface").headers["location"] == "/sign-in?next=%2Fnew-surface"
    assert stranger.post("/new-surface", {"name": "x"}).headers["location"] == "/sign-in"


def breaches(client, admin):
    """Return the names of the attacks that created a surface, which none should."""
    other = Visitor(client, client.keys["admin"])  # another session of the same key
    reader = Visitor(client, client.keys["read"])
    ours, fields = admin.token(), {"items": "a\nb", "slots": "2"}
    attacks = {
        "no token": (admin, "", {}),
        "half a token": (admin, ours[:32], {}),
        "token of another session": (admin, other.token(), {}),
        "token not in ASCII": (admin, "\u00e9" * 64, {}),
        "other origin": (admin, ours, {"origin": "https://evil.example"}),
        "other port": (admin, ours, {"origin": "http://127.0.0.1:81"}),
        "other scheme": (admin, ours, {"origin": "https://127.0.0.1"}),
        "sandboxed frame": (admin, ours, {"origin": "null"}),
        "cross-site fetch": (admin, ours, {"origin": "", "sec-fetch-site": "cross-site"}),
        "same site, other origin": (admin, ours, {"origin": "", "sec-fetch-site": "same-site"}),
        "reader": (reader, ours, {}),
        "nobody": (Visitor(client), ours, {}),
    }
    found = []
    for name, (visitor, token, headers) in attacks.items():
        answer = visitor.post("/new-surface", {"token": token, "name": name, **fields}, **headers)
        assert answer.status_code in (303, 403)
        if name in client.engine.registry.surfaces:
            found.append(name)
    return found


def test_forged_forms_change_nothing(client, admin):
    assert breaches(client, admin) == []


def test_the_attacks_succeed_without_the_check(client, admin, monkeypatch):
    monkeypatch.setattr(Editor, "check", lambda editor, scope, token: None)
    assert len(breaches(client, admin)) == 10  # a reader and nobody are still refused by their role


def test_without_the_store_nobody_edits(client, admin, home):
    form = {"token": admin.token(), "version": "1", "pause": "a"}
    with broken(client.store):
        assert admin.post(f"/edit/{home}", form).status_code == 503
    assert client.engine.registry.surface(home).version == 1


def test_a_revoked_key_edits_no_more(client, home):
    key = create_key(client.store, ["admin"], "", 0)
    visitor = Visitor(client, key)
    token = visitor.token()
    revoke_key(client.store, key.split("_")[1], 1)  # by another process
    assert (
        visitor.post(f"/edit/{home}", {"token": token, "version": "1", "pause": "a"}).headers["location"] == "/sign-in"
    )
    assert client.engine.registry.surface(home).version == 1


def test_a_bearer_of_the_key_may_edit_with_a_token(client):
    bearer = Visitor(client)
    bearer.headers["authorization"] = f"Bearer {client.keys['admin']}"
    assert bearer.create("by a bearer").status_code == 303
    assert bearer.post("/new-surface", {"name": "x"}).status_code == 403


def test_without_keys_everybody_on_this_machine_edits_and_no_other_page(serving, store):
    local = serving()
    visitor = Visitor(local)
    assert visitor.create("home").status_code == 303
    assert [entry["actor"] for entry in store.audit(None, 9)] == ["local"]
    token = visitor.token()
    form = {"token": token, "name": "other", "items": "a\nb", "slots": "2"}
    assert visitor.post("/new-surface", form, origin="http://evil.example").status_code == 403
    assert visitor.post("/new-surface", {**form, "token": ""}).status_code == 403
    assert visitor.post("/new-surface", {**form, "token": token[::-1]}).status_code == 403
    assert [surface.name for surface in local.service.engine.registry.all_surfaces()] == ["home"]
