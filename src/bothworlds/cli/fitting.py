"""The command that fits the position-based model to a click log."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import app, column_names, plainly, refuse

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
    columns: Annotated[
        str | None, typer.Option(metavar="NAME=COLUMN,...", help="Columns of other names: item=product,click=clicked.")
    ] = None,
    method: Annotated[str, typer.Option(help="newton, or em for expectation-maximisation.")] = "newton",
    iterations: Annotated[int | None, typer.Option(min=1, help="Stop EM after so many passes.")] = None,
    per_query: Annotated[bool, typer.Option("--per-query", help="A curve for every query.")] = False,
    prior: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Imagined impressions of every pair, clicked at the log's mean rate, to which they pull.",
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
    from ..clicks.counting import counts as count
    from .fitting_tables import print_counts, print_model

    counts = count(
        log[0] if len(log) == 1 else log,
        engine=engine,
        format=format,
        top_items=top_items,
        positions=positions,
        query=query,
        columns=column_names(columns),
        skip_bad=skip_bad,
        clip=clip,
    )
    print_counts(counts)
    model = fit(counts, method=method, iterations=iterations, per_query=per_query, prior=prior)
    print_model(model, counts, top)
    if plot is not None:
        typer.echo(f"figure:  {_draw(model, counts, plot)}")
    if out is not None:
        typer.echo(f"model:   {model.save(out)}")


def _draw(model: Model | Models, counts: Counts, path: Path) -> Path:
    from ..arena.figures import drawing
    from ..clicks.figures import draw_calibration, draw_curve

    with drawing(path, across=2) as panels:
        draw_curve(panels[0, 0], model)
        draw_calibration(panels[0, 1], model, counts)
    return path
