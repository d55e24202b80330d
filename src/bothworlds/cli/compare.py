"""The command ``compare``: which click model describes the users of a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import CLICK_LOGS, app, check_outputs
from .log_options import ReadLog, reads_log
from .tables import print_rows

if TYPE_CHECKING:
    from ..clicks import Comparison


@app.command("compare", rich_help_panel=CLICK_LOGS)
@reads_log()
def compare_models_on_log(
    log: ReadLog,
    models: Annotated[str, typer.Option(metavar="NAME,...", help="Click models, or all of them: pbm,ubm,dbn.")] = "all",
    reference: Annotated[str, typer.Option(help="The model that the others are compared to.")] = "pbm",
    priors: Annotated[
        str, typer.Option(metavar="NUMBER,...", help="Strengths of the prior to choose from, on validation pages.")
    ] = "0,0.1,0.3,1,3,10",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split and of the resamples.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw the comparison to this file: .svg, .png or .pdf.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write all results to this file: .json.")] = None,
) -> None:
    """Compare click models on pages of a log that they were not fitted to: which one describes these users?

    The log must have whole pages.
    Of every query, three fifths of the pages are for training, a fifth for the prior, and a fifth for the scores.

    [bold]bothworlds compare clicks.csv --plot models.svg[/bold]
    """
    check_outputs(plot, out, (".json",))
    from .. import clicks

    names = "all" if models == "all" else [name.strip() for name in models.split(",")]
    result = clicks.compare(log(), names, priors=_numbers(priors), reference=reference, seed=seed)
    for note in result.notes:
        typer.echo(f"note:    {note}")
    _print_table(result)
    typer.echo(f"\n{result.sentence()}\n\n{result.rules()}")
    for entry in result.entries:
        if not entry.converged:
            typer.secho(f"warning: the fit of {entry.model} did not converge.", fg="yellow")
    if plot is not None:
        typer.echo(f"figure:  {_draw(result, plot)}")
    if out is not None:
        typer.echo(f"results: {result.save(out)}")


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(f"--priors is written like 0,0.1,1; got {text!r}") from error


def _print_table(result: Comparison) -> None:
    table = result.table()
    several = any(row["low_queries"] == row["low_queries"] for row in table)
    headings = ["model", "prior", "log likelihood", f"more than {result.reference}", "95%, pages"]
    headings += [*(["95%, queries"] if several else []), "perplexity", "given above", "impossible"]
    rows = []
    for row in table:
        cells = [row["model"], f"{row['prior']:g}", f"{row['log_likelihood']:.4f}"]
        if row["model"] == result.reference:
            cells += ["", "", *([""] if several else [])]
        else:
            cells += [f"{row['difference']:+z.4f}", _interval(row["low"], row["high"])]
            cells += [_interval(row["low_queries"], row["high_queries"])] if several else []
        cells += [f"{row['perplexity']:.4f}", f"{row['conditional_perplexity']:.4f}", f"{row['impossible']:,}"]
        rows.append(cells)
    title = f"{len(result.entries)} click models on {result.sizes[2]:,} test pages, the best first"
    print_rows(title, headings, rows, names=("model",))


def _interval(low: float, high: float) -> str:
    return "-" if low != low else f"{low:+z.4f} to {high:+z.4f}"


def _draw(result: Comparison, path: Path) -> Path:
    from ..arena.figures import drawing
    from ..clicks.figures import draw_differences, draw_perplexities

    with drawing(path, across=2) as panels:
        draw_differences(panels[0, 0], result)
        draw_perplexities(panels[0, 1], result)
    return path
