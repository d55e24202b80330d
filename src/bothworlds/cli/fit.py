"""The command ``fit``: fit the position-based model to a click log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import app, check_outputs, column_names, one_line_errors
from .log_options import Columns, Files, Format, Positions, Query, SkipBad, TopItems, flags_in_errors

if TYPE_CHECKING:
    from ..clicks import Counts, Model, Models


@app.command("fit")
@one_line_errors
def fit_log(
    log: Files,
    format: Format = None,
    top_items: TopItems = None,
    positions: Positions = None,
    query: Query = None,
    columns: Columns = None,
    method: Annotated[str, typer.Option(help="newton, or em for expectation-maximisation.")] = "newton",
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Number of passes of EM; to convergence if omitted.")
    ] = None,
    per_query: Annotated[bool, typer.Option("--per-query", help="Fit a curve for every query.")] = False,
    prior: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Pseudo-impressions of every pair, clicked at the mean rate of the log.",
        ),
    ] = 0.0,
    skip_bad: SkipBad = False,
    clip: Annotated[
        bool,
        typer.Option(
            "--clip",
            help="Where there are more clicks than impressions, count as many clicks as impressions, with a note.",
        ),
    ] = False,
    engine: Annotated[str, typer.Option(help="Engine that counts the log: duckdb or ray.")] = "duckdb",
    plot: Annotated[Path | None, typer.Option(help="Draw the fit to this file: .svg, .png or .pdf.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the model to this file: .json.")] = None,
    top: Annotated[
        int, typer.Option(min=0, help="Number of items to print, in order of the lower limits of their attraction.")
    ] = 20,
) -> None:
    """Fit the attraction of items and the examination of positions to a click log, with intervals and warnings.

    The log may also be a table of counts. All queries share one examination curve, unless --per-query is given.

    [bold]bothworlds fit clicks.csv --plot fit.svg --out model.json[/bold]

    [bold]bothworlds play --world model.json[/bold]
    """
    check_outputs(plot, out, (".json",))
    if method not in ("newton", "em"):
        raise ValueError(f"--method must be newton or em; got {method!r}")
    from ..clicks import counts as count_log
    from ..clicks import fit
    from .fit_tables import print_counts, print_model

    with flags_in_errors():
        counts = count_log(
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
    from ..clicks.model.figures import draw_calibration, draw_curve

    with drawing(path, across=2) as panels:
        draw_curve(panels[0, 0], model)
        draw_calibration(panels[0, 1], model, counts)
    return path
