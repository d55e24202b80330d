"""The panels of the paper with what it leaves out: the default of this package, and strong baselines."""

from __future__ import annotations

from collections.abc import Sequence

from ..arena.game import Game
from ..line_styles import PALETTE
from ..policies import Policy, policy
from .panels import (
    ALL_PANELS,
    CHANGING_PANELS,
    COLOURS,
    PAPER,
    STEADY_PANELS,
    STRONG,
    difference,
    lead,
    panel_figure,
    panel_games,
    panel_number,
    replications_in_words,
)
from .question import Figure, Question, Size
from .result_lookup import Results
from .verdict import Claim

NAME = "all-weather"
OTHERS = (*PAPER, *STRONG)
NEAR = 0.002  # clicks per round: a policy that is behind by less is as good
DRAWN = {NAME: "#000000", **{name: COLOURS[name] for name in PAPER}, "uniform": "#7F7F7F"}


class AllWeatherPanels(Question):
    """Compare all-weather with ten policies where users are steady and where they change."""

    name = NAME
    title = "Beyond the paper: one policy for all nine panels"
    about = (
        "All-weather, the default of this package, beside the paper's six policies; the verdicts also compare it with "
        "four strong policies that the paper leaves out: Tsallis-RV, LBINFV, Gibbs-TS and PBM-UCB with fitted "
        "examination. None of these is given the examination or the number of rounds."
    )

    def games(self, size: Size) -> list[Game]:
        """Return all-weather, the ten others and uniform lists in all nine panels."""
        return panel_games(ALL_PANELS, (*DRAWN, *STRONG), size)

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        """Draw average rewards of all-weather and the paper's six, in all nine panels."""
        caption = (
            f"All-weather (thick) and the paper's six policies in the nine panels of its figures: {size.rounds:,} "
            f"rounds, mean and standard error of {replications_in_words(size)}; users change every {size.phase:,} "
            "rounds in the panels where they change."
        )
        figure, named = Figure(NAME, self.title, caption), list(DRAWN)
        return [panel_figure(results, size, folder, figure, ALL_PANELS, named, DRAWN, numbered=True, emphasised=NAME)]

    def claims(self, size: Size) -> Sequence[Claim]:
        """Return that all-weather is as good as the best with steady users, and best where users change."""
        return (
            Claim(
                statement=f"All-weather is within {NEAR} of the best in every steady panel.",
                source="ours",
                measure=lead(NAME, OTHERS, STEADY_PANELS, label=panel_number),
                said="lead over the best other policy",
                above=-NEAR,
                rule=f"it earns at most {NEAR} clicks per round less than each of the other ten, in every panel",
                figure=NAME,
            ),
            Claim(
                statement="All-weather is best in every changing panel.",
                source="ours",
                measure=lead(NAME, OTHERS, CHANGING_PANELS, label=panel_number),
                said="lead over the best other policy",
                above=0.0,
                rule="it is ahead of each of the other ten in every panel",
                figure=NAME,
            ),
        )


def baseline_policies(size: Size) -> list[Policy]:
    """Return FTRL-PBM, TopRank, four baselines, and CombUCB1 with a window of half a phase."""
    named = [policy(name) for name in ("ftrl-pbm", "toprank", *STRONG)]
    return [*named, policy("comb-ucb", window=size.phase // 2)]


class Baselines(Question):
    """Compare FTRL-PBM and TopRank with policies that the paper does not mention."""

    name = "baselines"
    title = "Beyond the paper: the baselines it leaves out"
    about = (
        "Followers of a leader with less variance (Tsallis-RV, LBINFV), Thompson sampling for the position-based model "
        "with unknown examination (Gibbs-TS), PBM-UCB with fitted examination, and UCB on item-position pairs that "
        "forgets what is more than half a phase ago."
    )

    def games(self, size: Size) -> list[Game]:
        """Return every baseline, and uniform lists, in all nine panels."""
        return panel_games(ALL_PANELS, [*baseline_policies(size), "uniform"], size)

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        """Draw average rewards in all nine panels."""
        caption = (
            "The panels of both figures, with FTRL-PBM and TopRank again and five policies that the paper does not "
            f"compare with: mean and standard error of {replications_in_words(size)}."
        )
        players, figure = baseline_policies(size), Figure("baselines", self.title, caption)
        colours = dict(zip((player.label for player in players), PALETTE))
        return [panel_figure(results, size, folder, figure, ALL_PANELS, players, colours, numbered=True)]

    def claims(self, size: Size) -> Sequence[Claim]:
        """Return who is best where users change and where they do not, and what less variance gains."""
        ftrl, toprank, *others = baseline_policies(size)
        ahead = "it is ahead of each of the other six in every panel"
        return (
            Claim(
                statement="FTRL-PBM is best where users change, whoever else plays.",
                source="ours, from Section 5",
                measure=lead(ftrl, [toprank, *others], CHANGING_PANELS, label=panel_number),
                said="lead over the best other policy",
                above=0.0,
                rule=ahead,
                figure="baselines",
            ),
            Claim(
                statement="TopRank is best where users are steady, whoever else plays.",
                source="ours, from Section 5",
                measure=lead(toprank, [ftrl, *others], STEADY_PANELS, label=panel_number),
                said="lead over the best other policy",
                above=0.0,
                rule=ahead,
                figure="baselines",
            ),
            Claim(
                statement="The same algorithm with a reduced-variance estimator earns more in every panel.",
                source="ours",
                measure=difference("tsallis-rv", "ftrl-pbm", ALL_PANELS, label=panel_number),
                said="lead of Tsallis-RV over FTRL-PBM",
                above=0.0,
                rule="its lead is above 0 in all nine panels",
                figure="baselines",
            ),
        )
