"""The comparison of two learners that a policy mixes: when it begins, and when the leader plays alone.

These are numbers of the segment, written by compare-and-set and audited, so that all workers use the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ...core import Block
from ...policies.takeover import ComparingPolicy, Situation, next_step, wake_round
from ..model import (
    CHANGE,
    COMPARED_AGAIN,
    COMPARISON,
    LEADER_TOOK_OVER,
    TAKEOVER,
    WAKE,
    Surface,
    segment_words,
    split_counter_key,
)
from ..stores.base import Store
from ..time_blocks import second_of

__all__ = ["COMPARER", "ComparingPolicy", "ComparisonState", "LearnerComparison", "comparison_state"]

COMPARER = "comparison"  # the actor in the audit log


class ComparisonState(NamedTuple):
    """The second since which learners are compared; until how many rounds the leader plays alone (0: it does not).

    ``alone_since`` is the second at which it took over; None if it does not play alone.
    """

    compared_at: int
    wake: int
    alone_since: int | None


def comparison_state(numbers: Mapping[str, int]) -> ComparisonState:
    """Return the state that the numbers of a segment describe."""
    wake = numbers.get(WAKE, 0)
    return ComparisonState(numbers.get(COMPARISON, 0), wake, numbers.get(TAKEOVER) if wake else None)


class LearnerComparison:
    """Updates the numbers of segments. Blocks on the store; raises StoreError. Used by one thread at a time."""

    def __init__(self, store: Store, clock: Callable[[], int]) -> None:
        self._store, self._clock = store, clock
        self.takeovers = 0  # by leaders, as found by this process

    def update(
        self, policy: ComparingPolicy, surface: Surface, segment: str, rounds: int, blocks: Sequence[Block]
    ) -> ComparisonState:
        """Begins a comparison, or lets the leader play alone, if it is time; returns what is stored afterwards.

        ``segment`` is a ``counter_key``.
        """
        numbers = self._store.numbers(surface.id, segment)
        compared_at, wake, _ = comparison_state(numbers)
        step = next_step(policy, Situation(rounds, compared_at, wake, numbers.get(CHANGE, 0)), blocks)
        if step == "go on":
            return comparison_state(numbers)
        if step == "leader takes over":
            self._let_leader_take_over(surface, segment, rounds, numbers)
        elif step == "visitors changed":
            self._begin(surface, segment, numbers.get(COMPARISON), "visitors have changed")
        elif self._begin(surface, segment, numbers.get(COMPARISON), f"{rounds} rounds; the leader had played alone"):
            self._store.set_number(surface.id, segment, WAKE, 0, expected=wake)
        return comparison_state(self._store.numbers(surface.id, segment))

    def _let_leader_take_over(self, surface: Surface, segment: str, rounds: int, numbers: Mapping[str, int]) -> None:
        until, key = wake_round(rounds), (surface.id, segment)
        entry = self._entry(surface, segment, LEADER_TOOK_OVER, f"until there are {until} rounds")
        entry |= {"rounds": rounds, "until_rounds": until}
        # The time first: without ``WAKE`` it means nothing, so a crash in between leaves no half of a takeover.
        if self._store.set_number(
            *key, TAKEOVER, second_of(self._clock()), expected=numbers.get(TAKEOVER)
        ) and self._store.set_number(*key, WAKE, until, expected=numbers.get(WAKE), audit=[entry]):
            self.takeovers += 1

    def _begin(self, surface: Surface, segment: str, expected: int | None, detail: str) -> bool:
        # From the next second on: earlier blocks hold pages of the last comparison.
        start = second_of(self._clock()) + 1
        entry = self._entry(surface, segment, COMPARED_AGAIN, detail)
        return self._store.set_number(surface.id, segment, COMPARISON, start, expected=expected, audit=[entry])

    def _entry(self, surface: Surface, segment: str, action: str, detail: str) -> dict[str, object]:
        name, learner = split_counter_key(segment)
        where = f", {segment_words(name)}" if name else ""
        return {
            "at": self._clock(),
            "actor": COMPARER,
            "action": action,
            "detail": detail + where,
            "surface_id": surface.id,
            "segment": name,
            "learner": learner,
        }
