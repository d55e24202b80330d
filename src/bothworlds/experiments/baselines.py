"""The panels of the paper with the baselines that it leaves out."""

from __future__ import annotations

from ..arena import draw_results
from ..arena.figures import PALETTE
from ..policies import Policy, policy
from .panels import (
    ALL_PANELS,
    CHANGING_PANELS,
    STEADY_PANELS,
    STRONG,
    panel_games,
    panel_number,
    panel_title,
    panel_world,
    replications_in_words,
    verdict_on_lead,
)
from .question import Figure, Game, Question, Size, figure_files
from .result_lookup import Results
from .verdict import Verdict, estimate, judge_samples

__all__ = ["Baselines", "baseline_policies"]


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
        worlds = {key: panel_world(key, size) for key in ALL_PANELS.split()}
        titles = {world.name: panel_title(key, size, numbered=True) for key, world in worlds.items()}
        players = baseline_policies(size)
        shown = results.of_length(size.rounds).of(players, list(worlds.values()))
        colours = dict(zip((player.label for player in players), PALETTE))
        for path, narrow in figure_files(folder, "baselines").items():
            draw_results(shown, path, columns=3, titles=titles, colours=colours, narrow=narrow)
        caption = (
            "The panels of both figures, with FTRL-PBM and TopRank again and five policies that the paper does not "
            f"compare with: mean and standard error of {replications_in_words(size)}."
        )
        return [Figure("baselines", self.title, caption)]

    def verdicts(self, results: Results, size: Size) -> list[Verdict]:
        """Judge who is best where users change and where they do not, and what less variance gains."""
        results = results.of_length(size.rounds)
        ftrl, toprank, *others = baseline_policies(size)
        return [
            verdict_on_lead(
                "FTRL-PBM is best where users change, whoever else plays.",
                "it is ahead of each of the other six in every panel",
                ftrl,
                [toprank, *others],
                CHANGING_PANELS,
                results,
                size,
                source="ours, from Section 5",
                figure="baselines",
            ),
            verdict_on_lead(
                "TopRank is best where users are steady, whoever else plays.",
                "it is ahead of each of the other six in every panel",
                toprank,
                [ftrl, *others],
                STEADY_PANELS,
                results,
                size,
                source="ours, from Section 5",
                figure="baselines",
            ),
            _less_variance_earns_more(results, size),
        ]


def _less_variance_earns_more(results: Results, size: Size) -> Verdict:
    leads = {key: results.ahead("tsallis-rv", "ftrl-pbm", panel_world(key, size)) for key in ALL_PANELS.split()}
    return Verdict(
        "The same algorithm with a reduced-variance estimator earns more in every panel.",
        "ours",
        judge_samples(leads.values()),
        "lead of Tsallis-RV over FTRL-PBM: "
        + "; ".join(f"{panel_number(key)}: {estimate(lead)}" for key, lead in leads.items()),
        "its lead is above 0 in all nine panels",
        "baselines",
    )
