"""What all commands share: the application, one-line errors, settings after a colon, files to write, a console."""

from __future__ import annotations

import ast
import functools
import os
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import typer

if TYPE_CHECKING:
    from ..policies import Policy
    from ..worlds import World

__all__ = ["app", "check_outputs", "column_names", "console", "parse", "plainly", "policy_of", "world_of"]

F = TypeVar("F", bound=Callable[..., Any])

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
            with warnings.catch_warnings():
                warnings.showwarning = _sentences(warnings.showwarning)
                return command(*arguments, **options)
        except BrokenPipeError:  # whoever reads the output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(141) from None
        except (ValueError, ImportError, OSError) as error:
            _refuse(str(error))
        except KeyboardInterrupt:
            typer.secho("stopped", err=True)
            raise SystemExit(130) from None

    return cast(F, run)


def _sentences(show: Callable[..., None]) -> Callable[..., None]:
    """Show our own warnings as one sentence; those of others are shown by ``show``, with where they come from."""

    def shown(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if category.__module__.startswith("bothworlds."):
            typer.echo(f"warning: {message}", err=True)
        else:
            show(message, category, *where, **more)

    return shown


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
    advice = f"cannot read the settings in {text!r}; write them like {name}:setting=0.5,other=3"
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


def _refuse(message: str) -> NoReturn:
    typer.secho(f"bothworlds: {message}", err=True, fg="red")
    raise SystemExit(2)
