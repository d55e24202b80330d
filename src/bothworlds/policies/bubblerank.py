"""BubbleRank: a list that is improved by exchanging neighbours only."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Shape, decides, learns, notes
from ..kernels import Floats, Ints, inner_kernel
from .parts.epochs import Epochs, new_epoch
from .parts.random_stream import Stream, absorb, make_stream
from .parts.samplers import draw_items
from .parts.settings import Planning, indices, number


class State(NamedTuple):
    shape: Shape
    confidence: float  # 0 for the published value
    initial: Ints  # (n,) the first list, then all other items; -1 for a random first list
    epochs: Epochs
    base: Ints  # (n,) the present list, then the items that are not on the page
    place: Ints  # (n,) of every item in ``base``
    begun: Ints  # (1,) 0 before there is a first list
    wins: NDArray[np.int32]  # (n, n) wins[i, j]: i was clicked and j was not, when the two were compared
    stream: Stream


@dataclass(frozen=True, kw_only=True)
class BubbleRank(Planning):
    r"""Improves a list by exchanging neighbours, and never shows an item far from its place in the list.

    In every round neighbours in the list are exchanged with probability 1/2: pairs 1-2, 3-4, ... in one round, pairs
    2-3, 4-5, ... in the next. So every item is shown at most one position from its place in the list. Pairs whose order
    is certain are not exchanged, and once the lower item of a pair is certainly the better one, the list is changed.

    .. math::

        S_{ij} = \sum_t (c_{ti} - c_{tj}), \quad N_{ij} = \sum_t |c_{ti} - c_{tj}|, \qquad
        i \text{ is certainly better than } j \text{ if } \; S_{ij} > 2 \sqrt{N_{ij} \log (1 / \delta)},
        \quad \delta = T^{-4}

    with sums over the rounds in which the two were a pair. The publication re-ranks as many items as there are
    positions. This implementation extends it to more items: when the last position has no partner, its item is compared
    with a random item that is not on the page and not certainly worse.

    Requires: the horizon (or the doubling trick is used), and the order of positions, most examined first.
    Guarantee: :math:`O(\frac{m}{\Delta} (m + |V|) \log T)` regret for m items, where :math:`|V|` counts the pairs in
    the wrong order at first; with high probability no list shown has more than :math:`m/2` such pairs in addition.
    Known failure: safe, but slow. An item moves up one position at a time, and each move takes at least
    :math:`16 \log T` rounds with different clicks on the pair.

    Parameters
    ----------
    initial
        The first list, best item first, with at least as many items as positions; None for a random one.
    confidence
        The probability :math:`\delta` of a wrong exchange; None for the horizon to the power of -4.
    restart
        Number of rounds after which it starts again with ``initial``; None for never.

    Examples
    --------
    No item is ever shown more than one position from its place in the first list.

    >>> import numpy as np
    >>> import bothworlds
    >>> policy = bothworlds.policy("bubblerank", initial=[3, 2, 1, 0], horizon=1000)
    >>> state, rng = policy.init(4, 4), np.random.default_rng(0)
    >>> int(max(abs(policy.decide(state, rng).ranking - [3, 2, 1, 0]).max() for _ in range(100)))
    1

    References
    ----------
    Li, Kveton, Lattimore, Markov, de Rijke, Szepesvari, Zoghi: BubbleRank: safe online learning to re-rank via
    implicit click feedback, UAI 2019.
    """

    initial: tuple[int, ...] | None = indices()
    confidence: float | None = number(None, 1e-15, 0.999999)

    name = "bubblerank"
    needs = ("horizon", "order")
    patience = 30_000

    def relabelled(self, labels: NDArray[np.int64]) -> BubbleRank:
        """Return the policy with the same first list, for items in another order."""
        if self.initial is None:
            return self
        return replace(self, initial=tuple(np.argsort(labels)[list(self.initial)].tolist()))

    def note_size(self, shape: Shape) -> int:
        """Return 1: it remembers which pairs were compared."""
        return 1

    def start(self, shape: Shape) -> State:
        n, m = shape
        initial = np.full(n, -1, np.int64)
        if self.initial is not None:
            if len(self.initial) < m or max(self.initial) >= n:
                raise ValueError(f"initial must be at least {m} items from 0 to {n - 1}; got {list(self.initial)}")
            initial[:] = [*self.initial, *sorted(set(range(n)) - set(self.initial))]
        state = State(
            shape=shape,
            confidence=float(self.confidence or 0.0),
            initial=initial,
            epochs=self.epochs(),
            base=np.arange(n) if self.initial is None else initial.copy(),
            place=np.arange(n),
            begun=np.array([0 if self.initial is None else 1]),
            wins=np.zeros((n, n), np.int32),
            stream=make_stream(n, m),
        )
        state.place[state.base] = np.arange(n)
        return state


@inner_kernel
def is_better(state: State, i: int, j: int) -> bool:
    """Whether i is certainly better than j."""
    lead = float(state.wins[i, j] - state.wins[j, i])
    fought = float(state.wins[i, j] + state.wins[j, i])
    level = 4.0 * math.log(state.epochs.horizon[0]) if state.confidence <= 0.0 else -math.log(state.confidence)
    return lead > 0.0 and lead * lead > 4.0 * fought * level


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    base, m = state.base, ranking.size
    if not state.begun[0]:
        draw_items(base, rng, ranking)  # which are in order
        propensity[:] = 1.0 / base.size
        return
    for j in range(m):
        ranking[j], propensity[j] = base[j], 1.0
    for k in range(parity(state), m, 2):
        if k + 1 < m:
            if not is_better(state, base[k], base[k + 1]):
                propensity[k] = propensity[k + 1] = 0.5
                if rng.random() < 0.5:
                    ranking[k], ranking[k + 1] = base[k + 1], base[k]
        else:
            challengers = count_challengers(state)
            if challengers > 0:
                u = 2.0 * rng.random()
                propensity[k] = 0.5 if u < 1.0 else 0.5 / challengers
                ranking[k] = base[k] if u < 1.0 else challenger(state, int((u - 1.0) * challengers))


@inner_kernel
def count_challengers(state: State) -> int:
    """Return the number of items not on the page that are not certainly worse than the last item on it."""
    n, m = state.shape
    challengers = 0
    for q in range(m, n):
        if not is_better(state, state.base[m - 1], state.base[q]):
            challengers += 1
    return challengers


@inner_kernel
def challenger(state: State, k: int) -> int:
    """Return the k-th of these items, from 0."""
    n, m = state.shape
    for q in range(m, n):
        if not is_better(state, state.base[m - 1], state.base[q]):
            if k == 0:
                return state.base[q]
            k -= 1
    return state.base[m - 1]


@notes(State)
def note(state: State, ranking: Ints, note: Floats) -> None:
    note[0] = parity(state)


@inner_kernel
def parity(state: State) -> int:
    """Return the position of the first pair that is compared: the first list is drawn as if for position 0."""
    return int(state.epochs.rounds[0]) % 2 if state.begun[0] else 0


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats, note: Floats) -> None:
    base, m = state.base, ranking.size
    first = int(note[0] == 1.0) if note.size > 0 else parity(state)  # a note of a log may be any number
    if new_epoch(state.epochs):
        restart(state)
        return
    absorb(state.stream, ranking)
    if not state.begun[0]:
        begin(state, ranking)
    for k in range(first, m, 2):
        i = ranking[k]
        if k + 1 < m:
            j = ranking[k + 1]
            if min(state.place[i], state.place[j]) == k and max(state.place[i], state.place[j]) == k + 1:
                count_duel(state, i, j, clicks[k] - clicks[k + 1])
        else:
            compare_last(state, i, clicks[k])
    for k in range(m - 1):
        if is_better(state, base[k + 1], base[k]):
            exchange(state, k, k + 1)


@inner_kernel
def compare_last(state: State, i: int, click: float) -> None:
    """Compare the item at the last position with one that is not on the page; exchange them if that is better."""
    m = state.shape.n_positions
    last, other = state.base[m - 1], i
    if i == last:
        # The item that was not drawn is unknown, but all were equally likely.
        challengers = count_challengers(state)
        other = challenger(state, int(state.stream.random() * challengers))
        count_duel(state, i, other, click)
    elif state.place[i] >= m:
        count_duel(state, i, last, click)
    if other != last and state.place[other] >= m and is_better(state, other, last):
        exchange(state, m - 1, state.place[other])


@inner_kernel
def count_duel(state: State, i: int, j: int, difference: float) -> None:
    if difference > 0.0 and i != j:
        state.wins[i, j] += 1
    elif difference < 0.0:
        state.wins[j, i] += 1


@inner_kernel
def exchange(state: State, p: int, q: int) -> None:
    base, place = state.base, state.place
    base[p], base[q] = base[q], base[p]
    place[base[p]], place[base[q]] = p, q


@inner_kernel
def begin(state: State, ranking: Ints) -> None:
    """Choose the random first list, such that the list that was just shown could have been drawn from it."""
    n, m = state.shape
    for j in range(m):
        exchange(state, j, state.place[ranking[j]])
    for k in range(0, m, 2):
        if state.stream.random() < 0.5:
            partner = k + 1 if k + 1 < m else m + int(state.stream.random() * (n - m))
            exchange(state, k, min(partner, n - 1))
    state.begun[0] = 1


@inner_kernel
def restart(state: State) -> None:
    n = state.shape.n_items
    state.begun[0] = 0 if state.initial[0] < 0 else 1
    for i in range(n):
        state.base[i] = state.initial[i] if state.begun[0] else i
        for j in range(n):
            state.wins[i, j] = 0
    for i in range(n):
        state.place[state.base[i]] = i
