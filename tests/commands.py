"""Run commands of the command line in this process, on a terminal of a given width, and check written ones."""

from __future__ import annotations

from functools import cache

import typer
from typer.testing import CliRunner

from bothworlds.cli import app

# The program, for ``python -c``: a process that was started in the background ignores SIGINT, and so do its children.
WITH_INTERRUPTS = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);from bothworlds.cli import main; main()"
)


def run(*arguments, width=200):
    """Run a command; return its result, whatever the exit status."""
    plain = {"COLUMNS": str(width), "TERM": "dumb", "NO_COLOR": "1"}
    return CliRunner(env=plain).invoke(app, list(map(str, arguments)))


def answer(*arguments, **options):
    """Run a command that must succeed; return its output."""
    result = run(*arguments, **options)
    assert result.exit_code == 0, result.output
    return result.output


def command_faults(words):
    """Return what a written command, such as ``["bothworlds", "serve", "--port", "80"]``, names that does not exist."""
    command, faults = _whole_command_line(), []
    for word in words[1:]:
        if hasattr(command, "commands") and not word.startswith("-"):
            if word not in command.commands:
                return [*faults, f"there is no command {word} in {' '.join(words)}"]
            command = command.commands[word]
        elif word.startswith("-") and len(word) > 1:
            options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            if word.partition("=")[0] not in options | {"--help"}:
                faults.append(f"there is no option {word} in {' '.join(words)}")
    return faults


@cache
def _whole_command_line():
    return typer.main.get_command(app)
