"""Shared by all commands: the Typer application, one-line errors, parsers of options, output files, the console."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import typer
from typer.core import TyperCommand, TyperGroup

from ..extras import check_figures, check_parquet
from ..progress import interrupted
from ..registry import parsed_name
from ..warnings import BothworldsWarning

if TYPE_CHECKING:
    from ..policies import Policy
    from ..worlds import World

F = TypeVar("F", bound=Callable[..., Any])

INTERRUPTED = 130  # the exit status of a program that was ended by Ctrl+C
FIGURES = (".svg", ".png", ".pdf")
# Groups of commands in the help.
SIMULATION, CLICK_LOGS, SERVICE = "Simulation", "Click logs", "The service"


class CommandGroup(typer.Typer):
    """A Typer application: errors are printed in one line, and the help shows flags without a type.

    Typer would show ``--inform <bool>``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=_Group, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """Decorate a function that becomes a command."""
        register = super().command(name, cls=_Command, **options)
        return lambda command: register(one_line_errors(command))


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))


def _without_types_of_flags(options: list[Any]) -> list[Any]:
    for option in options:
        if getattr(option, "is_flag", False) and option.metavar is None:
            option.metavar = ""
    return options


app = CommandGroup(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Rank items and learn from clicks, whether users are steady, seasonal or hostile.",
    epilog="Start with:  bothworlds play --policy all-weather --policy ftrl-pbm --rounds 100000",
)


def one_line_errors(command: F) -> F:
    """Decorate a command: errors are printed in one line without a traceback, and warnings as sentences.

    ValueError, ImportError and OSError end the program with status 2, Ctrl+C with 130, a closed pipe with 141.
    """

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            with warnings_as_sentences():
                return command(*arguments, **options)
        except BrokenPipeError:  # the reader, such as head, has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(141) from None
        except KeyboardInterrupt:
            _stop()
        except Exception as error:
            if interrupted():  # an interrupted import or compilation may raise any exception
                _stop()
            if not isinstance(error, ValueError | ImportError | OSError):
                raise
            _fail("; ".join([_sentence(error), *getattr(error, "__notes__", ())]))

    return cast(F, run)


def from_options(parameter: str, options: Mapping[str, tuple[Any, Any]], make: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator of commands: ``parameter`` becomes some options, and gets what ``make`` returns for them.

    ``options`` has the annotation and the default of each.
    """
    made = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]

    def decorate(command: F) -> F:
        signature = inspect.signature(command, eval_str=True)
        kept = [one.replace(kind=one.KEYWORD_ONLY) for name, one in signature.parameters.items() if name != parameter]

        @functools.wraps(command)
        def run(**arguments: Any) -> Any:
            given = {name: arguments.pop(name) for name in options}
            return command(**arguments, **{parameter: make(**given)})

        place = list(signature.parameters).index(parameter)
        together = [*kept[:place], *made, *kept[place:]]
        run.__signature__ = signature.replace(parameters=together)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in together}
        return cast(F, run)

    return decorate


def _sentence(error: Exception) -> str:
    """Return the message of an exception; for an error of the operating system, the file and what is wrong with it.

    >>> _sentence(FileNotFoundError(2, "No such file or directory", "log.csv"))
    'log.csv: No such file or directory'
    """
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def count(least: int) -> Callable[[str | int], int]:
    """Return a parser of whole numbers of at least ``least``, for options: ``typer.Option(parser=count(1))``.

    >>> count(1)("1e5"), count(1)("100_000"), count(0)("0")
    (100000, 100000, 0)
    """

    def parsed(value: str | int) -> int:
        number: float = -1
        with suppress(ValueError):
            number = float(value)
            number = int(value)  # all digits of a long number
        if not number >= least or number == float("inf") or number != int(number):
            raise typer.BadParameter(f"{value} is not a whole number of at least {least}, like 100000, 100_000 or 1e5")
        return int(number)

    return parsed


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """Write each BothworldsWarning once, as a sentence; other warnings are shown as usual."""
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
    """Split ``name:setting=value,...``; values are Python literals, except the query of a model, which is a text.

    Raises ValueError if the settings cannot be parsed.

    >>> parse("paper/stochastic:gap=0.01,phase=20000")
    ('paper/stochastic', {'gap': 0.01, 'phase': 20000})
    >>> parse("model.json:query=9982_0")
    ('model.json', {'query': '9982_0'})
    """
    file, is_model, query = text.partition(".json:query=")
    if is_model:
        return f"{file}.json", {"query": query.strip("'\"")}
    return parsed_name(text)


def world_of(text: str) -> World:
    """Return the world of ``name:setting=value,...`` or of the file of a fitted model; raises ValueError."""
    from ..worlds import world

    name, settings = parse(text)
    return world(name, **settings)


def policy_of(text: str) -> Policy:
    """Return the policy of ``name:setting=value,...``; raises ValueError."""
    from ..policies import resolve

    return resolve(text)


def column_names(text: str | None) -> dict[str, str] | None:
    """Parse ``name=column,...`` into a mapping from our names to columns; raises ValueError.

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
        raise ValueError(f"--columns has {twice[0]} twice; got {text!r}")
    return {name.strip(): column.strip() for name, _, column in pairs}


def check_outputs(plot: Path | None, other: Path | None, endings: tuple[str, ...]) -> None:
    """Check the endings of output files, and the libraries that write them, before anything is computed.

    Raises ValueError or ImportError.
    """
    for path, known in ((plot, FIGURES), (other, endings)):
        if path is not None and path.suffix not in known:
            raise ValueError(f"{path} must end in {' or '.join(known)}")
    if plot is not None:
        check_figures()
    if other is not None and other.suffix == ".parquet":
        check_parquet()


def print_stopped() -> None:
    """Write to standard error that the command was interrupted."""
    typer.secho("stopped", err=True)


def _stop() -> NoReturn:
    print_stopped()
    raise SystemExit(INTERRUPTED) from None


def _fail(message: str) -> NoReturn:
    typer.secho(f"bothworlds: {message}", err=True, fg="red")
    raise SystemExit(2)
