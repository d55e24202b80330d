"""Run every experiment, or one, and write the report."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from ..arena import Result, load_results, save_results
from ..arena.result import changes_not_shown
from ..arena.storage import commit, provenance
from ..progress import announce
from ..worlds import World, resolve
from .base import Figure, Game, Question, Results, Size, Verdict
from .baselines import Baselines
from .cells import play_all
from .growth import Growth
from .leader_error import LeaderError
from .panels import in_place_of_the_log
from .paper_figures import FigureOne, FigureTwo
from .report import write_report, write_verdicts
from .service import Service
from .shapes import Shapes

__all__ = ["QUESTIONS", "SIZES", "Answer", "reproduce"]

QUESTIONS: dict[str, Question] = {
    question.name: question for question in (FigureOne(), FigureTwo(), Baselines(), Growth(), Shapes(), LeaderError())
}
ON_REQUEST: dict[str, Question] = {question.name: question for question in (Service(),)}  # not of the paper
SIZES = {
    "quick": Size("quick", 100_000, 10_000, 5, 3, 100_000, 2_000),
    "paper": Size("paper", 1_000_000, 100_000, 20, 10, 1_000_000, 10_000),
}


class Answer(NamedTuple):
    """What a run has found: the verdicts, and where the report is."""

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
    progress: bool | None = None,
) -> Answer:
    """Play what is not yet played, draw the figures, judge the claims, and write ``report.html`` into a folder.

    ``size`` is ``"quick"`` or ``"paper"``; ``only`` is the name of one question; some are played only when they are
    asked for by name. What is played is kept in the folder, and a run that was interrupted goes on where it was.
    ``world`` (a fitted model: an object, a name, a file) takes the place of the paper's search log.
    """
    if size not in SIZES:
        raise ValueError(f"size must be one of {', '.join(SIZES)}; got {size!r}")
    known = QUESTIONS | ON_REQUEST
    if only is not None and only not in known:
        raise ValueError(f"no question named {only!r}; there are {', '.join(known)}")
    commit()  # what runs is what is there now, whatever is edited meanwhile
    scale = SIZES[size]
    if world is not None:
        scale = scale._replace(fitted=in_place_of_the_log(resolve(world)))
    questions = [known[only]] if only else list(QUESTIONS.values())
    folder = Path(out)
    announce(f"putting the paper to the test, size {size}; results go to {folder}")
    games = _without_repeats([game for question in questions for game in question.games(scale)])
    played = play_all(games, folder / "cells", seed=seed, jobs=jobs, progress=progress)
    # The report of one question stands beside that of all, not in its place.
    folder = folder / only if only else folder
    table = save_results(played, folder / "results.parquet")
    # From here on everything comes from the table, as it would for somebody who was given only that.
    results = Results(load_results(table))
    figures: dict[str, list[Figure]] = {}
    verdicts: list[Verdict] = []
    for question in questions:
        figures[question.name] = question.figures(results, scale, str(folder / "figures"))
        verdicts += question.verdicts(results, scale)
    (folder / "verdicts.json").write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1) + "\n")
    warnings = changes_not_shown(played)
    write_verdicts(folder, scale, verdicts, warnings)
    report = write_report(folder, scale, questions, figures, verdicts, costs(played), provenance(played), warnings)
    return Answer(verdicts, report)


def _without_repeats(games: list[Game]) -> list[Game]:
    """Games that several questions ask for are played once, as often as the most demanding of them asks."""
    merged: dict[tuple[str, str], Game] = {}
    for game in games:
        key = (game.policy.label, game.world.name)
        if key in merged and merged[key].rounds != game.rounds:
            raise ValueError(f"{key} is asked for with {merged[key].rounds} and with {game.rounds} rounds")
        if key not in merged or merged[key].seeds < game.seeds:
            merged[key] = game
    return list(merged.values())


def costs(played: list[Result]) -> dict[str, float]:
    """Microseconds per round of every policy, over the worlds of ten items and five positions."""
    spent: dict[str, list[Result]] = {}
    for result in played:
        if "stretched" not in result.world and not result.world.startswith("fitted"):
            spent.setdefault(result.policy, []).append(result)
    return {name: 1e6 * sum(r.cost() for r in results) / len(results) for name, results in spent.items()}
