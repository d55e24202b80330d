"""Replay on logs of uniformly random lists."""

from __future__ import annotations

import numpy as np
import pytest

import bothworlds
from bothworlds.clicks import replay
from tests.clicks.evaluation_logs import as_log, logging_policy, pages
from tests.clicks.offpolicy.test_policy_training import Interpreted
from tests.policies.plain import EpsilonGreedy

ATTRACTION, EXAMINATION = [0.8, 0.4, 0.1], [1.0, 0.5]
RATES = np.outer(ATTRACTION, EXAMINATION)
UNIFORM = logging_policy(3, 2)


def uniform_log(rng, count=3000, **how):
    return as_log(*pages(rng, UNIFORM, RATES, count), UNIFORM.marginals, **how)


@pytest.mark.slow
def test_one_page_in_as_many_as_there_are_lists_is_used(rng):
    found = replay(uniform_log(rng), bothworlds.policy("uniform"))
    assert found.pages == 3000
    assert abs(found.share - 1 / 6) < 4 * np.sqrt(5 / 36 / 3000)
    assert found.warnings == ()


@pytest.mark.slow
def test_a_fixed_list_earns_the_clicks_of_the_pages_that_show_it(rng):
    ranking, clicks = pages(rng, UNIFORM, RATES, 2000)
    found = replay(as_log(ranking, clicks, UNIFORM.marginals), bothworlds.policy("fixed", ranking=[1, 2]))
    shown = (ranking == [1, 2]).all(axis=1)
    assert found.matches == shown.sum()
    assert found.estimate.value == pytest.approx(clicks[shown].sum(axis=1).mean())
    assert found.estimate.standard_error == pytest.approx(clicks[shown].sum(axis=1).std(ddof=1) / np.sqrt(shown.sum()))


@pytest.mark.slow
def test_replay_estimates_the_online_clicks_of_a_learner(generator):
    logs = [uniform_log(generator(k), 1200) for k in range(30)]
    replayed = [replay(log, bothworlds.policy("comb-ucb"), seed=k).estimate.value for k, log in enumerate(logs)]
    live = bothworlds.play(
        "comb-ucb", bothworlds.worlds.stochastic(ATTRACTION, EXAMINATION), 200, replications=100, jobs=1
    )
    earned = live.reward[:, -1] / 200
    error = np.hypot(np.std(replayed) / np.sqrt(30), earned.std() / 10)
    assert abs(np.mean(replayed) - earned.mean()) < 4 * error
    assert np.mean(replayed) - RATES.mean(axis=0).sum() > 4 * error  # it learns


@pytest.mark.slow
def test_the_compiled_loop_replays_as_the_policy_itself_would(rng):
    log, policy = uniform_log(rng, 600), bothworlds.policy("comb-ucb")
    compiled, interpreted = replay(log, policy, seed=3), replay(log, Interpreted(policy), seed=3)
    assert (compiled.matches, compiled.estimate) == (interpreted.matches, interpreted.estimate)


@pytest.mark.slow
def test_plain_policies_and_logs_without_pages_are_replayed_too(rng):
    assert replay(uniform_log(rng, 1200, paged=False), EpsilonGreedy(0.1)).matches > 100


@pytest.mark.slow
def test_few_matches_are_warned_of(rng):
    assert "too few" in replay(uniform_log(rng, 60), bothworlds.policy("uniform")).warnings[0]


@pytest.mark.slow
def test_the_result_is_a_row_and_a_dictionary(rng):
    found = replay(uniform_log(rng, 60), bothworlds.policy("uniform"))
    assert found.table()[0]["estimator"] == "replay"
    assert found.as_dict()["share"] == found.matches / 60


def test_a_log_whose_propensities_are_not_uniform_is_refused(rng):
    logging = logging_policy(3, 2, rng)
    log = as_log(*pages(rng, logging, RATES, 600), logging.marginals)
    with pytest.raises(ValueError, match="uniformly random lists: with 3 items all propensities must be"):
        replay(log, bothworlds.policy("uniform"))


@pytest.mark.slow
def test_a_log_of_rotations_is_refused_though_its_propensities_are_uniform(rng):
    first = rng.integers(3, size=(600, 1))
    ranking = (first + np.arange(2)) % 3
    log = as_log(ranking, np.zeros_like(ranking), UNIFORM.marginals)
    with pytest.raises(ValueError, match="depend on each other"):
        replay(log, bothworlds.policy("uniform"))


@pytest.mark.parametrize("target", ["uniform", ["a", "b"], None])
def test_only_policies_are_replayed(target):
    with pytest.raises(ValueError, match=r"replay needs a policy, such as bothworlds\.policy"):
        replay({"item": ["a"], "position": [1], "click": [0], "propensity": [1.0]}, target)


def test_a_log_without_propensities_is_refused(rng):
    with pytest.raises(ValueError, match="have no propensity"):
        replay(uniform_log(rng, 60, propensity=False), bothworlds.policy("uniform"))
