"""A progress bar on the terminal, when there is one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Report", "announce", "progress_bar"]

Report = Callable[[int], None]


def announce(sentence: str) -> None:
    """Say what is going on where a bar cannot be shown, if somebody is looking."""
    if sys.stderr.isatty():
        print(sentence, file=sys.stderr)


@contextmanager
def progress_bar(title: str, total: int, show: bool | None = None) -> Iterator[Report]:
    """Yield a function to call with the amount done since the last call; a bar shows the sum and the time left."""
    if show is None:
        show = sys.stderr.isatty()
    if not show:
        yield lambda amount: None
        return
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
