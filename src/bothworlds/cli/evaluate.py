"""The command that judges rankings and policies on a click log."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import app, check_outputs, column_names, console, plainly, policy_of
from .log_options import Columns, Files, Format, Positions, Query, SkipBad, TopItems, flags_in_errors

if TYPE_CHECKING:
    from ..clicks import Evaluation


@app.command()
@plainly
def evaluate(
    log: Files,
    ranking: Annotated[
        list[str] | None,
        typer.Option(
            "--ranking",
            "-r",
            metavar="ITEM,ITEM,...",
            help="A list to judge, best first. Names with commas are quoted as in CSV, '\"a,b\",c', or written as a "
            'JSON list, \'["a,b", "c"]\'.',
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", "-p", metavar="NAME[:SETTING=VALUE,...]", help="A policy to teach and judge."),
    ] = None,
    marginals: Annotated[
        list[Path] | None,
        typer.Option("--marginals", help="CSV to judge: a row per item, its probability in a column per position."),
    ] = None,
    format: Format = None,
    query: Query = None,
    columns: Columns = None,
    top_items: TopItems = None,
    positions: Positions = None,
    clip_weights: Annotated[
        float | None, typer.Option(help="Largest weight of the clipped estimate, else the root of the impressions.")
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Also play policies on the pages they agree with; for uniform logs.")
    ] = False,
    skip_bad: SkipBad = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Where the randomness of policies starts.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw the estimates to this file: .svg, .png or .pdf.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write everything to this file: .json.")] = None,
) -> None:
    """Judge rankings and policies by a click log: what would they have earned?

    The log must say with what probability every item was shown where it was. Several targets are compared.
    A policy learns from one half of the log and is judged on the other half, both ways.

    [bold]bothworlds evaluate clicks.csv --ranking a,b,c --policy ftrl-pbm --plot judged.svg[/bold]
    """
    from ..clicks import compare, read

    check_outputs(plot, out, (".json",))
    policies = [policy_of(text) for text in policy or []]
    lists = [parse_ranking(text) for text in ranking or []]
    tables = [read_marginals(path) for path in marginals or []]
    targets: list[Any] = [*lists, *policies, *tables]
    if not targets:
        raise ValueError("say what to judge: --ranking a,b,c or --policy NAME or --marginals FILE")
    labels = [""] * (len(lists) + len(policies)) + [path.stem for path in marginals or []]
    opened = read(
        log[0] if len(log) == 1 else log,
        format,
        top_items=top_items,
        positions=positions,
        query=query,
        columns=column_names(columns),
        skip_bad=skip_bad,
    )
    with flags_in_errors():
        played = _replay(opened, policies, seed) if replay else []
        found = compare(opened, targets, clip_weights=clip_weights, seed=seed, labels=labels)
    for evaluation in found:
        _print_table(evaluation)
        _print_sentences(evaluation)
    _print_replays(played)
    _write(found, played, plot, out)


def parse_ranking(text: str) -> list[Any]:
    """The items of a list that is written as one line of CSV, or as a JSON list.

    >>> parse_ranking("a, b"), parse_ranking('"a,b",c'), parse_ranking('["a,b", "c", 7]'), parse_ranking("[x],[y]")
    (['a', 'b'], ['a,b', 'c'], ['a,b', 'c', 7], ['[x]', '[y]'])
    """
    import csv
    import json

    if text.lstrip().startswith("["):
        with suppress(json.JSONDecodeError):
            items = json.loads(text)
            if all(isinstance(item, (str, int, float)) for item in items):
                return list(items)
    try:
        if text.lstrip().startswith('["'):
            raise csv.Error("this is not a JSON list of names")
        return next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise ValueError(
            f"--ranking {text!r} cannot be read ({error}); write one line of CSV, '\"a,b\",c', or a JSON list, "
            '\'["a,b", "c"]\''
        ) from error


def read_marginals(path: Path) -> dict[str, list[float]]:
    """Read a table of probabilities: a header, then an item and its probability at every position in each row."""
    import csv

    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    if len(lines) < 2:
        raise ValueError(f"{path} is empty: it needs a header and a row for every item")
    header, *rows = lines
    table: dict[str, list[float]] = {}
    for number, row in enumerate(rows, start=2):
        try:
            values = [float(value) for value in row[1:]]
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        if len(row) != len(header):
            raise ValueError(f"{path}, line {number}: there are {len(row)} columns, and {len(header)} in the header")
        if row[0] in table:
            raise ValueError(f"{path}, line {number}: item {row[0]!r} is there twice")
        table[row[0]] = values
    return table


def _print_table(found: Evaluation) -> None:
    from rich.table import Table
    from rich.text import Text

    from ..clicks.offpolicy.result import WORDS

    table = Table("clicks per page", title=Text(found.target, style="table.title"), title_justify="left")
    for position in found.positions:
        table.add_column(f"position {position}", justify="right")
    table.add_column("whole page", justify="right")
    table.add_column("95% interval", justify="right", no_wrap=True)
    for name in found.estimators:
        parts = [found.estimate(name, position) for position in (*found.positions, None)]
        between = f"{_number(parts[-1].lower)} to {_number(parts[-1].upper)}"
        said = WORDS[name] + (f" at {found.clip_weights:.4g}" if name == "clipped" else "")
        table.add_row(
            said, *(_number(part.value) for part in parts), between, style="dim" if name == "logged" else None
        )
    table.add_section()
    for attribute, said, style in (
        ("effective_impressions", "effective impressions", ",.0f"),
        ("effective_clicks", "effective clicks", ",.1f"),
        ("mean_weight", "mean weight", ".3f"),
        ("unsupported", "not supported", ".1%"),
    ):
        if found.support:
            table.add_row(said, *(format(getattr(part, attribute), style) for part in found.support), "")
    console().print(table)


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.4f}"


def _print_sentences(found: Any) -> None:
    for note in found.notes:
        console().print(note, style="dim", markup=False, highlight=False)
    for warning in found.warnings:
        console().print(f"warning: {warning}", style="yellow", markup=False, highlight=False)


def _replay(log: Any, policies: Sequence[Any], seed: int) -> list[Any]:
    from ..clicks import replay

    if not policies:
        raise ValueError("--replay plays policies: say which with --policy NAME")
    return [replay(log, policy, seed=seed) for policy in policies]


def _print_replays(played: Sequence[Any]) -> None:
    for found in played:
        value = found.estimate
        typer.echo(
            f"replay of {found.target}: {_number(value.value)} clicks per page, 95% interval {_number(value.lower)} to "
            f"{_number(value.upper)}, on {found.matches:,} of {found.pages:,} pages ({found.share:.2%})"
        )
        _print_sentences(found)


def _write(found: Sequence[Evaluation], played: Sequence[Any], plot: Path | None, out: Path | None) -> None:
    if out is not None:
        import json

        from ..core import save_text

        what = {"evaluations": [part.as_dict() for part in found], "replays": [part.as_dict() for part in played]}
        save_text(out, json.dumps(what, indent=2))
        typer.echo(f"results: {out}")
    if plot is not None:
        from .evaluate_figure import draw_evaluations

        typer.echo(f"figure:  {draw_evaluations(found, plot)}")
