"""Progress of long work is shown, and an interrupt ends it."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bothworlds import compete, progress
from bothworlds.progress import install_interrupt_handler, progress_bar


@pytest.fixture(autouse=True)
def _restore_interrupts():
    before, hook = signal.signal(signal.SIGINT, signal.default_int_handler), sys.unraisablehook
    yield
    signal.signal(signal.SIGINT, before)
    sys.unraisablehook = hook
    progress._interrupted.clear()


def test_a_swallowed_interrupt_ends_the_work_at_its_next_report():
    install_interrupt_handler()
    with progress_bar("work", 2) as report:
        report(1)
        with pytest.raises(KeyboardInterrupt):  # as if other code swallowed it
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            report(1)


def test_ignored_interrupts_stay_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    install_interrupt_handler()
    signal.raise_signal(signal.SIGINT)
    with progress_bar("work", 1) as report:
        assert report(1) is None
    assert not progress.interrupted()


def test_an_interrupt_in_a_callback_from_c_prints_no_traceback(monkeypatch):
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: ignored.append(unraisable.exc_type))
    install_interrupt_handler()

    @ctypes.CFUNCTYPE(None)
    def callback():
        signal.raise_signal(signal.SIGINT)

    @ctypes.CFUNCTYPE(None)
    def failing():
        raise ZeroDivisionError

    callback()
    failing()
    assert progress.interrupted()
    assert ignored == [ZeroDivisionError]


# Standard error is not a terminal


class Clock:
    """A clock that tests advance."""

    now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(progress, "time", Clock())
    return progress.time


def test_long_work_writes_a_line_every_half_minute(clock, capsys):
    with progress_bar("counting", 400) as report:
        for _ in range(300):
            clock.now += 1.0
            report(1)
    output = capsys.readouterr()
    assert output.out == ""
    lines = output.err.splitlines()
    assert lines[0] == "counting: 8% after 0:00:30"
    assert lines[-1] == "counting: 75% after 0:05:00"
    assert len(lines) == 10


def test_lines_become_less_frequent(clock, capsys):
    with progress_bar("counting", 100_000) as report:
        for _ in range(100_000):
            clock.now += 1.0
            report(1)
    assert 50 < len(capsys.readouterr().err.splitlines()) < 100


def test_short_work_writes_nothing(clock, capsys):
    with progress_bar("counting", 29) as report:
        for _ in range(29):
            clock.now += 1.0
            report(1)
    assert capsys.readouterr() == ("", "")


def test_show_false_writes_nothing(clock, capsys):
    with progress_bar("counting", 100, False) as report:
        for _ in range(100):
            clock.now += 1.0
            report(1)
    assert capsys.readouterr() == ("", "")


def test_work_of_several_threads_is_summed(clock, capsys):
    clock.now += 0.0
    with progress_bar("counting", 1000) as report, ThreadPoolExecutor(4) as pool:
        list(pool.map(report, [1] * 999))
        clock.now += 60.0
        thread = threading.Thread(target=report, args=(1,))
        thread.start()
        thread.join()
    assert capsys.readouterr().err == "counting: 100% after 0:01:00\n"


@pytest.mark.parametrize("total", [0, 10])
def test_a_wrong_total_is_not_an_error(total, clock, capsys):
    with progress_bar("counting", total) as report:
        clock.now += 60.0
        report(20)
    assert "100%" in capsys.readouterr().err


def test_a_long_arena_writes_its_progress(clock, capsys, monkeypatch):
    """Each game alone is too short for a line."""
    games = []

    def finished(result):
        games.append(result)
        clock.now += 20.0

    compete(
        ["uniform", "fixed"], ["paper/stochastic", "yandex/stochastic"], 30, replications=2, jobs=1, finished=finished
    )
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("playing 4 games: ")]
    assert len(lines) == 1
    assert len(games) == 4
