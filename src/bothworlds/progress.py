"""A progress bar on the terminal, when there is one, and the end of long work when somebody wants it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

__all__ = ["Report", "announce", "hear_interrupts", "progress_bar"]

Report = Callable[[int], None]

_interrupted = threading.Event()


def hear_interrupts() -> None:
    """Let Ctrl-C end long work even if the code that it fell into made light of it, as imports and callbacks may."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background it is to be ignored
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: Any) -> NoReturn:
    _interrupted.set()
    raise KeyboardInterrupt


def announce(sentence: str) -> None:
    """Say what is going on where a bar cannot be shown, if somebody is looking."""
    if sys.stderr.isatty():
        print(sentence, file=sys.stderr)


@contextmanager
def progress_bar(title: str, total: int, show: bool | None = None) -> Iterator[Report]:
    """Yield a function to call with the amount done since the last call; a bar shows the sum and the time left."""
    with _bar(title, total) if show or (show is None and sys.stderr.isatty()) else _nothing() as report:

        def reported(amount: int) -> None:
            if _interrupted.is_set():
                raise KeyboardInterrupt
            report(amount)

        yield reported


@contextmanager
def _nothing() -> Iterator[Report]:
    yield lambda amount: None


@contextmanager
def _bar(title: str, total: int) -> Iterator[Report]:
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
        # Until the first report comes, what takes long is compilation.
        task = bar.add_task(f"{title} [dim](compiling, once for every install)[/dim]", total=total)
        yield lambda amount: bar.update(task, advance=amount, description=title)
