"""What an adversary reports of the clicks on a list, compiled. This module imports the compiler."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..kernels import Floats, Ints, inner_kernel, kernel, register_kernels
from .attacks import PlainAttack
from .users import Answer

KINDS = ("promote", "quit", "suppress", "threshold", "demote", "mirror", "bribe", "random")
PROMOTE, QUIT, SUPPRESS, THRESHOLD, DEMOTE, MIRROR, BRIBE, RANDOM = range(len(KINDS))


class AttackState(NamedTuple):
    """An attack in progress."""

    kind: int
    target: int  # the item, -1 for none
    outsider: Ints  # (n,) 1 for the items whose clicks are suppressed
    until: int  # rounds after which it stops
    rate: float  # the probability of a fake session (bribe), or that a click is flipped (random)
    margin: float  # by how much the reported rate of an item must stay below that of the target (threshold)
    shown: Floats  # (n, m) impressions so far, for threshold; otherwise empty
    reported: Floats  # (n, m) reported clicks so far, for threshold; otherwise empty
    left: Ints  # (1,) flips that the budget still allows
    round: Ints  # (1,)


@kernel
def tamper(attack: AttackState, ranking: Ints, clicks: Floats, rng: np.random.Generator, reported: Floats) -> int:
    """Fill in the reported clicks and return how many of them are not what users did.

    Positions are gone through from the top, and nothing is flipped that the budget does not cover. Every round takes m
    random numbers, so that two policies meet the same adversary.
    """
    m = ranking.size
    flips = 0
    active = attack.round[0] < attack.until
    attack.round[0] += 1
    fake = False
    for j in range(m):
        item, wanted = ranking[j], clicks[j]
        chance = rng.random()
        if j == 0:
            fake = chance < attack.rate
        if attack.kind == PROMOTE:
            if item == attack.target:
                wanted = 1.0
        elif attack.kind == QUIT:
            wanted = 1.0 if item == attack.target else 0.0
        elif attack.kind == SUPPRESS:
            if attack.outsider[item] == 1:
                wanted = 0.0
        elif attack.kind == THRESHOLD:
            limit = _reported_rate(attack, attack.target, j) - attack.margin
            if attack.outsider[item] == 1 and _reported_rate(attack, item, j) > limit:
                wanted = 0.0
        elif attack.kind == DEMOTE:
            if item == attack.target:
                wanted = 0.0
        elif attack.kind == MIRROR:
            wanted = clicks[m - 1 - j]
        elif attack.kind == BRIBE:
            if fake:
                wanted = 1.0 if item == attack.target else 0.0
        elif chance < attack.rate:
            wanted = 1.0 - clicks[j]
        reported[j] = clicks[j]
        if active and wanted != clicks[j] and attack.left[0] > 0:
            reported[j] = wanted
            attack.left[0] -= 1
            flips += 1
        if attack.kind == THRESHOLD:
            attack.shown[item, j] += 1.0
            attack.reported[item, j] += reported[j]
    return flips


@inner_kernel
def _reported_rate(attack: AttackState, item: int, j: int) -> float:
    """The share of the impressions of an item at a position that were reported as clicked; 0 without impressions."""
    return attack.reported[item, j] / max(attack.shown[item, j], 1.0)


def report(adversary: Any, ranking: Ints, rng: np.random.Generator, to: Answer) -> None:
    """Fill in what is reported of the clicks on a list, and add to the scores of the attack.

    Can be called from compiled code. Without an adversary, which is None, there is nothing to do: the reported clicks
    and the clicks are one array.
    """
    _REPORT.get(type(adversary), report_clicks)(adversary, ranking, rng, to)


# Not kernels: they are compiled as part of the loop.


def report_clicks(adversary: None, ranking: Ints, rng: np.random.Generator, to: Answer) -> None:
    pass


def report_attacked(adversary: AttackState, ranking: Ints, rng: np.random.Generator, to: Answer) -> None:
    flips = tamper(adversary, ranking, to.clicks, rng, to.reported)
    count_attack(adversary.target, ranking, flips, to.totals)


def report_plainly(adversary: PlainAttack, ranking: Ints, rng: np.random.Generator, to: Answer) -> None:
    """Let an adversary in plain Python report the clicks, as ``report``."""
    to.reported[:] = adversary.report(ranking, to.clicks, rng)
    count_attack(adversary.target, ranking, int((to.reported != to.clicks).sum()), to.totals)


@kernel
def count_attack(target: int, ranking: Ints, flips: int, totals: Floats) -> None:
    """Add the flips of a round, whether there were any, and where the target was shown."""
    totals[2] += flips
    totals[3] += 1.0 if flips > 0 else 0.0
    totals[4] += 1.0 if ranking[0] == target else 0.0
    for j in range(ranking.size):
        if ranking[j] == target:
            totals[5] += 1.0


_REPORT: dict[type, Any] = {AttackState: report_attacked, PlainAttack: report_plainly}
register_kernels(report, _REPORT, otherwise=report_clicks)
