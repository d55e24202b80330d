"""The state from sums over events is the state after learning event by event."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bothworlds import policies
from bothworlds.core import Block, Ledger, leaves
from bothworlds.policies import Policy
from bothworlds.policies.marginals import frequencies
from bothworlds.policies.parts.counts import remembered

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
    "pbm-pie-mle": {"refit": 1e-9},
    "pbm-ts": {"examination": EXAMINATION},
    "pbm-ucb": {"examination": EXAMINATION},
    "pbm-ucb-mle": {"refit": 1e-9},
    "uniform": {},
}
PREDICTING = {"ftrl-va", "tsallis-rv"}  # additive where predictions are in force for many events
SAMPLED = {"all-weather", "ftpl", "gibbs-ts"}  # additive in law: they draw random numbers while they learn
FORGETTING = [
    ("comb-ts", {"window": 150}),
    ("comb-ucb", {"window": 90}),
    ("kl-comb-ucb", {"discount": 0.99}),
    ("pbm-ts", {"discount": 0.98, "examination": EXAMINATION}),
    ("pbm-ucb", {"discount": 0.9, "examination": EXAMINATION}),
    ("pbm-ucb-mle", {"discount": 0.99, "refit": 1e-9}),
]


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


def taught_in_blocks(
    policy: Policy, rng: np.random.Generator, sizes: list[int]
) -> tuple[Any, Ledger, list[tuple[np.ndarray, np.ndarray]]]:
    """A state after some events, a ledger with blocks of so many rounds, and rankings and clicks of all rounds."""
    state, blocks, rounds, places = policy.init(N, M), [], [], np.arange(M)
    for k, size in enumerate(sizes):
        shown, clicked = np.zeros((2, N, M))
        for _ in range(size):
            decision = policy.decide(state, rng)
            clicks = (rng.random(M) < CLICKS[decision.ranking, places]).astype(float)
            shown[decision.ranking, places] += 1.0
            clicked[decision.ranking, places] += clicks
            state = policy.learn(state, decision, clicks)
            rounds.append((decision.ranking, clicks))
        blocks.append(Block(float(k), k + 1.0, size, shown, clicked))
    shown, clicked = (sum(getattr(block, name) for block in blocks) for name in ("shown", "clicked"))
    return state, Ledger(sum(sizes), np.zeros((N, M)), shown, clicked, tuple(blocks)), rounds


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


@pytest.mark.parametrize("name", sorted(set(policies.names()) - set(ADDITIVE) - SAMPLED - PREDICTING))
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
        ("ftrl-va", {"restart": 100}),
        ("tsallis-rv", {"restart": 100}),
        ("hybrid", {"restart": 100}),
        ("pbm-pie", {"restart": 9, "examination": EXAMINATION}),
    ],
)
def test_restarting_depends_on_order(name, settings):
    with pytest.raises(ValueError, match="depends on the order of events"):
        policies.policy(name, **settings).resumed(Ledger(0, *np.zeros((3, N, M))))


@pytest.mark.parametrize(("name", "settings"), FORGETTING)
def test_a_policy_that_forgets_needs_blocks(name, settings, generator):
    policy = policies.policy(name, **settings)
    assert policy.needs_blocks
    assert not policies.policy(name, examination=EXAMINATION).needs_blocks if "examination" in settings else True
    _, ledger, _ = taught_in_blocks(policy, generator(1), [10])
    with pytest.raises(ValueError, match="has no blocks"):
        policy.resumed(ledger._replace(blocks=()))
    policy.resumed(Ledger(0, *np.zeros((3, N, M))))


@pytest.mark.parametrize(("name", "settings"), FORGETTING)
def test_with_blocks_of_one_round_forgetting_is_exact(name, settings, generator):
    policy = policies.policy(name, **settings)
    state, ledger, _ = taught_in_blocks(policy, generator(1), [1] * 250)
    resumed = policy.resumed(ledger)
    assert np.allclose(resumed.counts.shown, state.counts.shown, atol=1e-9)
    assert np.allclose(resumed.counts.clicked, state.counts.clicked, atol=1e-9)
    assert resumed.counts.rounds[0] == pytest.approx(state.counts.rounds[0], abs=1e-9)
    assert resumed.counts.learned[0] == 250
    one, other = generator(2), generator(2)
    for _ in range(20):
        assert policy.decide(state, one).ranking.tolist() == policy.decide(resumed, other).ranking.tolist()


@pytest.mark.parametrize("sizes", [[64, 32, 32, 16, 16, 8, 4, 4, 2, 1, 1], [100, 80], [7] * 30, [300]])
@pytest.mark.parametrize("window", [1, 20, 77, 1000])
def test_a_window_over_blocks_is_exact_within_its_stated_error(sizes, window, generator):
    policy = policies.policy("comb-ts", window=window)
    _, ledger, rounds = taught_in_blocks(policy, generator(3), sizes)
    exact = np.zeros((2, N, M))
    for ranking, clicks in rounds[-window:]:
        exact[0, ranking, range(M)] += 1.0
        exact[1, ranking, range(M)] += clicks
    known = remembered(ledger, window, 1.0)
    assert known.rounds == pytest.approx(min(window, sum(sizes)))
    later = 0
    for size in reversed(sizes):
        if later + size > window:
            break
        later += size
    inside = min(window, sum(sizes)) - later  # rounds in the window of the block that is divided
    bound = inside * (1.0 - inside / size) if inside else 0.0
    assert bound <= size / 4
    for found, expected in zip((known.shown, known.clicked), exact):
        assert abs(found - expected).max() <= bound + 1e-9


@pytest.mark.parametrize("sizes", [[64, 32, 32, 16, 16, 8, 4, 4, 2, 1, 1], [7] * 30, [300]])
@pytest.mark.parametrize("discount", [0.9, 0.99, 0.999])
def test_a_discount_over_blocks_is_exact_within_its_stated_error(sizes, discount, generator):
    policy = policies.policy("comb-ts", discount=discount)
    state, ledger, _ = taught_in_blocks(policy, generator(4), sizes)
    known = remembered(ledger, None, discount)
    assert known.rounds == pytest.approx(state.counts.rounds[0], rel=1e-9)
    later = np.cumsum([0, *sizes[:0:-1]])
    bound = sum(
        size * (discount**after - discount ** (after + size - 1)) / 4 for size, after in zip(sizes[::-1], later)
    )
    for found, expected in zip((known.shown, known.clicked), (state.counts.shown, state.counts.clicked)):
        assert abs(found - expected).max() <= bound + 1e-9


def test_the_comparison_of_windows_notices_a_block_too_many(generator):
    policy = policies.policy("comb-ts", window=40)
    state, ledger, _ = taught_in_blocks(policy, generator(3), [20] * 10)
    exact, wrong = remembered(ledger, 40, 1.0), remembered(ledger, 60, 1.0)
    assert np.allclose(exact.shown, state.counts.shown)
    assert abs(wrong.shown - state.counts.shown).max() > 1.0


def test_blocks_before_a_change_are_forgotten(generator):
    _, ledger, _ = taught_in_blocks(policies.policy("comb-ts"), generator(3), [20] * 10)
    known = remembered(ledger._replace(changed_at=7.0), None, 1.0)
    assert known.rounds == 60
    assert np.array_equal(known.shown, sum(block.shown for block in ledger.blocks[7:]))


@pytest.mark.slow
def test_the_chain_of_a_resumed_sampler_is_at_its_posterior(generator):
    """The mean of 60 served mixtures is close to that of a long chain; of chains that start at 1/2, it is not."""
    policy = policies.policy("gibbs-ts")
    shown = np.full((N, M), 30_000.0)
    clicked = np.round(shown * np.array([0.5, 0.49, 0.48, 0.3, 0.2, 0.1])[:, None] * np.array([0.3, 0.29, 0.2]))
    state = policy.resumed(Ledger(int(shown.sum()), np.zeros((N, M)), shown, clicked))
    truth = frequencies(policy.sample_rankings(state, 20_000, generator(5)), (N, M))

    def mean_of_mixtures(start):
        rankings = (policy.sample_rankings(start, 16, generator(9, k)) for k in range(60))
        return np.mean([frequencies(some, (N, M)) for some in rankings], axis=0)

    cold = state._replace(attraction=np.full(N, 0.5), examination=np.full(M, 0.5))
    assert abs(mean_of_mixtures(state) - truth).max() < 0.04
    assert abs(mean_of_mixtures(cold) - truth).max() > 0.08


def test_a_perturbed_leader_is_resumed_with_known_probabilities(generator):
    policy = policies.policy("ftpl")
    state = policy.resumed(Ledger(1000, 1000.0 * (1.0 - CLICKS), *np.zeros((2, N, M))))
    shares = frequencies(policy.sample_rankings(state, 500, generator(1)), (N, M))
    assert shares.argmax(axis=0).tolist() == [0, 1, 2]
    assert shares.max() > 0.6
    with pytest.raises(ValueError, match="depends on the order of events"):
        policies.policy("ftpl", restart=10).resumed(Ledger(0, *np.zeros((3, N, M))))


def mixture_ledger(generator, **changes):
    _, ledger = taught(policies.policy("ftrl-pbm"), generator(1))
    block = Block(0.0, 1.0, ledger.rounds, ledger.shown, ledger.clicked)
    return ledger._replace(blocks=(block._replace(**changes),))


def test_a_leader_that_plays_alone_is_ftrl_pbm(generator):
    ledger = mixture_ledger(generator)._replace(wake=ROUNDS + 1)
    ours, theirs = policies.policy("all-weather"), policies.policy("ftrl-pbm")
    state = ours.resumed(ledger)
    assert np.allclose(ours.marginals(state), theirs.marginals(theirs.resumed(ledger)), atol=1e-9)
    assert ours.mixture(state) is None
    # Rounds in which it had a smaller share make it more careful.
    careful = ours.resumed(mixture_ledger(generator, spread=1e4)._replace(wake=ROUNDS + 1))
    assert ours.marginals(careful).max() < ours.marginals(state).max()


def test_all_weather_needs_blocks(generator):
    with pytest.raises(ValueError, match="has no blocks"):
        policies.policy("all-weather").resumed(mixture_ledger(generator)._replace(blocks=()))


@pytest.mark.slow
def test_the_share_of_the_leader_follows_the_comparison(generator):
    policy = policies.policy("all-weather", grace=100.0)
    shares = []
    for difference in (-300.0, 0.0, 15.0, 25.0):
        ledger = mixture_ledger(generator, difference=difference, variance=44.0)
        state = policy.resumed(ledger)
        shares.append(float(state.weight[0]))
        assert policy.leader_plays_alone(ledger.blocks) == (difference == 25.0)  # 2 standard deviations are 24
        x, s = state.leading.marginals, state.sampler.marginals
        assert np.allclose(policy.marginals(state), shares[-1] * x + (1.0 - shares[-1]) * s)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    # What lies before the comparison began does not count.
    later = mixture_ledger(generator, difference=25.0, variance=44.0)._replace(compared_at=5.0)
    assert policy.resumed(later).weight[0] == shares[1]


def test_the_difference_of_learners_is_unbiased(generator):
    """With g = (s - x) / p, the mean of the sum of g (loss - 1/2) is the loss of s minus that of x."""
    policy = policies.policy("all-weather")
    state = policy.resumed(mixture_ledger(generator))
    p, mixture, loss = policy.marginals(state), policy.mixture(state), 1.0 - CLICKS
    shown = p > 0.0
    g = np.where(shown, mixture.tilt / np.where(shown, p, 1.0), 0.0)
    # alpha: A has more than the half that a comparison at its beginning gives it, since clicks are few.
    alpha = (1.0 - state.weight[0]) / 0.5
    assert 0.0 < alpha <= 1.0
    truth = alpha * ((state.sampler.marginals - state.leading.marginals) * loss).sum()
    assert (p * g * (loss - 0.5)).sum() == pytest.approx(truth, abs=1e-9)
    assert abs((p * g * (loss - 0.5) * (loss < 0.7)).sum() - truth) > 1e-3  # not if some slots are left out
    assert abs(g).max() <= mixture.limit * (1.0 + 1e-9)


def test_a_resumed_sampler_depends_on_the_sums_alone(generator):
    policy = policies.policy("gibbs-ts")
    _, ledger = taught(policy, generator(1), 100)
    one, other = policy.resumed(ledger), policy.resumed(ledger)
    assert np.array_equal(one.attraction, other.attraction)
    before = one.attraction.copy()
    first = policy.sample_rankings(one, 64, generator(2))
    assert np.array_equal(first, policy.sample_rankings(other, 64, generator(2)))
    assert np.array_equal(one.attraction, before)
    assert len({tuple(ranking) for ranking in first.tolist()}) > 5
    more = ledger._replace(shown=ledger.shown + 1.0)
    assert not np.array_equal(policy.resumed(more).attraction, before)
    fresh = policy.resumed(Ledger(0, *np.zeros((3, N, M))))
    assert np.array_equal(fresh.attraction, np.full(N, 0.5))


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
