"""Worlds as Gymnasium environments, and policies as their agents."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import bothworlds
from bothworlds import play
from bothworlds.core import Shape
from bothworlds.gym import PolicyAgent, RankingEnv, play_episodes, without_repeats
from bothworlds.worlds import Attack, Attacked, ListWorld, names, periodic, stochastic
from tests.policies.plain import EpsilonGreedy

SUMMER = stochastic([0.9, 0.6, 0.4, 0.2], [0.9, 0.3])
WINTER = stochastic([0.2, 0.4, 0.6, 0.9], [0.9, 0.3])
YEAR = periodic([SUMMER, WINTER], phase=70)


class PlainCascade(ListWorld):
    """Users in plain Python who click the first item that they like, and change after 50 rounds."""

    n_items, n_positions = 4, 2

    def _attraction(self, t):
        return np.array([0.8, 0.6, 0.3, 0.1]) if t < 50 else np.array([0.1, 0.3, 0.6, 0.8])

    def click(self, t, ranking, rng):
        liked = rng.random(2) < self._attraction(t)[ranking]
        return np.array([liked[0], liked[1] and not liked[0]], float)

    def expected_reward(self, t, ranking):
        return 1.0 - np.prod(1.0 - self._attraction(t)[ranking])

    def first_change(self):
        return 50


@pytest.mark.parametrize("name", names())
def test_every_named_world_passes_the_check_of_gymnasium(name):
    check_env(RankingEnv(name, rounds=20), skip_render_check=True)


def test_the_check_can_fail():
    class Counted(RankingEnv):
        """Returns numbers of clicks, which are not in the observation space."""

        def _observation(self, game, clicks):
            return super()._observation(game, clicks) | {"clicks": clicks + 2.0}

    with pytest.raises(AssertionError, match="not within the observation space"):
        check_env(Counted(SUMMER, rounds=20), skip_render_check=True)


def test_the_environment_is_registered():
    env = gymnasium.make("bothworlds.gym:bothworlds/Ranking-v0", world="paper/stochastic", rounds=10)
    check_env(env.unwrapped, skip_render_check=True)
    assert play_episodes("uniform", env, seed=3).rounds.tolist() == [10]


def test_the_module_is_an_attribute_of_the_package():
    assert bothworlds.gym.RankingEnv is RankingEnv


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [
        YEAR,
        "cascade/paper",
        PlainCascade(),
        Attacked(YEAR, Attack("promote", target=3, budget=30)),
        Attacked(SUMMER, Attack("random", rate=0.2)),
    ],
    ids=["table", "list", "plain list", "attack", "random attack"],
)
@pytest.mark.parametrize("policy", ["uniform", "toprank"])
def test_episodes_are_the_replications_of_play(world, policy):
    episodes = play_episodes(policy, RankingEnv(world, rounds=150), episodes=2, seed=4)
    result = play(policy, world, 150, replications=2, seed=4, jobs=1)
    assert episodes.expected_reward == pytest.approx(result.reward[:, -1], rel=1e-12)
    if not isinstance(world, Attacked):
        assert episodes.reward.tolist() == result.clicks[:, -1].tolist()


def test_other_users_give_other_episodes():
    """The comparison with ``play`` can fail: with another seed, or a twin that starts a phase late, rewards differ."""
    result = play("toprank", YEAR, 150, replications=1, seed=4)
    for env, seed in ((RankingEnv(YEAR, 150), 5), (RankingEnv(periodic([SUMMER, WINTER], phase=71), 150), 4)):
        assert play_episodes("toprank", env, seed=seed).expected_reward != pytest.approx(result.reward[:, -1])


@pytest.mark.slow
def test_realised_rewards_have_the_mean_of_play():
    """Other seeds than those of ``play``: the difference of the means is within four standard errors."""
    ours = play_episodes("uniform", RankingEnv(SUMMER, rounds=200), episodes=20, seed=77).reward / 200
    theirs = play("uniform", SUMMER, 200, replications=20, seed=78).average_reward()[:, -1]
    error = np.sqrt(ours.var(ddof=1) / ours.size + theirs.var(ddof=1) / theirs.size)
    assert abs(ours.mean() - theirs.mean()) < 4.0 * error


@pytest.mark.slow
def test_policies_that_name_items_or_need_the_horizon_play_as_in_play():
    for policy in (bothworlds.policy("fixed", ranking=[0, 1]), "recurrank", EpsilonGreedy()):
        episodes = play_episodes(policy, RankingEnv(SUMMER, rounds=100), episodes=2)
        expected = play(policy, SUMMER, 100, replications=2, jobs=1).reward[:, -1]
        assert episodes.expected_reward == pytest.approx(expected, rel=1e-12)


def test_an_adversary_changes_what_is_observed_and_not_what_users_do():
    env = RankingEnv(Attacked(SUMMER, Attack("promote", target=3)), rounds=200, shuffle=False)
    env.reset(seed=1)
    steps = [env.step([3, 2]) for _ in range(200)]
    assert all(observation["clicks"][0] == 1 for observation, *_ in steps)
    assert all(reward == observation["clicks"].sum() for observation, reward, *_ in steps)
    honest = np.mean([info["user_clicks"] for *_, info in steps])
    expected = 0.2 * 0.9 + 0.4 * 0.3
    assert steps[0][-1]["expected_reward"] == pytest.approx(expected)
    assert abs(honest - expected) < 4.0 * np.sqrt(expected / 200)


def test_an_episode_is_truncated_after_its_rounds():
    env = RankingEnv(SUMMER, rounds=3)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step([0, 1])
    env.reset(seed=0)
    steps = [env.step([0, 1]) for _ in range(3)]
    assert [step[2:4] for step in steps] == [(False, False), (False, False), (False, True)]
    assert [float(step[0]["round"][0]) for step in steps] == pytest.approx([1 / 3, 2 / 3, 1.0])
    with pytest.raises(gymnasium.error.ResetNeeded, match="it is over; call reset"):
        env.step([0, 1])


def labels_of(env, *seeds):
    return [env.reset(seed=seed)[1]["labels"].tolist() for seed in seeds]


def test_a_seed_fixes_the_episode_and_those_after_it():
    one, other = (RankingEnv("paper/stochastic", rounds=5) for _ in range(2))
    assert labels_of(one, 7, None, None) == labels_of(other, 7, None, None)
    first, second, again = labels_of(one, 7, None, 7)
    assert first == again != second
    assert labels_of(RankingEnv("paper/stochastic", rounds=5, shuffle=False), 7) == [list(range(10))]
    assert labels_of(RankingEnv("paper/stochastic"), None) != labels_of(RankingEnv("paper/stochastic"), None)


def test_repeated_items_are_replaced():
    assert without_repeats([0, 0, 0], Shape(4, 3)).tolist() == [0, 1, 2]
    assert without_repeats([2, 1, 0], Shape(4, 3)).tolist() == [2, 1, 0]
    rng = np.random.default_rng(0)
    for _ in range(200):
        action = rng.integers(6, size=4)
        ranking = without_repeats(action, Shape(6, 4))
        assert len(set(ranking.tolist())) == 4
        firsts = [j for j in range(4) if action[j] not in action[:j]]
        assert (ranking[firsts] == action[firsts]).all()


@pytest.mark.parametrize("action", [[0], [0, 4], [-1, 0], [0.0, 1.0], "ab", [[0, 1]]])
def test_an_action_that_is_no_list_is_refused(action):
    env = RankingEnv(SUMMER, rounds=5)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="an action must be 2 items from 0 to 3"):
        env.step(action)


class Foreign(gymnasium.Env):
    """An environment of somebody else, with lists as actions: users click on item 2 at the top."""

    def __init__(self, actions=None, seen=None):
        self.action_space = actions or spaces.MultiDiscrete([3, 3])
        self.observation_space = seen or spaces.Dict({"clicks": spaces.MultiBinary(2)})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return {"clicks": np.zeros(2, np.int8)}, {}

    def step(self, action):
        self.t += 1
        clicks = np.array([action[0] == 2, 0], np.int8)
        return {"clicks": clicks}, float(clicks.sum()), self.t == 300, False, {}


def test_a_policy_learns_in_an_environment_of_another_package():
    played = play_episodes("comb-ucb", Foreign())
    assert played.rounds.tolist() == [300]
    assert played.reward[0] > 200
    assert np.isnan(played.expected_reward[0])


@pytest.mark.parametrize(
    ("actions", "seen", "match"),
    [
        (spaces.Discrete(3), None, r"action space must be MultiDiscrete\(\[n_items\] \* n_positions\)"),
        (spaces.MultiDiscrete([3, 4]), None, "action space"),
        (spaces.MultiDiscrete([2, 2, 2]), None, "action space"),
        (spaces.MultiDiscrete([3, 3], start=[1, 1]), None, "action space"),
        (None, spaces.MultiBinary(2), "observation space must be a Dict with clicks at 2 positions"),
        (None, spaces.Dict({"clicks": spaces.MultiBinary(3)}), "observation space"),
        (None, spaces.Dict({"views": spaces.MultiBinary(2)}), "observation space"),
    ],
)
def test_other_spaces_are_refused(actions, seen, match):
    with pytest.raises(ValueError, match=match):
        PolicyAgent("uniform", Foreign(actions, seen), np.random.default_rng(0))


def test_an_agent_learns_about_a_list_once():
    env = RankingEnv(SUMMER, rounds=5)
    agent = PolicyAgent("uniform", env, np.random.default_rng(0))
    observation, _ = env.reset(seed=0)
    with pytest.raises(ValueError, match="there is no list to learn about"):
        agent.learn(observation)
