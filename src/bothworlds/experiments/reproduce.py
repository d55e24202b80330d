"""Play the games of every question, or of one, judge the statements, and write the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..arena import Result, load_results, save_results
from ..arena.game import Game, warn_of_no_change
from ..arena.parallel import in_processes
from ..arena.result import changes_not_shown
from ..arena.run import engine_named, run
from ..arena.storage import commit, provenance
from ..checks import choice
from ..core import cores
from ..extras import check_figures, check_parquet
from ..progress import announce
from ..worlds import World, resolve
from .attacks import Attacks
from .baselines import ALL_WEATHER, BASELINES
from .growth import Growth
from .leader_error import LeaderError
from .panels import as_search_log
from .paper_figures import FIGURE_ONE, FIGURE_TWO
from .question import Figure, Question, Size
from .report import write_report, write_verdicts
from .result_lookup import GameKey, Results, game_key
from .service_cost import ServiceCost
from .shapes import Shapes
from .verdict import Verdict

QUESTIONS: dict[str, Question] = {
    question.name: question
    for question in (FIGURE_ONE, FIGURE_TWO, ALL_WEATHER, BASELINES, Growth(), Shapes(), LeaderError())
}
# Questions that have nothing to do with the paper: played only when they are requested by name.
ON_REQUEST: dict[str, Question] = {question.name: question for question in (ServiceCost(), Attacks())}
SIZES = {
    "quick": Size("quick", 100_000, 10_000, 40, 10, 3, 100_000, 2_000),
    "paper": Size("paper", 1_000_000, 100_000, 40, 20, 10, 1_000_000, 10_000, easy_rounds=10_000_000),
    "long": Size(
        "long", 1_000_000, 100_000, 40, 20, 10, 1_000_000, 10_000, easy_rounds=10_000_000, steady_rounds=100_000_000
    ),
}


class Reproduction(NamedTuple):
    """The verdicts of a run, and the path of its report."""

    verdicts: list[Verdict]
    report: Path


def reproduce(
    size: str = "quick",
    *,
    only: str | None = None,
    out: str | Path = "out",
    jobs: int | None = None,
    seed: int = 0,
    world: str | World | None = None,
    engine: str = "local",
    address: str | None = None,
    progress: bool | None = None,
) -> Reproduction:
    """Play all games that are not cached yet, draw the figures, judge the statements, and write the report.

    ``size`` is "quick", "paper" or "long"; the last one differs in how long the question ``growth`` plays. ``only`` is
    the name of one question; by default all questions about the paper are played. ``report.html``, figures,
    ``results.parquet`` and verdicts go to the folder ``out``, for one question to a folder of its name inside. Finished
    replications are cached in ``cells``: an interrupted run continues where it stopped. The same ``seed`` gives the
    same ``results.parquet`` and the same verdicts. ``world`` is a fitted model (an object, a name, a file) that
    replaces the paper's search log. The other arguments are those of :func:`bothworlds.play`.

    All files are complete when it returns. Raises ValueError for an unknown size or question, or a world that cannot
    replace the search log, and ImportError without Matplotlib or PyArrow, before anything is played.
    """
    choice(size, "size", SIZES)
    known = QUESTIONS | ON_REQUEST
    if only is not None and only not in known:
        raise ValueError(f"no question named {only!r}; there are {', '.join(known)}")
    check_figures()
    check_parquet()
    commit()  # cached now: the sources may be edited during the run
    scale = SIZES[size]
    if world is not None:
        scale = scale._replace(fitted=as_search_log(resolve(world)))
    questions = [known[only]] if only else list(QUESTIONS.values())
    folder = Path(out)
    announce(f"{'testing the claims of the paper' if only is None else only}, size {size}; results go to {folder}")
    games = _without_repeats([replace(game, seed=seed) for question in questions for game in question.games(scale)])
    warn_of_no_change(games)
    played = run(games, engine_named(engine, address, jobs), cells=folder / "cells", progress=progress)
    # The report of one question must not overwrite the report of all.
    folder = folder / only if only else folder
    table = save_results(played, folder / "results.parquet")
    # Figures and verdicts are made from the file alone, so that they can be made again from it.
    results = Results(load_results(table))
    figures = _draw(questions, results, scale, folder / "figures", jobs, progress)
    verdicts = [verdict for question in questions for verdict in question.verdicts(results, scale)]
    (folder / "verdicts.json").write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1) + "\n")
    warnings = changes_not_shown(results.all)
    write_verdicts(folder, scale, questions, verdicts, warnings)
    report = write_report(folder, scale, questions, figures, verdicts, costs(results.all), provenance(played), warnings)
    return Reproduction(verdicts, report)


def _draw(
    questions: Sequence[Question], results: Results, size: Size, folder: Path, jobs: int | None, progress: bool | None
) -> dict[str, list[Figure]]:
    """Draw the figures of the questions, several questions at a time, and return them by the names of the questions."""
    import matplotlib.font_manager  # noqa: F401 - makes its cache of fonts, once, before others look for it

    draw = partial(_figures, results=results, size=size, folder=str(folder))
    drawn = dict(in_processes(draw, questions, jobs or cores(), "drawing the figures", progress))
    return {question.name: drawn[k] for k, question in enumerate(questions)}


def _figures(question: Question, results: Results, size: Size, folder: str) -> list[Figure]:
    return question.figures(results, size, folder)


def _without_repeats(games: list[Game]) -> list[Game]:
    """Merge games that several questions share; the largest number of replications is played."""
    merged: dict[GameKey, Game] = {}
    for game in games:
        key = game_key(game.policy, game.world, game.rounds)
        if key not in merged or merged[key].replications < game.replications:
            merged[key] = game
    return list(merged.values())


def costs(results: list[Result]) -> dict[str, float]:
    """Return the microseconds per round of every policy, over the worlds of ten items and five positions."""
    compared: dict[str, list[Result]] = {}
    for result in results:
        world = result.build_world()
        if (world.n_items, world.n_positions) == (10, 5):
            compared.setdefault(result.policy, []).append(result)
    return {name: 1e6 * sum(result.cost() for result in own) / len(own) for name, own in compared.items()}
