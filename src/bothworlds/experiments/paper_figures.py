"""Figures 1 and 2 of the paper, and the paper's statements about them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from .panels import (
    COLOURS,
    PAPER,
    Panels,
    difference,
    lead,
    loss_to_change,
    panel_letter,
    panel_world,
    replications_in_words,
)
from .question import Size
from .result_lookup import Results
from .verdict import Claim, Estimate, Measured, estimate

STEADY, SEASONAL = "1a 1d", "1b 1c 1e 1f"
# Shares of the range between uniform lists and the best list.
ALIKE = 0.05  # two policies that differ by less are alike
WORSE = 0.10  # a policy that is behind by more is much worse, by less competitive


def _spread_ratios(results: Results, size: Size) -> Measured:
    """Estimate the ratio of standard deviations over replications, with the interval of the F distribution."""
    from scipy.stats import f

    played, ratios = results.of_length(size.rounds), {}
    for key in STEADY.split():
        own, others = (played.earned(name, panel_world(key, size)) for name in ("pbm-pie-mle", "ftrl-pbm"))
        ratio = float(own.var(ddof=1) / others.var(ddof=1))
        low, high = (float(f.ppf(q, own.size - 1, others.size - 1)) for q in (0.025, 0.975))
        ratios[panel_letter(key)] = Estimate(*(float(np.sqrt(value)) for value in (ratio, ratio / high, ratio / low)))
    return ratios


def _pie_on_yandex(results: Results, size: Size) -> Measured:
    played = results.of_length(size.rounds)
    return {panel_letter(key): estimate(played.earned("pbm-pie-mle", panel_world(key, size))) for key in ("2a", "2b")}


def _beside_uniform(earned: Mapping[str, Estimate], results: Results, size: Size) -> str:
    uniform = float(results.of_length(size.rounds).earned("uniform", panel_world("2a", size)).mean())
    listed = " and ".join(f"{found} in {letter}" for letter, found in earned.items())
    return f"it earns {listed}; uniformly random lists earn {uniform:.3f} in (a)"


_of_section_5 = partial(Claim, source="Section 5", figure="figure-1", above=0.0)


def _ftrl_leads(keys: str, source: str, figure: str, *, best: bool) -> Claim:
    """Return that FTRL-PBM is best of the six where users change, or competitive where they are steady."""
    said = "best of the six where users change" if best else "competitive where users are steady"
    behind = f"it is behind none of the other five by more than {WORSE:.0%} of the range"
    return Claim(
        statement=f"FTRL-PBM is {said} ({figure.replace('-', ' ')}).",
        source=source,
        measure=lead("ftrl-pbm", PAPER, keys, of_range=True),
        said="lead of FTRL-PBM over the best other, as a share of the range",
        above=0.0 if best else -WORSE,
        rule="it is ahead of each of the other five in every panel" if best else behind,
        figure=figure,
    )


ABOUT_FIGURE_ONE = (
    _of_section_5(
        statement="TopRank performs best in (a) and (d).",
        measure=lead("toprank", PAPER, STEADY, of_range=True),
        said="lead of TopRank over the best other of the six, as a share of the range",
        rule="it is ahead of each of the other five in both panels",
    ),
    _of_section_5(
        statement="PMED has almost the same performance as TopRank in (a).",
        measure=difference("pmed", "toprank", "1a", of_range=True, label=lambda key: ""),
        said="lead of PMED over TopRank as a share of the range",
        above=-ALIKE,
        below=ALIKE,
        rule=f"they differ by less than {ALIKE:.0%} of the range between uniform lists and the best list",
    ),
    _of_section_5(
        statement="PMED deteriorates a lot for the small gap (d).",
        measure=difference("toprank", "pmed", "1d", of_range=True, label=lambda key: ""),
        said="TopRank's lead over PMED as a share of the range",
        above=WORSE,
        rule=f"it is behind TopRank by more than {WORSE:.0%} of the range",
        remark="The paper blames fits that were not converged; here they are.",
    ),
    _of_section_5(
        statement="PBM-PIE with estimated examination is not very good in (a) and (d).",
        measure=difference("ftrl-pbm", "pbm-pie-mle", STEADY),
        said="FTRL-PBM's lead over it",
        rule="it earns less than FTRL-PBM, which knows neither the model nor that users are steady, in both panels",
        because="It earns more than FTRL-PBM.",
    ),
    _of_section_5(
        statement="PBM-PIE has a large variance in (a) and (d).",
        measure=_spread_ratios,
        said="its standard deviation over that of FTRL-PBM",
        above=1.0,
        rule="the ratio is above 1 in both panels",
    ),
    _of_section_5(
        statement="TopRank, PMED and PBM-PIE are strongly affected by the periodic changes (b)(c)(e)(f).",
        measure=loss_to_change(("toprank", "pmed", "pbm-pie-mle"), "ftrl-pbm", SEASONAL),
        said="how much more than FTRL-PBM each loses to change, as a share of the range",
        rule="each loses more to change than FTRL-PBM does, in every panel",
        remark="The best fixed list itself loses about half of the range to change.",
    ),
    _ftrl_leads(SEASONAL, "Section 5, (b)(c)(e)(f)", "figure-1", best=True),
    _ftrl_leads(STEADY, "Section 5, (a)(d)", "figure-1", best=False),
    _of_section_5(
        statement="RankedExp3 is relatively stable.",
        measure=loss_to_change(("toprank",), "ranked-exp3", SEASONAL),
        said="how much less than TopRank it loses to change, as a share of the range",
        rule="it loses less to change than TopRank does in every panel",
        remark="A policy that learns little has little to lose.",
    ),
    _of_section_5(
        statement="The greedy idea in RankedExp3 is not very suitable for the position-based model.",
        measure=difference("mw", "ranked-exp3", f"{STEADY} {SEASONAL}"),
        said="MW's lead over it",
        rule="it earns less than MW, the other policy made for adversaries, in every panel",
    ),
    _of_section_5(
        statement="MW is not the best.",
        measure=lead("mw", PAPER, "1a 1b 1c 1d 1e 1f", of_range=True),
        said="MW's lead over the best other, as a share of the range",
        denied=True,
        rule="in every panel, one of the other five is ahead of it",
    ),
)
A_FIFTH = Claim(
    statement="PBM-PIE earns roughly 0.2 on Yandex.",
    source="Appendix, Figure 2 (a)(b)",
    measure=_pie_on_yandex,
    said=_beside_uniform,
    above=0.15,
    below=0.25,
    rule="it earns between 0.15 and 0.25 in both",
    figure="figure-2",
    remark="0.2 is about what uniformly random lists earn.",
)


def _about_figure_two(size: Size) -> list[Claim]:
    source = "ours, on another log, from the appendix, Figure 2" if size.fitted else "Appendix, Figure 2"
    return [
        # A statement about rewards on the paper's log cannot be tested on another log.
        *([] if size.fitted else [A_FIFTH]),
        _ftrl_leads("2b 2c", f"{source} (b)(c)", "figure-2", best=True),
        _ftrl_leads("2a", f"{source} (a)", "figure-2", best=False),
    ]


def _caption(size: Size) -> str:
    return (
        f"Average expected reward per round: mean and standard error of {replications_in_words(size)}, "
        f"{size.rounds:,} rounds; users change every {size.phase:,} rounds in the panels where they change. Grey: "
        "the best list of each round, and (dashed) the best fixed list for the rounds so far."
    )


FIGURE_ONE = Panels(
    name="figure-1",
    title="Figure 1: synthetic worlds",
    about="The paper's six policies where attraction falls evenly from item to item. PBM-PIE estimates examination "
    "along the way, as the paper's does; PMED's inner problems are solved to convergence, which the paper's were not.",
    keys="1a 1b 1c 1d 1e 1f",
    players=lambda size: COLOURS,
    caption=_caption,
    claimed=lambda size: ABOUT_FIGURE_ONE,
)
FIGURE_TWO = Panels(
    name="figure-2",
    title="Figure 2: worlds fitted to a search log",
    about="The same six policies with the attraction and examination that the paper fitted to the Yandex log, or with "
    "those of a fitted model in their place.",
    keys="2a 2b 2c",
    players=lambda size: COLOURS,
    caption=_caption,
    claimed=_about_figure_two,
)
