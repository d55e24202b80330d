"""Figures 1 and 2 of the paper, and the paper's statements about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from ..arena import draw_results
from ..worlds import World
from .panels import (
    COLOURS,
    PAPER,
    panel_games,
    panel_letter,
    panel_title,
    panel_world,
    replications_in_words,
    who_is_ahead,
)
from .question import Figure, Game, Question, Size, figure_files
from .result_lookup import Results
from .verdict import Contrast, Estimate, Outcome, Verdict, estimate, judge, judge_samples, judge_within

__all__ = ["FigureOne", "FigureTwo"]

STEADY, SEASONAL = "1a 1d", "1b 1c 1e 1f"
# Shares of the range between uniform lists and the best list.
ALIKE = 0.05  # two policies that differ by less are alike
WORSE = 0.10  # a policy that is behind by more is much worse, by less competitive


class _Panels(Question):
    """One figure of the paper: its six policies, and uniform lists, in the panels ``keys``."""

    keys: ClassVar[str]
    stem: ClassVar[str]

    def games(self, size: Size) -> list[Game]:
        """Return the paper's six policies and uniform lists in every panel."""
        return panel_games(self.keys, (*PAPER, "uniform"), size)

    def figures(self, results: Results, size: Size, folder: str) -> list[Figure]:
        """Draw average rewards, one panel for every world."""
        worlds = {key: panel_world(key, size) for key in self.keys.split()}
        titles = {world.name: panel_title(key, size) for key, world in worlds.items()}
        shown = results.of_length(size.rounds).of([*PAPER, "uniform"], list(worlds.values()))
        for path, narrow in figure_files(folder, self.stem).items():
            draw_results(shown, path, columns=3, titles=titles, colours=COLOURS, narrow=narrow)
        caption = (
            f"Average expected reward per round: mean and standard error of {replications_in_words(size)}, "
            f"{size.rounds:,} rounds; users change every {size.phase:,} rounds in the panels where they change. Grey: "
            "the best list of each round, and (dashed) the best fixed list for the rounds so far."
        )
        return [Figure(self.stem, self.title, caption)]


class FigureOne(_Panels):
    """Figure 1: the synthetic worlds."""

    name = "figure-1"
    title = "Figure 1: synthetic worlds"
    about = (
        "The paper's six policies where attraction falls evenly from item to item. PBM-PIE estimates examination along "
        "the way, as the paper's does; PMED's inner problems are solved to convergence, which the paper's were not."
    )
    keys = "1a 1b 1c 1d 1e 1f"
    stem = "figure-1"

    def verdicts(self, results: Results, size: Size) -> list[Verdict]:
        """Judge what Section 5 of the paper says about Figure 1."""
        results = results.of_length(size.rounds)
        return [
            _toprank_is_best(results, size),
            _pmed_is_as_good_in_a(results, size),
            _pmed_is_much_worse_in_d(results, size),
            _pie_is_not_very_good(results, size),
            _pie_varies_much(results, size),
            _change_harms(results, size),
            _ftrl_is_best(results, size, SEASONAL, "Section 5, (b)(c)(e)(f)", self.stem),
            _ftrl_is_competitive(results, size, STEADY, "Section 5, (a)(d)", self.stem),
            _ranked_exp3_is_stable(results, size),
            _ranked_exp3_is_poor(results, size),
            _mw_is_not_best(results, size, self.keys, self.stem),
        ]


class FigureTwo(_Panels):
    """Figure 2: the worlds fitted to a search log, or to a log of the user."""

    name = "figure-2"
    title = "Figure 2: worlds fitted to a search log"
    about = (
        "The same six policies with the attraction and examination that the paper fitted to the Yandex log, or "
        "with those of a fitted model in their place."
    )
    keys = "2a 2b 2c"
    stem = "figure-2"

    def verdicts(self, results: Results, size: Size) -> list[Verdict]:
        """Judge what the appendix of the paper says about Figure 2."""
        results = results.of_length(size.rounds)
        return [
            # A statement about rewards on the paper's log cannot be tested on another log.
            *([] if size.fitted else [_pie_earns_a_fifth(results, size)]),
            _ftrl_is_best(results, size, "2b 2c", f"{self._source(size)} (b)(c)", self.stem),
            _ftrl_is_competitive(results, size, "2a", f"{self._source(size)} (a)", self.stem),
        ]

    @staticmethod
    def _source(size: Size) -> str:
        return "ours, on another log, from the appendix, Figure 2" if size.fitted else "Appendix, Figure 2"


def _span(results: Results, key: str, size: Size) -> float:
    """The range between uniform lists and the best list of each round."""
    world = panel_world(key, size)
    return results.span(world, float(results.earned("uniform", world).mean()))


def _listed(parts: Mapping[str, object]) -> str:
    return "; ".join(f"{key}: {value}" for key, value in parts.items())


def _leads(results: Results, name: str, keys: str, size: Size, above: float = 0.0) -> tuple[Outcome, str, str]:
    """Judge whether a policy is ahead of each of the other five in every panel by more than a share of the range.

    Returns the outcome, the leads over the best other policy as text, and a sentence on who is ahead of it where.
    """
    samples, leads, ahead = [], {}, dict[str, list[str]]()
    for key in keys.split():
        world, span = panel_world(key, size), _span(results, key, size)
        samples += [results.ahead(name, other, world) / span for other in PAPER if other != name]
        best = results.best_other(name, PAPER, world)
        lead = results.lead(name, best, world).over(span)
        leads[panel_letter(key)] = f"{lead} over {best}"
        if lead.high < above:
            ahead.setdefault(best, []).append(panel_letter(key))
    return judge_samples(samples, above), _listed(leads), who_is_ahead(ahead)


def _toprank_is_best(results: Results, size: Size) -> Verdict:
    outcome, leads, ahead = _leads(results, "toprank", STEADY, size)
    return Verdict(
        "TopRank performs best in (a) and (d).",
        "Section 5",
        outcome,
        f"lead of TopRank over the best other of the six, as a share of the range: {leads}",
        "it is ahead of each of the other five in both panels",
        "figure-1",
        because=ahead,
    )


def _pmed_is_as_good_in_a(results: Results, size: Size) -> Verdict:
    span = _span(results, "1a", size)
    gap = results.lead("pmed", "toprank", panel_world("1a", size)).over(span)
    return Verdict(
        "PMED has almost the same performance as TopRank in (a).",
        "Section 5",
        judge_within([gap], -ALIKE, ALIKE),
        f"lead of PMED over TopRank as a share of the range: {gap}",
        f"they differ by less than {ALIKE:.0%} of the range between uniform lists and the best list",
        "figure-1",
    )


def _pmed_is_much_worse_in_d(results: Results, size: Size) -> Verdict:
    gap = results.lead("toprank", "pmed", panel_world("1d", size)).over(_span(results, "1d", size))
    return Verdict(
        "PMED deteriorates a lot for the small gap (d).",
        "Section 5",
        judge([gap], WORSE),
        f"TopRank's lead over PMED as a share of the range: {gap}",
        f"it is behind TopRank by more than {WORSE:.0%} of the range",
        "figure-1",
        "The paper blames fits that were not converged; here they are.",
    )


def _pie_is_not_very_good(results: Results, size: Size) -> Verdict:
    leads = {key: results.ahead("ftrl-pbm", "pbm-pie-mle", panel_world(key, size)) for key in STEADY.split()}
    return Verdict(
        "PBM-PIE with estimated examination is not very good in (a) and (d).",
        "Section 5",
        judge_samples(leads.values()),
        "FTRL-PBM's lead over it: " + _listed({panel_letter(key): estimate(lead) for key, lead in leads.items()}),
        "it earns less than FTRL-PBM, which knows neither the model nor that users are steady, in both panels",
        "figure-1",
        because="It earns more than FTRL-PBM.",
    )


def _pie_varies_much(results: Results, size: Size) -> Verdict:
    ratios = {key: _spread_ratio(results, "pbm-pie-mle", "ftrl-pbm", panel_world(key, size)) for key in STEADY.split()}
    return Verdict(
        "PBM-PIE has a large variance in (a) and (d).",
        "Section 5",
        judge(ratios.values(), 1.0),
        "its standard deviation over that of FTRL-PBM: " + _listed({panel_letter(k): r for k, r in ratios.items()}),
        "the ratio is above 1 in both panels",
        "figure-1",
    )


def _spread_ratio(results: Results, name: str, other: str, world: World) -> Estimate:
    """Estimate the ratio of standard deviations over replications, with the interval of the F distribution."""
    from scipy.stats import f

    own, others = results.earned(name, world), results.earned(other, world)
    ratio = float(own.var(ddof=1) / others.var(ddof=1))
    low, high = (float(f.ppf(q, own.size - 1, others.size - 1)) for q in (0.025, 0.975))
    return Estimate(*(float(np.sqrt(value)) for value in (ratio, ratio / high, ratio / low)))


def _loss_to_change(results: Results, name: str, key: str, size: Size) -> Contrast:
    """How much less a policy earns than with steady users, as a share of the range."""
    steady = "1a" if key < "1d" else "1d"
    before, after = (Contrast.of(results.earned(name, panel_world(one, size))) for one in (steady, key))
    return (before - after) / _span(results, steady, size)


def _change_harms(results: Results, size: Size) -> Verdict:
    names = ("toprank", "pmed", "pbm-pie-mle")
    more = {
        f"{name} {panel_letter(key)}": _loss_to_change(results, name, key, size)
        - _loss_to_change(results, "ftrl-pbm", key, size)
        for key in SEASONAL.split()
        for name in names
    }
    return Verdict(
        "TopRank, PMED and PBM-PIE are strongly affected by the periodic changes (b)(c)(e)(f).",
        "Section 5",
        judge_samples(more.values()),
        "how much more than FTRL-PBM each loses to change, as a share of the range: "
        + _listed({name: estimate(lost) for name, lost in more.items()}),
        "each loses more to change than FTRL-PBM does, in every panel",
        "figure-1",
        "The best fixed list itself loses about half of the range to change.",
    )


def _ftrl_is_best(results: Results, size: Size, keys: str, source: str, figure: str) -> Verdict:
    outcome, leads, ahead = _leads(results, "ftrl-pbm", keys, size)
    return Verdict(
        f"FTRL-PBM is best of the six where users change ({figure.replace('-', ' ')}).",
        source,
        outcome,
        f"lead of FTRL-PBM over the best other, as a share of the range: {leads}",
        "it is ahead of each of the other five in every panel",
        figure,
        because=ahead,
    )


def _ftrl_is_competitive(results: Results, size: Size, keys: str, source: str, figure: str) -> Verdict:
    outcome, leads, ahead = _leads(results, "ftrl-pbm", keys, size, -WORSE)
    return Verdict(
        f"FTRL-PBM is competitive where users are steady ({figure.replace('-', ' ')}).",
        source,
        outcome,
        f"lead of FTRL-PBM over the best other, as a share of the range: {leads}",
        f"it is behind none of the other five by more than {WORSE:.0%} of the range",
        figure,
        because=ahead,
    )


def _ranked_exp3_is_stable(results: Results, size: Size) -> Verdict:
    kept = {
        panel_letter(key): _loss_to_change(results, "toprank", key, size)
        - _loss_to_change(results, "ranked-exp3", key, size)
        for key in SEASONAL.split()
    }
    return Verdict(
        "RankedExp3 is relatively stable.",
        "Section 5",
        judge_samples(kept.values()),
        "how much less than TopRank it loses to change, as a share of the range: "
        + _listed({key: estimate(one) for key, one in kept.items()}),
        "it loses less to change than TopRank does in every panel",
        "figure-1",
        "A policy that learns little has little to lose.",
    )


def _ranked_exp3_is_poor(results: Results, size: Size) -> Verdict:
    leads = {
        key: results.ahead("mw", "ranked-exp3", panel_world(key, size)) for key in (STEADY + " " + SEASONAL).split()
    }
    return Verdict(
        "The greedy idea in RankedExp3 is not very suitable for the position-based model.",
        "Section 5",
        judge_samples(leads.values()),
        "MW's lead over it: " + _listed({panel_letter(key): estimate(lead) for key, lead in leads.items()}),
        "it earns less than MW, the other policy made for adversaries, in every panel",
        "figure-1",
    )


def _mw_is_not_best(results: Results, size: Size, keys: str, figure: str) -> Verdict:
    best = {key: _leads(results, "mw", key, size) for key in keys.split()}
    outcomes = [outcome for outcome, _, _ in best.values()]
    outcome: Outcome = "cannot be decided"
    if "holds" in outcomes:
        outcome = "fails"
    elif all(one == "fails" for one in outcomes):
        outcome = "holds"
    return Verdict(
        "MW is not the best.",
        "Section 5",
        outcome,
        "MW's lead over the best other, as a share of the range: " + "; ".join(leads for _, leads, _ in best.values()),
        "in every panel, one of the other five is ahead of it",
        figure,
    )


def _pie_earns_a_fifth(results: Results, size: Size) -> Verdict:
    worlds = [panel_world(key, size) for key in ("2a", "2b")]
    earned = [estimate(results.earned("pbm-pie-mle", world)) for world in worlds]
    uniform = float(results.earned("uniform", worlds[0]).mean())
    return Verdict(
        "PBM-PIE earns roughly 0.2 on Yandex.",
        "Appendix, Figure 2 (a)(b)",
        judge_within(earned, 0.15, 0.25),
        f"it earns {earned[0]} in (a) and {earned[1]} in (b); uniformly random lists earn {uniform:.3f} in (a)",
        "it earns between 0.15 and 0.25 in both",
        "figure-2",
        "0.2 is about what uniformly random lists earn.",
    )
