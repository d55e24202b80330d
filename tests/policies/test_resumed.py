"""The state from sums over events is the state after learning event by event."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds import policies
from bothworlds.core import Ledger, leaves
from bothworlds.policies import Policy

N, M, ROUNDS = 6, 3, 400
EXAMINATION = (1.0, 0.7, 0.4)
CLICKS = np.linspace(0.9, 0.2, N)[:, None] * np.array(EXAMINATION)
ADDITIVE = {
    "comb-ts": {},
    "comb-ucb": {},
    "fixed": {},
    "ftrl-pbm": {},
    "hybrid": {"losses": "shifted"},
    "kl-comb-ucb": {},
    "pbm-pie": {"examination": EXAMINATION},
    "pbm-ts": {"examination": EXAMINATION},
    "pbm-ucb": {"examination": EXAMINATION},
    "uniform": {},
}


def taught(policy: Policy, rng: np.random.Generator, rounds: int = ROUNDS) -> tuple[object, Ledger]:
    """A state after some events, and the sums of these events."""
    state, sums, places = policy.init(N, M), np.zeros((3, N, M)), np.arange(M)
    for _ in range(rounds):
        decision = policy.decide(state, rng)
        clicks = (rng.random(M) < CLICKS[decision.ranking, places]).astype(float)
        missing = (1.0 - clicks) / np.nan_to_num(decision.propensity, nan=1.0)
        for table, value in zip(sums, (missing, 1.0, clicks)):
            table[decision.ranking, places] += value
        state = policy.learn(state, decision, clicks)
    return state, Ledger(rounds, *sums)


@pytest.mark.parametrize("name", sorted(ADDITIVE))
def test_a_state_from_sums_decides_like_one_taught_event_by_event(name, generator):
    policy = policies.policy(name, **ADDITIVE[name])
    state, ledger = taught(policy, generator(1))
    resumed = policy.resumed(ledger)
    one, other = generator(2), generator(2)
    for _ in range(50):
        a, b = policy.decide(state, one), policy.decide(resumed, other)
        assert a.ranking.tolist() == b.ranking.tolist()
        assert np.allclose(a.propensity, b.propensity, atol=1e-5, equal_nan=True)
    marginals = policy.marginals(resumed)
    if marginals is not None:
        assert np.allclose(marginals, policy.marginals(state), atol=1e-5)


@pytest.mark.parametrize("name", sorted(ADDITIVE))
def test_a_state_from_sums_learns_on_like_any_other(name, generator):
    policy = policies.policy(name, **ADDITIVE[name])
    state, ledger = taught(policy, generator(1), 50)
    resumed = policy.resumed(ledger)
    decision = policy.decide(state, generator(3))
    one, other = (dict(leaves(policy.learn(known, decision, [1, 0, 0]))) for known in (state, resumed))
    for path in one:
        if path.startswith(("counts", "loss", "epochs", "plan")):
            assert np.allclose(one[path], other[path], atol=1e-6), path


def test_a_constant_added_to_the_losses_of_a_position_changes_nothing(generator):
    policy = policies.policy("ftrl-pbm")
    _, ledger = taught(policy, generator(1))
    moved = ledger._replace(loss=ledger.loss + np.array([1e6, 0.0, -3e5]))
    one, other = (policy.marginals(policy.resumed(known)) for known in (ledger, moved))
    assert np.allclose(one, other, atol=1e-6)


def test_sums_of_a_hundred_million_rounds_are_resumed(generator):
    rounds = 10**8
    policy = policies.policy("ftrl-pbm")
    x = policy.marginals(policy.resumed(Ledger(rounds, rounds * (1.0 - CLICKS), *np.zeros((2, N, M)))))
    assert np.allclose(x.sum(axis=0), 1.0)
    assert x.argmax(axis=0).tolist() == [0, 1, 2]
    assert x.max(axis=0).min() > 0.999


@pytest.mark.parametrize("name", sorted(set(policies.names()) - set(ADDITIVE)))
def test_what_depends_on_order_is_refused_with_the_reason(name):
    try:
        policy = policies.policy(name, examination=EXAMINATION)
    except ValueError:
        policy = policies.policy(name)
    with pytest.raises(ValueError, match="depends on the order of events"):
        policy.resumed(Ledger(0, *np.zeros((3, N, M))))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ftrl-pbm", {"restart": 100}),
        ("hybrid", {"restart": 100}),
        ("comb-ts", {"window": 100}),
        ("kl-comb-ucb", {"discount": 0.9}),
        ("pbm-ucb", {"discount": 0.9, "examination": EXAMINATION}),
        ("pbm-pie", {"restart": 9, "examination": EXAMINATION}),
    ],
)
def test_forgetting_depends_on_order(name, settings):
    with pytest.raises(ValueError, match="depends on the order of events"):
        policies.policy(name, **settings).resumed(Ledger(0, *np.zeros((3, N, M))))


def test_the_comparison_notices_a_round_too_many(generator):
    policy = policies.policy("ftrl-pbm")
    state, ledger = taught(policy, generator(1))
    wrong = policy.resumed(ledger._replace(rounds=2 * ROUNDS))
    assert not np.allclose(policy.marginals(wrong), policy.marginals(state), atol=1e-5)


def test_a_part_of_a_policy_keeps_what_it_was_told_of_the_rest():
    known = policies.policy("pbm-ucb", examination=EXAMINATION)
    assert known.part(np.arange(N), np.array([0, 2])).examination == (1.0, 0.4)
    listed = policies.policy("fixed", ranking=(4, 2, 0))
    assert listed.part(np.array([0, 1, 4, 5]), np.arange(2)).ranking == (2, 0, 1, 3)
    assert policies.policy("ftrl-pbm").part(np.arange(2), np.arange(1)) == policies.policy("ftrl-pbm")
