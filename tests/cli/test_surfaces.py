"""``bothworlds surfaces``: create, list, show, edit and report on surfaces of a service that runs."""

from __future__ import annotations

import inspect
import json

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route
from typer.testing import CliRunner

from bothworlds.cli import app, surfaces
from bothworlds.serve.config import Config
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.engine.served import warm_up
from bothworlds.serve.http.app import Service
from bothworlds.serve.http.auth import create_key
from bothworlds.serve.model import SurfaceSettings, Unknown
from tests.commands import answer, run
from tests.serve.app_server import listening
from tests.serve.running import temporary_store


@pytest.fixture(scope="module")
def service():
    """A service on a real engine, with keys."""
    warm_up()  # outside the time in which the server must start
    store = temporary_store()
    service = Service(Engine(store, refresh_ms=3_600_000), store, Config(request_log=False))
    service.keys = {role: create_key(store, [role], "", 0) for role in ("admin", "read")}
    with listening(service, started=True) as service.url:
        yield service


@pytest.fixture
def connected(service, monkeypatch):
    monkeypatch.setenv("BOTHWORLDS_URL", service.url)
    monkeypatch.setenv("BOTHWORLDS_KEY", service.keys["admin"])
    return service


@pytest.fixture
def home(connected, items, request):
    """The name of a surface that only this test uses."""
    answer("surfaces", "create", request.node.name, "--slots", 2, "--items", items)
    return request.node.name


@pytest.fixture
def items(tmp_path):
    path = tmp_path / "items.txt"
    path.write_bytes(b"\xef\xbb\xbflamp\r\n\r\n  oak desk \r\nrug\r\nshelf")
    return path


def refused(*arguments):
    """Run a command that must fail; return its error, which is one line."""
    result = run("surfaces", *arguments)
    assert result.exit_code == 2, result.output
    assert result.output.count("\n") == 1, result.output
    return result.output


def settings_of(service, name):
    return service.engine.registry.surface(name).settings


def test_there_is_an_option_for_every_setting():
    settings = {field.name for field in msgspec.structs.fields(SurfaceSettings)}
    for command in (surfaces.create_surface, surfaces.edit_surface):
        parameters = inspect.signature(command).parameters
        assert settings <= set(parameters)
        assert "settings" not in parameters


def test_a_surface_is_created_from_a_file(connected, items):
    said = answer("surfaces", "create", "menu / left", "--slots", 3, "--items", items, "--holdout", ".1",
                  "--policy", "gibbs-ts:sweeps=2", "--setting", "detect=True", "--setting", "early=500",
                  "--guard", "false", "--baseline", items, "--attribution-seconds", 60)  # fmt: skip
    assert said == "created menu / left: 3 slots, 4 active items\n"
    assert settings_of(connected, "menu / left") == SurfaceSettings(
        slots=3,
        holdout=0.1,
        policy="gibbs-ts",
        policy_settings={"sweeps": 2, "detect": True, "early": 500},
        guard=False,
        baseline=("lamp", "oak desk", "rug", "shelf"),
        attribution_seconds=60,
    )
    assert "surface 'menu / left' exists already" in refused("create", "menu / left", "--slots", 1, "--items", items)
    assert settings_of(connected, "menu / left").slots == 3


def test_items_are_read_from_the_input(connected):

    result = CliRunner().invoke(
        surfaces.app, ["surfaces", "create", "piped", "--slots", "1", "--items", "-"], input="a\nb"
    )
    assert result.output == "created piped: 1 slots, 2 active items\n"


@pytest.mark.slow
def test_surfaces_are_listed_and_shown(connected, home):
    assert f"{home}  " in answer("surfaces", "list")
    said = answer("surfaces", "show", home)
    assert said.startswith(f"{home}, version 1, changed 2")
    assert "  holdout              0.0\n" in said
    assert "  active  oak desk\n" in said
    shown = json.loads(answer("surfaces", "show", home, "--json"))
    assert [item["name"] for item in shown["items"]] == ["lamp", "oak desk", "rug", "shelf"]
    assert shown in json.loads(answer("surfaces", "list", "--json"))["surfaces"]


@pytest.mark.slow
def test_settings_are_edited_and_others_stay(connected, home):
    before = settings_of(connected, home)
    said = answer("surfaces", "edit", home, "--holdout", 0.2, "--guard-after", 1000, "--if-version", 1)
    assert said == f"{home} has version 2: 2 slots, 4 active items\n"
    assert settings_of(connected, home) == msgspec.structs.replace(before, holdout=0.2, guard_after=1000)
    assert "now has version 2" in refused("edit", home, "--floor", 0.1, "--if-version", 1)
    assert "nothing to change" in refused("edit", home)
    answer("surfaces", "edit", home, "--policy", "ftrl-pbm", "--setting", "rate=0.3")
    assert settings_of(connected, home).policy_settings == {"rate": 0.3}
    answer("surfaces", "edit", home, "--policy", "comb-ts")  # whose settings are others
    assert settings_of(connected, home).policy_settings == {}


@pytest.mark.slow
def test_items_are_added_paused_resumed_and_removed(connected, home, tmp_path):
    def states():
        return {item.name: item.state for item in connected.engine.registry.surface(home).items}

    more = tmp_path / "more.txt"
    more.write_text("sofa\nlamp\n")
    assert "5 active items" in answer("surfaces", "items", "add", home, "--items", more)
    assert "7 active items" in answer("surfaces", "items", "add", home, "a/b?", "ottoman")
    assert "5 active items, 2 paused" in answer("surfaces", "items", "pause", home, "a/b?", "sofa")
    assert "6 active items, 1 paused" in answer("surfaces", "items", "resume", home, "sofa")
    assert json.loads(answer("surfaces", "items", "remove", home, "rug", "--json"))["name"] == home
    assert (states()["a/b?"], states()["sofa"], states()["rug"]) == ("paused", "active", "removed")
    assert "name at least one item" in refused("items", "pause", home)
    assert "there is no surface 'nothing'" in refused("items", "add", "nothing", "a")
    result = run("surfaces", "items", "pause", home, "lamp", "nothing", "sofa")
    assert "1 of 3 items were changed" in result.output
    assert "has no item 'nothing'" in result.output
    assert (states()["lamp"], states()["sofa"]) == ("paused", "active")


@pytest.mark.slow
def test_an_arm_is_promoted(connected, home):
    arms = '[{"name": "old", "share": 0.5}, {"name": "new", "policy": "gibbs-ts", "share": 0.5}]'
    answer("surfaces", "edit", home, "--arms", arms)
    assert "'nothing'" in refused("promote", home, "nothing")
    assert answer("surfaces", "promote", home, "new") == f"{home} has version 3 and serves gibbs-ts\n"
    assert settings_of(connected, home).arms == ()


@pytest.mark.slow
def test_a_surface_is_deleted_after_a_question(connected, home):
    deletion = ["surfaces", "delete", home]
    assert "nothing was deleted" in CliRunner().invoke(app, deletion, input="no\n").output
    assert settings_of(connected, home).slots == 2
    assert f"deleted surface '{home}'" in CliRunner().invoke(app, deletion, input=f"{home}\n").output
    with pytest.raises(Unknown):
        settings_of(connected, home)
    assert home in refused("delete", home, "--yes")


def test_a_report_compares_arms_and_says_what_is_counted(connected, home, tmp_path):
    arms = '[{"name": "new", "policy": "uniform", "share": 0.25}]'
    (tmp_path / "items.txt").write_text("a\nb\n")
    made = ("surfaces", "create", "shop", "--slots", 1, "--items", tmp_path / "items.txt")
    answer(*made, "--objective", "rewards", "--arms", arms)
    said = answer("surfaces", "report", "shop")
    assert "Not enough data yet to compare all arms" in said
    assert "reward per page" in said
    assert "total reward" in said
    assert [line.split()[:3] for line in said.splitlines() if line.startswith("new")] == [["new", "uniform", "25.0%"]]
    assert "comparison" not in answer("surfaces", "report", home)


@pytest.mark.slow
def test_a_report_is_in_words_or_in_json(connected, home, monkeypatch):
    said = answer("surfaces", "report", home)
    assert "No pages in this time range." in said
    assert "Nothing learned yet." in said
    assert "oak desk  active" in said
    monkeypatch.setenv("BOTHWORLDS_KEY", connected.keys["read"])  # enough for reports
    report = json.loads(answer("surfaces", "report", home, "--segment", "", "--json"))
    assert (report["surface"], report["segment"]) == (home, "")
    assert "does not have the role 'admin'" in refused("list")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--items", "{items}"), "missing required field `slots`"),
        (("--items", "{items}", "--slots", 9), "9 slots need 9 active items; there are 4"),
        (("--slots", 2), "2 slots need 2 active items; there are 0"),
        (("--items", "{items}", "--slots", "two"), "slots: expected `int`, got `str`"),
        (("--items", "{items}", "--slots", 2, "--holdout", 3), "holdout must be from 0 to 0.99; got 3"),
        (("--items", "{items}", "--slots", 2, "--policy", "oracle"), "oracle"),
        (("--items", "{items}", "--slots", 2, "--setting", "nonsense=1"), "no setting 'nonsense'"),
        (("--items", "{items}", "--slots", 2, "--setting", "nonsense"), "write settings like rate = 0.3"),
        (("--items", "nowhere.txt", "--slots", 2), "there is no file nowhere.txt"),
        (("--items", "{folder}", "--slots", 2), "is a folder"),
        (("--items", "{empty}", "--slots", 2), "empty.txt has no items"),
        (("--items", "{binary}", "--slots", 2), "binary.txt is not a text in UTF-8"),
        (("--items", "{double}", "--slots", 2), "item 'lamp' is listed twice"),
        (("--items", "{long}", "--slots", 2), "long.txt, line 4: expected `str` of length <= 128"),
        (("--items", "{control}", "--slots", 2), "control.txt, line 2: item must be 1 to 128 printable characters"),
    ],
)  # fmt: skip
def test_errors_are_one_line_and_say_where(connected, items, tmp_path, options, said):
    contents = {"empty": b"\n \r\n", "binary": b"\xff\xfea\x00", "double": b"lamp\n\nlamp",
                "long": b"a\n\n\n" + b"x" * 200, "control": b"a\nb\x07c\n"}  # fmt: skip
    for name, content in contents.items():
        (tmp_path / f"{name}.txt").write_bytes(content)
    places = {name: tmp_path / f"{name}.txt" for name in contents} | {"items": items, "folder": tmp_path}
    written = [str(option).format(**places) for option in options]
    assert said in refused("create", "never", *written)


@pytest.mark.slow
def test_connection_and_keys(connected, monkeypatch):
    monkeypatch.delenv("BOTHWORLDS_KEY")
    assert "needs a key: set BOTHWORLDS_KEY" in refused("list")
    assert "not known, or was revoked" in refused("list", "--key", "bw_0_0")
    assert "malformed" in refused("list", "--key", "bw_1 x\ny")
    assert answer("surfaces", "list", "--key", f"{connected.keys['admin']}\n")
    assert "url must be like http://127.0.0.1:8080" in refused("list", "--url", "here")
    monkeypatch.setattr("bothworlds.serve.client.http.BACKOFF_SECONDS", 0.0)
    assert "is the service running there?" in refused("list", "--url", "http://127.0.0.1:1")


@pytest.mark.slow
def test_another_server_is_not_taken_for_the_service(connected):
    pages = [Route("/v1/surfaces", lambda request: HTMLResponse("hello"))]
    with listening(Starlette(routes=pages)) as url:
        for command in (("list",), ("show", "home"), ("create", "home", "--slots", "1")):
            assert "this is not the address of a bothworlds service" in refused(*command, "--url", url)
