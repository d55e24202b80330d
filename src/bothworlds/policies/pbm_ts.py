"""PBM-TS: Thompson sampling when examination is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, inner_kernel, kernel
from .parts.counts import Counts, forgets, record
from .parts.placement import RankWork, make_rank_work
from .parts.position_based import KnownExamination, Positions, place

TINY, ALMOST_ONE = 1e-300, 1.0 - 2.0**-53  # where logarithms are still finite
FARTHEST_START = 1.0 - 1e-6  # of the search for a mode
# Entries of a hat: the mode, and log f there; where the left and the right tangent reach that height; their slopes;
# their heights at 0 and at 1, relative to the mode.
MODE, LOG_PEAK, LEFT, RIGHT, LEFT_SLOPE, RIGHT_SLOPE, HEIGHT_AT_0, HEIGHT_AT_1 = range(8)
HAT = 8  # entries of a hat
STEEP = 2.0**0.5  # for a normal density, tangents at this many standard deviations make the smallest hat


class State(NamedTuple):
    shape: Shape
    counts: Counts
    positions: Positions
    hats: Floats  # (n, 8) of the posterior of every item
    work: RankWork


@dataclass(frozen=True)
class PbmTs(KnownExamination):
    r"""Ranks items by attractions drawn from their posterior, with known examination.

    Every item's attraction has a uniform prior, and every round draws one value for each item from the posterior. The
    item with the largest value goes to the most examined position, and so on. A missing click at a position that is
    rarely examined changes the posterior little.

    .. math::

        p(\theta_i) \propto \theta_i^{\sum_j S_{ij}} \prod_j (1 - \beta_j \theta_i)^{N_{ij} - S_{ij}},
        \qquad 0 \le \theta_i \le 1

    with N impressions and S clicks. Its logarithm is concave, so it lies below a *hat*: its height at the mode in the
    middle, and a tangent on either side. Points are drawn under the hat and kept if they are under the density, as
    about seven of eight are, so draws are exact. The hat depends on the counts alone and is reused. The published
    proposal, from the position with the most impressions, is hardly ever accepted where impressions are spread over
    positions.

    Requires: examination. If it is not known, ``pbm-ucb-mle`` fits it.
    Guarantee: none is published for more than one position; among the best where users are steady.
    Known failure: examination that differs from the given one, above all if the order of positions is reversed.

    Parameters
    ----------
    examination
        Probability with which each position is examined. In contrast to ``pbm-ucb``, a common factor
        matters, since attraction is a probability.

    References
    ----------
    Lagree, Vernade, Cappe: Multiple-play bandits in the position-based model, NeurIPS 2016, section 6.
    """

    name = "pbm-ts"
    twin = "pbm-ucb-mle"

    def start(self, shape: Shape) -> State:
        n = shape.n_items
        return State(shape, self.counts(shape), self.positions(shape), level_hats(n), make_rank_work(n))

    def refreshed(self, state: State) -> State:
        """Return the state with the posteriors of its counts."""
        update_all_hats(state)
        return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    counts, examination = state.counts, state.positions.examination
    for i in range(state.shape.n_items):
        state.work.score[i] = draw(counts.shown[i], counts.clicked[i], examination, state.hats[i], rng)
    place(state.work, state.positions.order, rng, ranking)
    for j in range(ranking.size):
        propensity[j] = math.nan


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    counts, examination = state.counts, state.positions.examination
    record(counts, ranking, clicks)
    if forgets(counts):
        update_all_hats(state)
        return
    for i in ranking:
        if i >= 0:
            put_hat(counts.shown[i], counts.clicked[i], examination, state.hats[i])


@kernel
def update_all_hats(state: State) -> None:
    """Fit the hats of all items to the counts."""
    counts = state.counts
    for i in range(state.shape.n_items):
        put_hat(counts.shown[i], counts.clicked[i], state.positions.examination, state.hats[i])


def level_hats(n: int) -> Floats:
    """Hats (n, HAT) of items without counts: level from 0 to 1, as the uniform density is."""
    hats = np.zeros((n, HAT))
    hats[:, RIGHT] = hats[:, HEIGHT_AT_0] = hats[:, HEIGHT_AT_1] = 1.0
    return hats


@kernel
def put_hat(shown: Floats, clicked: Floats, examination: Floats, hat: Floats) -> None:
    """Fit a hat (HAT,) to the counts of one item (m,); the search for the mode starts at ``hat[MODE]``."""
    clicks = 0.0
    for j in range(clicked.size):
        clicks += clicked[j]
    mode = _mode(shown, clicked, examination, clicks, hat[MODE])
    log_peak = _log_density(shown, clicked, examination, clicks, mode)
    slope, bend = _slopes(shown, clicked, examination, clicks, mode)
    reach = STEEP / math.sqrt(bend) if bend > 0.0 else math.inf
    if slope != 0.0:
        reach = min(reach, 1.0 / abs(slope))  # where the mode is an end of the interval
    hat[MODE], hat[LOG_PEAK] = mode, log_peak
    # Without tangents the hat is level from 0 to 1.
    hat[LEFT], hat[LEFT_SLOPE], hat[HEIGHT_AT_0] = 0.0, 0.0, 1.0
    hat[RIGHT], hat[RIGHT_SLOPE], hat[HEIGHT_AT_1] = 1.0, 0.0, 1.0
    if mode > 0.0:
        at, slope = _tangent(shown, clicked, examination, clicks, hat, mode * math.exp(-reach / mode))
        if slope > 0.0:
            hat[LEFT], hat[LEFT_SLOPE] = at, slope
        hat[HEIGHT_AT_0] = math.exp(-hat[LEFT_SLOPE] * hat[LEFT])
    if mode + reach < 1.0:
        at, slope = _tangent(shown, clicked, examination, clicks, hat, mode + reach)
        if slope < 0.0:
            hat[RIGHT], hat[RIGHT_SLOPE] = at, slope
        hat[HEIGHT_AT_1] = math.exp(hat[RIGHT_SLOPE] * (1.0 - hat[RIGHT]))


@inner_kernel
def _tangent(
    shown: Floats, clicked: Floats, examination: Floats, clicks: float, hat: Floats, point: float
) -> tuple[float, float]:
    """Where the tangent at a point reaches the height of the mode, and its slope.

    The point is moved towards the mode while the density there is tiny. The slope is 0 if there is no usable tangent:
    rounding may put a point next to the mode on its other side.
    """
    down = _log_density(shown, clicked, examination, clicks, point) - hat[LOG_PEAK]
    for _ in range(60):
        if down > -3.0:
            break
        point = 0.5 * (point + hat[MODE])
        down = _log_density(shown, clicked, examination, clicks, point) - hat[LOG_PEAK]
    slope, _bend = _slopes(shown, clicked, examination, clicks, point)
    if down < 0.0 and slope != 0.0:
        return min(max(point - down / slope, 0.0), 1.0), slope
    return 0.0, 0.0


@inner_kernel
def draw(shown: Floats, clicked: Floats, examination: Floats, hat: Floats, source: Any) -> float:
    """Return one draw; ``source`` is a Generator or a ``Stream``."""
    clicks = 0.0
    for j in range(clicked.size):
        clicks += clicked[j]
    left, right, rise, fall = hat[LEFT], hat[RIGHT], hat[LEFT_SLOPE], hat[RIGHT_SLOPE]
    before = (1.0 - hat[HEIGHT_AT_0]) / rise if rise > 0.0 else 0.0
    after = (hat[HEIGHT_AT_1] - 1.0) / fall if fall < 0.0 else 0.0
    area = before + (right - left) + after
    for _ in range(10_000):
        place, under = source.random() * area, 0.0
        if place < before:
            level = 1.0 - place * rise
            under = math.log(level)
            theta = left + under / rise
        elif place < before + after:
            level = 1.0 + (place - before) * fall
            under = math.log(level)
            theta = right + under / fall
        else:
            theta = left + (place - before - after)
        theta = min(max(theta, TINY), ALMOST_ONE)
        height = _log_density(shown, clicked, examination, clicks, theta) - hat[LOG_PEAK]
        if math.log(1.0 - source.random()) + under <= height:
            return theta
    return hat[MODE]


@inner_kernel
def _log_density(shown: Floats, clicked: Floats, examination: Floats, clicks: float, theta: float) -> float:
    """log f at theta."""
    total = clicks * math.log(theta) if clicks > 0.0 else 0.0
    for j in range(shown.size):
        missing = shown[j] - clicked[j]
        if missing > 0.0:
            total += missing * math.log1p(-examination[j] * theta)
    return total


@inner_kernel
def _slopes(shown: Floats, clicked: Floats, examination: Floats, clicks: float, theta: float) -> tuple[float, float]:
    """The derivative of log f, and minus the second one."""
    slope, bend = 0.0, 0.0
    if clicks > 0.0:
        slope, bend = clicks / theta, clicks / theta**2
    for j in range(shown.size):
        missing = shown[j] - clicked[j]
        if missing > 0.0:
            pull = examination[j] / (1.0 - examination[j] * theta)
            slope -= missing * pull
            bend += missing * pull * pull
    return slope, bend


@inner_kernel
def _mode(shown: Floats, clicked: Floats, examination: Floats, clicks: float, start: float) -> float:
    """Newton's method on theta times the derivative of log f, which is concave and falls."""
    if clicks <= 0.0:
        return 0.0
    at_end, _bend = _slopes(shown, clicked, examination, clicks, ALMOST_ONE)
    if at_end >= 0.0:
        return ALMOST_ONE
    low, high, theta = 0.0, 1.0, start
    # Where (1 - theta) is tiny, so is a step of Newton's method: it doubles 1 - theta at most.
    if not 0.0 < theta < FARTHEST_START:
        theta = 0.5
    for _ in range(100):
        slope, bend = _slopes(shown, clicked, examination, clicks, theta)
        if slope > 0.0:
            low = theta
        else:
            high = theta
        new = theta + slope * theta / (bend * theta - slope)
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - theta) <= 1e-9 * theta:
            return new
        theta = new
    return theta
