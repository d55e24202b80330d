"""Lists are reproducible from the seed, and drawn with the logged probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from bothworlds.kernels import kernel
from bothworlds.policies.parts.random_stream import make_stream
from bothworlds.serve.engine.list_sampler import FEW_ITEMS, draw_list, make_list_sampler
from bothworlds.serve.model import event_id_of, seed_of

from ..running import answer, visit, with_engine

KEY = b"a key that is the same in every run"


def seeds(count: int):
    return (seed_of(event_id_of(1, f"request {k}", KEY), KEY) for k in range(count))


def some_marginals(rng: np.random.Generator, n: int = 6, m: int = 3) -> np.ndarray:
    return np.mean([np.eye(n)[:, rng.permutation(n)[:m]] for _ in range(5)], axis=0) * 0.9 + 0.1 / n


def p_value(counts: np.ndarray, x: np.ndarray, draws: int) -> float:
    """The smallest of the slots', which are not independent of one another."""
    return min(chisquare(counts[:, j], draws * x[:, j]).pvalue for j in range(x.shape[1]))


@pytest.mark.slow
def test_shown_frequencies_are_the_probabilities(rng):
    x, draws = some_marginals(rng), 20_000
    sampler, counts = make_list_sampler(x), np.zeros_like(x)
    for seed in seeds(draws):
        counts[draw_list(sampler, seed), [0, 1, 2]] += 1
    assert p_value(counts, x, draws) > 1e-4
    assert p_value(counts, np.full_like(x, 1 / 6), draws) < 1e-4  # the check can fail


@pytest.mark.slow
def test_many_items_are_drawn_with_their_probabilities_too(rng):
    n, draws = FEW_ITEMS + 100, 20_000
    x = some_marginals(rng, n)
    sampler = make_list_sampler(x)
    counts, unsearched, first = np.zeros_like(x), np.zeros_like(x), sampler.members[sampler.start[:-1]]
    for seed in seeds(draws):
        rows = draw_list(sampler, seed)
        assert len(set(rows)) == 3
        counts[rows, [0, 1, 2]] += 1
        bins = np.searchsorted(sampler.start, np.argsort(sampler.members)[rows], side="right") - 1
        unsearched[first[bins], [0, 1, 2]] += 1
    assert len(sampler.bins) <= 2 * 3 + 1
    assert p_value(counts, x, draws) > 1e-4
    assert p_value(unsearched, x, draws) < 1e-4  # a sampler that always took the first item of a bin is caught


def test_the_same_seed_gives_the_same_list_whatever_was_drawn_before(rng):
    x = some_marginals(rng)
    one, other = make_list_sampler(x), make_list_sampler(x)
    wanted = [draw_list(one, seed) for seed in seeds(50)]
    for seed, expected in reversed(list(zip(seeds(50), wanted))):
        assert draw_list(other, seed) == expected


def test_a_seed_of_zeros_draws_a_valid_list(rng):
    sampler = make_list_sampler(some_marginals(rng))
    assert len(set(draw_list(sampler, bytes(16)))) == 3
    assert sampler.stream.words.any()


@kernel
def compiled_number(stream):
    return stream.random()


@pytest.mark.slow
def test_a_stream_gives_the_same_numbers_compiled_and_interpreted():
    one, other = make_stream(5), make_stream(5)
    assert [compiled_number(one) for _ in range(20)] == [other.random() for _ in range(20)]


@pytest.mark.slow
@with_engine(floor=0.1)
async def test_pages_show_items_as_often_as_they_log(engine, store, clock):
    for k in range(200):
        await visit(engine, f"v{k}", {"a", "b"})
    before = engine.refresher.surfaces["home"].segments[""].unconstrained.learner
    engine.writer.enqueue_decision = lambda event: None  # keep the policy as it is
    shown, x = np.zeros((6, 3)), before.marginals
    for k in range(6_000):
        ranked = await engine.rank("home", f"w{k}")
        if ranked.policy_id != before.id:
            before = engine.refresher.surfaces["home"].segments[""].unconstrained.learner
            x, shown = before.marginals, np.zeros((6, 3))
        for slot in ranked.slots:
            row = "abcdef".index(slot.item)
            shown[row, slot.slot] += 1
            assert slot.p == x[row, slot.slot]
    assert p_value(shown, x, int(shown[:, 0].sum())) > 1e-4


@with_engine()
async def test_pins_are_certain_and_the_rest_is_drawn_without_them(engine, store, clock):
    counts = np.zeros(6)
    for k in range(3_000):
        ranked = await engine.rank("home", f"v{k}", pins={1: "c"}, exclude=["a"])
        assert [s.item for s in ranked.slots][1] == "c"
        assert (ranked.slots[1].p, ranked.slots[1].pinned, ranked.slots[1].learn) == (1.0, True, False)
        assert "a" not in {slot.item for slot in ranked.slots}
        assert ranked.slots[0].p == 0.25
        counts["abcdef".index(ranked.slots[0].item)] += 1
    assert chisquare(counts[[1, 3, 4, 5]]).pvalue > 1e-4
    await answer(engine, ranked, [1])
    cells = store.totals()[1, ""]
    assert all(slot != 1 for _, slot in cells[2])  # nothing is learned from the pinned slot
