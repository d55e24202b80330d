"""With ``CI`` set, a skipped test fails the run, unless the machine may lack what it needs.

That is real click logs (``BOTHWORLDS_DATA``, no part of the project) and, on request, a browser
(``BOTHWORLDS_NO_BROWSER``): the reason of such a skip names its variable.
"""

from __future__ import annotations

import os

import pytest

ALLOWED = ("BOTHWORLDS_DATA", "BOTHWORLDS_NO_BROWSER")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report skips of tests, files and documentation examples as failures; workers of pytest-xdist have no terminal."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or not os.environ.get("CI"):
        return
    skipped = terminal.stats.pop("skipped", [])
    for report in skipped:
        reason = str(report.longrepr[2])
        allowed = any(variable in reason for variable in ALLOWED)
        if not allowed:
            report.outcome, report.longrepr = "failed", f"with CI set, a skip is a failure: {reason}"
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        terminal.stats.setdefault("skipped" if allowed else "failed", []).append(report)
