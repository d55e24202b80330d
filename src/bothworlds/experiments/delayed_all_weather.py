"""All-weather as the service runs it: from sums over blocks of time, delayed, refreshed at intervals, with a floor.

Leader, sampler and comparison are those of ``policies.all_weather``: at every refresh, ``AllWeather.resumed`` computes
the state from a ledger. Which blocks are merged, when a change is detected, when the leader takes over and when
predictions are renewed are decided by the functions that the service calls as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import Block, Decision, Ledger, Shape, check_shape
from ..geometry.baseline_mixture import baseline_share, with_baseline
from ..geometry.sampling import Urn, draw, make_urn, prepare
from ..geometry.uniform_mixture import mixed
from ..kernels import Floats
from ..policies import Policy
from ..policies.all_weather import AllWeather
from ..policies.base import checked_feedback
from ..policies.mixture import Mixture, comparison_sums
from ..policies.parts.change_detector import BUCKET, find_change
from ..policies.parts.settings import ROUNDS, number, whole
from ..policies.parts.time_ranges import grouped
from ..policies.predictions import (
    FIRST_ROUNDS,
    PagePrediction,
    Predictions,
    Units,
    exceeds_limit,
    in_units,
    needs_renewal,
    next_renewal,
)
from ..policies.predictions import UNITS as PREDICTION_UNITS
from ..policies.takeover import Situation, next_step, wake_round
from .delayed_policy import UNITS

__all__ = ["DelayedAllWeather"]


class Page(NamedTuple):
    """A list that waits for its clicks."""

    ranking: np.ndarray
    propensity: Floats
    clicks: Floats
    mixture: tuple[float, ...]  # the record of the decision; empty while the leader plays alone
    version: int  # of the predictions in force; -1: none
    prediction: PagePrediction | None


@dataclass
class Version:
    """Predictions that are in force until they are renewed."""

    used: Units  # (n_items, n_positions) b'
    made_at: int  # number of settled rounds
    renew_at: int
    changed_at: int | None  # the last change that was known


@dataclass
class State:
    """The sums over settled pages, the numbers that the service stores, and what is served."""

    shape: Shape
    marginals: Floats  # (n_items, n_positions) served, floor included
    urn: Urn
    loss: Floats  # (n_items, n_positions) without what was predicted
    predicted: NDArray[np.int64]  # (n_items, n_positions) losses, in units
    shown: Floats  # (n_items, n_positions)
    clicked: Floats  # (n_items, n_positions)
    mixture: Mixture | None = None
    expected: Floats | None = None  # (n_items, n_positions) predicted losses, b; None: predictions are not used now
    difference: float = 0.0  # that b predicts for the two learners
    versions: list[Version] = field(default_factory=list)
    decided: int = 0
    settled: int = 0
    settled_at_refresh: int = 0
    settled_at_test: int = 0  # for a change
    waiting: deque[Page] = field(default_factory=deque)
    blocks: list[Block] = field(default_factory=list)
    changed_at: int | None = None
    compared_at: int = 0
    wake: int = 0
    takeovers: int = 0


@dataclass(frozen=True)
class DelayedAllWeather(Policy):
    """All-weather with the sums, delays and roundings of the service.

    Parameters
    ----------
    refresh
        The number of settled rounds after which a new state is computed.
    delay
        The clicks of a round arrive this many rounds later.
    floor
        The share of uniform lists that is mixed in.
    fixed_point
        Whether the sums are rounded to multiples of 2^-20.
    pages_per_second
        The number of rounds in the shortest block of time.
    baseline, baseline_rounds
        The page's own order, and the number of rounds in which it is left.
    """

    refresh: int = whole(1, 1, ROUNDS)
    delay: int = whole(0, 0, 10**7)
    floor: float = number(0.0, 0.0, 1.0)
    fixed_point: bool = False
    pages_per_second: int = whole(10, 1, 10**9)
    baseline: tuple[int, ...] = ()
    baseline_rounds: int = whole(0, 0, ROUNDS)

    name = "served all-weather"

    def relabelled(self, labels: NDArray[np.int64]) -> DelayedAllWeather:
        """Return the policy for the same items in another order; the page's own order stays the same."""
        return replace(self, baseline=tuple(np.argsort(labels)[list(self.baseline)].tolist()))

    def init(self, n_items: int, n_positions: int) -> State:
        """Return the initial state; raises ValueError for an impossible shape."""
        shape = check_shape(n_items, n_positions)
        loss, shown, clicked = np.zeros((3, *shape))
        state = State(shape, np.zeros(shape), make_urn(*shape), loss, np.zeros(shape, np.int64), shown, clicked)
        self._serve(state)
        return state

    def decide(self, state: State, rng: np.random.Generator) -> Decision:
        """Return a ranking with its propensities. The state is not changed."""
        ranking = np.empty(state.shape.n_positions, np.int64)
        draw(state.marginals, rng, state.urn, ranking)
        return Decision(ranking, state.marginals[ranking, np.arange(ranking.size)])

    def learn(self, state: State, decision: Decision, clicks: ArrayLike) -> State:
        """Store the list, settle the one whose clicks arrive now, and refresh what is served if it is time."""
        ranking, propensity, clicked = checked_feedback(state.shape, decision, clicks, needs_propensity=True)
        record = () if state.mixture is None else state.mixture.record(Decision(ranking, propensity))
        prediction = self._prediction(state, ranking)
        state.waiting.append(Page(ranking, propensity, clicked, record, len(state.versions) - 1, prediction))
        state.decided += 1
        if len(state.waiting) > self.delay:
            self._settle(state, state.waiting.popleft())
        if state.settled - state.settled_at_refresh >= self.refresh:
            state.settled_at_refresh = state.settled
            self._refresh(state)
        return state

    def marginals(self, state: State) -> Floats:
        """Return the probability of each item at each position in the next decision (n_items, n_positions)."""
        return state.marginals

    def _prediction(self, state: State, ranking: np.ndarray) -> PagePrediction | None:
        """Return what a list records of the predictions in force."""
        if state.expected is None or not state.versions:
            return None
        cells = ranking, np.arange(ranking.size)
        used = state.versions[-1].used[cells] / PREDICTION_UNITS
        return PagePrediction(tuple(used.tolist()), tuple(state.expected[cells].tolist()), state.difference)

    def _settle(self, state: State, page: Page) -> None:
        """Add a page to the sums, and to the block of the second in which it was decided."""
        second = state.settled // self.pages_per_second
        if not state.blocks or state.blocks[-1].until <= second:
            state.blocks.append(Block(second, second + 1, 0, np.zeros(state.shape), np.zeros(state.shape)))
        block, cells = state.blocks[-1], (page.ranking, np.arange(page.ranking.size))
        for counts in (block, state):
            counts.shown[cells] += 1.0
            counts.clicked[cells] += page.clicks
        used: Any = 0.0
        if page.prediction is not None:
            used = np.array(page.prediction.used)
            state.predicted += state.versions[page.version].used
        losses = (1.0 - page.clicks - used) / page.propensity
        state.loss[cells] += [self._rounded(loss) for loss in losses.tolist()]
        share, *weights = page.mixture or (1.0, *[0.0] * page.ranking.size)
        placements = zip(weights, page.clicks.tolist(), strict=True)
        spread, difference, variance = comparison_sums(share, placements, self._rounded, page.prediction)
        state.blocks[-1] = block._replace(
            rounds=block.rounds + 1,
            spread=block.spread + spread,
            difference=block.difference + difference,
            variance=block.variance + variance,
        )
        state.settled += 1

    def _rounded(self, value: float) -> float:
        return round(UNITS * value) / UNITS if self.fixed_point else value

    def _refresh(self, state: State) -> None:
        """Merge blocks, look for a change, compare the learners, and compute what is served."""
        now = state.decided // self.pages_per_second
        boundaries = sorted({0, state.compared_at, state.changed_at or 0})
        state.blocks = merged_blocks(state.blocks, now, boundaries)
        self._detect_change(state)
        self._compare(state, now)
        self._serve(state)

    def _detect_change(self, state: State) -> None:
        if state.settled - state.settled_at_test < BUCKET:
            return
        state.settled_at_test = state.settled
        known = state.changed_at or 0
        complete = state.settled // self.pages_per_second  # blocks until then have all their pages
        changed = find_change([b for b in state.blocks if b.until <= complete and b.start >= known], state.settled)
        if changed is not None:
            state.changed_at = int(changed)

    def _compare(self, state: State, now: int) -> None:
        situation = Situation(state.settled, state.compared_at, state.wake, state.changed_at or 0)
        step = next_step(AllWeather(), situation, state.blocks)
        if step == "leader takes over":
            state.wake = wake_round(state.settled)
            state.takeovers += 1
        elif step != "go on":
            state.compared_at, state.wake = now + 1, 0

    def _serve(self, state: State) -> None:
        """Compute the state of all-weather from the sums, and serve its marginals with the floor."""
        policy = AllWeather()
        loss = state.loss + state.predicted / PREDICTION_UNITS
        ledger = Ledger(
            state.settled,
            loss - loss.min(axis=0),
            state.shown,
            state.clicked,
            tuple(state.blocks),
            state.changed_at,
            state.compared_at,
            state.wake,
        )
        resumed = policy.resumed(ledger)
        share = baseline_share(state.settled, self.baseline_rounds)
        state.mixture = policy.mixture(resumed)
        if state.mixture is not None:
            state.mixture = state.mixture._replace(share=(1.0 - share) * state.mixture.share)
        own = policy.marginals(resumed)
        x = with_baseline(own, self.baseline[: state.shape.n_positions], share)
        state.marginals = mixed(x, self.floor)
        prepare(state.marginals, state.urn)
        if state.settled >= FIRST_ROUNDS:
            self._predict(state, policy.predictions(resumed).drawn_with(state.marginals, own))

    def _predict(self, state: State, predictions: Predictions) -> None:
        """Renew the predictions in force, if it is time."""
        known, rounds = state.versions[-1] if state.versions else None, state.settled
        if (
            known is None
            or known.changed_at != state.changed_at
            or needs_renewal(known.used, known.made_at, known.renew_at, rounds, predictions)
        ):
            renew_at = next_renewal(rounds, predictions.memory)
            known = Version(in_units(predictions.used), rounds, renew_at, state.changed_at)
            state.versions.append(known)
        state.expected, state.difference = None, 0.0
        if not exceeds_limit(known.used, predictions):
            state.expected = in_units(predictions.expected) / PREDICTION_UNITS
            if state.mixture is not None:
                state.difference = state.mixture.expected_difference(state.expected)


def merged_blocks(blocks: Sequence[Block], now: int, boundaries: Sequence[int]) -> list[Block]:
    """Return blocks with the same sums, merged as the service does at the second ``now``."""
    return [merged_block(*one, part) for one, part in grouped(blocks, now, boundaries)]


def merged_block(start: int, until: int, blocks: Sequence[Block]) -> Block:
    """Return the sum of blocks, as one block of this range."""
    if len(blocks) == 1:
        return blocks[0]._replace(start=start, until=until)
    return Block(
        start,
        until,
        sum(block.rounds for block in blocks),
        np.sum([block.shown for block in blocks], axis=0),
        np.sum([block.clicked for block in blocks], axis=0),
        sum(block.spread for block in blocks),
        sum(block.difference for block in blocks),
        sum(block.variance for block in blocks),
    )
