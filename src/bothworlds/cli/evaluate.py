"""The command ``evaluate``: what other rankings and policies would have earned, from a click log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import CLICK_LOGS, app, check_outputs, policy_of
from .log_options import ReadLog, reads_log
from .tables import print_rows

if TYPE_CHECKING:
    from ..clicks import Evaluation

MOST_QUERIES = 3  # that gain or lose most


@app.command(rich_help_panel=CLICK_LOGS)
@reads_log("clip")
def evaluate(
    log: ReadLog,
    target: Annotated[
        list[Path] | None,
        typer.Option(
            "--target",
            "-t",
            metavar="FILE",
            help="A ranking per query, .csv, .ndjson or .parquet: a table with the columns query, position, item.",
        ),
    ] = None,
    ranking: Annotated[
        list[str] | None,
        typer.Option(
            "--ranking",
            "-r",
            metavar="ITEM,ITEM,...",
            help="One ranking for all queries, best first. Names with commas are quoted as in CSV: '\"a,b\",c'.",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", "-p", metavar="NAME[:SETTING=VALUE,...]", help="A policy to train and evaluate."),
    ] = None,
    estimator: Annotated[
        str,
        typer.Option(help="auto, cells, pbm, pbm+level, ubm, shrunken; with propensities ips, snips, clipped, dr."),
    ] = "auto",
    windows: Annotated[str, typer.Option(help="Windows with levels of their own: auto, day, week or none.")] = "auto",
    examination: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NUMBERS", help="Examination from another surface: a fitted model, or like 1,0.6,0.4."
        ),
    ] = None,
    cluster: Annotated[str, typer.Option(help="What is independent: page or query.")] = "page",
    since: Annotated[str | None, typer.Option(metavar="DATE", help="Only pages from this date on.")] = None,
    clip_weights: Annotated[
        float | None,
        typer.Option(help="Largest weight of the clipped estimate; by default the square root of the impressions."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of policies, halves and folds.")] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw predicted against observed changes of lists held out: .svg, .png or .pdf."),
    ] = None,
    placements: Annotated[
        Path | None, typer.Option(help="Write all placements and how they are determined to this file: .parquet.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write all results to this file: .json.")] = None,
) -> None:
    """Estimate the clicks that other rankings would have had on the traffic of a click log.

    The log is what any ranking leaves behind: query, position, item, click and, if possible, event and date.
    It needs no propensities. The estimate is checked on lists of the log that are held out.
    A policy is trained on one half of the log and evaluated on the other half, and vice versa.

    [bold]bothworlds evaluate log.parquet --target new.csv --plot evaluation.svg[/bold]
    """
    from ..clicks.offpolicy.evaluation import Evaluator

    check_outputs(plot, out, (".json",))
    check_outputs(None, placements, (".parquet",))
    policies = [policy_of(text) for text in policy or []]
    lists = [parse_ranking(text) for text in ranking or []]
    if not (target or policies or lists):
        raise ValueError("nothing to evaluate; give --target FILE, --ranking a,b,c or --policy NAME")
    found = Evaluator(
        log(),
        windows=None if windows == "none" else windows,
        examination=_examination(examination),
        cluster=cluster,
        since=since,
        clip_weights=clip_weights,
        seed=seed,
    )
    judge = partial(found.evaluate, estimator=estimator)
    evaluations = [judge(path, label=path.name) for path in target or []]
    evaluations += [judge(one) for one in (*lists, *policies)]
    for evaluation in evaluations:
        _print(evaluation)
    _write(evaluations, plot, placements, out)


def _examination(text: str | None) -> Any:
    if text is None or text.endswith(".json"):
        return text
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(
            f"--examination must be a fitted model, .json, or numbers like 1,0.6,0.4; got {text!r}"
        ) from error


def parse_ranking(text: str) -> list[str]:
    """Return the items of a list that is one line of CSV; raise ValueError if it is not.

    >>> parse_ranking("a, b"), parse_ranking('"a,b",c')
    (['a', 'b'], ['a,b', 'c'])
    """
    import csv

    try:
        return next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise ValueError(
            f"--ranking {text!r} cannot be read ({error}); quote names with commas: '\"a,b\",c'"
        ) from error


def _print(evaluation: Evaluation) -> None:
    typer.echo(evaluation.reason)
    title = f"{evaluation.target} on {evaluation.traffic}: clicks per page"
    dim = [k for k, name in enumerate(evaluation.estimators) if name == "logged"]
    print_rows(
        title, ["estimator", "value", "95% interval", "determined"], evaluation.rows(), names=["estimator"], dim=dim
    )
    shown, tied, weakly, is_open = evaluation.shares
    typer.echo(
        f"Placements of the target: {shown:.1%} shown as such, {tied:.1%} by examination of other items, "
        f"{weakly:.1%} weakly determined, {is_open:.1%} open."
    )
    _print_queries(evaluation)
    for note in evaluation.notes:
        typer.secho(note, dim=True)
    for warning in evaluation.warnings:
        typer.secho(f"warning: {warning}", fg="yellow")


def _print_queries(evaluation: Evaluation) -> None:
    """The queries that gain and lose most clicks."""
    rows = evaluation.queries.to_pylist()
    if evaluation.chosen is None or len(rows) < 2 or rows[0]["value"] is None or rows[0]["value"] != rows[0]["value"]:
        return
    changed = [(row["pages"] * (row["value"] - row["logged"]), row["query"], row["change"]) for row in rows]
    some = (
        [one for one in changed[:MOST_QUERIES] if one[0] > 0.0],
        [one for one in reversed(changed[-MOST_QUERIES:]) if one[0] < 0.0],
    )
    for verb, ones in zip(("gain", "lose"), some):
        if ones:
            listed = ", ".join(f"{query} ({gain:+,.0f} clicks, {share:+.0%})" for gain, query, share in ones)
            typer.echo(f"Queries that {verb} most: {listed}.")


def _write(evaluations: Sequence[Evaluation], plot: Path | None, placements: Path | None, out: Path | None) -> None:
    if out is not None:
        import json

        from ..files import save_text

        save_text(out, json.dumps({"evaluations": [part.as_dict() for part in evaluations]}, indent=2))
        typer.echo(f"results: {out}")
    if placements is not None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from ..files import replacing

        tables = [
            one.placements.append_column("target", pa.array([one.target] * len(one.placements))) for one in evaluations
        ]
        with replacing(placements) as file:
            pq.write_table(pa.concat_tables(tables), file)
        typer.echo(f"placements: {placements}")
    if plot is not None:
        from ..arena.figures import drawing
        from ..clicks.figures import draw_backtest

        with drawing(plot) as panels:
            draw_backtest(panels[0][0], evaluations[0])
        typer.echo(f"figure:  {plot}")
