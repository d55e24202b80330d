"""Adversarial and drifting worlds: the click probabilities of their users, round by round."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bothworlds
from bothworlds.geometry import best_ranking
from bothworlds.testing import check_world
from bothworlds.worlds import Changing, examination_of, names, world
from tests.cases import case

NAMES = [name for name in names() if name.startswith(("adversarial/", "drift/"))]
CHANGING = [name for name in NAMES if isinstance(world(name), Changing)]
ALPHA = 0.95 - 0.03 * np.arange(10)
BETA = 1.0 / np.arange(1.0, 6.0)


def attraction_at(made, t):
    """Attraction in round t: the first position is always examined."""
    return made.click_probabilities(t)[:, 0]


def phase_lengths(made, rounds):
    ends = [end for end, _ in made.pieces(0, rounds)]
    return np.diff([0, *ends])[:-1]


def test_all_six_have_names():
    assert NAMES == [
        "adversarial/corruption",
        "adversarial/fraud",
        "adversarial/growing-phases",
        "adversarial/hard-instance",
        "drift/slow",
        "drift/switching",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_they_are_worlds_far_into_the_game(name):
    check_world(name, rounds=30_000)
    check_world(name, rounds=1_000_000)


@pytest.mark.slow
def test_a_million_rounds_are_few_pieces():
    for name in NAMES:
        with case(name=name):
            assert sum(1 for _ in world(name).pieces(0, 1_000_000)) < 5_000


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGING)
@given(rounds=st.lists(st.integers(0, 10**6), min_size=1, max_size=8))
def test_rounds_may_be_requested_in_any_order(name, rounds):
    made, twin = world(name), world(name)
    expected = {t: made.click_probabilities(t) for t in rounds}
    for t in sorted(rounds):
        assert (twin.click_probabilities(t) == expected[t]).all()


@pytest.mark.parametrize("name", ["adversarial/corruption", "adversarial/growing-phases"])
def test_no_round_is_too_far_where_changes_become_rare(name):
    assert world(name).click_probabilities(2**63).shape == (10, 5)


@pytest.mark.slow
def test_several_threads_see_the_same_world():
    for name in NAMES:
        with case(name=name):
            made = world(name)
            with ThreadPoolExecutor(8) as pool:
                seen = list(pool.map(lambda stop, made=made: [p.sum() for _, p in made.pieces(0, stop)], [300_000] * 8))
            assert all(sums == seen[0] for sums in seen)


def test_they_can_be_sent_to_another_process():
    for name in NAMES:
        with case(name=name):
            made = world(name)
            twin = pickle.loads(pickle.dumps(made))
            assert (twin.click_probabilities(12_345) == made.click_probabilities(12_345)).all()


@pytest.mark.parametrize("name", ["drift/slow", "drift/switching", "adversarial/hard-instance"])
def test_a_seed_is_another_world(name):
    first, again, other = (world(name, seed=seed).click_probabilities(50_000) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "adversarial/hard-instance"])
def test_the_examination_of_round_0_is_known(name):
    assert examination_of(world(name)) == pytest.approx(BETA)


def test_the_hard_instance_has_no_examination():
    assert examination_of(world("adversarial/hard-instance")) is None


def test_the_hard_instance_has_any_shape():
    made = world("adversarial/hard-instance", n_items=6, n_positions=2, rounds=500)
    assert (made.n_items, made.n_positions) == (6, 2)
    assert made.click_probabilities(0).max() == pytest.approx(0.5 + np.sqrt(5 / 500) / 8)


# Growing phases


def test_attraction_changes_and_gaps_stay():
    made = world("adversarial/growing-phases", phase=10, growth=2.0)
    ends = [end for end, _ in made.pieces(0, 1000)]
    assert ends == [10, 30, 70, 150, 310, 630, 1000]
    for k, end in enumerate(ends):
        expected = ALPHA - (0.68 if k % 2 else 0.0)
        np.testing.assert_allclose(attraction_at(made, end - 1), expected, atol=1e-12)
        p = made.click_probabilities(end - 1)
        np.testing.assert_allclose(p - p[0], np.outer(ALPHA - ALPHA[0], BETA), atol=1e-12)
        assert best_ranking(p).tolist() == [0, 1, 2, 3, 4]


def test_phases_need_not_grow():
    assert set(phase_lengths(world("adversarial/growing-phases", phase=7, growth=1), 5_000)) == {7}


# Corruption


def test_a_share_of_the_early_rounds_is_reversed_and_no_other():
    made = world("adversarial/corruption", early=1_050, share=0.3)
    reverse = np.array([attraction_at(made, t)[0] < 0.9 for t in range(2_000)])
    assert reverse[:1_000].sum() == 300
    assert reverse[1_000:1_050].sum() == 30
    assert not reverse[1_050:].any()
    np.testing.assert_allclose(attraction_at(made, 0), ALPHA[::-1])
    np.testing.assert_allclose(attraction_at(made, 99), ALPHA)


@pytest.mark.parametrize(("early", "share", "corrupted"), [(0, 0.5, 0), (500, 0.0, 0), (500, 1.0, 500), (1, 1.0, 1)])
def test_corruption_may_be_nothing_or_everything(early, share, corrupted):
    made = world("adversarial/corruption", early=early, share=share)
    check_world(made)
    assert sum(attraction_at(made, t)[0] < 0.9 for t in range(700)) == corrupted


# Fraud


def test_bots_click_one_item_wherever_it_stands():
    made = world("adversarial/fraud", item=3, share=0.25, phase=10)
    honest, fraud = made.click_probabilities(9), made.click_probabilities(10)
    np.testing.assert_allclose(honest, np.outer(ALPHA, BETA))
    np.testing.assert_allclose(fraud - 0.75 * honest, 0.25 * (np.arange(10) == 3)[:, None] * np.ones(5), atol=1e-12)
    assert (made.click_probabilities(20) == honest).all()


def test_the_promoted_item_is_worth_most_at_the_bottom():
    fraud = world("adversarial/fraud").click_probabilities(10_000)
    assert best_ranking(fraud).tolist() == [0, 1, 2, 3, 9]
    assert fraud[9].argmax() == 0  # though it looks best at the top


# Drift


def test_taste_walks_and_is_reflected():
    made = world("drift/slow", step=0.1, phase=10)
    path = np.array([attraction_at(made, t) for t in range(0, 20_000, 10)])
    np.testing.assert_allclose(path[0], ALPHA, atol=1e-12)
    assert path.min() >= 0.05 - 1e-12
    assert path.max() <= 0.95 + 1e-12
    assert path.max() - path.min() > 0.89
    inside = ((path > 0.4) & (path < 0.6))[:-1]
    assert np.diff(path, axis=0)[inside].std() == pytest.approx(0.1, rel=0.1)


def test_a_walk_forgets_where_it_started():
    # Reflection keeps the uniform distribution: in the long run every attraction is equally likely.
    made = world("drift/slow", step=0.2, phase=1)
    path = np.array([p[:, 0] for _, p in made.pieces(0, 5_000)])
    assert np.histogram(path, 9, (0.05, 0.95))[0] / path.size == pytest.approx(np.full(9, 1 / 9), abs=0.02)


def test_without_steps_nothing_drifts():
    assert (attraction_at(world("drift/slow", step=0.0), 10**6) == attraction_at(world("drift/slow", step=0), 0)).all()


def test_phases_have_random_lengths_and_orders():
    made = world("drift/switching")
    lengths = phase_lengths(made, 1_000_000)
    assert lengths.min() == 50
    assert lengths.max() == 500
    assert lengths.mean() == pytest.approx(275, abs=5 * 130 / np.sqrt(lengths.size))
    orders = np.array([p[:, 0] for _, p in made.pieces(0, 1_000_000)])
    np.testing.assert_allclose(np.sort(orders, axis=1)[:, ::-1], np.tile(ALPHA, (len(orders), 1)))
    assert orders.mean(axis=0) == pytest.approx(np.full(10, ALPHA.mean()), abs=5 * 0.09 / np.sqrt(len(orders)))


def test_lengths_may_be_fixed():
    assert set(phase_lengths(world("drift/switching", shortest=30, longest=30), 3_000)) == {30}


# Playing, and bad settings


@pytest.mark.slow
def test_policies_play_there():
    for name in NAMES:
        with case(name=name):
            world = bothworlds.world(name, **({"phase": 500} if name.endswith("fraud") else {}))
            result = bothworlds.play("ftrl-pbm", world, 2_000, replications=2, checkpoints=4)
            assert np.isfinite(result.reward).all()
            assert (result.regret("dynamic") >= -1e-9).all()


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("adversarial/hard-instance", {"n_items": 6}, "n_items must be at least 10"),
        ("adversarial/hard-instance", {"rounds": 5}, "rounds must be at least"),
        ("adversarial/hard-instance", {"seed": -1}, "seed must be"),
        ("adversarial/growing-phases", {"growth": 0.5}, "growth must be a number from 1 to 10"),
        ("adversarial/growing-phases", {"phase": 0}, "phase must be"),
        ("adversarial/growing-phases", {"gap": 0.2}, "gap must be"),
        ("adversarial/corruption", {"share": 1.5}, "share must be a number from 0 to 1"),
        ("adversarial/corruption", {"share": float("nan")}, "share must be"),
        ("adversarial/corruption", {"early": -1}, "early must be"),
        ("adversarial/fraud", {"item": 10}, "item must be from 0 to 9"),
        ("adversarial/fraud", {"item": "nine"}, "item must be"),
        ("adversarial/fraud", {"phase": 0}, "phase must be"),
        ("adversarial/fraud", {"share": True}, "share must be"),
        ("drift/slow", {"step": -0.1}, "step must be"),
        ("drift/slow", {"phase": 0.5}, "phase must be"),
        ("drift/slow", {"seed": None}, "seed must be"),
        ("drift/switching", {"shortest": 0}, "shortest must be"),
        ("drift/switching", {"shortest": 60, "longest": 50}, "longest must be a whole number of at least 60"),
    ],
)
def test_impossible_settings_are_refused_by_name(name, settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        world(name, **settings)
