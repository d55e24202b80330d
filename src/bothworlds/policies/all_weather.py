"""All-weather: a structured Thompson sampler that plays, and a regularised leader that can take over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Shape, decides, learns
from ..geometry.leader_state import Leading, lead, make_leading, ready, reset, resume_leader
from ..geometry.regularizers import Tsallis
from ..geometry.sampling import draw
from ..kernels import Floats, Ints, inner_kernel, kernel
from ..statistics.kl import kl
from .base import CompiledPolicy
from .ftrl_va import add_losses, predicted_loss
from .gibbs_ts import sweep
from .parts.change_detector import LEAVES as DETECTOR_LEAVES
from .parts.change_detector import ChangeDetector, detect_change, make_change_detector
from .parts.counts import LEAVES as COUNTS_LEAVES
from .parts.counts import Counts, make_counts, record
from .parts.placement import PlacementWork, make_placement_work, place_best, place_in_order
from .parts.random_stream import Stream, absorb, make_stream
from .parts.regime_memory import LEAVES as REGIME_LEAVES
from .parts.regime_memory import RegimeMemory, keep_counts, make_regime_memory, recall_regime
from .parts.samplers import beta
from .parts.settings import number, whole

__all__ = ["AllWeather"]

PRIOR = 1.0  # Beta(1, 1) priors of attraction and examination
EARLY = 200.0  # the leader has at least 200 q / sqrt(t) of the rounds
PAIRS = 50.0  # with more pairs of item and position, q is smaller
LONGER_SLEEP = 1.5  # the sampler sleeps until 1.5 t
RECENT = 8.0  # a comparison that began less than t / 8 rounds ago goes on after a change
FIT_ROUNDS = 512  # rounds between two tests of the product form
FIT_MEMORY = 1000.0  # the product form is tested if so many rounds are remembered
FIT_SHOWN = 10.0  # pairs shown less often are left out of that test
REFRESHED_SWEEPS = 5  # of a chain that continues with other items or positions
EDGE = 0.001  # click probabilities of the product form are kept this far from 0 and 1
PAIR_PRIOR = 8.0  # impressions that the product form counts for, where clicks are not of that form


class Plan(NamedTuple):
    """The settings."""

    share: float  # q
    width: float  # c
    sampler_width: float  # c'
    grace: float  # V_0
    sweeps: int


class SamplerWork(NamedTuple):
    sums: Floats  # (3, n_positions)
    placement: PlacementWork  # its scores are drawn click probabilities of the pairs


class Sampler(NamedTuple):
    """S: a Gibbs sampler of attraction and examination, and the best lists of its latest samples."""

    attraction: Floats  # (n_items,) state of the Markov chain
    examination: Floats  # (n_positions,) state of the Markov chain
    stream: Stream
    lists: Ints  # (pool, n_positions)
    marginals: Floats  # (n_items, n_positions) s: share of the lists with item i at position j
    oldest: Ints  # (1,) the list that is replaced next
    due: Ints  # (1,) rounds until then
    items: Ints  # (n_items,) all items: the chain contains every one
    work: SamplerWork


class Comparison(NamedTuple):
    """The estimated loss of S minus that of A, since the comparison began."""

    difference: Floats  # (1,) D: above 0 if A is ahead
    variance: Floats  # (1,) V
    played: Floats  # (1,) alpha: the share of S divided by the share that the comparison gives it
    began: Ints  # (1,) round in which it began
    wake: Ints  # (1,) S sleeps before this round


class State(NamedTuple):
    shape: Shape
    plan: Plan
    counts: Counts  # since the last change
    detector: ChangeDetector
    regimes: RegimeMemory
    sampler: Sampler  # S
    loss: Floats  # (n_items, n_positions) cumulative loss estimates of A
    spread: Floats  # (1,) inverse square of the learning rate of A, R
    leading: Leading  # A, and its marginals x
    comparison: Comparison
    doubt: Ints  # (1,) 1 while clicks are not of product form, else 0
    weight: Floats  # (1,) w: the share of A
    marginals: Floats  # (n_items, n_positions) p = w x + (1 - w) s


@dataclass(frozen=True)
class AllWeather(CompiledPolicy):
    r"""Thompson sampling under the position-based model, insured by a regularised leader: for steady and other users.

    Two learners share every click. The sampler S is ``gibbs-ts``: it shows the best lists of its 16 latest samples, and
    forgets all clicks before a detected change, except those of earlier habits to which users return. The leader A is
    ``ftrl-va``. The list shown is drawn from A with probability w and from the lists of S otherwise, so the probability
    of every placement is known exactly:

    .. math::

        p_{ij} = w \, x_{ij} + (1 - w) \, s_{ij}

    Both learn from all rounds. A adds :math:`b' + [\text{shown}] (1 - \text{click} - b') / p` to its losses, as
    ``ftrl-va`` does, and :math:`1/w` times the errors to R. The two are compared by an estimate that is unbiased,
    whoever was shown:

    .. math::

        D_t &= D_{t-1} + \alpha_t \left( d_t + \sum_j e_j \right), \qquad
        V_t = V_{t-1} + \alpha_t^2 \left( d_t^2 + \sum_j e_j^2 \right), \qquad D_0 = 0, \; V_0 = 5000 \\
        d_t &= \sum_{ij} (s_{ij} - x_{ij}) b_{ij}, \qquad
        e_j = g_j (1 - \text{click}_j - b_{i_j j}), \qquad g_j = \frac{s_{i_j j} - x_{i_j j}}{p_{i_j j}}

    The share of A grows with the difference, in standard deviations, from q to 1 - q:

    .. math::

        w' = \frac12 + \frac{D}{2 c \sqrt V} \text{ limited to } [q, 1 - q], \qquad
        w = \max\left( w', q_t, \frac{200 q}{\sqrt t} \right), \qquad \alpha_t = \frac{1 - w}{1 - w'}

    where c is smaller while S is ahead. :math:`\alpha_t` is below 1 only in rounds in which A has more than w'. If
    :math:`D \ge c \sqrt V`, A plays alone until round 1.5 t, and then the comparison begins again. It also begins again
    when a change is detected, if the last one began at least t/8 rounds ago.

    While clicks are visibly not of product form :math:`\alpha_i \beta_j`, a list that the product suggests may be wrong
    and never be corrected. Then :math:`q_t` is 1/2 instead of q, and S draws every pair by itself, with the product as
    the mean of its prior, and shows the list with the largest sum:

    .. math::

        \theta_{ij} \sim \text{Beta}\left( C_{ij} + 8 \, \alpha_i \beta_j, \;
            N_{ij} - C_{ij} + 8 \, (1 - \alpha_i \beta_j) \right)

    Requires: nothing, neither horizon nor examination nor the order of positions.
    Guarantee: :math:`O(m \sqrt{nT/q} + m \sqrt{m T \log T / q})` against any fixed list, with a large constant; the
    proof and the constants are in ``bothworlds.theory``. What it earns with steady or seasonal users is observed.
    Known failure: users who alternate quickly between a few lists; an item that becomes better while it is not shown.

    Parameters
    ----------
    share
        q, the least share of A while S plays, and of S while A does, for up to 50 pairs of item and position. For nm
        pairs it is smaller by the factor :math:`(50 / (nm))^{3/4}`: with many pairs, A earns less for longer.
    width
        c while A is ahead: by this many standard deviations it must be ahead to play alone.
    sampler_width
        c while S is ahead: by this many standard deviations it must be ahead to have all rounds but A's least share.
    grace
        :math:`V_0`, the variance with which a comparison begins. The larger, the more rounds it takes.
    pool
        Number of lists of S.
    sweeps
        Number of sweeps of the Gibbs sampler for every new list.
    recall
        Number of earlier habits of the users that S keeps: after a change, it recalls one that fits the clicks since,
        see ``parts/regime_memory.py``. 0: it forgets them all, as it does in the service, where the state is computed
        from sums.
    tolerance
        The largest violation of the optimality conditions of A before its point is made feasible.

    Examples
    --------
    >>> import bothworlds
    >>> world = bothworlds.world("paper/periodic-both", phase=5_000)
    >>> ours, theirs = (bothworlds.play(name, world, 20_000, seeds=4) for name in ("all-weather", "ftrl-pbm"))
    >>> bool(ours.final()[0] > theirs.final()[0] + 0.02)
    True

    References
    ----------
    The combination is this package's own. Its parts: Chen, Zhao, Li: Simultaneously learning stochastic and adversarial
    bandits under the position-based model, AAAI 2022 (the leader); Tanner, Wong: The calculation of posterior
    distributions by data augmentation, JASA 82, 1987 (the sampler).
    """

    share: float = number(0.02, 1e-6, 0.5)
    width: float = number(2.0, 1e-6, 1e6)
    sampler_width: float = number(1.5, 1e-6, 1e6)
    grace: float = number(5000.0, 1e-6, 1e15)
    pool: int = whole(16, 1, 10_000)
    sweeps: int = whole(2, 1, 10_000)
    recall: int = whole(4, 0, 1_000)
    tolerance: float = number(1e-6, 1e-12, 0.1)

    name = "all-weather"
    detect: ClassVar[bool] = True  # the service must detect changes for it
    needs_propensity: ClassVar[bool] = True
    learned_leaves: ClassVar[Mapping[str, str] | None] = {
        **COUNTS_LEAVES,
        **DETECTOR_LEAVES,
        **REGIME_LEAVES,
        "loss": "ij median",
        "spread": "",
        "sampler.attraction": "i",
        "sampler.examination": "j",
        "sampler.stream.words": "",
        "comparison.difference": "",
        "comparison.variance": "",
        "comparison.played": "",
        "comparison.began": "",
        "comparison.wake": "",
        "weight": "",
    }

    def start(self, shape: Shape) -> State:
        share = self.share * min(1.0, (PAIRS / (shape.n_items * shape.n_positions)) ** 0.75)
        widths = float(self.width), float(self.sampler_width)
        plan = Plan(float(share), *widths, float(self.grace), int(self.sweeps))
        state = State(
            shape=shape,
            plan=plan,
            counts=make_counts(*shape),
            detector=make_change_detector(*shape),
            regimes=make_regime_memory(*shape, int(self.recall)),
            sampler=make_sampler(*shape, int(self.pool)),
            loss=np.zeros(shape),
            spread=np.ones(1),
            leading=make_leading(*shape, self.tolerance),
            comparison=Comparison(
                difference=np.zeros(1),
                variance=np.full(1, plan.grace),
                played=np.zeros(1),
                began=np.zeros(1, np.int64),
                wake=np.ones(1, np.int64),
            ),
            doubt=np.zeros(1, np.int64),
            weight=np.ones(1),
            marginals=np.full(shape, 1.0 / shape.n_items),
        )
        reset(Tsallis(), 1.0, state.leading)
        return state

    def note_of_part(self, state: State, ranking: Ints, positions: Ints, n_positions: int) -> Floats:
        """Return w, and s - x of every placement, of the part that a page was drawn from; 0 at pinned positions.

        A whole page needs no note: there, the present w, s and x are unbiased with the recorded p.
        """
        note = np.zeros(1 + n_positions)
        note[0] = state.weight[0]
        if state.weight[0] < 1.0:
            cells = ranking, np.arange(ranking.size)
            note[1 + positions] = state.sampler.marginals[cells] - state.leading.marginals[cells]
        return note

    def refreshed(self, state: State) -> State:
        """Return the state with the leader of its losses, and all lists of S drawn anew; raises ConvergenceError."""
        if state.counts.learned[0] > 0:
            resume_leader(Tsallis(), state.loss, 1.0 / math.sqrt(state.spread[0]), state.leading)
            if state.counts.learned[0] >= state.comparison.wake[0]:
                resume(state, REFRESHED_SWEEPS)
            mix_once(state)
        return state

    def marginals(self, state: State) -> NDArray[np.float64]:
        """Return p, the probability of each item at each position in the next decision (n_items, n_positions)."""
        return state.marginals


def make_sampler(n: int, m: int, pool: int) -> Sampler:
    """Return a sampler that has learned nothing and has no lists yet."""
    return Sampler(
        attraction=np.full(n, 0.5),
        examination=np.full(m, 0.5),
        stream=make_stream(n, m),
        lists=np.zeros((pool, m), np.int64),
        marginals=np.zeros((n, m)),
        oldest=np.zeros(1, np.int64),
        due=np.zeros(1, np.int64),
        items=np.arange(n),
        work=SamplerWork(np.zeros((3, m)), make_placement_work(n, m)),
    )


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    if rng.random() < state.weight[0]:
        draw(state.leading.marginals, rng, state.leading.urn, ranking)
    else:
        lists = state.sampler.lists
        k = int(rng.random() * lists.shape[0])
        for j in range(ranking.size):
            ranking[j] = lists[k, j]
    for j in range(ranking.size):
        propensity[j] = state.marginals[ranking[j], j]


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats, note: Floats, absent: Ints) -> None:
    counts, x, p, w = state.counts, state.leading.marginals, state.marginals, state.weight[0]
    w_drawn = note[0] if note.size > 0 else w
    add_losses(state.loss, state.spread, counts, x, p, w_drawn, ranking, propensity, clicks, absent)
    if w < 1.0:
        if note.size > 0:
            compare_part(state, ranking, propensity, clicks, note)
        elif is_whole(ranking, absent):  # of a part without a note, s and x are not known
            compare(state, ranking, propensity, clicks)
    record(counts, ranking, clicks)
    absorb(state.sampler.stream, ranking)
    recalls = state.regimes.rounds.size > 0
    if recalls and state.detector.filled[0] == state.detector.bucket - 1:
        keep_counts(state.regimes, counts)
    if detect_change(state.detector, counts, ranking, clicks):
        if recalls:
            recall_regime(state.regimes, counts)
        state.sampler.due[0] = 0
        if counts.learned[0] - state.comparison.began[0] >= counts.learned[0] / RECENT:
            begin_comparison(state)
    choose_weight(state)
    lead(Tsallis(), state.loss, 1.0 / math.sqrt(state.spread[0]), state.leading)
    ready(state.leading)
    mix(state)


@inner_kernel
def is_whole(ranking: Ints, absent: Ints) -> bool:
    """Whether all items could be shown, and all positions are learned from."""
    for j in range(ranking.size):
        if ranking[j] < 0:
            return False
    return absent.size == 0


@inner_kernel
def compare(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    """Add the difference of S and A in one round to the comparison."""
    n, m = state.shape
    x, s = state.leading.marginals, state.sampler.marginals
    limit = 1.0 / state.plan.share  # of late feedback; without delay p is at least q times s or x
    predicted = 0.0
    for i in range(n):
        for j in range(m):
            predicted += (s[i, j] - x[i, j]) * predicted_loss(state.counts, i, j)
    difference, variance = predicted, predicted * predicted
    for j in range(m):
        i = ranking[j]
        g = min(max((s[i, j] - x[i, j]) / propensity[j], -limit), limit)
        error = g * (1.0 - clicks[j] - predicted_loss(state.counts, i, j))
        difference += error
        variance += error * error
    played = state.comparison.played[0]
    state.comparison.difference[0] += played * difference
    state.comparison.variance[0] += played * played * variance


@inner_kernel
def compare_part(state: State, ranking: Ints, propensity: Floats, clicks: Floats, note: Floats) -> None:
    """Add the difference of S and A on a page of a part, with its own s - x, and a predicted loss of 1/2 everywhere.

    Both learners show one item at every position, so that predictions that are all equal add nothing.
    """
    limit, played = 1.0 / state.plan.share, state.comparison.played[0]
    for j in range(ranking.size):
        if ranking[j] >= 0:
            g = min(max(note[1 + j] / propensity[j], -limit), limit)
            error = played * g * (0.5 - clicks[j])
            state.comparison.difference[0] += error
            state.comparison.variance[0] += error * error


@inner_kernel
def begin_comparison(state: State) -> None:
    state.comparison.difference[0] = 0.0
    state.comparison.variance[0] = state.plan.grace
    state.comparison.began[0] = state.counts.learned[0]


@inner_kernel
def is_not_a_product(counts: Counts, sampler: Sampler) -> bool:
    """Whether the clicks differ from a product of attraction and examination by more than chance explains."""
    n, m = counts.shown.shape
    distance, pairs = 0.0, 0.0
    for i in range(n):
        for j in range(m):
            shown = counts.shown[i, j]
            if shown >= FIT_SHOWN:
                distance += shown * kl(counts.clicked[i, j] / shown, product_rate(sampler, i, j))
                pairs += 1.0
    free = pairs + n + m
    chance = 0.5 * free + 1.5 * math.sqrt(free) + math.log(float(counts.learned[0]))
    return counts.rounds[0] >= FIT_MEMORY and distance > chance


@inner_kernel
def choose_weight(state: State) -> None:
    """Set the share of A for the next round; let S sleep, wake it, or draw a new list."""
    t, comparison, weight = state.counts.learned[0], state.comparison, state.weight
    c = state.plan.width
    if t < comparison.wake[0]:
        return
    if t == comparison.wake[0]:
        begin_comparison(state)
        for _ in range(state.sampler.lists.shape[0]):
            renew_list(state)
    if t == comparison.wake[0] or t % FIT_ROUNDS == 0:
        state.doubt[0] = 1 if is_not_a_product(state.counts, state.sampler) else 0
    ratio = comparison.difference[0] / math.sqrt(comparison.variance[0])
    if ratio >= c:
        weight[0] = 1.0
        comparison.wake[0] = math.ceil(LONGER_SLEEP * t)
        return
    set_weight(state, t)
    state.sampler.due[0] -= 1
    if state.sampler.due[0] <= 0:
        renew_list(state)


@inner_kernel
def renew_list(state: State) -> None:
    """Continue the chain, and replace the oldest list by the best one of the sample.

    The sample is attraction and examination; while clicks are not of product form, a click probability of every pair.
    """
    sampler, counts = state.sampler, state.counts
    pool, m = sampler.lists.shape
    run_sweeps(counts, sampler, state.plan.sweeps)
    for k in range(pool):
        for j in range(m):
            sampler.marginals[sampler.lists[k, j], j] = 0.0
    newest = sampler.lists[sampler.oldest[0]]
    if state.doubt[0] == 1:
        draw_rates(counts, sampler)
        place_best(sampler.work.placement.scores, sampler.stream, newest, sampler.work.placement)
    else:
        place_in_order(sampler.attraction, sampler.examination, sampler.stream, newest, sampler.work.placement)
    for k in range(pool):
        for j in range(m):
            sampler.marginals[sampler.lists[k, j], j] += 1.0 / pool
    sampler.oldest[0] = (sampler.oldest[0] + 1) % pool
    n, pairs, age = counts.shown.shape[0], counts.shown.size, int(counts.rounds[0])
    sampler.due[0] = max(1 + n // 25, min(max(4, pairs // 16), age // 64))


@inner_kernel
def run_sweeps(counts: Counts, sampler: Sampler, sweeps: int) -> None:
    """Continue the chain."""
    stream, sums = sampler.stream, sampler.work.sums
    for _ in range(sweeps):
        sweep(counts, sampler.items, PRIOR, stream, sampler.attraction, sampler.examination, sums)


@kernel
def resume(state: State, sweeps: int) -> None:
    """Draw all lists of S from the counts, and set the share of A, as if the last round had just been learned."""
    sampler, comparison, t = state.sampler, state.comparison, state.counts.learned[0]
    run_sweeps(state.counts, sampler, sweeps)
    state.doubt[0] = 1 if is_not_a_product(state.counts, sampler) else 0
    for _ in range(sampler.lists.shape[0]):
        renew_list(state)
    ratio = comparison.difference[0] / math.sqrt(comparison.variance[0])
    if ratio >= state.plan.width:
        state.weight[0] = 1.0
    else:
        set_weight(state, t)


@inner_kernel
def set_weight(state: State, t: int) -> None:
    """Set w and alpha of the round after t, in which S plays."""
    q = state.plan.share
    least = 0.5 if state.doubt[0] == 1 else q
    by_comparison = weight_by_comparison(state)
    w = min(1.0 - q, max(least, EARLY * q / math.sqrt(t), by_comparison))
    state.weight[0] = w
    state.comparison.played[0] = (1.0 - w) / (1.0 - by_comparison)


@inner_kernel
def weight_by_comparison(state: State) -> float:
    """Return w', the share of A that follows from the comparison alone."""
    q, comparison = state.plan.share, state.comparison
    ratio = comparison.difference[0] / math.sqrt(comparison.variance[0])
    width = state.plan.width if ratio > 0.0 else state.plan.sampler_width
    return min(1.0 - q, max(q, 0.5 + ratio / (2.0 * width)))


@kernel
def mix_once(state: State) -> None:
    """Set p, from Python."""
    mix(state)


@inner_kernel
def mix(state: State) -> None:
    """Set p for the next round."""
    n, m = state.shape
    w, x, s, p = state.weight[0], state.leading.marginals, state.sampler.marginals, state.marginals
    for i in range(n):
        for j in range(m):
            p[i, j] = w * x[i, j] + (1.0 - w) * s[i, j]


@inner_kernel
def draw_rates(counts: Counts, sampler: Sampler) -> None:
    """Draw the click probability of every pair, given its own clicks and the product form as its prior mean."""
    n, m = counts.shown.shape
    rates = sampler.work.placement.scores
    for i in range(n):
        for j in range(m):
            clicked, missed = counts.clicked[i, j], counts.shown[i, j] - counts.clicked[i, j]
            mean = product_rate(sampler, i, j)
            rates[i, j] = beta(sampler.stream, clicked + PAIR_PRIOR * mean, missed + PAIR_PRIOR * (1.0 - mean))


@inner_kernel
def product_rate(sampler: Sampler, i: int, j: int) -> float:
    """Return the click probability of a pair in product form."""
    return min(max(sampler.attraction[i] * sampler.examination[j], EDGE), 1.0 - EDGE)
