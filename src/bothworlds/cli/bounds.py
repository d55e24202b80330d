"""The command ``bounds``: print the regret bounds of theorems for an instance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from .common import SIMULATION, app, count, parse, world_of
from .tables import print_rows


@app.command("bounds", rich_help_panel=SIMULATION)
def print_bounds(
    attraction: Annotated[
        str | None, typer.Option("--attraction", "-a", metavar="A,A,...", help="Attraction of every item: 0.9,0.5,0.1")
    ] = None,
    examination: Annotated[
        str | None, typer.Option("--examination", "-e", metavar="E,E,...", help="Examination of positions: 1,1/2,1/3")
    ] = None,
    world: Annotated[
        str | None,
        typer.Option("--world", "-w", metavar="NAME[:SETTING=VALUE,...]", help="Take both from a stochastic world."),
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", "-T", parser=count(1), metavar="N", help="Rounds of the game, such as 1e5.")
    ] = 100_000,
) -> None:
    """Print upper and lower bounds on the regret of an instance.

    These are the rows of the paper's table of bounds, with numbers where the constants are known.

    [bold]bothworlds bounds --attraction 0.9,0.8,0.5,0.3 --examination 1,1/2 --rounds 100000[/bold]
    """
    from .. import theory

    alpha, beta = _instance(attraction, examination, world)
    _print_bounds(theory.table(alpha, beta, rounds), theory.largest_regret(alpha, beta, rounds), rounds)
    n, m = len(alpha), len(beta)
    gap = f"delta = {theory.delta(alpha, m):.4g}, " if n > 1 else ""
    typer.echo(f"n = {n} items, m = {m} positions, {gap}delta_beta = {theory.delta_beta(beta):.4g}")


def _instance(attraction: str | None, examination: str | None, world: str | None) -> tuple[list[float], list[float]]:
    """Return attraction and examination from the options or from a world; raises ValueError if they are missing."""
    from ..worlds import Stochastic

    if world is None and attraction and examination:
        return _numbers(attraction, "--attraction"), _numbers(examination, "--examination")
    if world is None:
        raise ValueError("give --attraction and --examination, or a --world such as paper/stochastic")
    if attraction or examination:
        raise ValueError("give --world, or --attraction and --examination, but not both")
    named = world_of(world)
    if not isinstance(named, Stochastic):
        raise ValueError(
            f"world {parse(world)[0]!r} has no fixed attraction and examination; use one like paper/stochastic"
        )
    return named.attraction.tolist(), named.examination.tolist()


def _numbers(text: str, option: str) -> list[float]:
    """Parse numbers or fractions separated by commas; raises ValueError.

    >>> _numbers("1, 1/2,0.25", "--examination")
    [1.0, 0.5, 0.25]
    """
    from fractions import Fraction

    try:
        return [float(Fraction(part.strip())) for part in text.split(",")]
    except (ValueError, ArithmeticError) as error:
        raise ValueError(f"cannot read the numbers in {option} {text!r}; write them like 1,1/2,0.25") from error


def _print_bounds(rows: Sequence[Any], largest: float, rounds: int) -> None:
    def number(bound: float | None) -> str:
        return "-" if bound is None else f"{bound:,.0f}" if bound < float("inf") else "infinite"

    headings = ("source", "users", "side", "order", "number")
    cells = [(row.source, row.users, row.side, row.order, number(row.bound)) for row in rows]
    cells.append(("always the worst list", "stochastic", "equal", "T", number(largest)))
    print_rows(f"regret in {rounds:,} rounds", headings, cells, names=headings[:4])
