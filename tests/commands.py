"""Run commands of the command line in this process, on a terminal of a given width."""

from __future__ import annotations

from typer.testing import CliRunner

from bothworlds.cli import app


def run(*arguments, width=200):
    """Run a command; return its result, whatever the exit status."""
    plain = {"COLUMNS": str(width), "TERM": "dumb", "NO_COLOR": "1"}
    return CliRunner(env=plain).invoke(app, list(map(str, arguments)))


def answer(*arguments, **options):
    """Run a command that must succeed; return its output."""
    result = run(*arguments, **options)
    assert result.exit_code == 0, result.output
    return result.output
