"""Progress of long work on standard error, and its end when the user interrupts it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

__all__ = ["Report", "announce", "hear_interrupts", "interrupted", "progress_bar"]

Report = Callable[[int], None]

LINE_INTERVAL = 30.0  # seconds between two lines of progress, at least
COMPILING = "compiling, once for every install"

_interrupted = threading.Event()


def hear_interrupts() -> None:
    """Let Ctrl-C end long work even if the code that it fell into made light of it, as imports and callbacks may.

    Where Python cannot pass the KeyboardInterrupt on, as in a callback from C, it would print a traceback and go on;
    that traceback is left out, since the work ends at its next report of progress.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background it is to be ignored
        signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _without_interrupts(sys.unraisablehook)


def interrupted() -> bool:
    """Whether the user has asked the program to stop; only known after ``hear_interrupts``."""
    return _interrupted.is_set()


def _interrupt(number: int, frame: Any) -> NoReturn:
    _interrupted.set()
    raise KeyboardInterrupt


def _without_interrupts(hook: Callable[[Any], object]) -> Callable[[Any], None]:
    """A hook for exceptions that cannot be raised: that of before, but silent about interrupts."""

    def filtered(unraisable: Any) -> None:
        if not (interrupted() and issubclass(unraisable.exc_type, KeyboardInterrupt)):
            hook(unraisable)

    return filtered


def announce(sentence: str) -> None:
    """Say what is going on where a bar cannot be shown, if somebody is looking."""
    if sys.stderr.isatty():
        print(sentence, file=sys.stderr)


@contextmanager
def progress_bar(title: str, total: int, show: bool | None = None, *, first: str = COMPILING) -> Iterator[Report]:
    """Yield a function to call with the amount done since the last call; it may be called from several threads.

    A terminal gets a bar with the share done and the time left; ``first`` is shown beside the title until the first
    call. Where standard error is not a terminal, a line is written now and then, the first after half a minute. With
    ``show`` True there is a bar in any case, with False there is nothing.

    The function raises KeyboardInterrupt once the user has interrupted the program.
    """
    with _display(title, total, show, first) as report:

        def reported(amount: int) -> None:
            if interrupted():
                raise KeyboardInterrupt
            report(amount)

        yield reported


@contextmanager
def _display(title: str, total: int, show: bool | None, first: str) -> Iterator[Report]:
    if show is False:
        yield lambda amount: None
    elif show or sys.stderr.isatty():
        with _bar(title, total, first) as report:
            yield report
    else:
        yield _lines(title, total)


def _lines(title: str, total: int) -> Report:
    """Write a line at most every LINE_INTERVAL seconds, and more rarely the longer the work takes."""
    started = written = time.monotonic()
    done = 0
    lock = threading.Lock()

    def report(amount: int) -> None:
        nonlocal done, written
        with lock:
            done += amount
            now = time.monotonic()
            elapsed = now - started
            if not done or now - written < max(LINE_INTERVAL, elapsed / 10):
                return
            written = now
            share = min(done / total, 1.0) if total else 1.0
            left = timedelta(seconds=round(elapsed / share - elapsed))
            line = f"{title}: {share:.0%} after {timedelta(seconds=round(elapsed))}, about {left} left"
        print(line, file=sys.stderr, flush=True)

    return report


@contextmanager
def _bar(title: str, total: int, first: str) -> Iterator[Report]:
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
