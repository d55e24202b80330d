"""The gate ``.ci/run`` installs a browser where it may, and says when it leaves the tests in a browser out."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings

GATE = Path(__file__).parents[1] / ".ci" / "run"
LAST_LINE = "BOTHWORLDS_NO_BROWSER is set: the tests in a browser were left out"

APT = 'echo "apt-get $*" >> "$LOG"; [[ "$1 $2" != "-qq install" ]] || cp "$BIN/make" "$BIN/chromium"'
SUDO = '[[ "$1" == -n ]] && echo sudo >> "$LOG" && shift && "$@"'
REFUSING = "exit 1"


@pytest.fixture
def gate(tmp_path):
    """Run the gate with these programs and no others; return its exit status, output, and what the programs noted."""

    def run(user="0", script=GATE, variables=(), **programs):
        log, folder = tmp_path / "log", tmp_path / "bin"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        log.write_text("")
        for name in ("bash", "dirname", "cp", "chmod"):
            (folder / name).symlink_to(shutil.which(name))
        noted = 'echo "make $* CI=$CI NO_BROWSER=${BOTHWORLDS_NO_BROWSER:-}" >> "$LOG"'
        for name, text in {"make": noted, "id": f"echo {user}", **programs}.items():
            (folder / name.replace("_", "-")).write_text(f"#!{shutil.which('bash')}\n{text}\n")
            (folder / name.replace("_", "-")).chmod(0o755)
        environment = {"PATH": str(folder), "BIN": str(folder), "LOG": str(log), **dict(variables)}
        done = subprocess.run(["bash", str(script)], capture_output=True, text=True, env=environment, timeout=300)
        return done.returncode, done.stdout.splitlines(), log.read_text().splitlines()

    return run


def all_tests(no_browser=""):
    return [f"make {target} CI=1 NO_BROWSER={no_browser}" for target in ("lint", "test", "docs", "package")]


@pytest.mark.parametrize("name", ["chromium", "chromium_browser", "google_chrome"])
def test_nothing_is_installed_where_there_is_a_browser(gate, name):
    assert gate(apt_get=APT, **{name: ""}) == (0, [], all_tests())


@pytest.mark.parametrize(("user", "sudo"), [("0", REFUSING), ("1000", SUDO)])
def test_a_browser_is_installed_by_root_or_with_sudo(gate, user, sudo):
    status, output, noted = gate(user, apt_get=APT, sudo=sudo)
    assert (status, output) == (0, [])
    assert [line for line in noted if line != "sudo"] == [
        "apt-get -qq update",
        "apt-get -qq install --no-install-recommends -y chromium",
        *all_tests(),
    ]
    assert ("sudo" in noted) == (user != "0")


@pytest.mark.parametrize(
    ("user", "programs"),
    [("0", {}), ("0", {"apt_get": REFUSING}), ("1000", {"apt_get": APT}), ("1000", {"apt_get": APT, "sudo": REFUSING})],
)
def test_where_none_can_be_installed_the_last_line_says_what_was_left_out(gate, user, programs):
    assert gate(user, **programs) == (0, [LAST_LINE], all_tests("1"))


def test_the_last_line_says_so_after_a_failure_and_on_request_too(gate):
    status, output, _ = gate(make=REFUSING)
    assert (status, output[-1]) == (1, LAST_LINE)
    asked = gate(chromium="", apt_get=APT, variables={"BOTHWORLDS_NO_BROWSER": "1"})
    assert asked == (0, [LAST_LINE], all_tests("1"))


def test_a_gate_that_leaves_tests_out_silently_is_caught(gate, tmp_path):
    (tmp_path / ".ci").mkdir()
    silent = tmp_path / ".ci" / "run"
    silent.write_text("\n".join(line for line in GATE.read_text().splitlines() if not line.startswith("trap")))
    assert gate(script=silent) == (0, [], all_tests("1"))


def test_the_gate_repeats_its_hypothesis_examples_and_make_nightly_draws_new_ones():
    assert settings.get_profile("ci").derandomize
    assert not settings.get_profile("here").derandomize


@pytest.mark.slow
def test_tests_marked_nightly_run_on_request_only(pytester):
    pytester.makepyprojecttoml((GATE.parents[1] / "pyproject.toml").read_text())
    file = pytester.makepyfile("import pytest\n@pytest.mark.nightly\ndef test_it(): pass")
    assert pytester.runpytest_inprocess(file).parseoutcomes() == {"deselected": 1}
    assert pytester.runpytest_inprocess(file, "-m", "").parseoutcomes() == {"passed": 1}
