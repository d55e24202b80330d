"""The rule by which the leader of a policy that mixes two learners takes over, for states that are computed from sums.

It needs the blocks of a ledger, and returns what has to be stored. ``all-weather`` itself decides in every round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from ..core import Block
from .all_weather import LONGER_SLEEP, RECENT

__all__ = ["ComparingPolicy", "Situation", "Step", "next_step", "wake_round"]

Step = Literal["go on", "sampler wakes", "visitors changed", "leader takes over"]


class ComparingPolicy(Protocol):
    """A policy that mixes two learners."""

    def leader_plays_alone(self, blocks: Sequence[Block]) -> bool: ...


class Situation(NamedTuple):
    """What is known of a segment: as in a ledger, and the time of the last change (0: none)."""

    rounds: int
    compared_at: float
    wake: int
    changed_at: float


def next_step(policy: ComparingPolicy, situation: Situation, blocks: Sequence[Block]) -> Step:
    """Return what happens now.

    "sampler wakes" and "visitors changed" begin a new comparison; after the former, nobody plays alone. After "leader
    takes over", the leader plays alone until there are ``wake_round`` rounds.
    """
    rounds, compared_at, wake, changed_at = situation
    if wake:
        return "sampler wakes" if rounds >= wake else "go on"
    compared = [block for block in blocks if block.start >= compared_at]
    if changed_at > compared_at and sum(block.rounds for block in compared) >= rounds / RECENT:
        return "visitors changed"
    return "leader takes over" if policy.leader_plays_alone(compared) else "go on"


def wake_round(rounds: int) -> int:
    """Return the number of rounds until which a leader plays alone that takes over now."""
    return math.ceil(LONGER_SLEEP * rounds)
