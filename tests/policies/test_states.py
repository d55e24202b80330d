"""What the state of every policy is made of: what was learned in one buffer, and work arrays apart from it."""

from __future__ import annotations

import numpy as np
import pytest

from bothworlds import Ranker
from bothworlds.core import buffer_of, copy_state, is_work, leaves
from bothworlds.policies import Delayed, names, policy
from tests.policies.informed import informed

N, M = 5, 3
CLICKS = np.outer(np.linspace(0.9, 0.1, N), np.linspace(0.9, 0.3, M))
POLICIES = {name: informed(name, N, M) for name in names()} | {"delayed": Delayed(policy("ftrl-pbm"), 10)}
SAVED = [name for name in names() if set(policy(name).needs) <= {"horizon"}]


@pytest.fixture(params=POLICIES)
def learner(request):
    return POLICIES[request.param]


def play_on(learner, state, rounds, seed):
    """Let a state decide and learn; returns its decisions."""
    rng, decisions = np.random.default_rng(seed), []
    for _ in range(rounds):
        decision = learner.decide(state, rng)
        decisions.append((decision.ranking.tolist(), np.nan_to_num(decision.propensity, nan=-1.0).tolist()))
        learner.learn(state, decision, (rng.random(M) < CLICKS[decision.ranking, np.arange(M)]).astype(float))
    return decisions


def experienced(learner):
    state = learner.init(N, M)
    play_on(learner, state, 80, seed=0)
    return state


def arrays(state):
    return {path: leaf for path, leaf in leaves(state) if isinstance(leaf, np.ndarray)}


@pytest.mark.slow
def test_a_copy_of_the_buffer_is_a_copy_of_all_that_was_learned(learner):
    state, other = experienced(learner), learner.init(N, M)
    play_on(learner, other, 7, seed=1)  # its work arrays have other contents
    buffer_of(other)[:] = buffer_of(state)
    assert play_on(learner, state, 60, seed=2) == play_on(learner, other, 60, seed=2)


def test_a_new_state_is_one_buffer_and_its_copies_share_nothing_with_it(learner):
    state = learner.init(N, M)
    copied = copy_state(state)
    assert not np.shares_memory(buffer_of(state), buffer_of(copied))
    ours, theirs = arrays(state), arrays(copied)
    assert ours.keys() == theirs.keys()
    for path, array in ours.items():
        assert not np.shares_memory(array, theirs[path]), f"a copy shares {path}"
        assert is_work(path) == (array.base is not buffer_of(state)), f"{path} is in the wrong place"


def test_a_saved_ranker_has_what_was_learned_and_no_work_arrays(tmp_path):
    for name in SAVED:
        Ranker(range(N), M, policy=policy(name), seed=0).save(tmp_path / name)
        with np.load(tmp_path / name) as saved:
            paths = {path.removeprefix("state/") for path in saved.files if path.startswith("state/")}
        assert paths == {path for path, _ in leaves(policy(name).init(N, M)) if not is_work(path)}, name
