"""Progress bars on standard error, and interrupts (Ctrl+C) that reliably end long work."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

ReportProgress = Callable[[int], None]  # called with the amount done since the last call

LINE_INTERVAL = 30.0  # seconds between two lines of progress, at least
COMPILING = "compiling, once per install"

_interrupted = threading.Event()


def install_interrupt_handler() -> None:
    """Make Ctrl+C end long work even if the interrupted code swallows the KeyboardInterrupt, as imports may.

    In a callback from C, Python cannot propagate the KeyboardInterrupt: it would print a traceback and go on. The
    handler suppresses that traceback, because the work ends at its next report of progress. Call it on the main thread.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in a background process SIGINT is ignored
        signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _without_interrupts(sys.unraisablehook)


def interrupted() -> bool:
    """Return whether the user has pressed Ctrl+C; requires ``install_interrupt_handler``. Any thread may call it."""
    return _interrupted.is_set()


def _interrupt(number: int, frame: Any) -> NoReturn:
    _interrupted.set()
    raise KeyboardInterrupt


def _without_interrupts(hook: Callable[[Any], object]) -> Callable[[Any], None]:
    """Return a ``sys.unraisablehook`` that ignores interrupts and passes everything else to ``hook``."""

    def filtered(unraisable: Any) -> None:
        if not (interrupted() and issubclass(unraisable.exc_type, KeyboardInterrupt)):
            hook(unraisable)

    return filtered


def announce(sentence: str) -> None:
    """Print a sentence to standard error if it is a terminal, for work that has no progress bar."""
    if sys.stderr.isatty() and not _in_notebook():
        print(sentence, file=sys.stderr)


def _in_notebook() -> bool:
    """Whether standard error is that of a Jupyter kernel, which claims to be a terminal and is none for a bar."""
    return type(sys.stderr).__module__.startswith("ipykernel.")


@contextmanager
def progress_bar(
    title: str, total: int, show: bool | None = None, *, first: str = COMPILING
) -> Iterator[ReportProgress]:
    """Yield a function to call with the amount done since the last call; any thread may call it.

    A terminal shows a bar with the share done and the time left; ``first`` is shown beside the title until the first
    call. If standard error is not a terminal, a line is written from time to time, the first after half a minute.
    ``show`` True forces a bar, but for notebooks; False shows nothing.

    The function raises KeyboardInterrupt after the user has interrupted the program.
    """
    with _bar_or_lines(title, total, show, first) as report:

        def report_or_stop(amount: int) -> None:
            if interrupted():
                raise KeyboardInterrupt
            report(amount)

        yield report_or_stop


@contextmanager
def _bar_or_lines(title: str, total: int, show: bool | None, first: str) -> Iterator[ReportProgress]:
    if show is False:
        yield lambda amount: None
    elif (show or sys.stderr.isatty()) and not _in_notebook():
        with _bar(title, total, first) as report:
            yield report
    else:
        yield _lines(title, total)


def _lines(title: str, total: int) -> ReportProgress:
    """Return a function that writes a line every LINE_INTERVAL seconds at most, less often in long work."""
    started = written = time.monotonic()
    done, lock = 0, threading.Lock()

    def report(amount: int) -> None:
        nonlocal done, written
        with lock:
            done, now = done + amount, time.monotonic()
            if not done or now - written < max(LINE_INTERVAL, (now - started) / 10):
                return
            written, share = now, min(done / total, 1.0) if total else 1.0
        elapsed = timedelta(seconds=round(now - started))
        print(f"{title}: {share:.0%} after {elapsed}", file=sys.stderr, flush=True)

    return report


@contextmanager
def _bar(title: str, total: int, first: str) -> Iterator[ReportProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{title} [dim]({first})[/dim]" if first else title, total=total)
        yield lambda amount: bar.update(task, advance=amount, description=title)
