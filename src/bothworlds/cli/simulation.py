"""The commands that simulate: play a policy in a world, let policies compete, put the paper to the test, list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import (
    app,
    check_outputs,
    console,
    count,
    parse,
    plainly,
    policy_of,
    warn,
    world_of,
)

if TYPE_CHECKING:
    from ..arena import Result
    from ..experiments import Verdict

DEFAULT_ROUNDS = 200_000  # two phases of the worlds that take turns
ARENA_STEADY = ("paper/stochastic", "paper/stochastic:gap=0.01", "yandex/stochastic")
ARENA_PERIODIC = ("paper/periodic-items", "paper/periodic-both")

Policies = Annotated[
    list[str],
    typer.Option(
        "--policy",
        "-p",
        metavar="NAME[:SETTING=VALUE,...]",
        help="Policy to play; give it several times to compare. Settings follow a colon: ftrl-pbm:rate=0.25; "
        "a list is written in brackets: 'fixed:ranking=[4,3,2,1,0]'",
    ),
]
Worlds = Annotated[
    list[str],
    typer.Option(
        "--world",
        "-w",
        metavar="NAME[:SETTING=VALUE,...]",
        help="World to play in; may be given several times: paper/periodic-items:gap=0.01,phase=20000; or the file "
        "of a fitted model: model.json:query=news",
    ),
]
Rounds = Annotated[
    int, typer.Option("--rounds", "-T", parser=count(1), metavar="N", help="Rounds to play: 100000, 100_000 or 1e5.")
]
Seeds = Annotated[
    int,
    typer.Option("--seeds", "-n", parser=count(1), metavar="N", help="Replications, each with users of its own."),
]
Seed = Annotated[int, typer.Option("--seed", parser=count(0), metavar="N", help="Where the randomness starts.")]
Checkpoints = Annotated[int, typer.Option("--checkpoints", parser=count(1), metavar="N", help="Points on the curves.")]
Tell = Annotated[
    bool, typer.Option("--tell", help="Tell policies what they need to know of the world, such as its examination.")
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Replications at a time; all cores if not given.")
]


@app.command()
@plainly
def play(
    policy: Policies = ["ftrl-pbm"],  # noqa: B006 - typer never changes it
    world: Worlds = ["paper/stochastic"],  # noqa: B006
    rounds: Rounds = DEFAULT_ROUNDS,
    seeds: Seeds = 10,
    seed: Seed = 0,
    checkpoints: Checkpoints = 100,
    jobs: Jobs = None,
    tell: Tell = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves to this file: .svg, .png or .pdf.")] = None,
    save: Annotated[Path | None, typer.Option(help="Save every checkpoint to this file: .parquet or .csv.")] = None,
) -> None:
    """Let policies rank in worlds and print what they earn.

    Rewards are expected clicks per round, averaged over all rounds. All policies meet the same users.

    [bold]bothworlds play -p ftrl-pbm -p uniform -w paper/periodic-both --rounds 200000 --plot curves.svg[/bold]
    """
    check_outputs(plot, save, (".parquet", ".csv"))
    results = _compete(policy, world, rounds, seeds, seed, checkpoints, jobs, tell)
    _print_table(results)
    _write(results, save, plot)


@app.command()
@plainly
def arena(
    policy: Annotated[list[str] | None, typer.Option("--policy", "-p", help="Only these; all if not given.")] = None,
    world: Annotated[
        list[str] | None,
        typer.Option("--world", "-w", metavar="NAME[:SETTING=VALUE,...]", help="Only in these; five if not given."),
    ] = None,
    rounds: Rounds = DEFAULT_ROUNDS,
    seeds: Seeds = 10,
    seed: Seed = 0,
    jobs: Jobs = None,
    out: Annotated[Path, typer.Option(help="Folder for results and figures.")] = Path("out"),
) -> None:
    """Every policy in every world: a table in the terminal, and the table, results and figures in a folder.

    The table shows average expected rewards per round with standard errors, and what a round costs.
    The best learning policy of each world is in bold.
    Policies that need to know the examination of positions are told what it is at the start.
    In two of the five worlds users change every 100,000 rounds, or half way through if there are no more than that.
    """
    from .. import policies
    from ..arena import save_table, standings

    places = world or arena_worlds(rounds)
    results = _compete(policy or policies.names(), places, rounds, seeds, seed, 100, jobs, tell=True)
    _print_table(results)
    typer.echo(f"table:   {save_table(standings(results), out / 'arena.md')}")
    _write(results, _results_path(out), out / "arena.svg")
    _write(results, None, out / "arena.png")


def arena_worlds(rounds: int) -> list[str]:
    """The worlds of the arena; in a game too short for the usual phase, users change half way through.

    >>> arena_worlds(200_000)[-1], arena_worlds(20_000)[-1]
    ('paper/periodic-both', 'paper/periodic-both:phase=10000')
    """
    from .. import worlds

    usual = worlds.describe(ARENA_PERIODIC[0])[1]["phase"]
    phase = "" if rounds > usual else f":phase={max(rounds // 2, 1)}"
    return [*ARENA_STEADY, *(f"{name}{phase}" for name in ARENA_PERIODIC)]


@app.command()
@plainly
def reproduce(
    size: Annotated[str, typer.Option(help="quick (minutes) or paper (hours).")] = "quick",
    only: Annotated[str | None, typer.Option(help="Only this question, such as figure-1.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report, figures and results.")] = Path("out"),
    jobs: Jobs = None,
    seed: Seed = 0,
    world: Annotated[
        str | None,
        typer.Option(
            "--world",
            "-w",
            metavar="MODEL.json[:query=NAME]",
            help="A fitted model that takes the place of the paper's search log.",
        ),
    ] = None,
) -> None:
    """Put the paper to the test: its figures, those it should have had, and a verdict on every claim.

    What is finished is kept in the folder: an interrupted run goes on where it was.
    """
    from .. import experiments

    place = None if world is None else world_of(world)
    if world is not None:
        _warn_of(*parse(world))
    answer = experiments.reproduce(size, only=only, out=out, jobs=jobs, seed=seed, world=place)
    _print_verdicts(answer.verdicts)
    typer.echo(f"report:  {answer.report}")


@app.command("policies")
@plainly
def list_policies() -> None:
    """List the policies: what they do, what they must be told, and what settings they have.

    A horizon is told by play and arena; elsewhere give it as a setting, or the policy plans for longer and longer.
    The order of positions is: the first is examined most, then the second.
    """
    from rich.table import Table

    from .. import policies

    table = Table("policy", "what it does", "needs to know", "settings", box=None, pad_edge=False, show_lines=False)
    for name in policies.names():
        what = policies.describe(name)
        said = ", ".join(f"{key}={value!r}" for key, value in what.settings.items())
        table.add_row(name, what.sentence, ", ".join(what.needs) or "-", said or "-")
    console().print(table)


@app.command("worlds")
@plainly
def list_worlds() -> None:
    """List the worlds: what they are and what settings they have."""
    from rich.table import Table

    from .. import worlds

    table = Table("world", "its users", "settings", box=None, pad_edge=False)
    for name in worlds.names():
        sentence, settings = worlds.describe(name)
        table.add_row(
            name, sentence.replace("``", ""), ", ".join(f"{key}={value!r}" for key, value in settings.items()) or "-"
        )
    console().print(table)


def _compete(
    policies: Sequence[str],
    worlds: Sequence[str],
    rounds: int,
    seeds: int,
    seed: int,
    checkpoints: int,
    jobs: int | None,
    tell: bool,
) -> list[Result]:
    from ..arena import compete

    players, places = [policy_of(text) for text in policies], [world_of(text) for text in worlds]
    for text in worlds:
        _warn_of(*parse(text))
    return compete(players, places, rounds, seeds=seeds, seed=seed, checkpoints=checkpoints, jobs=jobs, tell=tell)


def _warn_of(world: str, settings: Mapping[str, Any]) -> None:
    """Repeat what a fitted model says against itself."""
    from ..worlds.fitted import read_document, warnings_in

    for warning in warnings_in(read_document(world), settings.get("query")) if world.endswith(".json") else ():
        warn(f"{world}: {warning}")


def _print_table(results: Sequence[Result]) -> None:
    from rich.table import Column, Table

    from ..arena import standings

    found = standings(results)
    table = Table(Column("policy", no_wrap=True), title=found.title, title_justify="left", pad_edge=False)
    for world in found.worlds:
        table.add_column(world.replace("/", "/\n", 1).replace("(", "\n("), justify="right", no_wrap=True)
    table.add_column("µs per\nround", justify="right")
    for row in found.rows:
        cells = ["" if cell is None else f"[bold]{cell.text}" if cell.best else cell.text for cell in row.cells]
        cost = "" if row.cost is None else f"{row.cost:.2f}"
        table.add_row(row.name, *cells, cost, style="dim" if row.reference else None)
    console().print(table)


def _print_verdicts(verdicts: Sequence[Verdict]) -> None:
    from rich.table import Table

    colours = {"holds": "green", "fails": "red", "cannot be decided": "yellow"}
    table = Table(
        "statement", "verdict", "measured", title="What holds of the paper", title_justify="left", show_lines=True
    )
    for verdict in verdicts:
        colour = colours[verdict.outcome]
        table.add_row(verdict.statement, f"[{colour}]{verdict.outcome}", verdict.measured)
    if verdicts:
        console().print(table)


def _write(results: Sequence[Result], save: Path | None, plot: Path | None) -> None:
    from ..arena import draw_results, save_results

    if save is not None:
        typer.echo(f"results: {save_results(results, save)}")
    if plot is not None:
        typer.echo(f"figure:  {draw_results(results, plot)}")


def _results_path(out: Path) -> Path:
    """Parquet where it can be written, CSV otherwise."""
    from importlib.util import find_spec

    return out / ("arena.parquet" if find_spec("pyarrow") else "arena.csv")
