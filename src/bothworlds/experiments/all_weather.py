"""All-weather beside the paper's six policies and the strongest others, in all nine panels of the paper."""

from __future__ import annotations

from ..arena import draw_results
from .panels import (
    ALL_PANELS,
    CHANGING_PANELS,
    COLOURS,
    PAPER,
    STEADY_PANELS,
    STRONG,
    panel_games,
    panel_title,
    panel_world,
    replications_in_words,
    verdict_on_lead,
)
from .question import Figure, Game, Question, Size, figure_files
from .result_lookup import Results
from .verdict import Verdict

__all__ = ["AllWeatherPanels"]

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
        worlds = {key: panel_world(key, size) for key in ALL_PANELS.split()}
        titles = {world.name: panel_title(key, size, numbered=True) for key, world in worlds.items()}
        shown = results.of_length(size.rounds).of(list(DRAWN), list(worlds.values()))
        for path, narrow in figure_files(folder, NAME).items():
            draw_results(shown, path, columns=3, titles=titles, colours=DRAWN, emphasised=NAME, narrow=narrow)
        caption = (
            f"All-weather (thick) and the paper's six policies in the nine panels of its figures: {size.rounds:,} "
            f"rounds, mean and standard error of {replications_in_words(size)}; users change every {size.phase:,} "
            "rounds in the panels where they change."
        )
        return [Figure(NAME, self.title, caption)]

    def verdicts(self, results: Results, size: Size) -> list[Verdict]:
        """Judge whether all-weather is as good as the best with steady users, and best where users change."""
        results = results.of_length(size.rounds)
        return [
            verdict_on_lead(
                f"All-weather is within {NEAR} of the best in every steady panel.",
                f"it earns at most {NEAR} clicks per round less than each of the other ten, in every panel",
                NAME,
                OTHERS,
                STEADY_PANELS,
                results,
                size,
                above=-NEAR,
                figure=NAME,
            ),
            verdict_on_lead(
                "All-weather is best in every changing panel.",
                "it is ahead of each of the other ten in every panel",
                NAME,
                OTHERS,
                CHANGING_PANELS,
                results,
                size,
                figure=NAME,
            ),
        ]
