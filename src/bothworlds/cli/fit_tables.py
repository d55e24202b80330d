"""The output of the command ``fit``: counts, examination curves, items, warnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from ..clicks.reading.errors import plural
from .tables import console

if TYPE_CHECKING:
    from ..clicks import ClickModel, Counts, Model, Models

MAX_QUERIES = 10  # queries whose curves are printed
MAX_POSITIONS = 10  # positions of these curves


def print_counts(counts: Counts) -> None:
    """Print the totals of the counts, and their notes."""
    pages = "" if counts.pages is None else f"{plural(counts.pages, 'page')}, "
    clicks, shown = plural(int(counts.clicked.sum()), "click"), plural(int(counts.shown.sum()), "impression")
    queries = f"{len(counts.queries):,} queries, " if len(counts.queries) > 1 else ""
    typer.echo(
        f"read:    {pages}{shown}, {clicks}: {queries}{plural(len(counts.items), 'item')} at "
        f"{plural(len(counts.positions), 'position')}, {plural(len(counts), 'different pair')}"
    )
    for note in counts.notes:
        typer.echo(f"note:    {note}")


def print_model(model: Model | Models, counts: Counts, top: int) -> None:
    """Print the quality of a fit to these counts, its curves, its ``top`` items, and its warnings."""
    steps = "passes" if getattr(model, "method", "") == "em" else "steps"
    typer.echo(
        f"fitted:  log-likelihood {model.log_likelihood:,.2f}, perplexity {_perplexity(model, counts)}, "
        f"{'' if model.converged else 'not '}converged in {model.iterations:,} {steps}"
    )
    from ..clicks import Model

    if isinstance(model, Model):
        _print_rows("examination of positions", "position", "examination", model.curve())
    else:
        _print_curves(model, counts)
    # By lower limits: most of the items with the highest estimates were shown once and clicked.
    rows = sorted(model.table(), key=lambda row: (-row["low"] if row["low"] >= 0.0 else 1.0, -row["clicks"]))
    if top:
        shown = f"{top:,} of {len(rows):,} items" if top < len(rows) else "items"
        shown += ", by the lower limit of their attraction"
        _print_rows(shown, "item", "attraction", rows[:top])
    for warning in model.warnings:
        typer.secho(f"warning: {warning}", fg="yellow")


def print_click_model(model: ClickModel, top: int) -> None:
    """Print the quality of a fit of another model than the position-based one, its parameters, and its warnings."""
    steps = f"converged in {model.iterations:,} steps" if model.iterations else "computed from counts"
    agree = f", {len(model.starts)} starts" if len(model.starts) > 1 else ""
    typer.echo(
        f"fitted:  {model.title}, log-likelihood {model.log_likelihood:,.2f}, "
        f"{'' if model.converged else 'not '}{steps}{agree}"
    )
    if model.model == "ubm":
        _print_columns(model)
    elif model.shared_parameters:
        _print_shared(model)
    rows = sorted(model.table(), key=lambda row: -row.get("low", 0.0) if row.get("low", 0.0) >= 0.0 else 1.0)
    if top and model.item_parameters:
        _print_items(model, rows[:top], len(rows))
    for warning in model.warnings:
        typer.secho(f"warning: {warning}", fg="yellow")


def _print_shared(model: ClickModel) -> None:
    from rich.table import Table

    table = Table(title="parameters that items share", title_justify="left", pad_edge=False)
    for heading in ("parameter", "position", "value", "95% interval"):
        table.add_column(heading, justify="left" if heading == "parameter" else "right", no_wrap=True)
    for row in model.shared_table():
        if row["value"] == row["value"]:
            table.add_row(row["parameter"], row["of"], _number(row["value"]), _interval(row))
    console().print(table)


def _print_columns(model: ClickModel) -> None:
    """Print the examination of every position by the position of the last click above it."""
    from rich.table import Table

    table = Table(title="examination, by the last click above", title_justify="left", pad_edge=False)
    gamma, m = model.shared("examination").tolist(), len(model.positions)
    table.add_column("position", justify="right", no_wrap=True)
    for last in ("none", *map(str, model.positions[: min(m - 1, MAX_POSITIONS)])):
        table.add_column(last, justify="right", no_wrap=True)
    for k, position in enumerate(model.positions[: MAX_POSITIONS + 1]):
        row = gamma[k * (k + 1) // 2 : k * (k + 1) // 2 + k + 1]
        table.add_row(str(position), *("-" if value != value else f"{value:.3f}" for value in row))
    console().print(table)


def _print_items(model: ClickModel, rows: Sequence[dict[str, Any]], size: int) -> None:
    from rich.table import Table
    from rich.text import Text

    names = list(model.item_parameters)
    shown = f"{len(rows):,} of {size:,} items" if len(rows) < size else "items"
    table = Table(title=f"{shown}, by the lower limit of their {names[0]}", title_justify="left", pad_edge=False)
    queries = any(row["query"] for row in rows)
    headings = [*(["query"] if queries else []), "item"]
    for name in names:
        headings += [name, "95% interval"]
    for heading in [*headings, "clicks", "impressions"]:
        table.add_column(heading, justify="left" if heading in ("query", "item") else "right", no_wrap=True)
    for row in rows:
        cells: list[Any] = [Text(str(row["query"]))] if queries else []
        cells.append(Text(str(row["item"])))
        for k, name in enumerate(names):
            before = f"{name}_" if k else ""
            cells += [_number(row[name]), _interval({"low": row[f"{before}low"], "high": row[f"{before}high"]})]
        table.add_row(*cells, f"{row['clicks']:,}", f"{row['impressions']:,}")
    console().print(table)


def _print_curves(models: Models, counts: Counts) -> None:
    """Print the curves of the queries with the most clicks, one per row."""
    from rich.table import Table
    from rich.text import Text

    clicks, shown = (np.bincount(counts.query, number) for number in (counts.clicked, counts.shown))
    largest = np.argsort(-clicks, kind="stable")[:MAX_QUERIES].tolist()
    title = f"examination by query: {int(models.each_identified.sum()):,} of {len(models):,} are identified"
    title += f", these have the most clicks (of {len(models):,})" if len(models) > MAX_QUERIES else ""
    table = Table(title=title, title_justify="left", pad_edge=False)
    table.add_column("query", no_wrap=True)
    for position in models.positions[:MAX_POSITIONS]:
        table.add_column(f"at {position}", justify="right", no_wrap=True)
    for name in ("clicks", "impressions", "identified"):
        table.add_column(name, justify="right", no_wrap=True)
    for k in largest:
        model = models[counts.queries[k]]
        curve = ["-" if beta != beta else f"{beta:.2f}" for beta in model.examination[:MAX_POSITIONS].tolist()]
        sure = "yes" if model.identified else "no"
        table.add_row(Text(counts.queries[k]), *curve, f"{int(clicks[k]):,}", f"{int(shown[k]):,}", sure)
    console().print(table)


def _perplexity(model: Model | Models, counts: Counts) -> str:
    try:
        value = model.perplexity(counts)
    except ValueError:  # without clicks the model has no curve
        return "unknown"
    return f"{float(value):.4f}" + (f" ({value.left_out:,} impressions left out)" if value.left_out else "")


def _print_rows(title: str, name: str, value: str, rows: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    groups = len({row["component"] for row in rows}) > 1
    queries = any(row.get("query") for row in rows)
    table = Table(title=title, title_justify="left", pad_edge=False)
    headings = [*(["query"] if queries else []), name, value, "95% interval", "clicks", "impressions"]
    for heading in [*headings, *(["group"] if groups else [])]:
        table.add_column(heading, justify="left" if heading in ("query", "item") else "right", no_wrap=True)
    for row in rows:
        # Text, since brackets in names are not markup.
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
    return "unknown" if value != value else f"{value:z.4f}"


def _interval(row: dict[str, Any]) -> str:
    low, high = row["low"], row["high"]
    if low != low or high != high:
        return "unknown"
    if low == high and low in (0.0, 1.0):
        return f"set to {low:.0f}"
    return f"{low:.4f} to {high:.4f}" if high < 1000.0 else f"{low:.4f} or more"
