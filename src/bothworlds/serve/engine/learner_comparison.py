"""The comparison of two learners that a policy mixes: when it begins, and when one of them plays alone.

Both are numbers of the segment, written by compare-and-set and audited, so that all workers use the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ...core import Block
from ...policies.all_weather import LONGER_SLEEP, RECENT
from ..model import CHANGE, COMPARISON, WAKE, Surface
from ..stores.base import Store
from ..time_blocks import second_of

__all__ = ["COMPARER", "ComparingPolicy", "ComparisonState", "LearnerComparison"]

COMPARER = "comparison"  # the actor in the audit log


class ComparingPolicy(Protocol):
    """A policy that mixes two learners."""

    def leader_plays_alone(self, blocks: Sequence[Block]) -> bool: ...


class ComparisonState(NamedTuple):
    """The second since which learners are compared, and until how many rounds the leader plays alone (0: not)."""

    compared_at: int
    wake: int


class LearnerComparison:
    """Updates the numbers of segments. Blocks on the store; raises StoreError. Used by one thread at a time."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self._store, self._clock = store, clock

    def update(
        self, policy: ComparingPolicy, surface: Surface, segment: str, rounds: int, blocks: Sequence[Block]
    ) -> ComparisonState:
        """Begins a comparison, or lets the leader play alone, if it is time; returns what is stored afterwards."""
        numbers = self._store.numbers(surface.id, segment)
        compared_at, wake = numbers.get(COMPARISON, 0), numbers.get(WAKE, 0)
        compared = [block for block in blocks if block.start >= compared_at]
        n_compared = sum(block.rounds for block in compared)
        changed = numbers.get(CHANGE, 0) > compared_at and n_compared >= rounds / RECENT
        if wake and rounds >= wake:
            if self._begin(surface, segment, numbers.get(COMPARISON), f"{rounds} rounds; the leader had played alone"):
                self._store.set_number(surface.id, segment, WAKE, 0, expected=wake)
        elif not wake and changed:
            self._begin(surface, segment, numbers.get(COMPARISON), "visitors have changed")
        elif not wake and policy.leader_plays_alone(compared):
            until = math.ceil(LONGER_SLEEP * rounds)
            entry = self._entry(surface, segment, "leader plays alone", f"until there are {until} rounds")
            self._store.set_number(surface.id, segment, WAKE, until, expected=numbers.get(WAKE), audit=[entry])
        else:
            return ComparisonState(compared_at, wake)
        numbers = self._store.numbers(surface.id, segment)
        return ComparisonState(numbers.get(COMPARISON, 0), numbers.get(WAKE, 0))

    def _begin(self, surface: Surface, segment: str, expected: int | None, detail: str) -> bool:
        # From the next second on: earlier blocks hold pages of the last comparison.
        start = second_of(self._clock()) + 1
        entry = self._entry(surface, segment, "learners are compared again", detail)
        return self._store.set_number(surface.id, segment, COMPARISON, start, expected=expected, audit=[entry])

    def _entry(self, surface: Surface, segment: str, action: str, detail: str) -> dict[str, object]:
        where = f", segment {segment!r}" if segment else ""
        return {
            "at": self._clock(),
            "actor": COMPARER,
            "action": action,
            "detail": detail + where,
            "surface_id": surface.id,
            "segment": segment,
        }
