"""Worlds whose clicks depend on each other, against enumeration of all click patterns, counts, and brute force."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

import bothworlds
from bothworlds.core import click, expected_reward
from bothworlds.worlds import (
    ClickWorld,
    browsing,
    cascade,
    click_chain,
    dependent_clicks,
    dynamic_bayesian,
    from_description,
    matrix,
    periodic,
)
from bothworlds.worlds.best_list import all_lists, browsing_bound, search
from tests.reference.click_chains import browsing_patterns, patterns

ALPHA = [0.9, 0.5, 0.25, 0.7]
WORLDS = {
    "cascade": cascade(ALPHA, 3),
    "dcm": dependent_clicks(ALPHA, [0.5, 0.75, 0.25]),
    "sdbn": dynamic_bayesian(ALPHA, [0.25, 0.75, 0.5, 0.125], 1.0, 3),
    "dbn": dynamic_bayesian(ALPHA, [0.25, 0.75, 0.5, 0.125], 0.75, 3),
    "ccm": click_chain(ALPHA, [0.75, 0.25, 0.5], 3),
    "ubm": browsing(ALPHA, [1.0, 0.5, 0.75, 0.25, 0.375, 0.875]),
}
RANKING = np.array([2, 0, 3])


def law_of(world, ranking):
    """The probabilities of all click patterns on a list, exactly."""
    alpha = [Fraction(a) for a in world.attraction]
    if not (world.examination_by_column == 1.0).all():
        gamma = [Fraction(g) for g in world.examination_by_column]
        return browsing_patterns([alpha[i] for i in ranking], [gamma[:1], gamma[1:3], gamma[3:6]])
    kappa = [Fraction(k) for k in world.continuation]
    page = [(alpha[i], kappa[k] if world.by_position else kappa[i]) for k, i in enumerate(ranking)]
    return patterns(page, Fraction(world.skip))


@pytest.mark.parametrize("name", WORLDS)
def test_the_expected_reward_is_that_of_all_click_patterns(name):
    world = WORLDS[name]
    for ranking in permutations(range(4), 3):
        exact = sum(p * sum(clicks) for clicks, p in law_of(world, ranking).items())
        assert world.expected_reward(0, np.array(ranking)) == pytest.approx(float(exact), abs=1e-14)


def chi_square(world, law, draws=4_000):
    users, rng, clicks, counts = world.users(0), np.random.default_rng(5), np.empty(3), {}
    for _ in range(draws):
        click(users, RANKING, rng, clicks)
        counts[tuple(clicks.astype(int).tolist())] = counts.get(tuple(clicks.astype(int).tolist()), 0) + 1
    assert all(law[pattern] > 0 for pattern in counts)
    return sum((counts.get(c, 0) - draws * float(p)) ** 2 / (draws * float(p)) for c, p in law.items() if p > 0)


@pytest.mark.parametrize("name", WORLDS)
def test_clicks_have_the_law_of_the_model(name):
    # Seven degrees of freedom or fewer: a value of 32 has probability below 1e-4.
    assert chi_square(WORLDS[name], law_of(WORLDS[name], RANKING)) < 32.0


def test_the_law_of_independent_clicks_with_the_same_marginals_is_told_apart():
    world = WORLDS["ubm"]
    law = law_of(world, RANKING)
    marginal = [sum(p for clicks, p in law.items() if clicks[k]) for k in range(3)]
    apart = {c: np.prod([float(p if k else 1 - p) for k, p in zip(c, marginal)]) for c in law}
    assert chi_square(world, apart) > 100.0


def test_every_list_takes_the_same_random_numbers():
    for world in WORLDS.values():
        after = set()
        for ranking in ([0, 1, 2], [3, 2, 1]):
            rng = np.random.default_rng(1)
            for _ in range(10):
                world.click(0, np.array(ranking), rng)
            after.add(rng.random())
        assert len(after) == 1


def brute_force(world):
    lists = all_lists(world.n_items, world.n_positions)
    return float(world.expected_rewards(0, lists).max())


def random_worlds(kind, count=20, n=6, m=3):
    rng = np.random.default_rng(8)
    for _ in range(count):
        alpha, sigma, values = rng.random(n), rng.random(n), rng.random(m)
        if kind == "dbn":
            yield dynamic_bayesian(alpha, sigma, rng.random(), m)
        elif kind == "ubm":
            yield browsing(alpha, rng.random(m * (m + 1) // 2))
        else:
            order = {"falling": -np.sort(-values), "rising": np.sort(values), "any": values}[kind]
            yield dependent_clicks(alpha, np.append(order, rng.random()))


@pytest.mark.parametrize("kind", ["dbn", "falling", "rising", "any", "ubm"])
def test_best_lists_are_best(kind):
    top_items = 0
    for world in random_worlds(kind):
        best = world.best_list(0)
        assert best.exact
        assert best.value == pytest.approx(brute_force(world), abs=1e-12)
        assert world.expected_reward(0, best.ranking) == pytest.approx(best.value, abs=1e-12)
        top = np.argsort(-world.attraction)[: world.n_positions]
        top_items += world.expected_reward(0, top) < best.value - 1e-9
    # A rule that shows the most attractive items in falling order is right only where continuation falls.
    assert (top_items == 0) == (kind == "falling")


def test_a_cascade_shows_its_most_attractive_items():
    best = cascade([0.1, 0.9, 0.2, 0.4], 2).best_list(0)
    assert best.ranking.tolist() == [1, 3]
    assert best.value == pytest.approx(1 - 0.1 * 0.6)


def test_without_satisfaction_all_lists_of_sdbn_are_worth_their_attraction():
    world = dynamic_bayesian(ALPHA, np.zeros(4), 1.0, 3)
    assert world.expected_reward(0, RANKING) == pytest.approx(sum(ALPHA[i] for i in RANKING))


def test_local_search_states_how_much_better_the_best_list_may_be():
    falling = [1.0 / (1.0 + 0.4 * (k - 1 - last)) for k in range(1, 8) for last in range(k)]
    world = browsing(np.linspace(0.8, 0.1, 12), falling)  # four million lists
    best = world.best_list(0)
    assert not best.exact
    assert best.value < best.bound == pytest.approx(browsing_bound(world.attraction, np.array(falling), 7))
    assert "local search; the best list has at most" in best.guarantee
    # Examination that falls with the position and with the distance: falling attraction is best.
    assert best.ranking.tolist() == list(range(7))


def test_the_bound_of_browsing_is_above_every_list():
    above = 0
    for world in random_worlds("ubm"):
        bound, best = browsing_bound(world.attraction, world.examination_by_column, 3), brute_force(world)
        assert bound >= best - 1e-12
        above += bound > best + 1e-9
    assert above > 10  # it chooses items after seeing clicks, and is no rule for a list


def test_search_of_one_position_and_all_items():
    assert search(lambda lists: lists[:, 0] / 10.0, 5, 1, 100).ranking.tolist() == [4]
    assert search(lambda lists: lists[:, 0] / 10.0, 5, 1, 0).ranking.tolist() == [4]
    assert search(lambda lists: lists @ [1.0, 2.0, 3.0], 3, 3, 0).ranking.tolist() == [0, 1, 2]


def test_many_items_with_any_continuation_are_searched():
    world = dependent_clicks(np.linspace(0.1, 0.9, 20), [0.9, 0.1, 0.8, 0.2, 0.5])
    best = world.best_list(0)
    assert not best.exact
    assert best.value >= world.expected_reward(0, np.arange(20)[::-1][:5])


@pytest.mark.parametrize("name", WORLDS)
def test_a_description_builds_the_world_again(name):
    again = from_description(WORLDS[name].description())
    assert type(again) is type(WORLDS[name])
    assert again.expected_reward(0, RANKING) == WORLDS[name].expected_reward(0, RANKING)


def test_worlds_of_lists_alternate():
    first, second = WORLDS["cascade"], WORLDS["ubm"]
    year = periodic([first, second], phase=10)
    assert not year.has_table
    for t, world in ((0, first), (9, first), (10, second), (19, second), (20, first)):
        assert year.expected_reward(t, RANKING) == world.expected_reward(0, RANKING)
        assert year.first_round_like(t) == (0 if world is first else 10)
    assert list(year.spans(5, 25)) == [10, 20, 25]
    assert year.first_change() == 10
    assert from_description(year.description()).expected_reward(10, RANKING) == second.expected_reward(0, RANKING)
    with pytest.raises(ValueError, match="cannot alternate with others"):
        periodic([first, matrix(np.full((4, 3), 0.5))], phase=10)
    with pytest.raises(ValueError, match="one shape"):
        periodic([first, cascade(ALPHA, 2)], phase=10)
    nested = periodic([year, first], phase=15)
    assert list(nested.spans(5, 30)) == [10, 15, 30]
    assert [nested.first_round_like(t) for t in (9, 12, 20, 29)] == [0, 12, 15, 15]
    assert nested.first_change() == 10


def test_items_in_another_order_are_the_same_items():
    labels = np.array([2, 3, 1, 0])
    for world in (*WORLDS.values(), periodic([WORLDS["dcm"], WORLDS["dbn"]], phase=5)):
        other = world.relabelled(labels)
        ranking = np.array([0, 3, 1])
        assert other.expected_reward(6, ranking) == world.expected_reward(6, labels[ranking])
        assert expected_reward(other.users(6), ranking) == pytest.approx(other.expected_reward(6, ranking))
        best = other.best_list(6)
        assert other.expected_reward(6, best.ranking) == pytest.approx(world.best_list(6).value)
        assert from_description(other.description()).expected_reward(6, ranking) == other.expected_reward(6, ranking)


def test_a_world_of_lists_has_no_table():
    with pytest.raises(ValueError, match="depends on the rest of the list"):
        bothworlds.world("cascade/paper").click_probabilities(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cascade([0.5, 1.5], 1), "attraction must be probabilities"),
        (lambda: cascade([0.5, 0.5], 3), "at most the number of items"),
        (lambda: dependent_clicks([0.5, 0.5], [0.5, 0.5, 0.5]), "at most the number of items"),
        (lambda: ClickWorld([0.5, 0.5], 1, continuation=[0.5]), "one entry for each item"),
        (lambda: dynamic_bayesian([0.5, 0.5], [0.5, 0.5], 1.1, 1), "gamma must be a number"),
        (lambda: click_chain([0.5, 0.5], [0.5, 0.5], 1), "three probabilities"),
        (lambda: browsing([0.5, 0.5], [1.0, 0.5]), "every pair"),
        (lambda: browsing([0.5], [1.0, 0.5, 0.5]), "at most the number of items"),
        (lambda: bothworlds.world("dcm/paper", continuation=2), "continuation must be a number"),
    ],
)
def test_impossible_numbers_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_named_worlds_have_the_papers_attraction():
    for name in ("cascade", "dcm", "dbn", "ubm"):
        np.testing.assert_allclose(bothworlds.world(f"{name}/paper").attraction, 0.95 - 0.03 * np.arange(10))
        assert bothworlds.world(f"{name}/yandex").attraction[0] == 0.894
    table = bothworlds.world("trust/paper").click_probabilities(0)
    assert table[0, 0] == pytest.approx(0.95 + 0.5 * 0.05)
    assert table[0, 1] == pytest.approx((0.95 + 0.25 * 0.05) / 2)
    gamma = bothworlds.world("ubm/paper").examination_by_column
    assert gamma[:6] == pytest.approx([1.0, 0.5, 0.7, 1 / 3, 0.35, 0.7])
