"""The command ``evaluate``: off-policy evaluation of rankings and policies on a click log."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import CLICK_LOGS, app, check_outputs, policy_of
from .log_options import Columns, Files, Format, Positions, Query, SkipBad, TopItems, read_log
from .tables import print_rows

if TYPE_CHECKING:
    from ..clicks import Evaluation


@app.command(rich_help_panel=CLICK_LOGS)
def evaluate(
    log: Files,
    ranking: Annotated[
        list[str] | None,
        typer.Option(
            "--ranking",
            "-r",
            metavar="ITEM,ITEM,...",
            help="A ranking to evaluate, best first. Names with commas are quoted as in CSV, '\"a,b\",c', or "
            'written as a JSON list, \'["a,b", "c"]\'.',
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", "-p", metavar="NAME[:SETTING=VALUE,...]", help="A policy to train and evaluate."),
    ] = None,
    marginals: Annotated[
        list[Path] | None,
        typer.Option(
            "--marginals",
            metavar="FILE",
            help="CSV of a random ranking to evaluate: a row per item, its probability in a column per position.",
        ),
    ] = None,
    format: Format = None,
    query: Query = None,
    columns: Columns = None,
    top_items: TopItems = None,
    positions: Positions = None,
    clip_weights: Annotated[
        float | None,
        typer.Option(help="Largest weight of the clipped estimate; by default the square root of the impressions."),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay", help="Also run policies on the pages that show their decision; for uniformly random logs."
        ),
    ] = False,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A click model that was fitted to this log, .json: warns if clicks depend on each other in it, "
            "and the log itself is not tested."
        ),
    ] = None,
    skip_bad: SkipBad = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the policies.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw the estimates to this file: .svg, .png or .pdf.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write all results to this file: .json.")] = None,
) -> None:
    """Estimate the clicks that rankings and policies would have had on a click log.

    The log must have propensities: the probability of every item at the position where it was shown.
    A click must depend on its own item and position only; otherwise estimates are biased, and there is a warning.
    Several targets are compared.
    A policy is trained on one half of the log and evaluated on the other half, and vice versa.

    [bold]bothworlds evaluate clicks.csv --ranking a,b,c --policy ftrl-pbm --plot evaluation.svg[/bold]
    """
    from ..clicks import load_model
    from ..clicks.offpolicy.evaluation import compare_targets

    check_outputs(plot, out, (".json",))
    fitted = None if model is None else load_model(model)
    policies = [policy_of(text) for text in policy or []]
    lists = [parse_ranking(text) for text in ranking or []]
    tables = [read_marginals(path) for path in marginals or []]
    targets: list[Any] = [*lists, *policies, *tables]
    if not targets:
        raise ValueError("nothing to evaluate; give --ranking a,b,c or --policy NAME or --marginals FILE")
    labels = [""] * (len(lists) + len(policies)) + [path.stem for path in marginals or []]
    read = read_log(
        log,
        format=format,
        columns=columns,
        query=query,
        positions=positions,
        top_items=top_items,
        skip_bad=skip_bad,
    )
    replays = _replay(read, policies, seed) if replay else []
    evaluations = compare_targets(read, targets, clip_weights=clip_weights, seed=seed, labels=labels, model=fitted)
    for evaluation in evaluations:
        _print_table(evaluation)
        _print_notes(evaluation)
    _print_replays(replays)
    _write(evaluations, replays, plot, out)


def parse_ranking(text: str) -> list[Any]:
    """Return the items of a list that is one line of CSV or a JSON list; raise ValueError if it is neither.

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
    """Read a CSV table of marginals: a header, then rows of an item and its probability at every position."""
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
            raise ValueError(f"{path}, line {number}: there are {len(row)} columns, but {len(header)} in the header")
        if row[0] in table:
            raise ValueError(f"{path}, line {number}: item {row[0]!r} appears twice")
        table[row[0]] = values
    return table


def _print_table(evaluation: Evaluation) -> None:
    from ..clicks.offpolicy.result import ESTIMATOR_NAMES

    places = [f"position {position}" for position in evaluation.positions]
    headings = ["clicks per page", *places, "whole page", "95% interval"]
    rows = []
    for name in evaluation.estimators:
        parts = [evaluation.estimate(name, position) for position in (*evaluation.positions, None)]
        label = ESTIMATOR_NAMES[name] + (f" at {evaluation.clip_weights:.4g}" if name == "clipped" else "")
        rows.append([label, *(_number(part.value) for part in parts), _interval(parts[-1])])
    for attribute, label, style in (
        ("effective_impressions", "effective impressions", ",.0f"),
        ("effective_clicks", "effective clicks", ",.1f"),
        ("mean_weight", "mean weight", ".3f"),
        ("unsupported", "not supported", ".1%"),
    ):
        if evaluation.support:
            rows.append([label, *(format(getattr(part, attribute), style) for part in evaluation.support), ""])
    dim = [k for k, name in enumerate(evaluation.estimators) if name == "logged"]
    print_rows(evaluation.target, headings, rows, names=headings[:1], dim=dim)


def _number(value: float) -> str:
    return "-" if value != value else f"{value:z.4f}"


def _interval(estimate: Any) -> str:
    return "-" if estimate.lower != estimate.lower else f"{estimate.lower:z.4f} to {estimate.upper:z.4f}"


def _print_notes(result: Any) -> None:
    for note in result.notes:
        typer.secho(note, dim=True)
    for warning in result.warnings:
        typer.secho(f"warning: {warning}", fg="yellow")


def _replay(log: Any, policies: Sequence[Any], seed: int) -> list[Any]:
    from ..clicks import replay

    if not policies:
        raise ValueError("--replay needs a policy; give --policy NAME")
    return [replay(log, policy, seed=seed) for policy in policies]


def _print_replays(replays: Sequence[Any]) -> None:
    for replay in replays:
        value = replay.estimate
        typer.echo(
            f"replay of {replay.target}: {_number(value.value)} clicks per page, 95% interval {_interval(value)}, "
            f"on {replay.matches:,} of {replay.pages:,} pages ({replay.share:.2%})"
        )
        _print_notes(replay)


def _write(evaluations: Sequence[Evaluation], replays: Sequence[Any], plot: Path | None, out: Path | None) -> None:
    if out is not None:
        import json

        from ..files import save_text

        results = {"evaluations": evaluations, "replays": replays}
        document = {name: [part.as_dict() for part in parts] for name, parts in results.items()}
        save_text(out, json.dumps(document, indent=2))
        typer.echo(f"results: {out}")
    if plot is not None:
        from .evaluate_figure import draw_evaluations

        typer.echo(f"figure:  {draw_evaluations(evaluations, plot)}")
