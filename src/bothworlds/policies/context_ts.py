"""Context-TS: Thompson sampling of attraction and examination as sums of effects of labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core import NO_CONTEXT, Labels, Shape, decides, learns
from ..kernels import Floats, Ints
from .base import CompiledPolicy, checked_context
from .parts.label_effects import (
    LEAVES,
    LabelEffects,
    draw_effects,
    draw_list,
    fill_shares,
    learn_effects,
    make_label_effects,
    share_of,
)


class State(NamedTuple):
    shape: Shape
    labels: Labels
    effects: LabelEffects


@dataclass(frozen=True)
class ContextTs(CompiledPolicy):
    r"""Thompson sampling with effects of labels: what visitors with a label like is shared by all who have it.

    The log-odds of attraction are a sum of effects, one for every pair of a visitor label's value and an item label's
    value; those of examination a sum over visitor labels. Every kind of pair has a variance :math:`\tau` that is
    learned: a kind that does not matter disappears, and one that matters is used by all contexts and items that have
    the labels, also by new ones. See ``parts/label_effects.py``. For a click y on a list, with a = attraction, b =
    examination and p = a b, every effect in the sum of a moves by

    .. math::

        v = \frac{1}{I + 1/\tau}, \quad H = p (1 - a), \quad V = p (1 - p), \qquad
        \mu \leftarrow \mu + \frac{v H (y - p)}{V + H_a^2 \sum_a v + H_b^2 \sum_b v}, \qquad
        I \leftarrow I + \frac{H^2}{V}

    and those of b likewise. After every 10 to 500 pages the variances are fitted, the effects are tested for change,
    and all of them are drawn 16 times. For a context and a draw, the list is a function: items by attraction to
    positions by examination. A decision shows one of the 16 lists of its context, so that the probability of every
    placement is known exactly.

    Without labels, it is Thompson sampling of the position-based model with a normal approximation.

    Requires: nothing, neither horizon nor examination nor the order of positions.
    Guarantee: none.
    Known failure: clicks that are not of this form, and adversaries: ``all-weather`` insures it against both.

    Examples
    --------
    >>> import bothworlds
    >>> world = bothworlds.world("context/segments")
    >>> reward = [
    ...     bothworlds.play(policy, world, 10_000, replications=2).final()[0]
    ...     for policy in ("context-ts", bothworlds.policies.one_for_all("context-ts"))
    ... ]
    >>> bool(reward[0] > reward[1])
    True

    References
    ----------
    The combination is this package's own. Its parts: Chapelle, Li: An empirical evaluation of Thompson sampling,
    NeurIPS 2011 (normal approximation); Gelman: Analysis of variance, Annals of Statistics 33, 2005 (variances of
    kinds).
    """

    name = "context-ts"
    learns_labels: ClassVar[bool] = True
    learned_leaves: ClassVar[Mapping[str, str] | None] = LEAVES

    def start(self, shape: Shape) -> State:
        return self.start_with(shape, no_labels(shape))

    def start_with(self, shape: Shape, labels: Labels) -> State:
        return State(shape, labels, make_label_effects(shape, labels))

    def refreshed(self, state: State) -> State:
        """Return the state with all effects drawn anew."""
        if state.effects.pages[0] > 0:
            draw_effects(state.effects, state.labels)
        return state

    def marginals(self, state: State, context: ArrayLike = NO_CONTEXT) -> NDArray[np.float64]:
        """Return the probability of each item at each position in the next decision for a context."""
        marginals = np.zeros(state.shape)
        fill_shares(state.effects, checked_context(state, context), marginals)
        return marginals


def no_labels(shape: Shape) -> Labels:
    """Return labels of which there are none."""
    return Labels(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, shape.n_items), np.int64))


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats, context: Ints) -> None:
    draw_list(state.effects, rng, context, ranking)
    for j in range(ranking.size):
        propensity[j] = share_of(state.effects, context, ranking[j], j)


@learns(State)
def learn(
    state: State, ranking: Ints, propensity: Floats, clicks: Floats, note: Floats, absent: Ints, context: Ints
) -> None:
    learn_effects(state.effects, state.labels, context, ranking, clicks)
