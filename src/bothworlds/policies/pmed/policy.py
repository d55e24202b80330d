"""PMED: the exploration that the lower bound on regret requires, and no more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...core import Shape, decides, learns
from ...kernels import Floats, Ints, inner_kernel
from ...statistics.rank_one.likelihood import Workspace, make_workspace
from ...statistics.rank_one.newton import newton
from ..parts.counts import Counts, record
from ..parts.settings import Forgetting, number, whole
from .cycle_decomposition import CycleDecomposition, decompose, make_cycle_decomposition
from .exploration import Planner, make_planner, plan

LEAST_GAP = 1e-3  # between the log attractions of two items, as far as planning is concerned
FIT_TOLERANCE = 1e-16  # gain in log-likelihood at which the fit ends
LEAST_LOG = -9.0  # least log attraction and log examination, as far as planning is concerned


class Queue(NamedTuple):
    """The lists of the present pass that have not been shown yet."""

    lists: Ints  # (n m + n + 1, m)
    length: Ints  # (1,) number of lists
    pairs: Ints  # (n, m) number of lists with the item at the position


class State(NamedTuple):
    shape: Shape
    alpha: float
    prior: float
    refit: float
    tolerance: float
    max_cuts: int
    counts: Counts
    queue: Queue
    last_on_top: Ints  # (n_items,) round in which an item was last shown at the first position
    fit: Workspace
    order: Ints  # (n_items,) by attraction, best first
    planned: Ints  # (n_items,) the order when the plan was made; -1 without a plan
    planned_a: Floats  # (n_items,) fitted log attraction when the plan was made
    planned_b: Floats  # (n_positions,) fitted log examination when the plan was made
    plan: CycleDecomposition  # lists of the plan; they hold ranks in ``planned``
    planner: Planner
    work: Floats  # (n_items, n_positions) shows that are left


@dataclass(frozen=True)
class Pmed(Forgetting):
    r"""Explores as much as the lower bound on regret requires, without knowing the examination of positions.

    Lists are shown in passes. After each pass, attraction and examination are fitted to all clicks, and the best list
    of the fit is queued for the next pass, along with lists that explore: those with a pair of item and position that
    has rarely been shown, and those that distinguish the fit from every model in which another list is best. How often
    to show the latter is a linear programme with infinitely many constraints, the one that gives the asymptotic lower
    bound on regret.

    .. math::

        q = \arg\min_{q \ge 0} \sum_{i,j} (\theta_j - \theta_i) \kappa_j q_{ij}
        \quad\text{with}\quad
        \sum_{i \ne j} q_{ij} \, kl(\theta_i \kappa_j, \theta'_i \kappa'_j) \ge 1

    for all :math:`(\theta', \kappa')` that have another best list and click rates :math:`\theta'_l \kappa'_l =
    \theta_l \kappa_l` on the present one, with items sorted by attraction :math:`\theta`, positions in order,
    :math:`1 = \kappa_1 \ge \kappa_2 \ge \ldots`, and q a positive combination of lists. A list of q is due when its
    pairs have been shown less than :math:`q_{ij} \log t` times; a cyclic list is due when one of its pairs has been
    shown less than :math:`\alpha \sqrt{\log t}` times.

    With logarithms of :math:`\theta` and :math:`\kappa` as variables, the fit and the search for the closest
    alternative are convex, so both are solved exactly; the publication alternates between the two halves of a bi-convex
    problem. Clicks are smoothed a little (``prior``). q is computed again only when the fit has moved by ``refit``;
    until then the list that was best at that time is shown too, if it is another one. q is written as lists that differ
    from the best list by one cycle, and pairs of the best list are not counted as missing. Items whose attraction
    differs by less than a thousandth are taken to differ by that, since no exploration could separate them.

    Requires: the order in which positions are examined.
    Guarantee: none claimed for what is implemented here; its targets are those of the lower bound,
    :math:`C^*(\theta, \kappa) \log T` as T grows.
    Known failure: where positions are examined in another order the fit is wrong. Where items are nearly alike, it
    explores for longer than pays off within the horizon. With a hundred items it takes about a second to compute q;
    ``tolerance=0.01`` and ``refit=0.05`` make that affordable.

    Parameters
    ----------
    alpha
        Every pair is shown at least about :math:`\alpha \sqrt{\log t}` times. 1 is what public runs use.
    prior
        Pseudo-clicks, in twice as many pseudo-impressions, of every pair that was shown.
    refit
        Relative change of a fitted click probability at which q is computed again.
    tolerance
        Largest violation of a constraint at which q is accepted.
    max_cuts
        Largest number of times that constraints are added before q is scaled up to satisfy all.

    Examples
    --------
    The first pass shows every item once at every position:

    >>> import numpy as np
    >>> import bothworlds
    >>> policy, rng = bothworlds.policy("pmed"), np.random.default_rng(0)
    >>> state = policy.init(4, 2)
    >>> for _ in range(4):
    ...     decision = policy.decide(state, rng)
    ...     state = policy.learn(state, decision, decision.ranking == 3)
    >>> state.counts.shown.tolist()
    [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    >>> int(state.order[0])
    3

    References
    ----------
    Komiyama, Honda, Takeda: Position-based multiple-play bandit problem with unknown position bias, NIPS 2017.
    """

    alpha: float = number(1.0, 1e-6, 1e6)
    prior: float = number(0.1, 0.0, 1e9)
    refit: float = number(0.01, 0.0, 1e6)
    tolerance: float = number(1e-5, 1e-12, 0.1)
    max_cuts: int = whole(100, 1, 10_000)

    name = "pmed"
    learned_leaves = None  # a part of its plan is not a plan for the part
    needs = ("order",)

    def start(self, shape: Shape) -> State:
        n, m = shape
        cyclic = (np.arange(n)[:, None] + np.arange(m)) % n
        lists = np.zeros((n * m + n + 1, m), np.int64)
        lists[:n] = cyclic
        return State(
            shape=shape,
            alpha=float(self.alpha),
            prior=float(self.prior),
            refit=float(self.refit),
            tolerance=float(self.tolerance),
            max_cuts=int(self.max_cuts),
            counts=self.counts(shape),
            queue=Queue(lists, np.full(1, n), np.ones((n, m), np.int64)),
            last_on_top=np.zeros(n, np.int64),
            fit=make_workspace(n, m),
            order=np.arange(n),
            planned=np.full(n, -1),
            planned_a=np.zeros(n),
            planned_b=np.zeros(m),
            plan=make_cycle_decomposition(n, m),
            planner=make_planner(n, m, self.max_cuts),
            work=np.zeros((n, m)),
        )


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    queue = state.queue
    k = int(rng.random() * queue.length[0])
    for j in range(ranking.size):
        ranking[j] = queue.lists[k, j]
        propensity[j] = queue.pairs[ranking[j], j] / queue.length[0]


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    counts, queue, fit, alternative = state.counts, state.queue, state.fit, state.planner.alternative
    record(counts, ranking, clicks)
    state.last_on_top[ranking[0]] = counts.learned[0]
    dequeue(queue, ranking)
    if queue.length[0] > 0:
        return
    newton(counts.shown, counts.clicked, state.prior, True, True, FIT_TOLERANCE, fit)
    sort_items(fit.a, state.last_on_top, state.order)
    if state.planned[0] < 0 or largest_change(fit.a, fit.b, state.planned_a, state.planned_b) > state.refit:
        remember_fit(fit.a, fit.b, state.order, state.planned, state.planned_a, state.planned_b)
        set_model(state.planned, state.planned_a, state.planned_b, alternative.log_theta, alternative.log_kappa)
        plan(state.planner, state.tolerance, state.max_cuts)
        decompose(state.planner.q, state.plan)
    log_t = math.log(max(counts.rounds[0], 1.0))
    enqueue_best(queue, state.order, state.planned)
    enqueue_rare(queue, counts.shown, state.alpha * math.sqrt(log_t))
    enqueue_overdue(queue, counts.shown, state.plan, state.planned, log_t, state.work)


@inner_kernel
def dequeue(queue: Queue, ranking: Ints) -> None:
    """Remove a list from the queue, if it is there."""
    m, last = ranking.size, queue.length[0] - 1
    for k in range(last + 1):
        j = 0
        while j < m and queue.lists[k, j] == ranking[j]:
            j += 1
        if j == m:
            for j in range(m):
                queue.pairs[ranking[j], j] -= 1
                queue.lists[k, j] = queue.lists[last, j]
            queue.length[0] = last
            return


@inner_kernel
def enqueue(queue: Queue, items: Ints) -> None:
    k = queue.length[0]
    for j in range(queue.lists.shape[1]):
        queue.lists[k, j] = items[j]
        queue.pairs[items[j], j] += 1
    queue.length[0] = k + 1


@inner_kernel
def sort_items(a: Floats, last_on_top: Ints, order: Ints) -> None:
    """Sort the items by attraction; by insertion, since they are nearly sorted from the last pass.

    Among equal items the one that has not been on top for the longest time comes first. As the lists of a pass are
    shown in random order, that breaks ties at random.
    """
    for k in range(1, order.size):
        item, at = order[k], k
        while at > 0:
            before = order[at - 1]
            if a[before] > a[item] or (a[before] == a[item] and last_on_top[before] < last_on_top[item]):
                break
            order[at] = before
            at -= 1
        order[at] = item


@inner_kernel
def largest_change(a: Floats, b: Floats, planned_a: Floats, planned_b: Floats) -> float:
    """The largest change of a click probability since the plan was made, in logarithms."""
    up, down, most = -math.inf, math.inf, 0.0
    for i in range(a.size):
        change = max(a[i], LEAST_LOG) - planned_a[i]
        up, down = max(up, change), min(down, change)
    for j in range(b.size):
        change = max(b[j], LEAST_LOG) - planned_b[j]
        most = max(most, max(up + change, -down - change))
    return most


@inner_kernel
def remember_fit(a: Floats, b: Floats, order: Ints, planned: Ints, planned_a: Floats, planned_b: Floats) -> None:
    """Store the fit for which a plan is made."""
    for i in range(a.size):
        planned[i] = order[i]
        planned_a[i] = max(a[i], LEAST_LOG)
    for j in range(b.size):
        planned_b[j] = max(b[j], LEAST_LOG)


@inner_kernel
def set_model(planned: Ints, a: Floats, b: Floats, log_theta: Floats, log_kappa: Floats) -> None:
    """Set the model to plan for, in which items of the best list differ by at least LEAST_GAP from the next ones.

    No exploration would distinguish equal items.
    """
    above = 0.0
    for k in range(planned.size):
        log_theta[k] = min(a[planned[k]], above - LEAST_GAP)
        above = log_theta[k] if k < b.size else above
    for j in range(b.size):
        log_kappa[j] = b[j]


@inner_kernel
def enqueue_best(queue: Queue, order: Ints, planned: Ints) -> None:
    """Queue the best list, and the one that was the best when the plan was made: its lists differ from that one."""
    enqueue(queue, order)
    for j in range(queue.lists.shape[1]):
        if order[j] != planned[j]:
            enqueue(queue, planned)
            return


@inner_kernel
def enqueue_rare(queue: Queue, shown: Floats, least: float) -> None:
    """Queue the cyclic lists with a pair that has been shown less than ``least`` times."""
    n, m = shown.shape
    for s in range(n):
        rare = False
        for j in range(m):
            rare = rare or shown[(s + j) % n, j] < least
        if rare:
            spare = queue.lists[queue.length[0]]
            for j in range(m):
                spare[j] = (s + j) % n
            enqueue(queue, spare)


@inner_kernel
def enqueue_overdue(
    queue: Queue, shown: Floats, plan: CycleDecomposition, planned: Ints, log_t: float, budget: Floats
) -> None:
    """Queue the lists of the plan that have not been shown enough and have a pair that is not in the queue.

    A pair may be on several lists, so the number of times it was shown is a budget that lists use up, heaviest first.
    """
    n, m = shown.shape
    for i in range(n):
        for j in range(m):
            budget[i, j] = shown[i, j]
    for j in range(m):
        budget[planned[j], j] = math.inf  # pairs of the best list do not explore
    for k in range(plan.n_lists[0]):
        need, have, fresh = plan.weights[k] * log_t, math.inf, False
        for j in range(m):
            item = planned[plan.lists[k, j]]
            have = min(have, budget[item, j])
            fresh = fresh or queue.pairs[item, j] == 0
        if need > have and fresh:
            spare = queue.lists[queue.length[0]]
            for j in range(m):
                spare[j] = planned[plan.lists[k, j]]
            enqueue(queue, spare)
        for j in range(m):
            budget[planned[plan.lists[k, j]], j] -= min(need, have)
