"""The panels of the paper with what it leaves out: the default of this package, and strong baselines."""

from __future__ import annotations

from functools import partial

from ..line_styles import PALETTE
from ..policies import Policy, policy
from .panels import (
    ALL_PANELS,
    CHANGING_PANELS,
    COLOURS,
    PAPER,
    STEADY_PANELS,
    STRONG,
    Panels,
    difference,
    lead,
    panel_number,
    replications_in_words,
)
from .question import Size
from .verdict import Claim

NAME = "all-weather"
OTHERS = (*PAPER, *STRONG)
NEAR = 0.002  # clicks per round: a policy that is behind by less is as good
_ours = partial(Claim, source="ours", figure=NAME, said="lead over the best other policy")

ALL_WEATHER = Panels(
    name=NAME,
    title="Beyond the paper: one policy for all nine panels",
    about="All-weather, the default of this package, beside the paper's six policies; the verdicts also compare it "
    "with four strong policies that the paper leaves out: Tsallis-RV, LBINFV, Gibbs-TS and PBM-UCB with fitted "
    "examination. None of these is given the examination or the number of rounds.",
    keys=ALL_PANELS,
    players=lambda size: {NAME: "#000000", **{name: COLOURS[name] for name in PAPER}, "uniform": "#7F7F7F"},
    others=STRONG,
    caption=lambda size: (
        f"All-weather (thick) and the paper's six policies in the nine panels of its figures: {size.rounds:,} "
        f"rounds, mean and standard error of {replications_in_words(size)}; users change every {size.phase:,} "
        "rounds in the panels where they change."
    ),
    claimed=lambda size: (
        _ours(
            statement=f"All-weather is within {NEAR} of the best in every steady panel.",
            measure=lead(NAME, OTHERS, STEADY_PANELS, label=panel_number),
            above=-NEAR,
            rule=f"it earns at most {NEAR} clicks per round less than each of the other ten, in every panel",
        ),
        _ours(
            statement="All-weather is best in every changing panel.",
            measure=lead(NAME, OTHERS, CHANGING_PANELS, label=panel_number),
            above=0.0,
            rule="it is ahead of each of the other ten in every panel",
        ),
    ),
    label=panel_number,
    emphasised=NAME,
)


def baseline_policies(size: Size) -> list[Policy]:
    """Return FTRL-PBM, TopRank, four baselines, and CombUCB1 with a window of half a phase."""
    named = [policy(name) for name in ("ftrl-pbm", "toprank", *STRONG)]
    return [*named, policy("comb-ucb", window=size.phase // 2)]


def _about_baselines(size: Size) -> list[Claim]:
    ftrl, toprank, *others = baseline_policies(size)
    best = partial(
        Claim,
        source="ours, from Section 5",
        said="lead over the best other policy",
        above=0.0,
        rule="it is ahead of each of the other six in every panel",
        figure="baselines",
    )
    return [
        best(
            statement="FTRL-PBM is best where users change, whoever else plays.",
            measure=lead(ftrl, [toprank, *others], CHANGING_PANELS, label=panel_number),
        ),
        best(
            statement="TopRank is best where users are steady, whoever else plays.",
            measure=lead(toprank, [ftrl, *others], STEADY_PANELS, label=panel_number),
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
    ]


BASELINES = Panels(
    name="baselines",
    title="Beyond the paper: the baselines it leaves out",
    about="Followers of a leader with less variance (Tsallis-RV, LBINFV), Thompson sampling for the position-based "
    "model with unknown examination (Gibbs-TS), PBM-UCB with fitted examination, and UCB on item-position pairs that "
    "forgets what is more than half a phase ago.",
    keys=ALL_PANELS,
    players=lambda size: dict(zip(baseline_policies(size), PALETTE)),
    others=("uniform",),
    caption=lambda size: (
        "The panels of both figures, with FTRL-PBM and TopRank again and five policies that the paper does not "
        f"compare with: mean and standard error of {replications_in_words(size)}."
    ),
    claimed=_about_baselines,
    label=panel_number,
)
