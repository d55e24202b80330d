"""A cache of replications on disk: one that is finished is never played again, whichever engine played it.

A cached replication is a small file, named by a digest of everything that determines its content: the policy and its
settings, the users of the world, the rounds, the seed, the number of the replication, and the source files of the rooms
that take part. After an edit of a policy its replications are played again; an interrupted run continues where it
stopped.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np

from ..files import save_arrays
from ..kernels import SOURCES_DIGEST
from ..policies import Policy
from ..worlds import World
from .game import Game
from .loop import Score


class ReplicationCache:
    """Scores of replications in a folder, which is created."""

    def __init__(self, folder: str | Path, users_digest: UsersDigest) -> None:
        self.folder, self._users_digest = Path(folder), users_digest
        self.folder.mkdir(parents=True, exist_ok=True)

    def read(self, game: Game, replication: int) -> Score | None:
        """Return the score of a replication, or None if it is not cached.

        Raises ValueError for a world without a name, and for a policy whose settings or source are not known.
        """
        path = self._path(game, replication)
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as archive:
            attack = archive.get("attack")
            return Score(archive["reward"], archive["clicks"], float(archive["seconds"]), attack)

    def write(self, game: Game, replication: int, score: Score) -> None:
        """Save a score; the file is complete and on disk when this returns."""
        arrays = {"reward": score.reward, "clicks": score.clicks, "seconds": np.array(score.seconds)}
        if score.attack is not None:
            arrays["attack"] = score.attack
        save_arrays(self._path(game, replication), arrays)

    def _path(self, game: Game, replication: int) -> Path:
        world, policy = game.world, type(game.policy)
        if not _is_a_table(world) and is_described_by_class(world.description()):
            raise ValueError(f"results in {world.name} cannot be cached: its class does not override numbers()")
        if not issubclass(policy, Policy):
            raise ValueError(f"results of {policy.__name__} cannot be cached: it does not derive from Policy")
        if not world.name:
            raise ValueError(f"a world needs a name before its results can be cached; {world!r} has none")
        parts = {
            "policy": f"{policy.__module__}.{policy.__qualname__}",
            "settings": game.settings,
            "world": self._users_digest(world, game.rounds),
            "shuffled": game.shuffle,
            "checkpoints": game.marks.tolist(),
            "versions": [numba.__version__, np.__version__],
            "seed": game.seed,
            "replication": replication,
            "sources": [SOURCES_DIGEST, _own_source_digest(policy)],
        }
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()
        return self.folder / f"{digest[:32]}.npz"


class UsersDigest:
    """Digests of the users of worlds: two worlds may share a name and differ. Each world is read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[World, str]] = {}  # holds the world, so that no other gets its id

    def __call__(self, world: World, rounds: int) -> str:
        """Return a digest of the users in every round."""
        key = (id(world), rounds)
        if key not in self._known:
            self._known[key] = (world, _users_digest(world, rounds))
        return self._known[key][1]


def _is_a_table(world: World) -> bool:
    """Whether the click probabilities of a world say all of it; otherwise its description does."""
    return world.has_table and world.honest is world


def _users_digest(world: World, rounds: int) -> str:
    digest = hashlib.sha256()
    if _is_a_table(world):
        for end, probabilities in world.pieces(0, rounds):
            digest.update(f"{end}:{probabilities.shape}".encode() + probabilities.tobytes())
        return digest.hexdigest()
    described = world.description()
    if is_described_by_class(described):
        return f"object {id(world)}"
    digest.update(json.dumps(described, sort_keys=True).encode())
    return digest.hexdigest()


def is_described_by_class(description: Any) -> bool:
    """Return whether a description of a world, or of one inside it, gives its class only, so that numbers are missing.

    >>> is_described_by_class({"kind": "relabelled", "world": {"class": "mine.World"}})
    True
    """
    if isinstance(description, dict):
        return "class" in description or any(map(is_described_by_class, description.values()))
    return isinstance(description, list) and any(map(is_described_by_class, description))


@cache
def _own_source_digest(policy: type) -> str:
    """A digest of the file that defines a policy. Raises ValueError for one that was defined at a prompt."""
    try:
        return hashlib.sha256(Path(inspect.getfile(policy)).read_bytes()).hexdigest()
    except (OSError, TypeError) as error:
        raise ValueError(f"results of {policy.__name__} cannot be cached: it is not defined in a file") from error
