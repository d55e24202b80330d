"""Worlds as Gymnasium environments, and policies as agents in such environments. Needs the extra ``gym``.

>>> env = RankingEnv("paper/stochastic", rounds=100)
>>> observation, info = env.reset(seed=1)
>>> observation, reward, terminated, truncated, info = env.step([0, 1, 2, 3, 4])
>>> reward == observation["clicks"].sum(), truncated, info["round"]
(np.True_, False, 1)
>>> play_episodes("uniform", env, episodes=2, seed=1).expected_reward.shape
(2,)

Importing this module also registers the environment with Gymnasium:
``gymnasium.make("bothworlds.gym:bothworlds/Ranking-v0", world="paper/stochastic")``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arena.loop import users_of
from .checks import whole
from .core import Decision, Shape, Streams, streams
from .extras import import_extra
from .policies import Policy, configured_for
from .policies import resolve as resolve_policy
from .worlds import World
from .worlds import resolve as resolve_world
from .worlds.attack_kernels import report
from .worlds.users import Answer, answer, new_answer

if TYPE_CHECKING:
    import gymnasium
else:
    gymnasium = import_extra("gymnasium", "gym")

__all__ = ["Episodes", "PolicyAgent", "RankingEnv", "play_episodes", "without_repeats"]

Observation = dict[str, NDArray[Any]]
spaces: Any = gymnasium.spaces  # how they are typed differs between releases


class RankingEnv(gymnasium.Env[Observation, NDArray[np.int64]]):
    """A world as a Gymnasium environment: in every step a list is shown, and users click.

    An action is a list, ``MultiDiscrete([n_items] * n_positions)``: the number of the item at each position. Items must
    differ; where an action repeats an item, see :func:`without_repeats`.

    An observation is a dictionary: ``clicks`` (n_positions,) on the last list, and ``round`` (1,), the share of the
    rounds that are over. Before the first round both are 0. The reward is the number of these clicks. In a world with
    an adversary both are what it reports, as for a policy of ``play``.

    ``info`` has, after a step, ``round`` (rounds played), ``ranking`` (the list that was shown), ``expected_reward``
    (the expected clicks of the users on it, by which ``play`` scores) and ``user_clicks`` (their number of clicks,
    without an adversary). An agent must not learn from the last two. An episode never terminates; it is truncated after
    ``rounds`` steps.

    ``reset(seed=s)`` starts the first replication of ``play(..., seed=s)``, with the same users and the same order of
    items, and every ``reset()`` after it the next replication. Without a seed, one is drawn. ``info["labels"]``
    (n_items,) has the items of the world in the order of the episode.

    ``world`` is a name or an object, ``rounds`` the number of rounds of an episode. With ``shuffle``, each episode has
    its own random order of items; without it, the order of the world is kept, which is often that of attraction.
    Raises ValueError for a world or a number of rounds that is not valid.
    """

    def __init__(self, world: str | World, rounds: int = 1_000, *, shuffle: bool = True) -> None:
        self.world, self.rounds, self.shuffle = resolve_world(world), whole(rounds, "rounds", 1), shuffle
        n, m = self.world.n_items, self.world.n_positions
        self.action_space = spaces.MultiDiscrete([n] * m)
        self.observation_space = spaces.Dict(
            {"clicks": spaces.MultiBinary(m), "round": spaces.Box(0.0, 1.0, (1,), np.float32)}
        )
        self._seed: int | None = None
        self._replication = 0
        self._game: _Game | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; returns the observation and ``info``. There are no options."""
        super().reset(seed=seed)
        if seed is not None:
            self._seed, self._replication = seed, 0
        elif self._seed is None:
            self._seed = int(self.np_random.integers(2**31))
        else:
            self._replication += 1
        self._game = _Game(self.world, self.rounds, streams(self._seed, self._replication), self.shuffle)
        clicks = np.zeros(self.world.n_positions)
        return self._observation(self._game, clicks), {"round": 0, "labels": self._game.labels.copy()}

    def step(self, action: ArrayLike) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Show a list; returns the observation, the reward, False, whether the episode is over, and ``info``.

        Raises ValueError for an action that is not in the action space, and ``gymnasium.error.ResetNeeded`` before
        ``reset`` and after the last round.
        """
        game = self._game
        if game is None or game.t == self.rounds:
            raise gymnasium.error.ResetNeeded("there is no episode, or it is over; call reset")
        ranking = without_repeats(action, Shape(self.world.n_items, self.world.n_positions))
        given = game.answer(ranking)
        info = {
            "round": game.t,
            "ranking": ranking,
            "expected_reward": float(given.totals[0]),
            "user_clicks": float(given.clicks.sum()),
        }
        reward = float(given.reported.sum())
        return self._observation(game, given.reported), reward, False, game.t == self.rounds, info

    def _observation(self, game: _Game, clicks: NDArray[np.float64]) -> Observation:
        return {"clicks": clicks.astype(np.int8), "round": np.array([game.t / self.rounds], np.float32)}


class _Game:
    """One episode: the users of each round, and their random numbers."""

    def __init__(self, world: World, rounds: int, source: Streams, shuffle: bool) -> None:
        self.labels = source.labels.permutation(world.n_items) if shuffle else np.arange(world.n_items)
        self.t = self._end = 0
        self._source = source
        self._users: Any = None
        self._parts, self._adversary = users_of(world, self.labels, [rounds]), world.adversary(self.labels)
        self._answer = new_answer(world.n_positions, self._adversary)

    def answer(self, ranking: NDArray[np.int64]) -> Answer:
        """Show a list in the next round; totals are those of this round, and the next call overwrites all of it."""
        if self.t == self._end:
            self._end, self._users = next(self._parts)
        self._answer.totals[:] = 0.0
        answer(self._users, ranking, self._source.users, self._answer)
        report(self._adversary, ranking, self._source.adversary, self._answer)
        self.t += 1
        return self._answer


def without_repeats(action: ArrayLike, shape: Shape) -> NDArray[np.int64]:
    """Return the list of an action: where it repeats an item, the first items that it does not name are shown.

    Raises ValueError unless the action has a whole number from 0 to n_items - 1 for every position.

    >>> without_repeats([3, 1, 3, 1], Shape(5, 4)).tolist()
    [3, 1, 0, 2]
    """
    n, m = shape
    given = np.asarray(action)
    if given.shape != (m,) or given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= n:
        raise ValueError(f"an action must be {m} items from 0 to {n - 1}; got {action!r}")
    ranking = given.astype(np.int64)
    unnamed = iter(np.setdiff1d(np.arange(n), ranking).tolist())
    shown: set[int] = set()
    for j, item in enumerate(ranking.tolist()):
        if item in shown:
            ranking[j] = next(unnamed)
        shown.add(item)
    return ranking


class PolicyAgent:
    """A policy of this package as an agent of an environment with lists as actions and clicks in its observations.

    The environment has the action space ``MultiDiscrete([n_items] * n_positions)`` and an observation space ``Dict``
    with ``clicks`` (n_positions,), as :class:`RankingEnv` has.

    ``policy`` is a name or an object, ``rng`` its randomness. ``horizon`` is the number of rounds of an episode, for a
    policy whose setting ``horizon`` is None; if not given, the attribute ``rounds`` of the environment, if it has one.
    Raises ValueError for other spaces.
    """

    def __init__(
        self,
        policy: str | Policy,
        env: gymnasium.Env[Any, Any],
        rng: np.random.Generator,
        *,
        horizon: int | None = None,
    ) -> None:
        n, m = _shape_of(env)
        if horizon is None and env.has_wrapper_attr("rounds"):
            horizon = env.get_wrapper_attr("rounds")
        chosen = resolve_policy(policy)
        self.policy = chosen if horizon is None else configured_for(chosen, horizon)
        self.state, self._rng = self.policy.init(n, m), rng
        self._decision: Decision | None = None

    def act(self) -> NDArray[np.int64]:
        """Decide, and return the list as an action."""
        self._decision = self.policy.decide(self.state, self._rng)
        return np.array(self._decision.ranking, np.int64)

    def learn(self, observation: Mapping[str, Any]) -> None:
        """Learn from the clicks on the last list; raises ValueError if there is none."""
        if self._decision is None:
            raise ValueError("there is no list to learn about; call act first")
        self.policy.learn(self.state, self._decision, np.asarray(observation["clicks"], np.float64))
        self._decision = None


def _shape_of(env: gymnasium.Env[Any, Any]) -> Shape:
    """Return the number of items and positions; raises ValueError if actions are not lists or clicks are not seen."""
    actions: Any = env.action_space
    seen: Any = env.observation_space
    lists = isinstance(actions, spaces.MultiDiscrete) and actions.nvec.ndim == 1
    if not lists or len(set(actions.nvec.tolist())) != 1 or actions.start.any() or actions.nvec[0] < actions.nvec.size:
        raise ValueError(f"the action space must be MultiDiscrete([n_items] * n_positions); got {actions}")
    n, m = int(actions.nvec[0]), int(actions.nvec.size)
    if not isinstance(seen, spaces.Dict) or "clicks" not in seen.spaces or seen["clicks"].shape != (m,):
        raise ValueError(f"the observation space must be a Dict with clicks at {m} positions; got {seen}")
    return Shape(n, m)


class Episodes(NamedTuple):
    """The sums over each of several episodes, (episodes,)."""

    reward: NDArray[np.float64]
    expected_reward: NDArray[np.float64]  # NaN in an environment whose info does not have it
    rounds: NDArray[np.int64]


def play_episodes(policy: str | Policy, env: gymnasium.Env[Any, Any], episodes: int = 1, seed: int = 0) -> Episodes:
    """Play a policy in an environment, each episode with a new state, and return its rewards.

    In a :class:`RankingEnv` the lists and the users are those of ``play(policy, world, rounds, replications=episodes,
    seed=seed)``; ``expected_reward`` is its reward, up to rounding. Raises ValueError as :class:`PolicyAgent` does.
    """
    totals = np.zeros((whole(episodes, "episodes", 1), 2))
    rounds = np.zeros(episodes, np.int64)
    for k in range(episodes):
        _, info = env.reset(seed=seed) if k == 0 else env.reset()
        chosen = resolve_policy(policy)
        if "labels" in info and isinstance(chosen, Policy):  # a policy whose settings name items of the world
            chosen = chosen.relabelled(info["labels"])
        agent, over = PolicyAgent(chosen, env, streams(seed, k).policy), False
        while not over:
            observation, reward, terminated, truncated, info = env.step(agent.act())
            agent.learn(observation)
            totals[k] += float(reward), info.get("expected_reward", np.nan)
            rounds[k] += 1
            over = terminated or truncated
    return Episodes(totals[:, 0], totals[:, 1], rounds)


gymnasium.register(id="bothworlds/Ranking-v0", entry_point="bothworlds.gym:RankingEnv")
