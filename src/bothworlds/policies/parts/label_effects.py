r"""Attraction and examination as sums of effects of labels, with variances that are learned.

Visitor labellings are ``all``, which has one value, and each declared label; item labellings are ``all``, each declared
item label, and ``item``, the item itself. For a context x and the items of a list

.. math::

    \text{logit} \, a = -1 + \sum_{l, r} u_{lr}[x_l, \text{value of } r] + u[\text{position}, \text{item}], \qquad
    \text{logit} \, b = \frac12 + \sum_l v_l[x_l, \text{position}], \qquad
    \Pr(\text{click}) = p = a b

All effects are in one table. Its *rows* are the values of the visitor labellings, then the positions; its *columns* are
the values of the item labellings, then the positions. A *kind* is a block of it: rows of one labelling and columns of
one labelling. Every effect has a mean and an information I, 0 at first, and every kind a variance :math:`\tau`; an
effect has the variance :math:`v = 1 / (I + 1/\tau)`.

A kind that does not matter gets a variance near 0; one that matters is used by all contexts and items that have the
labels, new ones included.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...core import Labels, Shape
from ...kernels import Floats, Ints, inner_kernel, kernel
from .placement import PlacementWork, make_placement_work, place_cheapest
from .random_stream import Stream, absorb, make_stream
from .samplers import normal, shuffle

ATTRACTION, EXAMINATION = -1.0, 0.5  # logits without effects
LEAST_LOGIT, MOST_LOGIT = -8.0, 6.0
LEAST_VARIANCE, MOST_VARIANCE = 1e-4, 4.0
PRIOR_EFFECTS = 2.0  # the start value of a variance counts for so many effects
SWEEPS = 4
FIXED = 4.0  # the variance of the kinds (all, all) and (all, position), which is not learned
PAIRS = 0.01  # start value of the kind (item, position); above it, lists use that kind
NARROW = 0.35  # draws are narrower by this factor, except for kinds of ``all``
LISTS = 16
SHORTEST, LONGEST, PACE = 10, 500, 50  # pages from one refresh to the next: t / 50
WINDOWS = 3
WINDOW_PAGES = (300.0, 1500.0, 6000.0)
WINDOW_SUMS = 9  # U, G and G2 of every window
LEAST_INFORMATION = 5.0  # an effect with less in a window is not tested
STEADY = 1000  # pages without a test
CHANGED, CHANGED_SHARE = 3.0, 1.0 / 7.0  # more than this share of the tests above: everything is forgotten
CHANGED_MUCH = 10.0  # otherwise these effects are
RECENT = 8  # an alarm less than t / 8 pages after the last one is ignored
CACHED = 128  # contexts whose lists are kept until the next refresh


class EffectsWork(NamedTuple):
    """Work arrays; lists of a context are a function of the draws, of which ``stamp`` says which they are."""

    contexts: Ints  # (CACHED, visitor labels)
    stamp: Floats  # (CACHED,)
    lists: Ints  # (CACHED, LISTS, m)
    rows: Ints  # (1 + visitor labels,)
    columns: Ints  # (2 + item labels,)
    labels: Floats  # (columns of item labels,)
    score: Floats  # (n,)
    examination: Floats  # (m,)
    placement: PlacementWork


class LabelEffects(NamedTuple):
    """The effects, and what is drawn from them. R rows, C columns."""

    mean: Floats  # (R, C)
    information: Floats  # (R, C) I
    windows: Floats  # (WINDOW_SUMS, R, C) sums for the test for change, with exponential weights
    variance: Floats  # (visitor labellings + 1, item labellings + 1) of every kind; 0: there is no such kind
    start: Floats  # the same: start values
    weight: Floats  # (WINDOWS,) weight of the next page in each window, 1 after a refresh
    seen: Ints  # (R,) pages with each value of a visitor label, since everything was forgotten
    pages: Ints  # (1,) t, learned pages
    since: Ints  # (1,) pages since everything was forgotten
    due: Ints  # (1,) pages until the next refresh
    alarm: Ints  # (1,) page of the last alarm
    stream: Stream
    row_ends: Ints  # (visitor labellings + 2,) first row of each labelling, then R
    column_ends: Ints  # (item labellings + 2,) first column of each labelling, then C
    drawn: Floats  # (LISTS, rows of labels, n) sums over item labellings of drawn effects
    examined: Floats  # (LISTS, rows of labels, m)
    paired: Floats  # (LISTS, n, m); all 0 while the variance of that kind is small
    stamp: Floats  # (1,) the sum of all draws; 0 before the first refresh
    work: EffectsWork


# Axes "v" and "c" are rows and columns.
LEAVES = {
    "effects.mean": "vc",
    "effects.information": "vc",
    "effects.windows": "vc",
    "effects.seen": "v",
    "effects.variance": "",
    "effects.weight": "",
    "effects.pages": "",
    "effects.since": "",
    "effects.due": "",
    "effects.alarm": "",
    "effects.stream.words": "",
}


def make_label_effects(shape: Shape, labels: Labels) -> LabelEffects:
    """Return effects of which nothing is known."""
    (n, m), n_visitor, n_item = shape, labels.visitor.size, labels.item.size
    row_ends = np.concatenate([[0], np.cumsum([1, *labels.visitor.tolist(), m])])
    column_ends = np.concatenate([[0], np.cumsum([1, *labels.item.tolist(), n, m])])
    start = np.full((n_visitor + 2, n_item + 3), 0.01)
    start[0], start[1:-1, 0], start[1:-1, -1], start[-1] = 0.1, 0.1, 0.02, 0.0
    start[0, 0], start[0, -2], start[0, -1], start[-1, -2] = FIXED, 1.0, FIXED, PAIRS
    size, rows = (int(row_ends[-1]), int(column_ends[-1])), int(row_ends[-2])
    return LabelEffects(
        mean=np.zeros(size),
        information=np.zeros(size),
        windows=np.zeros((WINDOW_SUMS, *size)),
        variance=start.copy(),
        start=start,
        weight=np.ones(WINDOWS),
        seen=np.zeros(size[0], np.int64),
        pages=np.zeros(1, np.int64),
        since=np.zeros(1, np.int64),
        due=np.full(1, SHORTEST),
        alarm=np.zeros(1, np.int64),
        stream=make_stream(n, m),
        row_ends=row_ends.astype(np.int64),
        column_ends=column_ends.astype(np.int64),
        drawn=np.zeros((LISTS, rows, n)),
        examined=np.zeros((LISTS, rows, m)),
        paired=np.zeros((LISTS, n, m)),
        stamp=np.zeros(1),
        work=EffectsWork(
            contexts=np.zeros((CACHED, n_visitor), np.int64),
            stamp=np.zeros(CACHED),
            lists=np.zeros((CACHED, LISTS, m), np.int64),
            rows=np.zeros(1 + n_visitor, np.int64),
            columns=np.zeros(2 + n_item, np.int64),
            labels=np.zeros(int(column_ends[-3])),
            score=np.zeros(n),
            examination=np.zeros(m),
            placement=make_placement_work(n, m),
        ),
    )


# Learn


@inner_kernel
def learn_effects(effects: LabelEffects, labels: Labels, context: Ints, ranking: Ints, clicks: Floats) -> bool:
    """Learn from the clicks on a list for a context, and refresh if due; returns whether there was an alarm."""
    active_rows(effects, context)
    for r in effects.work.rows:
        effects.seen[r] += 1
    for j in range(ranking.size):
        if ranking[j] >= 0:
            learn_click(effects, labels, ranking[j], j, clicks[j])
    absorb(effects.stream, ranking)
    for w in range(WINDOWS):
        effects.weight[w] /= 1.0 - 1.0 / WINDOW_PAGES[w]
    effects.pages[0] += 1
    effects.since[0] += 1
    effects.due[0] -= 1
    if effects.due[0] > 0:
        return False
    scale_windows(effects)
    alarm = test_for_change(effects)
    learn_variances(effects)
    draw_effects(effects, labels)
    effects.due[0] = min(LONGEST, max(SHORTEST, effects.since[0] // PACE))
    return alarm


@inner_kernel
def active_rows(effects: LabelEffects, context: Ints) -> None:
    """Fill in the rows of a context."""
    effects.work.rows[0] = 0
    for k in range(context.size):
        effects.work.rows[1 + k] = effects.row_ends[1 + k] + context[k]


@inner_kernel
def learn_click(effects: LabelEffects, labels: Labels, i: int, j: int, y: float) -> None:
    r"""Learn from a reward y of item i at position j, for the active rows.

    .. math::

        H_a = p (1 - a), \quad H_b = p (1 - b), \quad V = p (1 - p), \quad
        Q = V + H_a^2 \sum_A v + H_b^2 \sum_B v, \qquad
        \mu \mathrel{+}= v H (y - p) / Q, \quad I \mathrel{+}= H^2 / V
    """
    rows, columns, tau = effects.work.rows, effects.work.columns, effects.variance
    L, G = rows.size - 1, columns.size - 2
    columns[0] = 0
    for g in range(G):
        columns[1 + g] = effects.column_ends[1 + g] + labels.items[g, i]
    columns[1 + G] = effects.column_ends[1 + G] + i
    pair, place = effects.row_ends[1 + L] + j, effects.column_ends[2 + G] + j
    z = ATTRACTION + effects.mean[pair, columns[1 + G]]
    v = variance_of(effects, pair, columns[1 + G], tau[1 + L, 1 + G])
    z_b, v_b = EXAMINATION, 0.0
    for k in range(1 + L):
        for g in range(2 + G):
            z += effects.mean[rows[k], columns[g]]
            v += variance_of(effects, rows[k], columns[g], tau[k, g])
        z_b += effects.mean[rows[k], place]
        v_b += variance_of(effects, rows[k], place, tau[k, 2 + G])
    a, b = sigmoid(z), sigmoid(z_b)
    p = a * b
    h, h_b, chance = p * (1.0 - a), p * (1.0 - b), p * (1.0 - p)
    error, q = y - p, chance + h * h * v + h_b * h_b * v_b
    move(effects, pair, columns[1 + G], tau[1 + L, 1 + G], h, error, chance, q)
    for k in range(1 + L):
        for g in range(2 + G):
            move(effects, rows[k], columns[g], tau[k, g], h, error, chance, q)
        move(effects, rows[k], place, tau[k, 2 + G], h_b, error, chance, q)


@inner_kernel
def sigmoid(z: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(MOST_LOGIT, max(LEAST_LOGIT, z))))


@inner_kernel
def variance_of(effects: LabelEffects, r: int, c: int, tau: float) -> float:
    return 1.0 / (effects.information[r, c] + 1.0 / tau)


@inner_kernel
def move(effects: LabelEffects, r: int, c: int, tau: float, h: float, error: float, chance: float, q: float) -> None:
    """Move an effect by an error of the prediction, and count it in the windows."""
    score, gain = h * error / chance, h * h / chance
    effects.mean[r, c] += variance_of(effects, r, c, tau) * h * error / q
    effects.information[r, c] += gain
    for w in range(WINDOWS):
        weight = effects.weight[w]
        effects.windows[3 * w, r, c] += weight * score
        effects.windows[3 * w + 1, r, c] += weight * gain
        effects.windows[3 * w + 2, r, c] += weight * weight * gain


# Refresh


@inner_kernel
def scale_windows(effects: LabelEffects) -> None:
    """Give the present page the weight 1 in all windows."""
    for w in range(WINDOWS):
        for s in range(3):
            scale = 1.0 / effects.weight[w] if s < 2 else 1.0 / (effects.weight[w] * effects.weight[w])
            for r in range(effects.mean.shape[0]):
                for c in range(effects.mean.shape[1]):
                    effects.windows[3 * w + s, r, c] *= scale
        effects.weight[w] = 1.0


@inner_kernel
def learn_variances(effects: LabelEffects) -> None:
    """Fit the variance of every kind to its effects, which keep h = mean (I + 1/t): means shrink or grow."""
    for k in range(effects.variance.shape[0]):
        for g in range(effects.variance.shape[1]):
            start, old = effects.start[k, g], effects.variance[k, g]
            if 0.0 < start < FIXED:
                new = old
                for _ in range(SWEEPS):
                    total, count = squares(effects, k, g, old, new)
                    new = (PRIOR_EFFECTS * start + total) / (PRIOR_EFFECTS + count)
                    new = min(MOST_VARIANCE, max(LEAST_VARIANCE, new))
                effects.variance[k, g] = new
                for r in range(effects.row_ends[k], effects.row_ends[k + 1]):
                    for c in range(effects.column_ends[g], effects.column_ends[g + 1]):
                        information = effects.information[r, c]
                        effects.mean[r, c] *= (information + 1.0 / old) / (information + 1.0 / new)


@inner_kernel
def squares(effects: LabelEffects, k: int, g: int, old: float, new: float) -> tuple[float, float]:
    """Return the expected sum of squares of the effects of a kind that were seen, and their number."""
    total, count = 0.0, 0.0
    for r in range(effects.row_ends[k], effects.row_ends[k + 1]):
        for c in range(effects.column_ends[g], effects.column_ends[g + 1]):
            information = effects.information[r, c]
            if information > 0.0:
                precision = information + 1.0 / new
                mean = effects.mean[r, c] * (information + 1.0 / old) / precision
                total += mean * mean + 1.0 / precision
                count += 1.0
    return total, count


@inner_kernel
def deviation(effects: LabelEffects, r: int, c: int, tau: float) -> float:
    """Return Z, how far the clicks of the latest pages are from an effect, of the window where that is farthest.

    It is below 0 if no window has enough information.
    """
    farthest = -1.0
    for w in range(WINDOWS):
        u, gain = effects.windows[3 * w, r, c], effects.windows[3 * w + 1, r, c]
        if gain > LEAST_INFORMATION:
            earlier = max(0.0, effects.information[r, c] - gain) + 1.0 / tau
            spread = effects.windows[3 * w + 2, r, c] + gain * gain / earlier
            farthest = max(farthest, u * u / (2.0 * spread))
    return farthest


@inner_kernel
def test_for_change(effects: LabelEffects) -> bool:
    """Return whether clicks have changed, after forgetting the effects that have, or all of them."""
    t = effects.pages[0]
    if t < STEADY or (effects.alarm[0] > 0 and t - effects.alarm[0] < t // RECENT):
        return False
    count, tested, changed, largest = 0, 0, 0, -1.0
    for k in range(effects.variance.shape[0]):
        for g in range(effects.variance.shape[1]):
            if effects.start[k, g] > 0.0:
                for r in range(effects.row_ends[k], effects.row_ends[k + 1]):
                    for c in range(effects.column_ends[g], effects.column_ends[g + 1]):
                        z = deviation(effects, r, c, effects.variance[k, g])
                        count += 1
                        tested += 1 if z >= 0.0 else 0
                        changed += 1 if z > CHANGED else 0
                        largest = max(largest, z)
    if largest <= math.log(3.0 * count) + math.log(float(t)) + 3.0:
        return False
    everything = changed > CHANGED_SHARE * tested
    for k in range(effects.variance.shape[0]):
        for g in range(effects.variance.shape[1]):
            tau = effects.variance[k, g]
            for r in range(effects.row_ends[k], effects.row_ends[k + 1]):
                for c in range(effects.column_ends[g], effects.column_ends[g + 1]):
                    if everything:
                        effects.mean[r, c] = effects.information[r, c] = 0.0
                    elif tau > 0.0 and deviation(effects, r, c, tau) > CHANGED_MUCH:
                        effects.information[r, c] = 0.0
            if everything:
                effects.variance[k, g] = effects.start[k, g]
    effects.windows[:] = 0.0
    effects.alarm[0] = t
    if everything:
        effects.since[0] = 0
        effects.seen[:] = 0
    return True


# Draws and lists


@kernel
def draw_effects(effects: LabelEffects, labels: Labels) -> None:
    """Draw all effects, once for each list, and keep their sums over item labellings: a list adds up few rows."""
    rows, total = effects.drawn.shape[1], 0.0
    n, m = effects.paired.shape[1:]
    G = labels.item.size
    with_pairs = effects.variance[-1, -2] > PAIRS
    for s in range(LISTS):
        for k in range(effects.variance.shape[0] - 1):
            for r in range(effects.row_ends[k], effects.row_ends[k + 1]):
                for g in range(1 + G):
                    for c in range(effects.column_ends[g], effects.column_ends[g + 1]):
                        effects.work.labels[c] = draw_effect(effects, r, c, k, g)
                for i in range(n):
                    z = effects.work.labels[0] + draw_effect(effects, r, effects.column_ends[1 + G] + i, k, 1 + G)
                    for g in range(G):
                        z += effects.work.labels[effects.column_ends[1 + g] + labels.items[g, i]]
                    effects.drawn[s, r, i] = z
                    total += z
                for j in range(m):
                    z = draw_effect(effects, r, effects.column_ends[2 + G] + j, k, 2 + G)
                    effects.examined[s, r, j] = z
                    total += z
        for i in range(n):
            for j in range(m):
                z = 0.0
                if with_pairs:
                    k = effects.variance.shape[0] - 1
                    z = draw_effect(effects, rows + j, effects.column_ends[1 + G] + i, k, 1 + G)
                effects.paired[s, i, j] = z
                total += z
    effects.stamp[0] = total


@inner_kernel
def draw_effect(effects: LabelEffects, r: int, c: int, k: int, g: int) -> float:
    width = 1.0 if k == 0 else NARROW
    v = variance_of(effects, r, c, effects.variance[k, g])
    return effects.mean[r, c] + width * normal(effects.stream) * math.sqrt(v)


@inner_kernel
def has_lists(effects: LabelEffects) -> bool:
    """Whether effects were drawn; before the first refresh, lists are uniformly random."""
    return effects.stamp[0] != 0.0


@inner_kernel
def lists_for(effects: LabelEffects, context: Ints) -> int:
    """Return k such that ``effects.work.lists[k]`` are the lists (LISTS, m) of a context, one for each draw."""
    work = effects.work
    entry = 0
    for k in range(context.size):
        entry = (31 * entry + context[k]) % CACHED
    known = work.stamp[entry] == effects.stamp[0]
    for k in range(context.size):
        known = known and work.contexts[entry, k] == context[k]
    if not known:
        active_rows(effects, context)
        with_pairs = effects.variance[-1, -2] > PAIRS
        for s in range(LISTS):
            for i in range(work.score.size):
                work.score[i] = ATTRACTION
            for j in range(work.examination.size):
                work.examination[j] = EXAMINATION
            for r in work.rows:
                for i in range(work.score.size):
                    work.score[i] += effects.drawn[s, r, i]
                for j in range(work.examination.size):
                    work.examination[j] += effects.examined[s, r, j]
            if with_pairs:
                best_assignment(work, effects.paired[s], work.lists[entry, s])
            else:
                best_in_order(work, work.lists[entry, s])
        for k in range(context.size):
            work.contexts[entry, k] = context[k]
        work.stamp[entry] = effects.stamp[0]
    return entry


@inner_kernel
def best_in_order(work: EffectsWork, ranking: Ints) -> None:
    """Put the most attractive item at the most examined position, and so on; drawn numbers have no ties."""
    items, positions = work.placement.items, work.placement.positions
    largest(work.examination, positions, ranking.size)
    largest(work.score, items, ranking.size)
    for k in range(ranking.size):
        ranking[positions[k]] = items[k]


@inner_kernel
def largest(values: Floats, indices: Ints, count: int) -> None:
    """Fill in the indices of the ``count`` largest values, in descending order."""
    filled = 0
    for i in range(values.size):
        value = values[i]
        if filled < count:
            filled += 1
        elif value <= values[indices[count - 1]]:
            continue
        k = filled - 1
        while k > 0 and values[indices[k - 1]] < value:
            indices[k] = indices[k - 1]
            k -= 1
        indices[k] = i


@inner_kernel
def best_assignment(work: EffectsWork, paired: Floats, ranking: Ints) -> None:
    """Fill in the list with the largest sum of click probabilities."""
    for j in range(ranking.size):
        b = sigmoid(work.examination[j])
        for i in range(work.score.size):
            work.placement.cost[i, j] = -b * sigmoid(work.score[i] + paired[i, j])
    place_cheapest(ranking, work.placement)


@inner_kernel
def draw_list(effects: LabelEffects, rng: np.random.Generator, context: Ints, ranking: Ints) -> None:
    """Fill in one of the lists of a context, or a random list if there are none."""
    drawn = effects.work.placement.items
    if has_lists(effects):
        drawn = effects.work.lists[lists_for(effects, context), int(rng.random() * LISTS)]
    else:
        shuffle(rng, drawn)
    for j in range(ranking.size):
        ranking[j] = drawn[j]


@inner_kernel
def share_of(effects: LabelEffects, context: Ints, i: int, j: int) -> float:
    """Return the share of the lists of a context with item i at position j."""
    if not has_lists(effects):
        return 1.0 / effects.work.score.size
    lists, alike = effects.work.lists[lists_for(effects, context)], 0
    for s in range(LISTS):
        alike += 1 if lists[s, j] == i else 0
    return alike / LISTS


@kernel
def fill_shares(effects: LabelEffects, context: Ints, shares: Floats) -> None:
    """Fill in the share of the lists of a context with item i at position j (n, m)."""
    shares[:] = 0.0 if has_lists(effects) else 1.0 / shares.shape[0]
    if has_lists(effects):
        lists = effects.work.lists[lists_for(effects, context)]
        for s in range(LISTS):
            for j in range(shares.shape[1]):
                shares[lists[s, j], j] += 1.0 / LISTS
