"""The output of the command ``fit``: counts, examination curves, items, warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from ..clicks.reading.errors import plural
from .tables import print_rows

if TYPE_CHECKING:
    from ..clicks import ClickModel, Counts

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


def print_model(model: ClickModel, top: int) -> None:
    """Print the quality of a fit, its shared parameters, its ``top`` items, and its warnings."""
    words = ("pass", "passes") if model.method == "em" else ("step",)
    steps = "computed from counts" if model.method == "counts" else f"converged in {plural(model.iterations, *words)}"
    agree = f", {len(model.starts)} starts" if len(model.starts) > 1 else ""
    typer.echo(
        f"fitted:  {model.title}, log-likelihood {model.log_likelihood:z,.2f}, "
        f"{'' if model.converged else 'not '}{steps}{agree}"
    )
    if model.model == "ubm":
        _print_columns(model)
    elif model.shared_parameters:
        _print_shared(model)
    _print_items(model.table(), list(model.item_parameters), top)
    _print_warnings(model.warnings)


def print_each_query(models: Mapping[str, ClickModel], top: int) -> None:
    """Print the quality of fits to queries, the curves of those with the most clicks, items, and warnings."""
    first, total = next(iter(models.values())), sum(model.log_likelihood for model in models.values())
    sure = sum(model.identified for model in models.values())
    typer.echo(
        f"fitted:  {first.title} by query, log-likelihood {total:,.2f}: {sure:,} of {len(models):,} are identified"
    )
    if first.model == "pbm":
        _print_curves(models)
    rows = [row for model in models.values() for row in model.table()]
    _print_items(rows, list(first.item_parameters), top)
    concerned = [f"{query!r}: {model.warnings[0]}" for query, model in models.items() if model.warnings]
    if concerned:
        _print_warnings([f"{len(concerned):,} of {len(models):,} queries have warnings, such as {concerned[0]}"])


def _print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        typer.secho(f"warning: {warning}", fg="yellow")


def _print_shared(model: ClickModel) -> None:
    rows = [
        [row["parameter"], row["of"], _number(row["value"]), _interval(row)]
        for row in model.shared_table()
        if row["value"] == row["value"]
    ]
    headings = ["parameter", "position", "value", "95% interval"]
    print_rows("parameters that items share", headings, rows, names=("parameter",))


def _print_columns(model: ClickModel) -> None:
    """Print the examination of every position by the position of the last click above it."""
    gamma, m = model.examination.tolist(), len(model.positions)
    headings = ["position", "none", *map(str, model.positions[: min(m - 1, MAX_POSITIONS)])]
    rows = []
    for k, position in enumerate(model.positions[: MAX_POSITIONS + 1]):
        row = ["-" if value != value else f"{value:.3f}" for value in gamma[k * (k + 1) // 2 :][: k + 1]]
        rows.append([str(position), *row, *[""] * (len(headings) - 1 - len(row))])
    print_rows("examination, by the last click above", headings, rows)


def _print_items(rows: list[dict[str, Any]], names: list[str], top: int) -> None:
    """Print the items with the largest lower limits: most of those with the highest estimates were shown once."""
    if not top or not names:
        return
    size = len(rows)
    rows = sorted(rows, key=lambda row: (-row["low"] if row["low"] >= 0.0 else 1.0, -row["clicks"]))[:top]
    shown = f"{len(rows):,} of {size:,} items" if len(rows) < size else "items"
    queries = any(row["query"] for row in rows)
    headings = [*(["query"] if queries else []), "item"]
    for name in names:
        headings += [name, "95% interval"]
    headings += ["clicks", "impressions"]
    cells = []
    for row in rows:
        line = [*([str(row["query"])] if queries else []), str(row["item"])]
        for k, name in enumerate(names):
            before = f"{name}_" if k else ""
            line += [_number(row[name]), _interval({"low": row[f"{before}low"], "high": row[f"{before}high"]})]
        line += [f"{row['clicks']:,}", f"{row['impressions']:,}"]
        cells.append(line)
    print_rows(f"{shown}, by the lower limit of their {names[0]}", headings, cells, names=("query", "item"))


def _print_curves(models: Mapping[str, ClickModel]) -> None:
    """Print the curves of the queries with the most clicks, one per row."""
    positions = next(iter(models.values())).positions[:MAX_POSITIONS]
    largest = sorted(models, key=lambda query: -int(models[query].item_counts[1].sum()))[:MAX_QUERIES]
    title = "examination by query"
    title += f", those with the most clicks (of {len(models):,})" if len(models) > MAX_QUERIES else ""
    headings = ["query", *(f"at {position}" for position in positions), "clicks", "impressions", "identified"]
    rows = []
    for query in largest:
        model = models[query]
        shown, clicks = model.item_counts.sum(axis=1).tolist()
        curve = ["-" if beta != beta else f"{beta:.2f}" for beta in model.examination[:MAX_POSITIONS].tolist()]
        rows.append([query, *curve, f"{clicks:,}", f"{shown:,}", "yes" if model.identified else "no"])
    print_rows(title, headings, rows, names=("query",))


def _number(value: float) -> str:
    return "unknown" if value != value else f"{value:z.4f}"


def _interval(row: dict[str, Any]) -> str:
    low, high = row["low"], row["high"]
    if low != low or high != high:
        return "unknown"
    if low == high and low in (0.0, 1.0):
        return f"set to {low:.0f}"
    return f"{low:.4f} to {high:.4f}" if high < 1000.0 else f"{low:.4f} or more"
