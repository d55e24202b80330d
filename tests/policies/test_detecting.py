"""The setting ``detect``: counts forget everything before a detected change, and nothing without it."""

from __future__ import annotations

import pytest

import bothworlds
from bothworlds.policies import policy
from tests.policies.by_hand import rounds_of

NAMES = ("comb-ucb", "gibbs-ts", "pbm-ucb-mle")
SEASONS = bothworlds.worlds.periodic(
    [
        bothworlds.worlds.stochastic([0.9, 0.7, 0.4, 0.2, 0.1], [1.0, 0.6, 0.3]),
        bothworlds.worlds.stochastic([0.1, 0.2, 0.4, 0.7, 0.9], [0.3, 0.6, 1.0]),
    ],
    phase=1_600,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_change_is_noticed_and_everything_before_it_forgotten(name):
    learner, remembered = policy(name, detect=True), []
    for t, state, _, _ in rounds_of(learner, SEASONS, 3_200):
        remembered.append(state.counts.rounds[0])
        assert state.counts.shown.sum() == 3 * remembered[-1]
        assert state.counts.learned[0] == t - 1
    assert remembered[1_600] == 1_600
    assert remembered[-1] <= 1_600
    assert state.detector.changes[0] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_earns_more_where_users_change(name):
    keep, forget = (
        bothworlds.play(policy(name, detect=detect), SEASONS, 9_600, replications=3, progress=False)
        for detect in (False, True)
    )
    assert forget.final()[0] > keep.final()[0] + 0.03


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_with_steady_users_it_is_the_same_policy(name):
    keep, forget = (policy(name, detect=detect) for detect in (False, True))
    world = bothworlds.world("paper/stochastic")
    assert keep == policy(name)
    assert keep.init(10, 5).detector.blocks.size == 0
    one, other = (bothworlds.play(p, world, 4_000, replications=2, progress=False) for p in (keep, forget))
    assert (one.reward == other.reward).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("other", [{"window": 100}, {"discount": 0.9}])
def test_it_is_one_of_three_ways_to_forget(name, other):
    with pytest.raises(ValueError, match=r"(window|discount) and detect exclude each other"):
        policy(name, detect=True, **other)
    with pytest.raises(ValueError, match="detect must be True or False"):
        policy(name, detect=1)
