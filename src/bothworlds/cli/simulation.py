"""The commands that simulate: ``play``, ``arena``, ``reproduce``, and the lists of policies and worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..extras import check_figures
from .common import (
    SIMULATION,
    app,
    check_outputs,
    count,
    parse,
    policy_of,
    warn,
    world_of,
)
from .tables import console, print_rows

if TYPE_CHECKING:
    from ..arena import Result

DEFAULT_ROUNDS = 200_000  # two phases of the periodic worlds
MOST_COLUMNS = 98  # of text that is not a table
ARENA_STOCHASTIC = ("paper/stochastic", "paper/stochastic:gap=0.01", "yandex/stochastic")
ARENA_PERIODIC = ("paper/periodic-items", "paper/periodic-both")

Policies = Annotated[
    list[str],
    typer.Option(
        "--policy",
        "-p",
        metavar="NAME[:SETTING=VALUE,...]",
        help="Policy to play; repeat the option to compare policies. Settings follow a colon: ftrl-pbm:rate=0.25; "
        "a list is in brackets: 'fixed:ranking=[4,3,2,1,0]'",
    ),
]
Worlds = Annotated[
    list[str],
    typer.Option(
        "--world",
        "-w",
        metavar="NAME[:SETTING=VALUE,...]",
        help="World to play in; repeat the option for several: paper/periodic-items:gap=0.01,phase=20000; or the file "
        "of a fitted model: model.json:query=news",
    ),
]
Rounds = Annotated[
    int, typer.Option("--rounds", "-T", parser=count(1), metavar="N", help="Rounds to play: 100000, 100_000 or 1e5.")
]
Replications = Annotated[
    int,
    typer.Option("--replications", "-n", parser=count(1), metavar="N", help="Replications, each with its own users."),
]
Seed = Annotated[int, typer.Option("--seed", parser=count(0), metavar="N", help="Seed of the random numbers.")]
Checkpoints = Annotated[
    int, typer.Option("--checkpoints", parser=count(1), metavar="N", help="Number of points on the curves.")
]
Inform = Annotated[
    bool,
    typer.Option("--inform", help="Give policies the facts that they need about the world, such as its examination."),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Replications in parallel; one per core if omitted.")
]

Engine = Annotated[
    str,
    typer.Option("--engine", metavar="local|ray", help="Where replications run: this machine, or a Ray cluster."),
]
Address = Annotated[
    str | None,
    typer.Option(help="Address of the Ray cluster; RAY_ADDRESS or a temporary one on this machine if omitted."),
]


@app.command(rich_help_panel=SIMULATION)
def play(
    policy: Policies = ["all-weather"],  # noqa: B006 - typer never changes it
    world: Worlds = ["paper/stochastic"],  # noqa: B006
    rounds: Rounds = DEFAULT_ROUNDS,
    replications: Replications = 10,
    seed: Seed = 0,
    checkpoints: Checkpoints = 100,
    jobs: Jobs = None,
    inform: Inform = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves to this file: .svg, .png or .pdf.")] = None,
    save: Annotated[Path | None, typer.Option(help="Save every checkpoint to this file: .parquet or .csv.")] = None,
    engine: Engine = "local",
    address: Address = None,
    cells: Annotated[
        Path | None, typer.Option(help="Folder for finished replications; an interrupted run resumes from it.")
    ] = None,
) -> None:
    """Play policies in worlds and print their rewards.

    Rewards are expected clicks per round, averaged over all rounds. All policies face the same users.

    [bold]bothworlds play -p all-weather -p ftrl-pbm -w paper/periodic-both --rounds 200000 --plot curves.svg[/bold]
    """
    check_outputs(plot, save, (".parquet", ".csv"))
    where = {"engine": engine, "address": address, "jobs": jobs, "cells": cells}
    results = _compete(policy, world, rounds, replications, seed, checkpoints, inform, where)
    _print_table(results)
    _print_attacks(results)
    _write(results, save, plot)


@app.command(rich_help_panel=SIMULATION)
def arena(
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", "-p", metavar="NAME[:SETTING=VALUE,...]", help="Only these; all if omitted."),
    ] = None,
    world: Annotated[
        list[str] | None,
        typer.Option("--world", "-w", metavar="NAME[:SETTING=VALUE,...]", help="Only in these; five if omitted."),
    ] = None,
    rounds: Rounds = DEFAULT_ROUNDS,
    replications: Replications = 10,
    seed: Seed = 0,
    jobs: Jobs = None,
    out: Annotated[Path, typer.Option(help="Folder for results and figures.")] = Path("out"),
    engine: Engine = "local",
    address: Address = None,
) -> None:
    """Play every policy in every world; print a table, and write the table, results and figures to a folder.

    The table shows average expected rewards per round with standard errors, and the time per round.
    The best learning policy of each world is in bold.
    Policies that need the examination of positions get it at the start.
    In two of the five worlds users change every 100,000 rounds, or half way through in shorter games.
    Finished replications are kept in the folder: an interrupted run resumes.
    Without Matplotlib no figure is drawn, and without PyArrow results are a CSV file.
    """
    from .. import policies
    from ..arena import save_table, standings

    worlds = world or arena_worlds(rounds)
    where = {"engine": engine, "address": address, "jobs": jobs, "cells": out / "cells"}
    results = _compete(policy or policies.names(), worlds, rounds, replications, seed, 100, True, where)
    _print_table(results)
    typer.echo(f"table:   {save_table(standings(results), out / 'arena.md')}")
    _write(results, _results_path(out), None)
    try:
        check_figures()
    except ImportError as error:
        warn(f"no figure is drawn: {error}")
        return
    for ending in (".svg", ".png"):
        _write(results, None, out / f"arena{ending}")


def arena_worlds(rounds: int) -> list[str]:
    """Return the worlds of the arena; in a game shorter than the default phase, users change half way through.

    >>> arena_worlds(200_000)[-1], arena_worlds(20_000)[-1]
    ('paper/periodic-both', 'paper/periodic-both:phase=10000')
    """
    from .. import worlds

    default = worlds.describe(ARENA_PERIODIC[0])[1]["phase"]
    phase = "" if rounds > default else f":phase={max(rounds // 2, 1)}"
    return [*ARENA_STOCHASTIC, *(f"{name}{phase}" for name in ARENA_PERIODIC)]


@app.command(rich_help_panel=SIMULATION)
def reproduce(
    size: Annotated[
        str, typer.Option(help="quick (minutes), paper (an hour or more), or long (hours; for growth).")
    ] = "quick",
    only: Annotated[
        str | None,
        typer.Option(
            metavar="QUESTION",
            help="Only this question: figure-1, figure-2, baselines, growth, shapes, leader-error, all-weather, or one "
            "that is not played by default: service, attacks.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report, figures and results.")] = Path("out"),
    jobs: Jobs = None,
    seed: Seed = 0,
    world: Annotated[
        str | None,
        typer.Option(
            "--world",
            "-w",
            metavar="MODEL.json[:query=NAME]",
            help="A fitted model, used instead of the paper's search log.",
        ),
    ] = None,
    engine: Engine = "local",
    address: Address = None,
) -> None:
    """Reproduce the paper: its figures, additional figures, and a verdict on every claim.

    Finished results are kept in the folder: an interrupted run resumes.
    """
    from .. import experiments

    replacement = None if world is None else world_of(world)
    if world is not None:
        _print_warnings(*parse(world))
    reproduction = experiments.reproduce(
        size, only=only, out=out, jobs=jobs, seed=seed, world=replacement, engine=engine, address=address
    )
    typer.echo(experiments.findings(reproduction.verdicts, min(console().width, MOST_COLUMNS)))
    typer.echo(f"\nNumbers and intervals: {reproduction.report}")


@app.command("policies", rich_help_panel=SIMULATION)
def list_policies() -> None:
    """List the policies: what they do, which facts they need, and their settings.

    The commands play and arena pass the horizon, the number of rounds.
    Elsewhere it is a setting; without it, a policy plans for a short horizon and doubles it.
    The order of positions means: the first position is examined most, then the second.
    """
    from .. import policies

    rows = []
    for name in policies.names():
        description = policies.describe(name)
        settings = ", ".join(f"{key}={value!r}" for key, value in description.settings.items())
        rows.append((name, description.sentence, ", ".join(description.needs) or "-", settings or "-"))
    _print_list(("policy", "what it does", "needs to know", "settings"), rows)


@app.command("worlds", rich_help_panel=SIMULATION)
def list_worlds() -> None:
    """List the worlds: their users and their settings."""
    from .. import worlds

    rows = []
    for name in worlds.names():
        sentence, settings = worlds.describe(name)
        written = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        rows.append((name, sentence.replace("``", "`"), written or "-"))
    _print_list(("world", "its users", "settings"), rows)


def _print_list(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print_rows("", headings, rows, names=headings[:1], sentences=headings[1:])


def _compete(
    policies: Sequence[str],
    worlds: Sequence[str],
    rounds: int,
    replications: int,
    seed: int,
    checkpoints: int,
    inform: bool,
    where: Mapping[str, Any],
) -> list[Result]:
    from ..arena import compete

    resolved_policies, resolved_worlds = [policy_of(text) for text in policies], [world_of(text) for text in worlds]
    for text in worlds:
        _print_warnings(*parse(text))
    return compete(
        resolved_policies,
        resolved_worlds,
        rounds,
        replications=replications,
        seed=seed,
        checkpoints=checkpoints,
        inform=inform,
        **where,
    )


def _print_warnings(world: str, settings: Mapping[str, Any]) -> None:
    """Print the warnings that are saved in a fitted model."""
    from ..worlds.fitted import read_document, warnings_in

    for warning in warnings_in(read_document(world), settings.get("query")) if world.endswith(".json") else ():
        warn(f"{world}: {warning}")


def _print_table(results: Sequence[Result]) -> None:
    from rich.text import Text

    from ..arena import standings

    ranked = standings(results)
    headings = ["policy", *(world.replace("/", "/ ", 1).replace("(", " (") for world in ranked.worlds), "µs per round"]
    rows = []
    for row in ranked.rows:
        cells = ["" if cell is None else Text(cell.text, "bold" if cell.best else "") for cell in row.cells]
        rows.append([row.name, *cells, "" if row.cost is None else f"{row.cost:.2f}"])
    dim = [k for k, row in enumerate(ranked.rows) if row.reference]
    print_rows(ranked.title, headings, rows, names=("policy",), dim=dim)


def _print_attacks(results: Sequence[Result]) -> None:
    """Print what adversaries reached and paid, if there were any: means over replications."""
    attacked = [(result, result.attack) for result in results if result.attack is not None]
    if not attacked:
        return
    headings = ("policy", "world", "flips", "rounds touched", "target first", "target in the list", "regret")
    rows = [
        (
            result.policy,
            result.world,
            f"{scores.flips[:, -1].mean():,.0f}",
            f"{scores.touched[:, -1].mean():,.0f}",
            f"{scores.share_first().mean():.1%}",
            f"{scores.share_shown().mean():.1%}",
            f"{result.regret()[:, -1].mean():,.0f}",
        )
        for result, scores in attacked
    ]
    print_rows("Attacks", headings, rows, names=headings[:2])


def _write(results: Sequence[Result], save: Path | None, plot: Path | None) -> None:
    from ..arena import draw_results, save_results

    if save is not None:
        typer.echo(f"results: {save_results(results, save)}")
    if plot is not None:
        typer.echo(f"figure:  {draw_results(results, plot)}")


def _results_path(out: Path) -> Path:
    """Return a path for Parquet if pyarrow is installed, else for CSV."""
    from importlib.util import find_spec

    return out / ("arena.parquet" if find_spec("pyarrow") else "arena.csv")
