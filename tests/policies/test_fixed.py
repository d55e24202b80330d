"""A fixed list."""

from __future__ import annotations

import numpy as np
import pytest

import bothworlds
from bothworlds.policies import policy


def test_the_list_is_shown_with_certainty(rng):
    fixed = policy("fixed", ranking=[3, 1])
    decision = fixed.decide(fixed.init(4, 2), rng)
    assert decision.ranking.tolist() == [3, 1]
    assert decision.propensity.tolist() == [1.0, 1.0]


def test_a_longer_list_is_cut_and_none_means_as_listed(rng):
    for ranking, shown in (((3, 1, 0, 2), [3, 1]), (None, [0, 1])):
        fixed = policy("fixed", ranking=ranking)
        assert fixed.decide(fixed.init(4, 2), rng).ranking.tolist() == shown


@pytest.mark.parametrize("ranking", [None, [4, 2, 0, 1, 3]])
def test_shuffled_labels_do_not_change_what_the_list_earns(ranking):
    world = bothworlds.world("paper/stochastic")
    result = bothworlds.play(policy("fixed", ranking=ranking), world, 50, replications=5)
    earned = world.click_probabilities(0)[ranking or range(5), np.arange(5)].sum()
    np.testing.assert_allclose(result.average_reward(), earned)


@pytest.mark.parametrize("ranking", [[], [0, 0], [-1, 2], [0.5, 1], "best", [[0, 1]], [[0], [1, 2]]])
def test_an_invalid_list_is_refused(ranking):
    with pytest.raises(ValueError, match="ranking must be"):
        policy("fixed", ranking=ranking)


@pytest.mark.parametrize("ranking", [[0], [0, 7]])
def test_a_list_for_another_page_is_refused(ranking):
    with pytest.raises(ValueError, match="ranking must be at least 2 item indices below 4"):
        policy("fixed", ranking=ranking).init(4, 2)


def test_a_list_survives_saving(tmp_path):
    ranker = bothworlds.Ranker(list("abcd"), 2, policy=policy("fixed", ranking=[3, 1]), seed=0)
    ranker.save(tmp_path / "ranker")
    assert bothworlds.Ranker.load(tmp_path / "ranker").rank().items == ("d", "b")
