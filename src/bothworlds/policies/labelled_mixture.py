"""All-weather where labels are declared: the sampler is that of ``context-ts``, and the leader is for all visitors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core import Labels, Shape, decides, learns
from ..geometry.leader_state import Leading, make_leading, reset
from ..geometry.regularizers import Tsallis
from ..geometry.sampling import draw
from ..kernels import Floats, Ints, inner_kernel, kernel
from .all_weather import (
    LONGER_SLEEP,
    RECENT,
    Comparison,
    Settings,
    begin_comparison,
    compare,
    follow,
    new_comparison,
    weigh,
)
from .parts.counts import Counts, forget, make_counts, record
from .parts.label_effects import (
    LabelEffects,
    draw_effects,
    draw_list,
    fill_shares,
    learn_effects,
    make_label_effects,
    share_of,
)
from .parts.predicted_losses import add_losses

EARLY = 50.0  # the leader has at least 50 q / sqrt(t) of the rounds: it learns from all, and labels take long to learn
AHEAD = 0.75  # the first comparison begins with the sampler ahead by so many standard deviations

if TYPE_CHECKING:
    from .all_weather import AllWeather


class State(NamedTuple):
    shape: Shape
    labels: Labels
    settings: Settings
    counts: Counts  # of all visitors, since the last change
    effects: LabelEffects  # the sampler
    loss: Floats  # (n_items, n_positions) cumulative loss estimates of the leader
    spread: Floats  # (1,) R
    leading: Leading  # the leader, and its marginals x
    comparison: Comparison
    weight: Floats  # (1,) w: the share of the leader
    work: Floats  # (n_items, n_positions) s for the context of a page


def start(policy: AllWeather, shape: Shape, labels: Labels) -> State:
    """Return the initial state of all-weather with labels."""
    n, m = shape
    state = State(
        shape=shape,
        labels=labels,
        settings=policy.numbers(shape),
        counts=make_counts(n, m),
        effects=make_label_effects(shape, labels),
        loss=np.zeros((n, m)),
        spread=np.ones(1),
        leading=make_leading(n, m, policy.tolerance),
        comparison=new_comparison(policy.grace),
        weight=np.ones(1),
        work=np.zeros((n, m)),
    )
    reset(Tsallis(), 1.0, state.leading)
    return state


@decides(State)
def decide(state: State, rng: np.random.Generator, ranking: Ints, propensity: Floats, context: Ints) -> None:
    x, w = state.leading.marginals, state.weight[0]
    if rng.random() < w:
        draw(x, rng, state.leading.urn, ranking)
    else:
        draw_list(state.effects, rng, context, ranking)
    for j in range(ranking.size):
        i = ranking[j]
        s = 0.0 if w == 1.0 else share_of(state.effects, context, i, j)
        propensity[j] = w * x[i, j] + (1.0 - w) * s


@learns(State)
def learn(
    state: State, ranking: Ints, propensity: Floats, clicks: Floats, note: Floats, absent: Ints, context: Ints
) -> None:
    counts, x, s, w = state.counts, state.leading.marginals, state.work, state.weight[0]
    fill_shares(state.effects, context, s)
    w_drawn = note[0] if note.size > 0 else w
    add_losses(state.loss, state.spread, counts, x, s, w, w_drawn, ranking, propensity, clicks, absent)
    compare(state, s, ranking, propensity, clicks, note, absent)
    record(counts, ranking, clicks)
    if learn_effects(state.effects, state.labels, context, ranking, clicks):
        forget(counts)
        if counts.learned[0] - state.comparison.began[0] >= counts.learned[0] / RECENT:
            begin_comparison(state)
    set_share(state)
    follow(state)


@inner_kernel
def set_share(state: State) -> None:
    """Set the share of the leader for the next round; let the sampler sleep or play again."""
    t, asleep_until = state.counts.learned[0], state.comparison.asleep_until
    if t < asleep_until[0]:
        return
    if t == asleep_until[0]:
        begin_comparison(state)
        if t == 1:
            state.comparison.difference[0] = -AHEAD * math.sqrt(state.settings.grace)
    weigh(state, least_share(state))
    if state.weight[0] == 1.0:
        asleep_until[0] = math.ceil(LONGER_SLEEP * t)


@inner_kernel
def least_share(state: State) -> float:
    """Return the least share of the leader."""
    return max(1.0, EARLY / math.sqrt(state.counts.learned[0])) * state.settings.share


@kernel
def refresh_labelled(state: State) -> None:
    """Draw the effects anew, set the share and the leader, as if the last round had just been learned."""
    draw_effects(state.effects, state.labels)
    if state.counts.learned[0] >= state.comparison.asleep_until[0]:
        weigh(state, least_share(state))
    follow(state)
