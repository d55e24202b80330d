"""The same panels with the baselines that the paper leaves out."""

from __future__ import annotations

from ..arena import draw_results
from ..arena.figures import PALETTE
from ..policies import Policy, policy
from .base import Figure, Game, Question, Results, Size, Verdict, estimate, figure_files, judge_samples
from .panels import panel, title

__all__ = ["Baselines"]

KEYS = "1a 1b 1c 1d 1e 1f 2a 2b 2c"
STEADY, SEASONAL = "1a 1d 2a", "1b 1c 1e 1f 2b 2c"
STRONG = ("tsallis-rv", "lbinfv", "gibbs-ts", "pbm-ucb-mle")


def players(size: Size) -> list[Policy]:
    """FTRL-PBM and TopRank, what the paper leaves out, and one that forgets: half a phase is all it remembers."""
    named = [policy(name) for name in ("ftrl-pbm", "toprank", *STRONG)]
    return [*named, policy("comb-ucb", window=size.phase // 2)]


class Baselines(Question):
    """What a practitioner would have tried."""

    name = "baselines"
    title = "Beyond the paper: the baselines it leaves out"
    about = (
        "Followers of a leader with less variance (Tsallis-RV, LBINFV), Thompson sampling for the position-based model "
        "with unknown examination (Gibbs-TS), PBM-UCB with fitted examination, and UCB on item-position pairs that "
        "forgets what is more than half a phase ago."
    )

    def games(self, size: Size) -> list[Game]:
        everybody = [*players(size), policy("uniform")]
        return [Game(one, panel(key, size), size.rounds, size.few_seeds) for key in KEYS.split() for one in everybody]

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        worlds = [panel(key, size).name for key in KEYS.split()]
        titles = dict(title(key, size) for key in KEYS.split())
        names = [player.label for player in players(size)]
        shown, colours = results.of(names, worlds), dict(zip(names, PALETTE))
        for path, narrow in figure_files(folder, "baselines").items():
            draw_results(shown, path, columns=3, titles=titles, colours=colours, narrow=narrow)
        caption = (
            "The panels of both figures, with FTRL-PBM and TopRank again and five policies that the paper does not "
            f"compare with: mean and standard error of at least {size.few_seeds} replications."
        )
        return [Figure("baselines", self.title, caption)]

    def verdicts(self, results: Results, size: Size) -> list[Verdict]:
        return [
            _best_in(SEASONAL, "ftrl-pbm", "FTRL-PBM is best where users change, whoever else plays.", results, size),
            _best_in(STEADY, "toprank", "TopRank is best where users are steady, whoever else plays.", results, size),
            _variance_is_what_it_costs(results, size),
        ]


def _best_in(keys: str, name: str, statement: str, results: Results, size: Size) -> Verdict:
    said, samples = [], []
    names = [player.label for player in players(size)]
    for key in keys.split():
        place = panel(key, size).name
        samples += [results.ahead(name, other, place) for other in names if other != name]
        rival = results.best_other(name, names, place)
        said.append(f"{key[0]}({key[1]}): {results.lead(name, rival, place)} over {rival}")
    return Verdict(
        statement,
        "ours, from Section 5",
        judge_samples(samples),
        f"lead over the best other policy: {'; '.join(said)}",
        "it is ahead of each of the other six in every panel",
        "baselines",
    )


def _variance_is_what_it_costs(results: Results, size: Size) -> Verdict:
    leads = {key: results.ahead("tsallis-rv", "ftrl-pbm", panel(key, size).name) for key in KEYS.split()}
    return Verdict(
        "The same algorithm with a reduced-variance estimator earns more in every panel.",
        "ours",
        judge_samples(leads.values()),
        "lead of Tsallis-RV over FTRL-PBM: "
        + "; ".join(f"{key[0]}({key[1]}): {estimate(lead)}" for key, lead in leads.items()),
        "its lead is above 0 in all nine panels",
        "baselines",
    )
