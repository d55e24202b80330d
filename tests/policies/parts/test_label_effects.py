"""Effects of labels: the plain implementation page by page, variances, lists, change, new values and items."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds.core import Labels, copy_state
from bothworlds.policies import pages, policy
from bothworlds.policies.parts import label_effects
from tests.reference.label_effects import LabelEffectsTwin

SIZES = (2, 3)
ITEMS = np.array([[0, 1, 2, 2, 0, 1, 0], [0, 0, 1, 1, 1, 0, 1]])
N, M = ITEMS.shape[1], 3
LABELS = Labels(np.array(SIZES), np.array([3, 2]), ITEMS)
POLICY = policy("context-ts")


def probabilities(context, turned=False):
    """Click probabilities (n, m) of visitors with a taste for one category."""
    like = 0.15 + 0.5 * (ITEMS[0] == context[1]) + 0.2 * context[0] * ITEMS[1]
    return np.outer(1.0 - like if turned else like, [0.9, 0.6, 0.4])


def pages_of(state, rounds, seed=0, turned=None, share=None):
    """Play by hand; yield the context, the decision and the clicks of every page, and learn them afterwards."""
    rng = np.random.default_rng(seed)
    for t in range(rounds):
        mix = None if share is None else share(t)
        context = np.array([rng.integers(2), rng.choice(3, p=mix)])
        decision = POLICY.decide(state, rng, context[: state.labels.visitor.size])
        p = probabilities(context, turned is not None and t >= turned)[decision.ranking, np.arange(M)]
        clicks = (rng.random(M) < p).astype(float)
        yield context, decision, clicks
        POLICY.learn(state, decision, clicks)


def played(rounds, **settings):
    state = POLICY.init(N, M, LABELS)
    for _ in pages_of(state, rounds, **settings):
        pass
    return state


def farthest(state, twin):
    """The largest difference between the policy and the plain implementation."""
    pairs = [
        (state.effects.mean, twin.table(twin.mean)),
        (state.effects.information, twin.table(twin.information)),
        (state.effects.variance, twin.variances()),
    ]
    return max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)


def compared(twin, rounds, turned=None):
    state, worst = POLICY.init(N, M, LABELS), 0.0
    for context, decision, clicks in pages_of(state, rounds, turned=turned):
        if state.effects.pages[0]:
            worst = max(worst, farthest(state, twin))
        twin.learn(context, decision.ranking, clicks)
    return worst


def test_every_page_and_every_refresh_is_that_of_the_plain_implementation():
    assert compared(LabelEffectsTwin(SIZES, ITEMS, M), 500) < 1e-12


@pytest.mark.slow
def test_alarms_and_what_they_forget_are_those_of_the_plain_implementation():
    twin = LabelEffectsTwin(SIZES, ITEMS, M)
    assert compared(twin, 2200, turned=1500) < 1e-9  # informations are in the thousands
    assert [whole for _, whole in twin.alarms] == [True]


class KeepsTheMean(LabelEffectsTwin):
    def fit(self, kind):
        before = self.mean[kind].copy()
        super().fit(kind)
        self.mean[kind] = before


class LearnsForAnotherContext(LabelEffectsTwin):
    def learn(self, context, ranking, clicks):
        super().learn([1 - context[0], context[1]], ranking, clicks)


@pytest.mark.parametrize("broken", [KeepsTheMean, LearnsForAnotherContext])
def test_a_broken_implementation_differs(broken):
    assert compared(broken(SIZES, ITEMS, M), 100) > 1e-3


def test_lists_are_those_of_the_drawn_effects():
    """With variances near 0, all draws are the means."""
    state, twin = played(60), LabelEffectsTwin(SIZES, ITEMS, M)
    effects = state.effects
    effects.mean[:] = np.random.default_rng(0).normal(size=effects.mean.shape)
    effects.mean[-M:] = 0.0  # pairs of item and position, which lists ignore while their variance is small
    effects.information[:] = 1e20
    POLICY.refreshed(state)
    for context in np.ndindex(SIZES):
        expected = np.zeros((N, M))
        expected[twin.list_of(effects.mean, context), np.arange(M)] = 1.0
        assert (POLICY.marginals(state, context) == expected).all()


def test_with_pairs_that_matter_lists_are_the_best_assignment():
    state = played(60)
    effects = state.effects
    effects.mean[:] = 0.0
    effects.mean[-M:, -M - N : -M] = 6.0 * np.eye(M, N)[::-1]  # item 2 at the first position, 0 at the last
    effects.information[:], effects.variance[-1, -2] = 1e20, 0.011
    assert (POLICY.marginals(POLICY.refreshed(state), (0, 0))[[2, 1, 0], range(M)] == 1.0).all()


def test_draws_have_the_mean_and_the_variance_of_the_effects():
    state = played(200)
    effects, drawn = state.effects, []
    for _ in range(400):
        POLICY.refreshed(state)
        drawn.append(effects.examined.copy())
    drawn = np.concatenate(drawn)
    v = 1.0 / (effects.information + 1.0 / np.repeat(effects.variance[:, -1:], [1, *SIZES, M], axis=0).clip(1e-9))
    width = np.where(np.arange(6) == 0, 1.0, 0.35)[:, None]
    error = width * np.sqrt(v[:6, -M:] / len(drawn))
    assert (np.abs(drawn.mean(axis=0) - effects.mean[:6, -M:]) < 5.0 * error).all()
    assert (np.abs(drawn.std(axis=0) / (width * np.sqrt(v[:6, -M:])) - 1.0) < 5.0 / np.sqrt(2.0 * len(drawn))).all()


def swinging(t):
    return [0.9, 0.05, 0.05] if t // 2000 % 2 else [0.05, 0.05, 0.9]


@pytest.mark.slow
def test_a_change_of_taste_is_noticed_and_a_swinging_mix_is_not():
    assert played(8000, share=swinging).effects.alarm[0] == 0
    changed = played(6000, turned=4000).effects.alarm[0]
    assert 4000 < changed <= 5000


@pytest.mark.slow
def test_without_the_label_a_swinging_mix_is_a_change():
    """A broken twin: it has the same visitors, and does not know which is which."""
    state = POLICY.init(N, M, LABELS._replace(visitor=LABELS.visitor[:0]))
    for _ in pages_of(state, 8000, share=swinging):
        pass
    assert state.effects.alarm[0] > 0


def test_a_new_item_starts_at_the_mean_of_its_label():
    state = played(3000)
    grown = pages.resized(POLICY, state, [*range(N), pages.NEW], range(M)).state
    assert (grown.effects.mean[:, -M - 1] == 0.0).all()
    labels = grown.labels._replace(items=np.hstack([ITEMS, [[2], [1]]]))
    grown = pages.with_labels(POLICY, grown, labels)
    liked, other = (POLICY.marginals(grown, context)[N].sum() for context in ((1, 2), (1, 0)))
    assert liked > other + 0.2


def test_new_values_of_labels_change_nothing_that_was_learned():
    state = played(300)
    more = pages.with_labels(POLICY, state, Labels(np.array([4, 3]), np.array([3, 5]), ITEMS))
    rows, columns = [0, 1, 2, 5, 6, 7, 8, 9, 10], [*range(6), *range(9, 9 + N + M)]
    for name in ("mean", "information", "windows"):
        before, after = getattr(state.effects, name), getattr(more.effects, name)
        assert (after[..., rows, :][..., columns] == before).all()
        assert np.abs(after).sum() == pytest.approx(np.abs(before).sum())
    decision = POLICY.decide(more, np.random.default_rng(0), (3, 2))
    POLICY.learn(more, decision, np.ones(M))
    assert more.effects.seen[[3, 4]].tolist() == [0, 1]


def test_a_part_of_the_state_has_what_was_learned_of_its_items_and_positions():
    state = played(300)
    part = pages.resized(POLICY, state, [5, 1], [2]).state
    assert (part.labels.items == ITEMS[:, [5, 1]]).all()
    assert (part.effects.mean[0, -3:] == state.effects.mean[0, [-M - N + 5, -M - N + 1, -1]]).all()
    assert part.effects.mean.shape == (1 + 5 + 1, 1 + 5 + 2 + 1)


def test_lists_that_are_kept_are_never_those_of_other_draws():
    """Another state may be copied over this one."""
    one, other = played(300, seed=1), played(300, seed=2)
    for context in np.ndindex(SIZES):
        POLICY.marginals(one, context)
    for path in ("mean", "information"):
        getattr(one.effects, path)[:] = getattr(other.effects, path)
    for name in ("drawn", "examined", "paired", "stamp"):
        getattr(one.effects, name)[:] = getattr(other.effects, name)
    fresh = copy_state(other)
    fresh.effects.work.stamp[:] = 0.0
    for context in np.ndindex(SIZES):
        assert (POLICY.marginals(one, context) == POLICY.marginals(fresh, context)).all()


def test_interpreted_kernels_learn_the_same(monkeypatch):
    state = played(100)
    twin = copy_state(state)
    for name, value in list(vars(label_effects).items()):
        if hasattr(value, "py_func"):
            monkeypatch.setattr(label_effects, name, value.py_func)
    decision = POLICY.decide(state, np.random.default_rng(1), (1, 1))
    POLICY.learn(state, decision, np.array([1.0, 0.0, 1.0]))
    context, ranking = np.array([1, 1]), decision.ranking
    monkeypatch.setattr(label_effects, "absorb", lambda stream, ranking: None)
    label_effects.learn_effects(twin.effects, twin.labels, context, ranking, np.array([1.0, 0.0, 1.0]))
    assert np.allclose(twin.effects.mean, state.effects.mean, rtol=0, atol=1e-13)
    assert np.allclose(twin.effects.windows, state.effects.windows, rtol=0, atol=1e-12)
