"""Policies trained on one half of a log and evaluated on the other."""

from __future__ import annotations

import numpy as np
import pytest

import bothworlds
from bothworlds.clicks import evaluate
from bothworlds.clicks.offpolicy.evaluation import Evaluator
from bothworlds.clicks.offpolicy.policy_training import count_decisions, from_policy, learn_pages, marginals_of, train
from bothworlds.core import NO_NOTE, NONE_ABSENT, leaves
from tests.clicks.evaluation_logs import as_log, as_marginals, logging_policy, pages
from tests.policies.plain import EpsilonGreedy

RATES = np.outer([0.1, 0.2, 0.6, 0.3], [1.0, 0.5])


@pytest.fixture
def logged(rng):
    logging = logging_policy(4, 2, rng)
    return logging, *pages(rng, logging, RATES, 3000)


class Interpreted:
    """A policy without its compiled loops."""

    def __init__(self, policy):
        self.init, self.decide, self.learn = policy.init, policy.decide, policy.learn


def same_state(one, other):
    return all(np.array_equal(a, b, equal_nan=True) for (_, a), (_, b) in zip(leaves(one), leaves(other)))


@pytest.mark.parametrize("name", ["ftrl-pbm", "comb-ucb"])
def test_the_compiled_training_loop_equals_calls_of_learn(logged, name):
    logging, ranking, clicks = logged
    batch = ranking[:300], logging.marginals[ranking, np.arange(2)][:300], clicks[:300].astype(float)
    policy = bothworlds.policy(name)
    compiled = train(policy, policy.init(4, 2), *batch)
    assert same_state(compiled, train(Interpreted(policy), policy.init(4, 2), *batch))
    assert not same_state(compiled, policy.init(4, 2))


def test_the_loops_do_the_same_without_the_compiler(logged):
    logging, ranking, clicks = logged
    policy = bothworlds.policy("comb-ucb")
    batch = ranking[:50], logging.marginals[ranking[:50], np.arange(2)], clicks[:50].astype(float)
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
def test_marginals_of_one_list_are_exact_and_those_of_random_lists_nearly(rng):
    fixed, uniform = bothworlds.policy("fixed", ranking=[2, 0]), bothworlds.policy("uniform")
    assert (marginals_of(fixed, fixed.init(4, 2), (4, 2), 10, rng) == [[0, 1], [0, 0], [1, 0], [0, 0]]).all()
    assert abs(marginals_of(uniform, uniform.init(4, 2), (4, 2), 10_000, rng) - 0.25).max() < 0.025
    assert abs(marginals_of(Interpreted(uniform), uniform.init(4, 2), (4, 2), 10_000, rng) - 0.25).max() < 0.025


@pytest.mark.slow
@pytest.mark.parametrize("policy", [bothworlds.policy("ftrl-pbm"), EpsilonGreedy(0.1)])
def test_a_learner_earns_more_than_the_log_it_learned_from(logged, policy):
    logging, ranking, clicks = logged
    found = evaluate(as_log(ranking, clicks, logging.marginals), policy, draws=2000)
    assert found.estimate("dr").lower > found.estimate("logged").upper
    assert evaluate(as_log(ranking, clicks, logging.marginals), policy, draws=2000).value == found.value


def test_every_query_has_a_policy_of_its_own(rng):
    logging = logging_policy(3, 2)
    rates = np.outer([0.8, 0.5, 0.1], [1.0, 0.6])
    logs = [as_log(*pages(rng, logging, rates[::side], 1500), logging.marginals) for side in (1, -1)]
    log = {name: np.concatenate([one[name] for one in logs]) for name in logs[0]}
    log["query"] = np.repeat(["up", "down"], 3000)
    found = evaluate(log, EpsilonGreedy(0.0), draws=200)
    assert found.value == pytest.approx(0.8 + 0.3, abs=0.06)


@pytest.mark.slow
def test_chance_in_the_training_half_does_not_bias_the_evaluation(generator):
    """If all items are equal, the apparently best one is worth no more; evaluated on its training half, it would be."""
    honest, flattered = [], []
    logging, flat, policy = logging_policy(6, 1), np.full((6, 1), 0.2), EpsilonGreedy(0.0)
    for k in range(25):
        log = as_log(*pages(generator(k), logging, flat, 300), logging.marginals)
        judge = Evaluator(log, draws=5)
        x = judge.logged.pages.counts()
        best = np.argmax(np.bincount(x.item, x.clicked) / np.bincount(x.item, x.shown))
        two = judge.evaluate(policy), judge.evaluate(None, marginals=as_marginals(np.eye(6)[best][:, None]))
        for values, found in zip((honest, flattered), two):
            values.append([found.estimate(name).value for name in ("ips", "direct", "dr")])
    error = np.std(honest, axis=0) / np.sqrt(len(honest))
    assert (abs(np.mean(honest, axis=0) - 0.2) < 4 * error).all()
    assert (np.mean(flattered, axis=0) - 0.2 > 4 * error).all()


def test_incomplete_pages_are_not_learned_from_and_counted(logged):
    logging, ranking, clicks = logged
    log = as_log(ranking, clicks, logging.marginals)
    holdout = np.where(np.arange(log["item"].size) < 20, np.nan, log["propensity"])
    cut = {name: column[:-1] for name, column in {**log, "propensity": holdout}.items()}
    judge = Evaluator(cut)
    target = from_policy(bothworlds.policy("comb-ucb"), judge.logged, judge.halves, draws=10)
    assert any("11 of 3,000 pages are incomplete" in note for note in target.notes)


def test_what_a_policy_cannot_learn_from_is_refused(logged):
    logging, ranking, clicks = logged
    log = as_log(ranking, clicks, logging.marginals)
    with pytest.raises(ValueError, match="ftrl-pbm needs propensities, and the log has none"):
        evaluate(as_log(ranking, clicks, logging.marginals, propensity=False), bothworlds.policy("ftrl-pbm"))
    with pytest.raises(ValueError, match="too few complete pages"):
        evaluate({**log, "event": np.arange(log["item"].size)}, bothworlds.policy("uniform"))
    with pytest.raises(ValueError, match="the log has no column event"):
        evaluate(as_log(ranking, clicks, logging.marginals, paged=False), bothworlds.policy("uniform"))


@pytest.mark.slow
def test_a_log_without_propensities_evaluates_a_policy_by_its_model(logged):
    logging, ranking, clicks = logged
    found = evaluate(as_log(ranking, clicks, logging.marginals, propensity=False), bothworlds.policy("comb-ucb"))
    assert found.chosen == "pbm"
    assert found.value > found.estimate("logged").value
