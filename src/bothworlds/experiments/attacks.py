"""Which policies does an attack on 2% of the rounds keep wrong for good?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..arena import Result
from ..arena.figures import EndLabel, label_ends, thousands
from ..arena.game import Game
from ..arena.result import AttackScores
from ..line_styles import DASHES, PALETTE
from ..worlds import World
from ..worlds import world as named_world
from .question import Figure, Question, Size, draw_figure, game
from .result_lookup import Results
from .verdict import Claim, Measure, Measured

SHARE = 50  # one of so many rounds is attacked
POLICIES = ("toprank", "unirank", "bubblerank", "ftrl-pbm", "comb-ucb", "pbm-ucb-mle", "all-weather")
KEPT = 0.5  # a policy is kept wrong if the item is first in more than this share of the second half
RECOVERED = 0.01
BINS = 50  # points on each curve


def attacked_worlds(size: Size) -> dict[str, World]:
    """Return the worlds: the worst item promoted in the first rounds, and clicks on the best one deleted."""
    attacked = size.rounds // SHARE
    return {
        "promoted": named_world("attack/quit", rounds=attacked),
        "demoted": named_world("attack/demote", rounds=attacked),
    }


class Attacks(Question):
    """Play policies against two adversaries that react, and see who recovers."""

    name = "attacks"
    title = "Beyond the paper: an attack on 2% of the rounds"
    about = (
        "Two adversaries see the lists and the clicks and change what is reported of them. The first one reports, in "
        "the first 2% of the rounds, clicks on the worst of ten items and on nothing else. The second one deletes, in "
        "these rounds, all clicks on the best item. Then they are gone. Users are steady, and click as before."
    )
    of_paper = False

    def played(self, size: Size) -> str:
        return f"{size.rounds:,} rounds, {size.replications} replications"

    def games(self, size: Size) -> list[Game]:
        return [
            game(name, world, size.rounds, size.replications)
            for world in attacked_worlds(size).values()
            for name in POLICIES
        ]

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        titles = ("the worst item, promoted in the first 2%", "the best item, hidden in the first 2%")

        def draw(panels: Any) -> None:
            for panel, title, world in zip(panels, titles, attacked_worlds(size).values()):
                _draw(panel, [results[name, world] for name in POLICIES])
                panel.set_title(title)
            panels[0].set_ylabel("share of rounds with the item first")

        caption = (
            f"Share of rounds in which the attacked item is first, {size.rounds:,} rounds, mean of {size.replications} "
            f"replications. Left: in the first {size.rounds // SHARE:,} rounds only clicks on the worst item are "
            "reported. Right: in these rounds no click on the best item is reported."
        )
        return draw_figure(folder, Figure(self.name, self.title, caption), 2, draw)

    def claims(self, size: Size) -> Sequence[Claim]:
        return CLAIMS


def _scores(result: Result) -> AttackScores:
    if result.attack is None:
        raise KeyError(f"the result of {result.policy} in {result.world} has no scores of an attack")
    return result.attack


def late_shares(key: str, names: Sequence[str]) -> Measure:
    """Measure the share of the second half in which the attacked item is first; the label of a single policy is ""."""

    def measure(results: Results, size: Size) -> Measured:
        world, half = attacked_worlds(size)[key], size.rounds // 2
        return {name * (len(names) > 1): _scores(results[name, world]).share_first(since=half) for name in names}

    return measure


_claim = partial(Claim, source="ours", figure=Attacks.name)


def _kept(title: str, name: str) -> Claim:
    return _claim(
        statement=f"{title} keeps the worst item first long after an attack on 2% of the rounds has stopped.",
        measure=late_shares("promoted", [name]),
        said="share of the second half in which it is first",
        above=KEPT,
        rule=f"the share is above {KEPT}",
    )


def _recovered(title: str, name: str) -> Claim:
    return _claim(
        statement=f"{title} recovers from an attack on 2% of the rounds.",
        measure=late_shares("promoted", [name]),
        said="share of the second half in which the worst item is first",
        below=RECOVERED,
        rule=f"the share is below {RECOVERED}",
    )


CLAIMS = (
    _kept("TopRank", "toprank"),
    _kept("UniRank", "unirank"),
    _recovered("FTRL-PBM", "ftrl-pbm"),
    _recovered("All-weather", "all-weather"),
    _claim(
        statement="TopRank hardly ever shows the best item first again after some of its clicks were deleted.",
        measure=late_shares("demoted", POLICIES),
        said="share of the second half in which the best item is first",
        only="toprank",
        below=KEPT,
        rule=f"the share of TopRank is below {KEPT}",
    ),
)


def _draw(panel: Any, results: list[Result]) -> None:
    labels, last = [], float(results[0].rounds[-1])
    ends = np.linspace(0.0, last, BINS + 1)
    for result, colour, dash in zip(results, PALETTE, DASHES):
        first = _scores(result).target_first.mean(axis=0)
        share = np.diff(np.interp(ends, np.append(0, result.rounds), np.append(0.0, first))) / np.diff(ends)
        panel.plot(ends[1:], share, color=colour, linewidth=1.4, linestyle=dash)
        labels.append(EndLabel(float(share[-1]), result.policy, colour))
    panel.set(xlim=(0, last), ylim=(-0.03, 1.03), xlabel="rounds")
    panel.xaxis.set_major_formatter(thousands)
    label_ends(panel, last, labels)
