"""The command ``generate``: write a synthetic click log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import CLICK_LOGS, app, count, warn, world_of


@app.command(rich_help_panel=CLICK_LOGS)
def generate(
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="File to write, a table that ends in .csv, .ndjson or .parquet; append .gz or .zst to compress text.",
        ),
    ],
    world: Annotated[
        str,
        typer.Option("--world", "-w", metavar="NAME[:SETTING=VALUE,...]", help="World of the users who click."),
    ] = "paper/stochastic",
    pages: Annotated[
        int, typer.Option(parser=count(1), metavar="N", help="Result pages to write: 10000, 10_000 or 1e4.")
    ] = 10_000,
    queries: Annotated[
        int, typer.Option(parser=count(1), metavar="N", help="Number of queries, each with its own items.")
    ] = 1,
    seed: Annotated[int, typer.Option(parser=count(0), metavar="N", help="Seed.")] = 0,
) -> None:
    """Write a synthetic click log: uniformly random lists, clicked as in a world.

    [bold]bothworlds generate log.parquet --world paper/stochastic --pages 100000[/bold]
    """
    from .. import clicks
    from ..arena.result import no_change

    users = world_of(world)
    if sentence := no_change(world, users.first_change(), pages):
        warn(sentence)
    path = clicks.generate(out, users, pages, queries=queries, seed=seed)
    typer.echo(f"log:     {path} ({pages:,} pages)")
