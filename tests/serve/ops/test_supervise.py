"""The supervisor replaces workers that hang: stopped by a signal, or with a blocked event loop."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from bothworlds.serve.config import Config
from bothworlds.serve.ops import supervise

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="needs the signals of POSIX")]


def stopped(config, beat):
    """A worker that gives a sign of life and is stopped; its successor stops the supervisor."""
    _hang_once(config, beat, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def blocked(config, beat):
    _hang_once(config, beat, lambda: time.sleep(3600))


def _hang_once(config, beat, hang):
    beat()
    starts = Path(config.store)
    starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
    if len(starts.read_text()) == 1:
        hang()
    os.kill(os.getppid(), signal.SIGTERM)


@pytest.mark.parametrize("work", [stopped, blocked])
def test_a_worker_that_hangs_is_replaced(work, tmp_path, monkeypatch):
    monkeypatch.setattr(supervise, "HANG_SECONDS", 0.5)
    starts, said = tmp_path / "starts", []
    supervise.supervise(Config(store=str(starts), stop_seconds=1), said.append, work)
    assert starts.read_text() == "xx"
    assert "has not responded for 0.5 seconds" in said[-1]


@pytest.mark.nightly
def test_without_a_limit_it_would_not_be_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(supervise, "HANG_SECONDS", 1e9)
    supervisor, polls = os.getpid(), iter(range(10**9))

    class Clock:
        """Stops the supervisor after some checks."""

        def sleep(seconds):
            time.sleep(seconds)
            if starts.exists() and next(polls) == 10:
                os.kill(supervisor, signal.SIGTERM)

    starts = tmp_path / "starts"
    monkeypatch.setattr(supervise, "time", Clock)
    supervise.supervise(Config(store=str(starts), stop_seconds=1), lambda _: None, stopped)
    assert starts.read_text() == "x"
