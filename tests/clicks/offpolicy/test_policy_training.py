"""Policies trained on one half of a log and evaluated on the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import bothworlds
from bothworlds.clicks import compare, evaluate
from bothworlds.clicks.offpolicy.impressions import open_impressions
from bothworlds.clicks.offpolicy.pages import PageBatch, count_complete_pages, page_batches
from bothworlds.clicks.offpolicy.policy_training import count_decisions, from_policy, learn_pages, marginals_of, train
from bothworlds.core import NO_NOTE, NONE_ABSENT, Decision, leaves
from tests.clicks.evaluation_logs import as_log, as_marginals, logging_policy, pages
from tests.policies.plain import EpsilonGreedy

RATES = np.outer([0.1, 0.2, 0.6, 0.3], [1.0, 0.5])


@pytest.fixture
def logged(rng):
    logging = logging_policy(4, 2, rng)
    return logging, *pages(rng, logging, RATES, 3000)


@dataclass(frozen=True)
class Recorder:
    """Always shows the first items, and records all that it learns from."""

    taught: list[Any] = field(default_factory=list)

    def init(self, n_items, n_positions):
        self.taught.append([])
        return n_positions

    def decide(self, state, rng):
        return Decision(np.arange(state), np.ones(state))

    def learn(self, state, decision, clicks):
        self.taught[-1].append((decision.ranking.tolist(), decision.propensity.tolist(), clicks.tolist()))
        return state


class Interpreted:
    """A policy without its compiled loops."""

    def __init__(self, policy):
        self.init, self.decide, self.learn = policy.init, policy.decide, policy.learn


def same_state(one, other):
    return all(np.array_equal(a, b, equal_nan=True) for (_, a), (_, b) in zip(leaves(one), leaves(other)))


@pytest.mark.parametrize("name", ["ftrl-pbm", "comb-ucb"])
def test_the_compiled_training_loop_equals_calls_of_learn(logged, name):
    logging, ranking, clicks = logged
    propensity = logging.marginals[ranking, np.arange(2)]
    batch = PageBatch(ranking[:300], propensity[:300], clicks[:300].astype(float))
    policy = bothworlds.policy(name)
    compiled = train(policy, policy.init(4, 2), [batch])
    interpreted = train(Interpreted(policy), policy.init(4, 2), [batch])
    assert same_state(compiled, interpreted)
    assert not same_state(compiled, policy.init(4, 2))


@pytest.mark.slow
def test_a_policy_whose_learn_returns_nothing_is_trained(logged):
    logging, ranking, clicks = logged
    told, silent = Interpreted(bothworlds.policy("comb-ucb")), Interpreted(bothworlds.policy("comb-ucb"))
    silent.learn = lambda *page: told.learn(*page) and None
    log = as_log(ranking[:300], clicks[:300], logging.marginals)
    assert evaluate(log, silent, draws=10) == evaluate(log, told, draws=10)


def test_the_loops_do_the_same_without_the_compiler(logged):
    logging, ranking, clicks = logged
    policy = bothworlds.policy("comb-ucb")
    batch = PageBatch(ranking[:50], logging.marginals[ranking[:50], np.arange(2)], clicks[:50].astype(float))
    counts, states = [], []
    for teaching, deciding in (
        (learn_pages, count_decisions),
        (getattr(learn_pages, "py_func", learn_pages), getattr(count_decisions, "py_func", count_decisions)),
    ):
        states.append(policy.init(4, 2))
        teaching(states[-1], *batch, NO_NOTE, NONE_ABSENT)
        counts.append(np.zeros((4, 2)))
        deciding(states[-1], 20, np.random.default_rng(1), np.empty(2, np.int64), np.empty(2), counts[-1])
    assert same_state(*states)
    assert (counts[0] == counts[1]).all()


@pytest.mark.slow
def test_each_fold_is_evaluated_after_training_on_the_other_in_order_of_time(logged):
    logging, ranking, clicks = logged
    recorder = Recorder()
    log = as_log(ranking, clicks, logging.marginals)
    backwards = {**log, "timestamp": -log["timestamp"]}
    with open_impressions(backwards) as impressions:
        from_policy(recorder, impressions, draws=1)
        folds = dict(impressions.connection.execute("SELECT -timestamp::BIGINT, fold FROM impressions").fetchall())
    expected = {fold: [] for fold in (0, 1)}
    propensity = logging.marginals[ranking, np.arange(2)]
    for t in reversed(range(len(ranking))):
        expected[folds[t]].append((ranking[t].tolist(), propensity[t].tolist(), clicks[t].tolist()))
    assert recorder.taught[-2:] == [expected[1], expected[0]]


@pytest.mark.slow
def test_marginals_of_one_list_are_exact_and_those_of_random_lists_nearly(rng):
    fixed, uniform = bothworlds.policy("fixed", ranking=[2, 0]), bothworlds.policy("uniform")
    assert (marginals_of(fixed, fixed.init(4, 2), (4, 2), 10, rng) == [[0, 1], [0, 0], [1, 0], [0, 0]]).all()
    assert abs(marginals_of(uniform, uniform.init(4, 2), (4, 2), 10_000, rng) - 0.25).max() < 0.025
    assert abs(marginals_of(Interpreted(uniform), uniform.init(4, 2), (4, 2), 10_000, rng) - 0.25).max() < 0.025


@pytest.mark.slow
def test_a_fixed_policy_is_evaluated_as_its_list(logged):
    logging, ranking, clicks = logged
    log = as_log(ranking, clicks, logging.marginals)
    policy, listed = evaluate(log, bothworlds.policy("fixed", ranking=[2, 3])), evaluate(log, list("cd"))
    for name in ("logged", "ips", "direct"):
        assert policy.estimate(name).value == pytest.approx(listed.estimate(name).value, rel=1e-6)
    assert policy.estimate("snips").value == pytest.approx(listed.estimate("snips").value, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [bothworlds.policy("ftrl-pbm"), EpsilonGreedy(0.1)])
def test_a_learner_earns_more_than_the_log_it_learned_from(logged, policy):
    logging, ranking, clicks = logged
    found = evaluate(as_log(ranking, clicks, logging.marginals), policy, draws=2000)
    assert found.estimate("dr").lower > found.estimate("logged").upper
    assert any("one half of the log" in note for note in found.notes)
    assert evaluate(as_log(ranking, clicks, logging.marginals), policy, draws=2000) == found


@pytest.mark.slow
def test_chance_in_the_training_half_does_not_bias_the_evaluation(generator):
    """If all items are equal, the apparently best one is worth no more; evaluated on its training half, it would be."""
    honest, flattered = [], []
    logging, flat, policy = logging_policy(6, 1), np.full((6, 1), 0.2), EpsilonGreedy(0.0)
    for k in range(25):
        log = as_log(*pages(generator(k), logging, flat, 300), logging.marginals)
        with open_impressions(log) as impressions:
            state = train(policy, policy.init(6, 1), page_batches(impressions))
            x = marginals_of(policy, state, (6, 1), 5, generator(k))
        two = compare(log, [policy, as_marginals(x)], draws=5)
        for values, found in zip((honest, flattered), two):
            values.append([found.estimate(name).value for name in ("ips", "direct", "dr")])
    error = np.std(honest, axis=0) / np.sqrt(len(honest))
    assert (abs(np.mean(honest, axis=0) - 0.2) < 4 * error).all()
    assert (np.mean(flattered, axis=0) - 0.2 > 4 * error).all()


@pytest.mark.slow
def test_pages_are_put_together_from_single_impressions(rng):
    logging = logging_policy(4, 2)
    ranking, clicks = pages(rng, logging, RATES, 500)
    ranking[:, 1] = rng.integers(4, size=500)  # single impressions know nothing of each other
    log = as_log(ranking, clicks, logging.marginals, paged=False)
    collide = ranking[:, 0] == ranking[:, 1]
    with open_impressions(log) as impressions:
        good, total = count_complete_pages(impressions)
        (batch,) = page_batches(impressions)
    assert (total, good.sum()) == (500, 500 - collide.sum())
    assert (batch.ranking == ranking[~collide]).all()
    assert (batch.clicks == clicks[~collide]).all()
    notes = evaluate(log, bothworlds.policy("uniform")).notes
    assert any("composed of single impressions" in note for note in notes)
    assert any(f"{collide.sum()} of 500" in note for note in notes)


def test_incomplete_pages_are_not_learned_from(logged):
    logging, ranking, clicks = logged
    log = as_log(ranking, clicks, logging.marginals)
    with open_impressions({name: column[:-1] for name, column in log.items() if name != "timestamp"}) as impressions:
        assert count_complete_pages(impressions)[0].sum() == len(ranking) - 1
        (batch,) = page_batches(impressions)
    assert (batch.ranking == ranking[:-1]).all()


@pytest.mark.slow
def test_pages_without_propensities_are_not_learned_from_and_counted(logged):
    logging, ranking, clicks = logged
    log = as_log(ranking, clicks, logging.marginals)
    holdout = np.where(np.arange(log["item"].size) < 20, np.nan, log["propensity"])
    notes = evaluate({**log, "propensity": holdout}, bothworlds.policy("comb-ucb")).notes
    assert any("10 of 3,000 pages are incomplete, show an item twice or lack a propensity" in note for note in notes)


def test_items_are_numbered_in_the_order_of_their_names():
    log = {"item": ["b", "10", "a", "9"], "position": [1, 1, 1, 1], "click": [0, 0, 0, 0]}
    with open_impressions(log) as impressions:
        assert impressions.items == ("9", "10", "a", "b")


def test_a_policy_that_learns_with_propensities_needs_a_log_that_has_them(logged):
    logging, ranking, clicks = logged
    with pytest.raises(ValueError, match="ftrl-pbm needs propensities, and the log has none"):
        evaluate(as_log(ranking, clicks, logging.marginals, propensity=False), bothworlds.policy("ftrl-pbm"))


@pytest.mark.slow
def test_a_log_without_propensities_has_only_the_direct_method_for_a_policy(logged):
    logging, ranking, clicks = logged
    found = evaluate(as_log(ranking, clicks, logging.marginals, propensity=False), bothworlds.policy("comb-ucb"))
    assert found.estimate("direct").value > found.estimate("logged").value


def test_a_log_without_complete_pages_cannot_train_a_policy(logged):
    logging, ranking, clicks = logged
    log = as_log(ranking, clicks, logging.marginals)
    lonely = {**log, "event": np.arange(log["item"].size)}
    with pytest.raises(ValueError, match="too few complete pages"):
        evaluate(lonely, bothworlds.policy("uniform"))
