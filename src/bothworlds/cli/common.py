"""What all commands share: the application, one-line errors, settings after a colon, files to write, a console."""

from __future__ import annotations

import ast
import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import typer

from ..progress import interrupted
from ..warnings import BothworldsWarning

if TYPE_CHECKING:
    from ..policies import Policy
    from ..worlds import World

__all__ = [
    "INTERRUPTED",
    "app",
    "check_outputs",
    "column_names",
    "console",
    "count",
    "parse",
    "plainly",
    "policy_of",
    "say_stopped",
    "warn",
    "world_of",
]

F = TypeVar("F", bound=Callable[..., Any])

INTERRUPTED = 130  # the exit status of a program that was ended by Ctrl+C
FIGURES = (".svg", ".png", ".pdf")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Rank items and learn from clicks, whether users are steady, seasonal or hostile.",
    epilog="Start with:  bothworlds play --policy ftrl-pbm --world paper/stochastic --rounds 100000",
)


def plainly(command: F) -> F:
    """Say what is wrong with what was asked for in one line, instead of how the program found out; warnings too."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            with warnings_as_sentences():
                return command(*arguments, **options)
        except BrokenPipeError:  # whoever reads the output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(141) from None
        except (ValueError, ImportError, OSError) as error:
            if interrupted():  # an import that is interrupted may end in another exception
                _stop()
            _refuse(str(error))
        except KeyboardInterrupt:
            _stop()

    return cast(F, run)


def count(least: int) -> Callable[[str | int], int]:
    """A parser of whole numbers of at least ``least``, for options: ``typer.Option(parser=count(1))``.

    >>> count(1)("1e5"), count(1)("100_000"), count(0)("0")
    (100000, 100000, 0)
    """

    def parsed(value: str | int) -> int:
        try:
            number = int(value)
        except ValueError:
            number = _whole(value)
        if number < least:
            raise typer.BadParameter(f"{value} is not a whole number of at least {least}, like 100000, 100_000 or 1e5")
        return number

    return parsed


def _whole(text: str | int) -> int:
    """The whole number that a text like 1e5 stands for, or -1."""
    from decimal import Decimal, InvalidOperation

    try:
        value = Decimal(text)
    except InvalidOperation:
        return -1
    # Without the limit, 1e999999999 would be written out.
    return int(value) if value.is_finite() and value.adjusted() < 19 and value == int(value) else -1


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """Write our own warnings to standard error as sentences, each of them once; those of others as Python does."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", BothworldsWarning)
        shown, show_others = set(), warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if not issubclass(category, BothworldsWarning):
                show_others(message, category, *where, **more)
            elif str(message) not in shown:
                shown.add(str(message))
                warn(str(message))

        warnings.showwarning = show
        yield


def warn(sentence: str) -> None:
    """Write a warning to standard error."""
    typer.secho(f"warning: {sentence}", fg="yellow", err=True)


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``name:setting=value,...``; values are Python literals, but the query of a model is taken as it stands.

    >>> parse("paper/stochastic:gap=0.01,phase=20000")
    ('paper/stochastic', {'gap': 0.01, 'phase': 20000})
    >>> parse("model.json:query=9982_0")
    ('model.json', {'query': '9982_0'})
    """
    file, is_model, query = text.partition(".json:query=")
    if is_model:
        return f"{file}.json", {"query": query.strip("'\"")}
    name, _, rest = text.partition(":")
    advice = f"cannot read the settings in {text!r}; write them like {name}:setting=0.5,other=3,list=[0,1,2]"
    try:
        call = ast.parse(f"dict({rest})", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError(advice)
        settings = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        if len(settings) < len(call.keywords) or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError(advice)
    except (SyntaxError, ValueError) as error:
        raise ValueError(advice) from error
    return name, settings


def world_of(text: str) -> World:
    """The world that ``name:setting=value,...`` or the file of a fitted model stands for."""
    from ..worlds import world

    name, settings = parse(text)
    return world(name, **settings)


def policy_of(text: str) -> Policy:
    """The policy that ``name:setting=value,...`` stands for."""
    from ..policies import policy

    name, settings = parse(text)
    return policy(name, **settings)


def column_names(text: str | None) -> dict[str, str] | None:
    """Which column stands for which name, from ``name=column,...``.

    >>> column_names("item=product, click=was clicked")
    {'item': 'product', 'click': 'was clicked'}
    """
    if text is None:
        return None
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and column.strip() for name, _, column in pairs):
        raise ValueError(f"--columns is written like item=product,click=clicked; got {text!r}")
    names = [name.strip() for name, _, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"--columns says {twice[0]} twice; got {text!r}")
    return {name.strip(): column.strip() for name, _, column in pairs}


def check_outputs(plot: Path | None, other: Path | None, endings: tuple[str, ...]) -> None:
    """Refuse a figure or another file that could not be written, before anything is computed for it."""
    for path, known in ((plot, FIGURES), (other, endings)):
        if path is not None and path.suffix not in known:
            raise ValueError(f"{path} must end in {' or '.join(known)}")
    if plot is not None and find_spec("matplotlib") is None:
        raise ImportError("figures need matplotlib: pip install 'bothworlds[figures]'")


def console() -> Any:
    from rich.console import Console

    # Where nobody looks at a screen, nothing is folded to fit one.
    return Console() if sys.stdout.isatty() else Console(width=500)


def say_stopped() -> None:
    """Say on standard error that the command was interrupted."""
    typer.secho("stopped", err=True)


def _stop() -> NoReturn:
    say_stopped()
    raise SystemExit(INTERRUPTED) from None


def _refuse(message: str) -> NoReturn:
    typer.secho(f"bothworlds: {message}", err=True, fg="red")
    raise SystemExit(2)
