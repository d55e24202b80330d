"""The command line: play policies in worlds, put the paper to the test, work on click logs."""

from __future__ import annotations

from typing import Annotated

import typer

# Importing a module adds its commands; help lists them in this order.
# isort: off
from . import simulating, bounding, generating, fitting, evaluating, serving  # noqa: F401

# isort: on
from ..progress import hear_interrupts
from .common import app

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
    """Run the command line."""
    hear_interrupts()
    app()
