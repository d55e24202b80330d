"""With CI set, a skipped test is a failure."""

from __future__ import annotations

import pytest

from tests import skips

pytestmark = pytest.mark.slow

FILES = {
    "test_marked": "import pytest\n@pytest.mark.skipif(True, reason='no PostgreSQL')\ndef test_it(): pass",
    "test_fixture": "import pytest\n@pytest.fixture\ndef it(): pytest.skip('no server')\ndef test_it(it): pass",
    "test_whole_file": "import pytest\npytest.importorskip('no_such_package')\ndef test_it(): pass",
    "test_example": "def f():\n    '''\n    >>> 1 + 1  # doctest: +SKIP\n    '''",
}
LOGS = "import pytest\ndef test_it(): pytest.skip('no logs here; BOTHWORLDS_DATA names their folder')"
XFAIL = "import pytest\n@pytest.mark.xfail(strict=True)\ndef test_it(): assert False"


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Run files of tests with the rule, and return the outcomes and the exit status."""

    def run(files: dict[str, str], *options: str):
        pytester.makeconftest("from tests.skips import pytest_sessionfinish")
        pytester.makepyfile(**files)
        # A plugin that would be imported at the end of the inner run, in a process where Ray's threads may run.
        result = pytester.runpytest_inprocess("--doctest-modules", "-p", "no:schemathesis", *options)
        return result.parseoutcomes(), result.ret

    return run


@pytest.mark.parametrize("kind", FILES)
def test_a_skip_fails_in_ci_and_nowhere_else(kind, run, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    outcomes, status = run({kind: FILES[kind]})
    assert set(outcomes) == {"skipped"}
    assert status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    monkeypatch.setenv("CI", "1")
    outcomes, status = run({kind: FILES[kind]})
    assert set(outcomes) == {"failed"}
    assert status == pytest.ExitCode.TESTS_FAILED


def test_real_logs_and_expected_failures_may_be_absent(run, monkeypatch):
    monkeypatch.setenv("CI", "1")
    assert run({"test_logs": LOGS, "test_xfail": XFAIL}) == ({"skipped": 1, "xfailed": 1}, 0)


def test_one_skip_among_others_is_found_by_workers_too(run, monkeypatch):
    monkeypatch.setenv("CI", "1")
    files = {"test_logs": LOGS, "test_ok": "def test_it(): pass"}
    assert run({**files, "test_marked": FILES["test_marked"]}, "-n2") == ({"passed": 1, "skipped": 1, "failed": 1}, 1)


def test_without_the_rule_the_run_would_pass(run, monkeypatch):
    monkeypatch.setenv("CI", "1")
    monkeypatch.setattr(skips, "ALLOWED", ("",))
    assert run({"test_marked": FILES["test_marked"]}) == ({"skipped": 1}, 0)
