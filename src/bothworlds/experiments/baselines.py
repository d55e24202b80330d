"""The same panels with the baselines that the paper leaves out."""

from __future__ import annotations

from pathlib import Path

from ..arena import draw_results
from ..arena.figures import PALETTE
from .base import Figure, Game, Question, Results, Size, Verdict, judge
from .panels import games, panel, title

__all__ = ["Baselines"]

KEYS = "1a 1b 1c 1d 1e 1f 2a 2b 2c"
STEADY, SEASONAL = "1a 1d 2a", "1b 1c 1e 1f 2b 2c"
STRONG = ("tsallis-rv", "lbinfv", "gibbs-ts", "pbm-ucb-mle", "comb-ucb")
SHOWN = ("ftrl-pbm", "toprank", *STRONG)
COLOURS = dict(zip(SHOWN, PALETTE))


class Baselines(Question):
    """What a practitioner would have tried."""

    name = "baselines"
    title = "Beyond the paper: the baselines it leaves out"
    about = (
        "Followers of a leader with less variance (Tsallis-RV, LBINFV), Thompson sampling for the position-based model "
        "with unknown examination (Gibbs-TS), PBM-UCB with fitted examination, and plain UCB on item-position pairs."
    )

    def games(self, size: Size) -> list[Game]:
        return games(KEYS, (*SHOWN, "uniform"), size, size.few_seeds)

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        worlds = [panel(key, size).name for key in KEYS.split()]
        titles = dict(title(key, size) for key in KEYS.split())
        shown = results.of(SHOWN, worlds)
        for ending in ("svg", "png"):
            draw_results(shown, Path(folder) / f"baselines.{ending}", columns=3, titles=titles, colours=COLOURS)
        caption = (
            "The panels of both figures, with FTRL-PBM and TopRank again and five policies that the paper does not "
            f"compare with: mean and standard error of {size.few_seeds} replications (the first two of {size.seeds})."
        )
        return [Figure("baselines", self.title, caption)]

    def verdicts(self, results: Results, size: Size) -> list[Verdict]:
        return [
            _best_in(SEASONAL, "ftrl-pbm", "FTRL-PBM is best where users change, whoever else plays.", results, size),
            _best_in(STEADY, "toprank", "TopRank is best where users are steady, whoever else plays.", results, size),
            _variance_is_what_it_costs(results, size),
        ]


def _best_in(keys: str, name: str, statement: str, results: Results, size: Size) -> Verdict:
    said, leads = [], []
    for key in keys.split():
        place = panel(key, size).name
        rival = results.best_other(name, SHOWN, place)
        leads.append(results.lead(name, rival, place))
        said.append(f"{key[0]}({key[1]}): {leads[-1]} over {rival}")
    return Verdict(
        statement,
        "ours, from Section 5",
        judge(leads),
        f"lead over the best other policy: {'; '.join(said)}",
        "its lead is above 0 in every panel",
        "baselines",
    )


def _variance_is_what_it_costs(results: Results, size: Size) -> Verdict:
    leads = {key: results.lead("tsallis-rv", "ftrl-pbm", panel(key, size).name) for key in KEYS.split()}
    return Verdict(
        "The same algorithm with a reduced-variance estimator earns more in every panel.",
        "ours",
        judge(leads.values()),
        "lead of Tsallis-RV over FTRL-PBM: " + "; ".join(f"{k[0]}({k[1]}): {lead}" for k, lead in leads.items()),
        "its lead is above 0 in all nine panels",
        "baselines",
    )
