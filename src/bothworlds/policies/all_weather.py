"""All-weather: a structured Thompson sampler that plays, and a regularised leader that can take over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import NO_CONTEXT, Labels, Shape, decides, learns
from ..geometry.leader_state import Leading, check_leader, lead, make_leading, ready, reset
from ..geometry.regularizers import Tsallis
from ..geometry.sampling import draw
from ..kernels import Floats, Ints, inner_kernel, kernel
from .base import CompiledPolicy, checked_context
from .parts.change_detector import LEAVES as DETECTOR_LEAVES
from .parts.change_detector import ChangeDetector, detect_change, make_change_detector
from .parts.counts import LEAVES as COUNTS_LEAVES
from .parts.counts import Counts, make_counts, record
from .parts.gibbs_chain import sweep
from .parts.label_effects import LEAVES as LABEL_LEAVES
from .parts.label_effects import fill_shares
from .parts.placement import PlacementWork, make_placement_work, place_best, place_in_order
from .parts.predicted_losses import add_losses, predicted_loss
from .parts.product_form import draw_rates, is_not_a_product
from .parts.random_stream import Stream, absorb, make_stream
from .parts.regime_memory import LEAVES as REGIME_LEAVES
from .parts.regime_memory import RegimeMemory, keep_counts, make_regime_memory, recall_regime
from .parts.settings import number, whole

PRIOR = 1.0  # Beta(1, 1) priors of attraction and examination
EARLY = 200.0  # the leader has at least 200 q / sqrt(t) of the rounds
PAIRS = 50.0  # with more pairs of item and position, q is smaller
LONGER_SLEEP = 1.5  # the sampler sleeps until 1.5 t
RECENT = 8.0  # a comparison that began less than t / 8 rounds ago goes on after a change
TEST_ROUNDS = 512  # rounds between two tests of the product form
REFRESHED_SWEEPS = 5  # of a chain that continues with other items or positions


class Settings(NamedTuple):
    share: float  # q
    width: float  # c while the leader is ahead
    sampler_width: float  # c while the sampler is ahead
    grace: float  # V_0
    sweeps: int


class SamplerWork(NamedTuple):
    sums: Floats  # (3, n_positions)
    placement: PlacementWork  # its scores are drawn click probabilities of the pairs


class Sampler(NamedTuple):
    """A Gibbs sampler of attraction and examination, and the best lists of its latest samples."""

    items: Ints  # (n_items,) all of them: the chain contains every one
    attraction: Floats  # (n_items,) state of the Markov chain
    examination: Floats  # (n_positions,) state of the Markov chain
    stream: Stream
    lists: Ints  # (pool, n_positions)
    marginals: Floats  # (n_items, n_positions) s: share of the lists with item i at position j
    oldest: Ints  # (1,) the list that is replaced next
    due: Ints  # (1,) rounds until then
    work: SamplerWork


class Comparison(NamedTuple):
    """The estimated loss of the sampler minus that of the leader, since the comparison began."""

    difference: Floats  # (1,) D: above 0 if the leader is ahead
    variance: Floats  # (1,) V
    ratio: Floats  # (1,) alpha: the share of the sampler divided by the share that the comparison gives it
    began: Ints  # (1,) round in which it began
    asleep_until: Ints  # (1,) the sampler is not played before this round


def new_comparison(grace: float) -> Comparison:
    """Return the comparison before the first round."""
    began, asleep_until = np.zeros(1, np.int64), np.ones(1, np.int64)
    return Comparison(np.zeros(1), np.full(1, float(grace)), np.zeros(1), began, asleep_until)


class State(NamedTuple):
    shape: Shape
    settings: Settings
    counts: Counts  # since the last change
    detector: ChangeDetector
    regimes: RegimeMemory
    sampler: Sampler
    loss: Floats  # (n_items, n_positions) cumulative loss estimates of the leader
    spread: Floats  # (1,) R: inverse square of the learning rate of the leader
    leading: Leading  # the leader, and its marginals x
    comparison: Comparison
    not_product: Ints  # (1,) 1 while clicks are not of product form, else 0
    weight: Floats  # (1,) w: the share of the leader


@dataclass(frozen=True)
class AllWeather(CompiledPolicy):
    r"""Thompson sampling under the position-based model, insured by a regularised leader: for steady and other users.

    Two learners share every click. The sampler is ``gibbs-ts``: it shows the best lists of its 16 latest samples, and
    forgets all clicks before a detected change, except those of earlier habits to which users return. The leader is
    ``ftrl-va``. The list shown is drawn from the leader, with marginals x, with probability w, and otherwise from the
    lists of the sampler, with marginals s. So the probability of every placement is known exactly:

    .. math::

        p_{ij} = w \, x_{ij} + (1 - w) \, s_{ij}

    Both learn from all rounds. The leader adds :math:`b' + [\text{shown}] (1 - \text{click} - b') / p` to its losses,
    as ``ftrl-va`` does, and :math:`1/w` times the errors to R. The two are compared by an estimate that is unbiased,
    whoever was shown:

    .. math::

        D_t &= D_{t-1} + \alpha_t \left( d_t + \sum_j e_j \right), \qquad
        V_t = V_{t-1} + \alpha_t^2 \left( d_t^2 + \sum_j e_j^2 \right), \qquad D_0 = 0, \; V_0 = 5000 \\
        d_t &= \sum_{ij} (s_{ij} - x_{ij}) b_{ij}, \qquad
        e_j = g_j (1 - \text{click}_j - b_{i_j j}), \qquad g_j = \frac{s_{i_j j} - x_{i_j j}}{p_{i_j j}}

    The share of the leader grows with the difference, in standard deviations, from q to 1 - q:

    .. math::

        w' = \frac12 + \frac{D}{2 c \sqrt V} \text{ limited to } [q, 1 - q], \qquad
        w = \max\left( w', q_t, \frac{200 q}{\sqrt t} \right), \qquad \alpha_t = \frac{1 - w}{1 - w'}

    where c is smaller while the sampler is ahead. :math:`\alpha_t` is below 1 only in rounds in which the leader has
    more than w'. If :math:`D \ge c \sqrt V`, the leader plays alone until round 1.5 t, and then the comparison begins
    again. It also begins again when a change is detected, if the last one began at least t/8 rounds ago.

    While clicks are visibly not of product form :math:`\alpha_i \beta_j`, a list that the product suggests may be wrong
    and never be corrected. Then :math:`q_t` is 1/2 instead of q, and the sampler draws every pair by itself, with the
    product as the mean of its prior, and shows the list with the largest sum:

    .. math::

        \theta_{ij} \sim \text{Beta}\left( C_{ij} + 8 \, \alpha_i \beta_j, \;
            N_{ij} - C_{ij} + 8 \, (1 - \alpha_i \beta_j) \right)

    Where labels of visitors or items are declared, the sampler is ``context-ts``, and s is that of the visitor's
    context; changes are those that it notices. The leader is one for all visitors, so that the guarantee holds as it
    stands, for the whole of them and not for every context by itself.

    Requires: nothing, neither horizon nor examination nor the order of positions.
    Guarantee: :math:`O(m \sqrt{nT/q} + m \sqrt{m T \log T / q})` against any fixed list, with a large constant; the
    proof and the constants are in ``bothworlds.theory``. What it earns with steady or seasonal users is observed.
    Known failure: users who alternate quickly between a few lists; an item that becomes better while it is not shown.

    Parameters
    ----------
    share
        q, the least share of either learner while both play, for up to 50 pairs of item and position. For nm pairs it
        is smaller by the factor :math:`(50 / (nm))^{3/4}`: with many pairs, the leader earns less for longer.
    width
        c while the leader is ahead: by this many standard deviations it must be ahead to play alone.
    sampler_width
        c while the sampler is ahead: by this many it must be ahead to have all rounds but the leader's least share.
    grace
        :math:`V_0`, the variance with which a comparison begins. The larger, the more rounds it takes.
    pool
        Number of lists of the sampler.
    sweeps
        Number of sweeps of the Gibbs sampler for every new list.
    recall
        Number of earlier habits of the users that are kept: after a change, the sampler recalls one that fits the
        clicks since, see ``parts/regime_memory.py``.
    tolerance
        The largest violation of the optimality conditions of the leader before its point is made feasible.

    Examples
    --------
    >>> import bothworlds
    >>> world = bothworlds.world("paper/periodic-both", phase=5_000)
    >>> ours, theirs = (bothworlds.play(name, world, 20_000, replications=4) for name in ("all-weather", "ftrl-pbm"))
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
    needs_propensity: ClassVar[bool] = True
    learns_labels: ClassVar[bool] = True
    learned_leaves: ClassVar[Mapping[str, str] | None] = {
        **COUNTS_LEAVES,
        **DETECTOR_LEAVES,
        **REGIME_LEAVES,
        **LABEL_LEAVES,
        "loss": "ij median",
        "spread": "",
        "sampler.attraction": "i",
        "sampler.examination": "j",
        "sampler.stream.words": "",
        **{f"comparison.{field}": "" for field in Comparison._fields},
        "weight": "",
    }

    def start(self, shape: Shape) -> State:
        n, m = shape
        due, oldest, not_product = np.zeros((3, 1), np.int64)
        state = State(
            shape=shape,
            settings=self.numbers(shape),
            counts=make_counts(n, m),
            detector=make_change_detector(n, m),
            regimes=make_regime_memory(n, m, int(self.recall)),
            sampler=Sampler(
                items=np.arange(n),
                attraction=np.full(n, 0.5),
                examination=np.full(m, 0.5),
                stream=make_stream(n, m),
                lists=np.zeros((self.pool, m), np.int64),
                marginals=np.zeros((n, m)),
                oldest=oldest,
                due=due,
                work=SamplerWork(np.zeros((3, m)), make_placement_work(n, m)),
            ),
            loss=np.zeros((n, m)),
            spread=np.ones(1),
            leading=make_leading(n, m, self.tolerance),
            comparison=new_comparison(self.grace),
            not_product=not_product,
            weight=np.ones(1),
        )
        reset(Tsallis(), 1.0, state.leading)
        return state

    def numbers(self, shape: Shape) -> Settings:
        """Return the settings that kernels need: with many pairs, the share is smaller."""
        share = self.share * min(1.0, (PAIRS / (shape.n_items * shape.n_positions)) ** 0.75)
        widths = float(self.width), float(self.sampler_width)
        return Settings(float(share), *widths, float(self.grace), int(self.sweeps))

    def start_with(self, shape: Shape, labels: Labels) -> Any:
        from .labelled_mixture import start  # a policy imports no kernels before they are used

        return start(self, shape, labels)

    def note_of_part(
        self, state: Any, ranking: Ints, positions: Ints, n_positions: int, context: ArrayLike = NO_CONTEXT
    ) -> Floats:
        """Return w, and s - x of every placement, of the part that a page was drawn from; 0 at pinned positions.

        A whole page needs no note: there, the present w, s and x are unbiased with the recorded p.
        """
        note = np.zeros(1 + n_positions)
        note[0] = state.weight[0]
        if state.weight[0] < 1.0:
            cells = ranking, np.arange(ranking.size)
            note[1 + positions] = (self._sampled(state, context) - state.leading.marginals)[cells]
        return note

    def refreshed(self, state: Any) -> Any:
        """Return the state with the leader of its losses, and all lists drawn anew; raises ConvergenceError."""
        if state.counts.learned[0] > 0:
            state.leading.cold[0] = 1
            if isinstance(state, State):
                refresh(state)
            else:
                from .labelled_mixture import refresh_labelled

                refresh_labelled(state)
            check_leader(state.loss, state.leading)
        return state

    def marginals(self, state: Any, context: ArrayLike = NO_CONTEXT) -> NDArray[np.float64]:
        """Return p, the probability of each item at each position in the next decision (n_items, n_positions)."""
        w = state.weight[0]
        return np.asarray(w * state.leading.marginals + (1.0 - w) * self._sampled(state, context))

    def _sampled(self, state: Any, context: ArrayLike) -> Floats:
        """Return s, for a context if labels are declared."""
        if isinstance(state, State):
            return state.sampler.marginals
        shares = np.zeros(state.shape)
        fill_shares(state.effects, checked_context(state, context), shares)
        return shares


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    x, s, w = state.leading.marginals, state.sampler.marginals, state.weight[0]
    if rng.random() < w:
        draw(x, rng, state.leading.urn, ranking)
    else:
        lists = state.sampler.lists
        k = int(rng.random() * lists.shape[0])
        for j in range(ranking.size):
            ranking[j] = lists[k, j]
    for j in range(ranking.size):
        propensity[j] = w * x[ranking[j], j] + (1.0 - w) * s[ranking[j], j]


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats, note: Floats, absent: Ints) -> None:
    counts, x, s, w = state.counts, state.leading.marginals, state.sampler.marginals, state.weight[0]
    w_drawn = note[0] if note.size > 0 else w
    add_losses(state.loss, state.spread, counts, x, s, w, w_drawn, ranking, propensity, clicks, absent)
    compare(state, s, ranking, propensity, clicks, note, absent)
    record(counts, ranking, clicks)
    forget_before_change(state, ranking, clicks)
    set_share(state)
    follow(state)


@inner_kernel
def compare(
    state: Any, s: Floats, ranking: Ints, propensity: Floats, clicks: Floats, note: Floats, absent: Ints
) -> None:
    """Add the difference of sampler and leader in one round to the comparison.

    A page of a part has its own s - x in the note. Its predicted losses are 1/2: both learners show one item at every
    position, so that predictions that are all equal add nothing. Without a note, s and x of a part are not known.
    """
    counts, x, noted = state.counts, state.leading.marginals, note.size > 0
    if state.weight[0] == 1.0 or not (noted or is_whole(ranking, absent)):
        return
    difference = 0.0
    if not noted:
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                difference += (s[i, j] - x[i, j]) * predicted_loss(counts, i, j)
    variance = difference * difference
    limit = 1.0 / state.settings.share  # of late feedback; without delay p is at least q times s or x
    for j in range(ranking.size):
        i = ranking[j]
        if i >= 0:
            ahead = note[1 + j] if noted else s[i, j] - x[i, j]
            b = 0.5 if noted else predicted_loss(counts, i, j)
            error = min(max(ahead / propensity[j], -limit), limit) * (1.0 - clicks[j] - b)
            difference += error
            variance += error * error
    ratio = state.comparison.ratio[0]
    state.comparison.difference[0] += ratio * difference
    state.comparison.variance[0] += ratio * ratio * variance


@inner_kernel
def is_whole(ranking: Ints, absent: Ints) -> bool:
    """Whether all items could be shown, and all positions are learned from."""
    for j in range(ranking.size):
        if ranking[j] < 0:
            return False
    return absent.size == 0


@inner_kernel
def forget_before_change(state: State, ranking: Ints, clicks: Floats) -> None:
    """If users have changed, forget the counts before that, recall those of earlier habits, and compare anew."""
    counts, detector, recalls = state.counts, state.detector, state.regimes.rounds.size > 0
    absorb(state.sampler.stream, ranking)
    if recalls and detector.filled[0] == detector.bucket - 1:
        keep_counts(state.regimes, counts)
    if detect_change(detector, counts, ranking, clicks):
        if recalls:
            recall_regime(state.regimes, counts)
        state.sampler.due[0] = 0
        if counts.learned[0] - state.comparison.began[0] >= counts.learned[0] / RECENT:
            begin_comparison(state)


@inner_kernel
def begin_comparison(state: Any) -> None:
    state.comparison.difference[0] = 0.0
    state.comparison.variance[0] = state.settings.grace
    state.comparison.began[0] = state.counts.learned[0]


@inner_kernel
def set_share(state: State) -> None:
    """Set the share of the leader for the next round; let the sampler sleep or play again, and draw a new list."""
    t, asleep_until, sampler = state.counts.learned[0], state.comparison.asleep_until, state.sampler
    if t < asleep_until[0]:
        return
    if t == asleep_until[0]:
        begin_comparison(state)
        renew_all_lists(state)
    if t == asleep_until[0] or t % TEST_ROUNDS == 0:
        state.not_product[0] = is_not_a_product(state.counts, sampler.attraction, sampler.examination)
    weigh(state, least_share(state))
    if state.weight[0] == 1.0:
        asleep_until[0] = math.ceil(LONGER_SLEEP * t)
        return
    sampler.due[0] -= 1
    if sampler.due[0] <= 0:
        renew_list(state)


@inner_kernel
def least_share(state: State) -> float:
    """Return the least share of the leader: half of the rounds while clicks are not of product form."""
    q = state.settings.share
    return max(0.5 if state.not_product[0] == 1 else q, EARLY * q / math.sqrt(state.counts.learned[0]))


@inner_kernel
def weigh(state: Any, least: float) -> None:
    """Set w and alpha of the next round; w is 1 if the leader is ahead by c standard deviations."""
    q, comparison = state.settings.share, state.comparison
    ahead = comparison.difference[0] / math.sqrt(comparison.variance[0])
    width = state.settings.width if ahead > 0.0 else state.settings.sampler_width
    if ahead >= width:
        state.weight[0] = 1.0
        return
    by_comparison = min(1.0 - q, max(q, 0.5 + ahead / (2.0 * width)))
    state.weight[0] = min(1.0 - q, max(least, by_comparison))
    comparison.ratio[0] = (1.0 - state.weight[0]) / (1.0 - by_comparison)


@inner_kernel
def renew_all_lists(state: State) -> None:
    for _ in range(state.sampler.lists.shape[0]):
        renew_list(state)


@inner_kernel
def renew_list(state: State) -> None:
    """Continue the chain, and replace the oldest list by the best one of the sample.

    The sample is attraction and examination; while clicks are not of product form, a click probability of every pair.
    """
    sampler, counts, work = state.sampler, state.counts, state.sampler.work.placement
    pool, m = sampler.lists.shape
    continue_chain(state, state.settings.sweeps)
    for k in range(pool):
        for j in range(m):
            sampler.marginals[sampler.lists[k, j], j] = 0.0
    newest = sampler.lists[sampler.oldest[0]]
    if state.not_product[0] == 1:
        draw_rates(counts, sampler.attraction, sampler.examination, sampler.stream, work.scores)
        place_best(work.scores, sampler.stream, newest, work)
    else:
        place_in_order(sampler.attraction, sampler.examination, sampler.stream, newest, work)
    for k in range(pool):
        for j in range(m):
            sampler.marginals[sampler.lists[k, j], j] += 1.0 / pool
    sampler.oldest[0] = (sampler.oldest[0] + 1) % pool
    n, pairs, age = counts.shown.shape[0], counts.shown.size, int(counts.rounds[0])
    sampler.due[0] = max(1 + n // 25, min(max(4, pairs // 16), age // 64))


@inner_kernel
def continue_chain(state: State, sweeps: int) -> None:
    s = state.sampler
    for _ in range(sweeps):
        sweep(state.counts, s.items, PRIOR, s.stream, s.attraction, s.examination, s.work.sums)


@inner_kernel
def follow(state: Any) -> None:
    """Compute the leader x of the losses for the next round."""
    lead(Tsallis(), state.loss, 1.0 / math.sqrt(state.spread[0]), state.leading)
    ready(state.leading)


@kernel
def refresh(state: State) -> None:
    """Draw all lists from the counts, set the share and the leader, as if the last round had just been learned."""
    if state.counts.learned[0] >= state.comparison.asleep_until[0]:
        continue_chain(state, REFRESHED_SWEEPS)
        state.not_product[0] = is_not_a_product(state.counts, state.sampler.attraction, state.sampler.examination)
        renew_all_lists(state)
        weigh(state, least_share(state))
    follow(state)
