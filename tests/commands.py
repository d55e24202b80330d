"""The command line, called in this process on a terminal of a certain width."""

from __future__ import annotations

from typer.testing import CliRunner

from bothworlds.cli import app


def run(*arguments, width=200):
    """What comes of a command, whatever that is."""
    plain = {"COLUMNS": str(width), "TERM": "dumb", "NO_COLOR": "1"}
    return CliRunner(env=plain).invoke(app, list(map(str, arguments)))


def answer(*arguments, **options):
    """What a command prints that must succeed."""
    result = run(*arguments, **options)
    assert result.exit_code == 0, result.output
    return result.output
