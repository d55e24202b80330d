"""The shared vocabulary: shapes, decisions, the two verbs of a policy, and where randomness comes from.

A policy *decides* which item goes to which position and *learns* from the clicks. A decision carries the
probabilities it was made with, so feedback may come late, out of order or never, and is still weighted correctly.
"""

from __future__ import annotations

import copy
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .kernels import kernel, name_apart, register_kernels

__all__ = [
    "Decision",
    "Ledger",
    "Shape",
    "Streams",
    "check_shape",
    "copy_state",
    "decide",
    "decides",
    "is_compiled",
    "learn",
    "learns",
    "leaves",
    "replacing",
    "save_arrays",
    "save_text",
    "streams",
    "with_leaves",
]

F = TypeVar("F", bound=Callable[..., Any])


class Shape(NamedTuple):
    """How many items there are to choose from, and how many positions to fill."""

    n_items: int
    n_positions: int


def check_shape(n_items: int, n_positions: int) -> Shape:
    """A shape that can be ranked, or ValueError.

    >>> check_shape(10, 5)
    Shape(n_items=10, n_positions=5)
    >>> check_shape(3, 5)
    Traceback (most recent call last):
    ...
    ValueError: n_positions must be from 1 to n_items = 3; got 5
    """
    for name, value in (("n_items", n_items), ("n_positions", n_positions)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise ValueError(f"{name} must be a whole number; got {value!r}")
    if n_items < 2:
        raise ValueError(f"n_items must be at least 2, or there is nothing to choose; got {n_items}")
    if not 1 <= n_positions <= n_items:
        raise ValueError(f"n_positions must be from 1 to n_items = {n_items}; got {n_positions}")
    return Shape(int(n_items), int(n_positions))


class Decision(NamedTuple):
    """What to show, and how likely that was.

    ``ranking`` (n_positions,) is the item index shown at each position; ``propensity`` (n_positions,) is the marginal
    probability with which each of them was put there, NaN where the policy cannot state it.
    """

    ranking: NDArray[np.int64]
    propensity: NDArray[np.float64]


class Ledger(NamedTuple):
    """What settled events add up to, in whatever order they came.

    ``loss`` (n_items, n_positions) is the sum of (1 - click) / propensity over the placements of each pair, known up to
    a constant for every position; ``shown`` and ``clicked`` (n_items, n_positions) count them.
    """

    rounds: int
    loss: NDArray[np.float64]
    shown: NDArray[np.float64]
    clicked: NDArray[np.float64]


def decide(state: Any, rng: Any, ranking: Any, propensity: Any) -> None:
    """Fill ``ranking`` and ``propensity`` from the state of a compiled policy."""
    _kernel_for(state, _DECIDE, "decides")(state, rng, ranking, propensity)


def learn(state: Any, ranking: Any, propensity: Any, clicks: Any) -> None:
    """Update the state of a compiled policy, in place, with the clicks on a decision."""
    _kernel_for(state, _LEARN, "learns")(state, ranking, propensity, clicks)


def _kernel_for(state: Any, table: dict[type, Callable[..., None]], decorator: str) -> Callable[..., None]:
    """The kernel registered for the class of a state, or TypeError that says how to register one."""
    if type(state) not in table:
        name = type(state).__qualname__
        raise TypeError(
            f"no function is registered as the one that {decorator} for the state {name}; put @{decorator}({name}) "
            "above it, and check that its module is imported"
        )
    return table[type(state)]


_DECIDE: dict[type, Callable[..., None]] = {}
_LEARN: dict[type, Callable[..., None]] = {}
register_kernels(decide, _DECIDE)
register_kernels(learn, _LEARN)


def decides(state_class: type) -> Callable[[F], F]:
    """Compile a function and make it the ``decide`` of every state of that class."""
    return _registrar(_DECIDE, state_class)


def learns(state_class: type) -> Callable[[F], F]:
    """Compile a function and make it the ``learn`` of every state of that class."""
    return _registrar(_LEARN, state_class)


def _registrar(table: dict[type, Callable[..., None]], state_class: type) -> Callable[[F], F]:
    name_apart(state_class)

    def register(function: F) -> F:
        compiled = kernel(function)
        table[state_class] = compiled
        return compiled

    return register


def is_compiled(state: Any) -> bool:
    """Whether compiled code can decide and learn with this state."""
    return type(state) in _DECIDE and type(state) in _LEARN


class Streams(NamedTuple):
    """The independent sources of randomness of one replication."""

    labels: np.random.Generator
    users: np.random.Generator
    policy: np.random.Generator


def streams(seed: int, replication: int) -> Streams:
    """Randomness for one replication: the same users for every policy, whatever runs beside it.

    >>> a, b = streams(0, 3), streams(0, 3)
    >>> bool(a.users.random() == b.users.random() != a.policy.random())
    True
    """
    root = np.random.SeedSequence(seed, spawn_key=(replication,))
    return Streams(*(np.random.default_rng(child) for child in root.spawn(3)))


def leaves(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every array, number or list in a state made of (nested) NamedTuples and dictionaries, with the path to it.

    >>> dict(leaves({"shown": [1, 2], "shape": Shape(3, 2)}))
    {'shown': [1, 2], 'shape.n_items': 3, 'shape.n_positions': 2}
    """
    parts = _parts(state)
    if parts is None:
        yield path, state
    else:
        for name, part in parts.items():
            yield from leaves(part, f"{path}.{name}" if path else str(name))


def with_leaves(state: Any, values: dict[str, Any], path: str = "") -> Any:
    """The same state with other leaves, keyed by path; the opposite of ``leaves``."""
    parts = _parts(state)
    if parts is None:
        return values[path]
    fresh = {name: with_leaves(part, values, f"{path}.{name}" if path else str(name)) for name, part in parts.items()}
    if state is None or isinstance(state, dict):
        return None if state is None else fresh
    if hasattr(state, "__dict__"):
        twin = copy.copy(state)
        vars(twin).update(fresh)
        return twin
    return type(state)(**fresh) if hasattr(state, "_asdict") else type(state)(fresh.values())


def _parts(state: Any) -> dict[str, Any] | None:
    """The parts of a state by name; none for the state of a policy that has none; None for a leaf."""
    if state is None or isinstance(state, dict):
        return state or {}
    if isinstance(state, tuple) and hasattr(state, "_asdict"):
        return state._asdict()
    # A list of numbers is a leaf, which is saved as one array.
    if isinstance(state, tuple) or (
        isinstance(state, list) and not all(isinstance(x, (bool, int, float)) for x in state)
    ):
        return {str(k): part for k, part in enumerate(state)}
    return vars(state) if hasattr(state, "__dict__") else None


def save_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write a NumPy archive: either the whole new file or what was there before, whatever happens in between."""
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def save_text(path: Path, text: str) -> None:
    """Write a text: either the whole new file or what was there before, whatever happens in between."""
    with replacing(path) as file:
        file.write(text.encode())


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of another once it is whole; nothing is left of it otherwise."""
    # Not from tempfile, whose files only their owner may read.
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(6)}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def copy_state(state: Any) -> Any:
    """An independent copy of a policy's state."""
    return copy.deepcopy(state)
