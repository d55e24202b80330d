"""The command that fits the position-based model to a click log."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import app, console, plainly, refuse

if TYPE_CHECKING:
    from ..clicks import Counts, Model, Models

ENDINGS = (".svg", ".png", ".pdf")


@app.command("fit")
@plainly
def fit_log(
    log: Annotated[
        list[str],
        typer.Argument(help="The click log, or a table of counts: files, a pattern or a folder.", metavar="LOG..."),
    ],
    format: Annotated[str | None, typer.Option(help="Layout of the log; found out if not given.")] = None,
    top_items: Annotated[int | None, typer.Option(min=1, help="Only pages made of the most frequent items.")] = None,
    positions: Annotated[int | None, typer.Option(min=1, help="Only the first positions.")] = None,
    query: Annotated[str | None, typer.Option(help="Only this query.")] = None,
    method: Annotated[str, typer.Option(help="newton, or em for expectation-maximisation.")] = "newton",
    iterations: Annotated[int | None, typer.Option(min=1, help="Stop EM after so many passes.")] = None,
    per_query: Annotated[bool, typer.Option("--per-query", help="A curve for every query.")] = False,
    prior: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Pseudo-clicks, in twice as many pseudo-impressions, for every pair; they pull rates to 1/2.",
        ),
    ] = 0.0,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out lines that cannot be read.")] = False,
    clip: Annotated[bool, typer.Option("--clip", help="Clip clicks to impressions.")] = False,
    engine: Annotated[str, typer.Option(help="What counts: duckdb or ray.")] = "duckdb",
    plot: Annotated[Path | None, typer.Option(help="Draw the fit to this file: .svg, .png or .pdf.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the model to this file: .json.")] = None,
    top: Annotated[int, typer.Option(min=0, help="Items to print, those whose attraction is surely high first.")] = 20,
) -> None:
    """Fit attraction of items and examination of positions to a click log, and say how far to trust them.

    One examination curve is shared by all queries, unless each is to have its own.

    [bold]bothworlds fit clicks.csv --plot fit.svg --out model.json[/bold]

    [bold]bothworlds play --world model.json[/bold]
    """
    for path, endings in ((plot, ENDINGS), (out, (".json",))):
        if path is not None and path.suffix not in endings:
            refuse(f"{path} must end in {' or '.join(endings)}")
    if method not in ("newton", "em"):
        refuse(f"--method must be newton or em; got {method!r}")
    if plot is not None and find_spec("matplotlib") is None:
        refuse("figures need matplotlib: pip install 'bothworlds[figures]'")
    from ..clicks import fit
    from ..clicks.surprise import as_counts

    counts = as_counts(
        log[0] if len(log) == 1 else log,
        engine=engine,
        format=format,
        top_items=top_items,
        positions=positions,
        query=query,
        skip_bad=skip_bad,
        clip=clip,
    )
    _print_counts(counts)
    model = fit(counts, method=method, iterations=iterations, per_query=per_query, prior=prior)
    _print_model(model, counts, top)
    if plot is not None:
        typer.echo(f"figure:  {_draw(model, counts, plot)}")
    if out is not None:
        typer.echo(f"model:   {model.save(out)}")


def _print_counts(counts: Counts) -> None:
    pages = "" if counts.pages is None else f"{counts.pages:,} pages, "
    clicks, shown = int(counts.clicked.sum()), int(counts.shown.sum())
    queries = f"{len(counts.queries):,} queries, " if len(counts.queries) > 1 else ""
    typer.echo(
        f"read:    {pages}{shown:,} impressions, {clicks:,} clicks: {queries}{len(counts.items):,} items at "
        f"{len(counts.positions):,} positions, {len(counts):,} different pairs"
    )
    for note in counts.notes:
        typer.echo(f"note:    {note}")


def _print_model(model: Model | Models, counts: Counts, top: int) -> None:
    steps = "passes" if getattr(model, "method", "") == "em" else "steps"
    typer.echo(
        f"fitted:  log-likelihood {model.log_likelihood:,.2f}, perplexity {_surprise(model, counts)}, "
        f"{'' if model.converged else 'not '}converged in {model.iterations:,} {steps}"
    )
    from ..clicks import Model

    if isinstance(model, Model):
        _print_rows("examination of positions", "position", "examination", model.curve())
    # By what is sure: most of the items with the highest estimates were shown once and clicked.
    rows = sorted(model.table(), key=lambda row: (-row["low"] if row["low"] >= 0.0 else 1.0, -row["clicks"]))
    if top:
        shown = f"{top:,} of {len(rows):,} items" if top < len(rows) else "items"
        shown += ", those whose attraction is surely high first"
        _print_rows(shown, "item", "attraction", rows[:top])
    for warning in model.warnings:
        typer.secho(f"warning: {warning}", fg="yellow")


def _surprise(model: Model | Models, counts: Counts) -> str:
    try:
        found = model.perplexity(counts)
    except ValueError:  # without clicks there is no curve, and nothing to be surprised at
        return "unknown"
    return f"{float(found):.4f}" + (f" ({found.left_out:,} impressions left out)" if found.left_out else "")


def _print_rows(title: str, name: str, value: str, rows: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    groups = len({row["component"] for row in rows}) > 1
    queries = any(row.get("query") for row in rows)
    table = Table(title=title, title_justify="left", pad_edge=False)
    heads = [*(["query"] if queries else []), name, value, "95% interval", "clicks", "impressions"]
    for head in [*heads, *(["group"] if groups else [])]:
        table.add_column(head, justify="left" if head in ("query", "item") else "right", no_wrap=True)
    for row in rows:
        # Names are shown as they are: brackets in them are no markup.
        cells: list[Any] = [Text(str(row["query"]))] if queries else []
        cells += [
            Text(str(row[name])),
            _number(row[value]),
            _interval(row),
            f"{row['clicks']:,}",
            f"{row['impressions']:,}",
        ]
        table.add_row(*cells, *([str(row["component"] + 1) if row["component"] >= 0 else "-"] if groups else []))
    console().print(table)


def _number(value: float) -> str:
    return "unknown" if value != value else f"{value:.4f}"


def _interval(row: dict[str, Any]) -> str:
    low, high = row["low"], row["high"]
    if low != low or high != high:
        return "unknown"
    if low == high == 1.0:
        return "set to 1"
    return f"{low:.4f} to {high:.4f}" if high < 1000.0 else f"{low:.4f} or more"


def _draw(model: Model | Models, counts: Counts, path: Path) -> Path:
    from ..arena.figures import drawing
    from ..clicks.figures import draw_calibration, draw_curve

    with drawing(path, across=2) as panels:
        draw_curve(panels[0, 0], model)
        draw_calibration(panels[0, 1], model, counts)
    return path
