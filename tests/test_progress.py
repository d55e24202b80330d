"""Long work says how far it is, and ends when it is told to."""

from __future__ import annotations

import signal

import pytest

from bothworlds import progress
from bothworlds.progress import hear_interrupts, progress_bar


@pytest.fixture(autouse=True)
def _as_before():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
    progress._interrupted.clear()


def test_an_interrupt_that_was_swallowed_ends_the_work_at_its_next_report():
    hear_interrupts()
    with progress_bar("work", 2) as report:
        report(1)
        with pytest.raises(KeyboardInterrupt):  # as code does that is in the way when it comes
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            report(1)


def test_where_interrupts_are_ignored_they_still_are():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hear_interrupts()
    signal.raise_signal(signal.SIGINT)
    with progress_bar("work", 1) as report:
        assert report(1) is None
    assert not progress._interrupted.is_set()
