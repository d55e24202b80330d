"""The command ``fit``: fit a click model to a click log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import CLICK_LOGS, app, check_outputs
from .log_options import ReadLog, reads_log

if TYPE_CHECKING:
    from ..clicks import ClickModel, Counts


@app.command("fit", rich_help_panel=CLICK_LOGS)
@reads_log("clip", "engine")
def fit_log(
    log: ReadLog,
    model: Annotated[
        str,
        typer.Option(help="Click model: pbm, ubm, cascade, dcm, sdbn, dbn, ccm, trust, rank-ctr or item-ctr."),
    ] = "pbm",
    method: Annotated[
        str,
        typer.Option(help="newton for the maximum of the likelihood; em for expectation-maximisation (pbm)."),
    ] = "newton",
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
    plot: Annotated[Path | None, typer.Option(help="Draw the fit to this file: .svg, .png or .pdf.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the model to this file: .json.")] = None,
    top: Annotated[
        int, typer.Option(min=0, help="Number of items to print, in order of the lower limits of their attraction.")
    ] = 20,
) -> None:
    """Fit the attraction of items and the examination of positions to a click log, with intervals and warnings.

    The log may also be a table of counts. All queries share one examination curve, unless --per-query is given.
    Other click models are fitted with --model; those in which a click depends on the clicks above it need whole pages.

    [bold]bothworlds fit clicks.csv --plot fit.svg --out model.json[/bold]

    [bold]bothworlds play --world model.json[/bold]
    """
    check_outputs(plot, out, (".json",))
    if plot is not None and per_query:
        raise ValueError("a figure shows one model; leave out --plot or --per-query")
    from ..clicks.fitting.fit import fit, fit_each_query
    from ..clicks.log import as_pages
    from ..clicks.model.model import model_named, save_models
    from .fit_tables import print_counts, print_each_query, print_model

    read = log()
    pages = as_pages(read) if model_named(model).dependent else None
    counts = read.counts() if pages is None else pages.counts()
    print_counts(counts)
    options: dict[str, Any] = {"method": method, "iterations": iterations, "prior": prior}
    counted = counts if pages is None else pages
    if per_query:
        models = fit_each_query(counted, model, **options)
        print_each_query(models, top)
        saved = None if out is None else save_models(models, out)
    else:
        fitted = fit(counted, model, **options)
        print_model(fitted, top)
        saved = None if out is None else fitted.save(out)
        if plot is not None:
            typer.echo(f"figure:  {_draw(fitted, counts, plot)}")
    if saved is not None:
        typer.echo(f"model:   {saved}")


def _draw(model: ClickModel, counts: Counts, path: Path) -> Path:
    from ..arena.figures import drawing
    from ..clicks import figures

    with drawing(path, across=2) as panels:
        figures.draw_shared(panels[0, 0], model)
        if model.model == "pbm":
            figures.draw_calibration(panels[0, 1], model, counts)
        else:
            figures.draw_items(panels[0, 1], model)
    return path
