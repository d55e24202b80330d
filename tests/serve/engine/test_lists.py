"""Lists are drawn with exactly the probabilities that they carry, whatever these are mixed with."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from bothworlds import policy
from bothworlds.core import Decision, Shape
from bothworlds.geometry import sampling
from bothworlds.geometry.leader import ConvergenceError
from bothworlds.policies import Policy
from bothworlds.policies.pages import Page, part_for
from bothworlds.policies.parts.random_stream import make_stream
from bothworlds.serve.engine import lists as lists_module
from bothworlds.serve.engine.lists import BATCH, FEW_ITEMS, Lists, Mixing, draw_rows, make_lists, make_sampler
from tests.reference.rational import all_outcomes, exact_array

SHAPE = Shape(6, 3)
PAGES = {
    "whole": Page(np.arange(6), {}),
    "excluded": Page(np.array([0, 2, 3, 5]), {}),
    "pinned": Page(np.array([0, 1, 3, 4, 5]), {1: 2}),
    "both": Page(np.array([0, 4, 5]), {0: 3}),
}
MIXINGS = {
    "floor": Mixing(0.1),
    "exposure": Mixing(0.01, exposure=0.3),
    "baseline": Mixing(0.01, baseline_share=0.5, baseline=(3, 2, 5)),
}


def learned(made, rounds=200, shape=SHAPE):
    """The state of a policy that has seen users who like items 1 and 4."""
    state, rng = made.init(*shape), np.random.default_rng(3)
    for _ in range(rounds):
        decision = made.decide(state, rng)
        state = made.learn(state, decision, np.isin(decision.ranking, [1, 4]).astype(float))
    return state


def lists_for(page, mixing=MIXINGS["floor"], name="all-weather", seed=7, **others):
    made = policy(name)
    return make_lists(made, learned(made), page, SHAPE, mixing, seed=seed, **others)


def deviations(lists, draws, next_list=None, shape=SHAPE):
    """By how many standard deviations the frequencies of placements differ from the marginals that lists carry."""
    counts, n = np.zeros(shape), draws
    for _ in range(n):
        listed = (next_list or lists.next)()
        counts[listed.items, range(shape.n_positions)] += 1
    p = np.zeros(shape)
    p[np.ix_(lists.items, lists.free)] = lists.marginals
    for slot in set(range(shape.n_positions)) - set(lists.free.tolist()):
        p[listed.items[slot], slot] = 1.0
    spread = np.sqrt(n * p * (1 - p))
    assert (counts[spread == 0] == n * p[spread == 0]).all()
    return float((abs(counts - n * p)[spread > 0] / spread[spread > 0]).max(initial=0.0))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("mixing", MIXINGS)
def test_placements_are_as_frequent_as_lists_say(page, mixing):
    lists = lists_for(PAGES[page], MIXINGS[mixing])
    assert deviations(lists, 20_000) < 5
    listed = lists.next()
    for slot, (item, p) in enumerate(zip(listed.items, listed.p)):
        if slot in PAGES[page].pins:
            assert (item, p) == (PAGES[page].pins[slot], 1.0)
        else:  # exactly: the entry itself
            assert p == lists.marginals[lists.items.tolist().index(item), lists.free.tolist().index(slot)]


def interpreted(monkeypatch):
    """Replaces kernels by their sources, in rational arithmetic."""
    for module in (sampling, lists_module):
        for name, value in list(vars(module).items()):
            if hasattr(value, "py_func"):
                monkeypatch.setattr(module, name, value.py_func)
    monkeypatch.setattr(sampling, "TINY", 0)

    def make_exact_urn(n, m):
        urn = sampling.make_urn(n, m)
        exact = {name: exact_array(getattr(urn, name)) for name in ("packed", "weight")}
        return urn._replace(**exact, work=urn.work._replace(mass=exact_array(urn.work.mass)))

    monkeypatch.setattr(lists_module, "make_urn", make_exact_urn)


@pytest.mark.parametrize("few_items", [0, FEW_ITEMS])
@pytest.mark.parametrize(("n", "m"), [(3, 2), (6, 2), (5, 3), (9, 2)])
def test_expected_placements_are_the_marginals_as_rational_numbers(monkeypatch, few_items, n, m):
    interpreted(monkeypatch)
    monkeypatch.setattr(lists_module, "FEW_ITEMS", few_items)
    rng, exact = np.random.default_rng(n), np.full((n, m), Fraction(0), dtype=object)
    for _ in range(3):
        exact[rng.permutation(n)[:m], np.arange(m)] += Fraction(1, 4)
    exact += Fraction(1, 4 * n)
    sampler = make_sampler(exact_array(exact), None)

    def law(draw):
        mean = np.full((n, m), Fraction(0), dtype=object)
        for probability, ranking in all_outcomes(lambda chooser: draw(sampler, chooser)):
            assert len(set(ranking)) == m
            mean[ranking, np.arange(m)] += probability
        return mean

    def drawn(sampler, chooser):
        rows = np.zeros((1, m), np.int64)
        lists_module.draw_rows(sampler, chooser, rows)
        return rows[0].tolist()

    def first_of_its_bin(sampler, chooser):  # the broken twin
        row = sampler.members.tolist().index
        bins = np.searchsorted(sampler.start, [row(one) for one in drawn(sampler, chooser)], side="right") - 1
        return sampler.members[sampler.start[bins]].tolist()

    assert (law(drawn) == exact).all()
    if len(sampler.bins) < n:
        assert (law(first_of_its_bin) != exact).any()


@pytest.mark.slow
def test_many_items_are_drawn_with_their_probabilities():
    n = FEW_ITEMS + 100
    x = np.mean([np.eye(n)[:, np.random.default_rng(k).permutation(n)[:3]] for k in range(5)], axis=0) * 0.9 + 0.1 / n
    lists = Lists(x, Page(np.arange(n), {}), Shape(n, 3), "p", seed=5)
    assert len(lists._sampler.bins) <= 2 * 3 + 1
    assert deviations(lists, 20_000, shape=Shape(n, 3)) < 5


@pytest.mark.slow
def test_dropping_the_rest_of_a_batch_is_exact_unless_somebody_has_looked_at_it():
    """Matrices replace one another all the time: each is used for a few lists only."""

    def dropped_blindly(made):
        return made.next()

    def dropped_by_sight(made):  # the broken twin: lists that begin with item 0 are kept for the next version
        return next((one for one in (made.next() for _ in range(3)) if one.items[0] == 0), made.next())

    x = lists_for(PAGES["whole"]).marginals
    page = PAGES["whole"]

    def farthest(one_of):
        made = (Lists(x, page, SHAPE, "p", seed=seed) for seed in range(4_000))
        return deviations(lists_for(page), 4_000, lambda: one_of(next(made)))

    assert farthest(dropped_blindly) < 5
    assert farthest(dropped_by_sight) > 5


def test_every_list_is_used_once_and_a_seed_fixes_all(monkeypatch):
    one, other = (lists_for(PAGES["whole"], seed=9) for _ in range(2))
    used = [one.next() for _ in range(3 * BATCH)]
    assert used == [other.next() for _ in range(3 * BATCH)]
    assert len({listed.items for listed in used[:BATCH]}) > 10  # not one list many times
    assert used[:BATCH] != used[BATCH : 2 * BATCH]
    assert used != [lists_for(PAGES["whole"], seed=10).next() for _ in used]


def test_marginals_are_those_of_the_policy_mixed_as_asked():
    made = policy("ftrl-pbm")
    state = learned(made)
    own = made.marginals(state)
    x = lists_for(PAGES["whole"], Mixing(0.1), "ftrl-pbm").marginals
    assert np.allclose(x, 0.9 * own + 0.1 / 6, atol=1e-12)
    assert lists_for(PAGES["whole"], MIXINGS["exposure"], "ftrl-pbm").marginals.sum(axis=1).min() >= 0.3 - 1e-12
    x = lists_for(PAGES["pinned"], MIXINGS["baseline"], "ftrl-pbm").marginals
    part = part_for(made, state, PAGES["pinned"])
    ranked = np.zeros((5, 2))
    ranked[[2, 4], [0, 1]] = 1.0  # items 3 and 5 at slots 0 and 2
    assert np.allclose(x, 0.99 * (0.5 * part.policy.marginals(part.state) + 0.5 * ranked) + 0.01 / 5, atol=1e-12)


def test_a_policy_that_states_no_marginals_has_the_same_ones_wherever_its_state_is():
    one, other = (lists_for(PAGES["excluded"], name="comb-ts", seed=seed) for seed in (1, 2))
    assert one.id == other.id
    assert one.next().items is not None
    assert (one.marginals == other.marginals).all()
    frequency = (one.marginals - 0.1 / 4) / 0.9 * lists_module.SAMPLED_RANKINGS
    assert np.allclose(frequency, frequency.round())


def test_what_a_decision_says_beside_items_and_probabilities():
    whole, both = lists_for(PAGES["whole"]).next(), lists_for(PAGES["both"]).next()
    assert (whole.learn, whole.pinned, whole.absent, whole.note) == (0b111, 0, (), ())
    assert (both.learn, both.pinned, both.absent) == (0b110, 0b001, (1, 2, 3))
    assert len(both.note) == 1 + 3  # what all-weather remembers of a part
    assert whole.policy_id.startswith("all-weather:")
    assert len({lists_for(page).id for page in PAGES.values()}) == len(PAGES)


@pytest.mark.parametrize("name", ["toprank", "unirank", "bubblerank", "ranked-exp3"])
def test_a_policy_that_remembers_its_draws_learns_from_the_lists(name):
    made = policy(name)
    state = learned(made)
    lists = make_lists(made, state, PAGES["whole"], SHAPE, MIXINGS["floor"], seed=2)
    later = learned(made, 300)
    for _ in range(20):
        listed = lists.next()
        assert len(listed.note) == made.note_size(SHAPE) > 0
        decision = Decision(np.array(listed.items), np.array(listed.p), np.array(listed.note))
        later = made.learn(later, decision, np.zeros(3))


def test_where_there_is_nothing_to_choose_nothing_is_learned():
    for page in (Page(np.array([4]), {0: 1, 2: 3}), Page(np.array([0, 4]), {0: 1, 1: 2, 2: 3})):
        listed = lists_for(page).next()
        assert (listed.p, listed.learn, listed.absent) == ((1.0,) * 3, 0, ())
        assert all(listed.items[slot] == item for slot, item in page.pins.items())


def test_new_items_and_slots_are_shown_before_anything_is_learned_of_them():
    made = policy("ftrl-pbm")
    state, shape = learned(made), Shape(8, 4)
    lists = make_lists(made, state, Page(np.arange(8), {}), shape, MIXINGS["floor"], seed=2)
    assert lists.marginals.shape == (8, 4)
    assert np.allclose(lists.marginals[6], lists.marginals[7])
    assert state.shape == SHAPE
    assert make_lists(made, state, PAGES["whole"], Shape(6, 2), Mixing(0.1), seed=2).marginals.shape == (6, 2)
    with pytest.raises(ValueError, match="its state has no parts"):
        make_lists(
            policy("batchrank", horizon=99),
            SimpleNamespace(shape=SHAPE),
            PAGES["excluded"],
            shape,
            Mixing(0.1),
            seed=2,
        )


class Plain(Policy):
    """A policy in plain Python that shows its favourite first."""

    favourite = 2

    def init(self, n_items, n_positions):
        return {"n": n_items, "m": n_positions}

    def decide(self, state, rng):
        rest = rng.permutation([i for i in range(state["n"]) if i != self.favourite])
        ranking = np.array([self.favourite, *rest[: state["m"] - 1]])
        return Decision(ranking, np.full(state["m"], np.nan))

    def learn(self, state, decision, clicks):
        return state


def test_a_policy_in_plain_python_is_drawn_with_exact_probabilities():
    made = Plain()
    lists = make_lists(made, made.init(*SHAPE), PAGES["whole"], SHAPE, MIXINGS["floor"], seed=2)
    assert lists.id.startswith("Plain:")
    assert lists.marginals[2].tolist() == pytest.approx([0.9 + 0.1 / 6, 0.1 / 6, 0.1 / 6])
    assert deviations(lists, 5_000) < 5


@pytest.mark.parametrize(
    "wrong", [np.full((6, 3), 0.2), np.eye(6)[:, :3] * np.nan, np.tile([1.0, 0, 0, 0, 0, 0], (3, 1)).T]
)
def test_marginals_of_no_lists_are_refused(wrong):
    class Wrong(Plain):
        def sample_rankings(self, state, count, rng):
            return np.zeros((count, 3), np.int64)

        def marginals(self, state):
            return wrong if np.isfinite(wrong).all() else None

    with pytest.raises(ConvergenceError, match="not those of lists"):
        make_lists(Wrong(), {}, PAGES["whole"], SHAPE, MIXINGS["floor"], seed=2)


def test_arrays_of_a_caller_are_copied():
    """Numba would compile a kernel again for an array that cannot be written to."""
    x = np.full((6, 3), 1 / 6)
    x.setflags(write=False)
    Lists(x, PAGES["whole"], SHAPE, "p", seed=1).next()
    sampler = make_sampler(x.T[:3, :3].T, make_stream(1))
    rows = np.zeros((2, 3), np.int64)
    before = len(draw_rows.signatures) if hasattr(draw_rows, "signatures") else 0
    draw_rows(sampler, sampler.stream, rows)
    assert before == (len(draw_rows.signatures) if hasattr(draw_rows, "signatures") else 0)
