"""BubbleRank: a list that is only ever improved by exchanging neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Shape, decides, learns
from ..kernels import Floats, Ints, inner_kernel
from .parts.epochs import Epochs, new_epoch
from .parts.random_stream import Stream, absorb, make_stream, uniform
from .parts.settings import Planning, number

__all__ = ["BubbleRank"]


class State(NamedTuple):
    shape: Shape
    confidence: float  # 0 for the published one
    initial: Ints  # (n,) the list to begin with, completed; -1 where it is random
    epochs: Epochs
    base: Ints  # (n,) the list so far, then the items off the page in any order
    place: Ints  # (n,) of every item in it
    begun: Ints  # (1,) 0 while there is no list yet
    wins: NDArray[np.int32]  # (n, n) wins[i, j]: i was clicked and j was not, when the two were compared
    stream: Stream
    swaps: Ints  # (m,) work


@dataclass(frozen=True, kw_only=True)
class BubbleRank(Planning):
    r"""Improves a list by exchanging neighbours, one pair at a time and never far from what is known to be good.

    In every round neighbours in the list change places by the toss of a coin: pairs 1-2, 3-4, ... in one round, pairs
    2-3, 4-5, ... in the next. So no item is ever shown more than one position from where it belongs. Pairs whose order
    is beyond doubt stay, and once the lower item of a pair is certainly the better one, the exchange is for good.

    .. math::

        S_{ij} = \sum_t (c_{ti} - c_{tj}), \quad N_{ij} = \sum_t |c_{ti} - c_{tj}|, \qquad
        i \text{ is certainly better than } j \text{ if } \; S_{ij} > 2 \sqrt{N_{ij} \log (1 / \delta)},
        \quad \delta = T^{-4}

    with sums over the rounds in which the two were a pair. The publication re-ranks as many items as there are
    positions. Where there are more, the last position when it has no partner is compared with a random item off the
    page that is not certainly worse: an extension.

    Needs to be told: the horizon (or it doubles one), and the order of positions, most examined first.
    Guarantee: :math:`O(\frac{m}{\Delta} (m + |V|) \log T)` regret for m items, where :math:`|V|` counts the pairs in
    the wrong order at first; with high probability no list shown has more than :math:`m/2` such pairs in addition.
    Known failure: safe, but slow. An item moves up by one position per verdict, and a verdict takes at least
    :math:`16 \log T` rounds with differing clicks.

    Parameters
    ----------
    initial
        The list to begin with, best first: at least as many items as there are positions; a random one if None.
    confidence
        The probability :math:`\delta` of a false verdict; the horizon to the power of -4 if None.
    horizon
        Rounds to plan for; if None, 1024 at first and twice as many whenever they are over.
    restart
        Begin anew, with ``initial``, every so many rounds.

    Examples
    --------
    From a good list it never strays by more than one position.

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

    initial: tuple[int, ...] | None = None
    confidence: float | None = None

    name = "bubblerank"
    needs = ("horizon", "order")
    needs_propensity: ClassVar[bool] = True  # they tell which neighbours were paired
    patience = 30_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.confidence is not None:
            number(self, "confidence", above=0.0, below=1.0)
        if self.initial is not None:
            given: Any = self.initial
            listed = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else []
            items = [i for i in listed if isinstance(i, (int, np.integer)) and not isinstance(i, bool) and i >= 0]
            if not items or len(items) < len(listed) or len(set(items)) < len(items):
                raise ValueError(f"initial must be a list of different item indices, or None; got {self.initial!r}")
            object.__setattr__(self, "initial", tuple(int(i) for i in items))

    def relabelled(self, labels: NDArray[np.int64]) -> BubbleRank:
        """The same list in other words."""
        if self.initial is None:
            return self
        return replace(self, initial=tuple(np.argsort(labels)[list(self.initial)].tolist()))

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
            swaps=np.zeros(m, np.int64),
        )
        state.place[state.base] = np.arange(n)
        return state


@inner_kernel
def is_better(state: State, i: int, j: int) -> bool:
    """Whether i is certainly better than j."""
    lead = float(state.wins[i, j] - state.wins[j, i])
    fought = float(state.wins[i, j] + state.wins[j, i])
    doubt = 4.0 * math.log(state.epochs.horizon[0]) if state.confidence <= 0.0 else -math.log(state.confidence)
    return lead > 0.0 and lead * lead > 4.0 * fought * doubt


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    base, m = state.base, ranking.size
    if not state.begun[0]:
        draw_any(state, rng, ranking, propensity)
        return
    for j in range(m):
        ranking[j], propensity[j] = base[j], 1.0
    for k in range(int(state.epochs.rounds[0]) % 2, m, 2):
        if k + 1 < m:
            if not is_better(state, base[k], base[k + 1]):
                propensity[k] = propensity[k + 1] = 0.5
                if rng.random() < 0.5:
                    ranking[k], ranking[k + 1] = base[k + 1], base[k]
        else:
            rivals = count_rivals(state)
            if rivals > 0:
                u = 2.0 * rng.random()
                propensity[k] = 0.5 if u < 1.0 else 0.5 / rivals
                ranking[k] = base[k] if u < 1.0 else rival(state, int((u - 1.0) * rivals))


@inner_kernel
def draw_any(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats) -> None:
    """A list like any other; the base is as it was afterwards."""
    base, swaps, n = state.base, state.swaps, state.base.size
    for j in range(ranking.size):
        swaps[j] = j + int(rng.random() * (n - j))
        base[j], base[swaps[j]] = base[swaps[j]], base[j]
        ranking[j], propensity[j] = base[j], 1.0 / n
    for j in range(ranking.size - 1, -1, -1):
        base[j], base[swaps[j]] = base[swaps[j]], base[j]


@inner_kernel
def count_rivals(state: State) -> int:
    """How many items off the page are not certainly worse than the last on it."""
    n, m = state.shape
    rivals = 0
    for q in range(m, n):
        if not is_better(state, state.base[m - 1], state.base[q]):
            rivals += 1
    return rivals


@inner_kernel
def rival(state: State, k: int) -> int:
    """Rival number k, from 0."""
    n, m = state.shape
    for q in range(m, n):
        if not is_better(state, state.base[m - 1], state.base[q]):
            if k == 0:
                return state.base[q]
            k -= 1
    return state.base[m - 1]


@learns(State)
def learn(state: State, ranking: Ints, propensity: Floats, clicks: Floats) -> None:
    base, m = state.base, ranking.size
    parity = int(state.epochs.rounds[0]) % 2
    if new_epoch(state.epochs):
        start_anew(state)
        return
    absorb(state.stream, ranking)
    if not state.begun[0]:
        begin(state, ranking)
    # Late feedback may be of the other pairs: the first position that was left to chance was the upper one of a pair.
    for j in range(m - 1, -1, -1):
        if propensity[j] < 0.75:
            parity = j % 2
    for k in range(parity, m, 2):
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
    """The item shown last against one off the page; exchange the two if the base list has them the wrong way round."""
    m = state.shape.n_positions
    last, other = state.base[m - 1], i
    if i == last:
        # Which of the rivals had not been shown was not written down, but any was as likely.
        rivals = count_rivals(state)
        other = rival(state, int(uniform(state.stream) * rivals))
        count_duel(state, i, other, click)
    elif state.place[i] >= m:
        count_duel(state, i, last, click)
    if other != last and state.place[other] >= m and is_better(state, other, last):
        exchange(state, m - 1, state.place[other])


@inner_kernel
def count_duel(state: State, i: int, j: int, difference: float) -> None:
    if difference > 0.5 and i != j:
        state.wins[i, j] += 1
    elif difference < -0.5:
        state.wins[j, i] += 1


@inner_kernel
def exchange(state: State, p: int, q: int) -> None:
    base, place = state.base, state.place
    base[p], base[q] = base[q], base[p]
    place[base[p]], place[base[q]] = p, q


@inner_kernel
def begin(state: State, ranking: Ints) -> None:
    """Choose the random list to begin with, such that what has just been shown is a list that could come from it."""
    n, m = state.shape
    for j in range(m):
        exchange(state, j, state.place[ranking[j]])
    for k in range(0, m, 2):
        if uniform(state.stream) < 0.5:
            partner = k + 1 if k + 1 < m else m + int(uniform(state.stream) * (n - m))
            exchange(state, k, min(partner, n - 1))
    state.begun[0] = 1


@inner_kernel
def start_anew(state: State) -> None:
    n = state.shape.n_items
    state.begun[0] = 0 if state.initial[0] < 0 else 1
    for i in range(n):
        state.base[i] = state.initial[i] if state.begun[0] else i
        for j in range(n):
            state.wins[i, j] = 0
    for i in range(n):
        state.place[state.base[i]] = i
