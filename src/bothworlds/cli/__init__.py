"""The command line: simulate policies in worlds, reproduce the paper, work on click logs, run the service."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import Annotated, NoReturn

import typer

# Importing a module registers its commands; the help lists them in this order.
# isort: off
from . import simulation, bounds, generate, fit, compare, evaluate, service, surfaces, events  # noqa: F401

# isort: on
from ..progress import install_interrupt_handler, interrupted
from .common import INTERRUPTED, app, print_stopped

__all__ = ["app", "main"]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        from .. import __version__

        typer.echo(f"bothworlds {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line. Ctrl+C ends every command with the word "stopped" and exit status 130."""
    install_interrupt_handler()
    # Matrices are small here: threads of BLAS wait for each other, ten times as long on a busy machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        app()
    except BaseException as error:
        if not interrupted():
            raise
        _exit_interrupted(printed=isinstance(error, SystemExit) and error.code == INTERRUPTED)


def _exit_interrupted(printed: bool) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl+C would only add a traceback
    if not printed:
        print_stopped()
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon]
    if others:
        # Python would wait for these threads, and a thread that compiles cannot be stopped.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(INTERRUPTED)
    raise SystemExit(INTERRUPTED) from None
