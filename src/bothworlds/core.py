"""What all rooms share: shapes, decisions, the verbs of policies and worlds, random streams, copies of states.

A policy *decides* which item goes to which position and *learns* from the clicks. A decision carries the
probabilities it was made with, so feedback is weighted correctly even if it is late, out of order or missing. In a
world whose clicks depend on each other, users *click* on a whole list.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .checks import whole
from .kernels import inner_kernel, kernel, register_kernels

__all__ = [
    "NONE_ABSENT",
    "NO_CONTEXT",
    "NO_NOTE",
    "Decision",
    "Labels",
    "Shape",
    "Streams",
    "buffer_of",
    "check_shape",
    "click",
    "clicks",
    "copy_state",
    "cores",
    "decide",
    "decides",
    "expected_reward",
    "expects",
    "is_compiled",
    "is_work",
    "learn",
    "learns",
    "leaves",
    "note",
    "notes",
    "streams",
    "with_leaves",
]

ALIGNMENT = 16  # bytes, of every array in a buffer

F = TypeVar("F", bound=Callable[..., Any])


class Shape(NamedTuple):
    """The number of items to choose from, and the number of positions to fill."""

    n_items: int
    n_positions: int


def check_shape(n_items: int, n_positions: int) -> Shape:
    """Return the shape; raises ValueError if it is impossible."""
    shape = Shape(whole(n_items, "n_items", 2), whole(n_positions, "n_positions", 1))
    if shape.n_positions > shape.n_items:
        raise ValueError(f"n_positions must be from 1 to n_items = {n_items}; got {n_positions}")
    return shape


class Labels(NamedTuple):
    """Declared labels as numbers: a context is a row of values of all visitor labels, from 0; item labels are the same.

    ``visitor`` (visitor labels,) and ``item`` (item labels,) are the numbers of values, and ``items`` (item labels,
    n_items) are the values of every item.
    """

    visitor: NDArray[np.int64]
    item: NDArray[np.int64]
    items: NDArray[np.int64]


NO_NOTE = np.zeros(0)
NONE_ABSENT = np.zeros(0, np.int64)
NO_CONTEXT = np.zeros(0, np.int64)


class Decision(NamedTuple):
    """A ranking and its propensities, and what else ``learn`` needs to know of how it was made.

    ``ranking`` (n_positions,) is the index of the item at each position; ``propensity`` (n_positions,) is the marginal
    probability of that item at that position, NaN where the policy does not know it. ``note`` is what the policy wants
    to remember of the draw; few policies do. ``absent`` are the items that could not be shown. ``learned``
    (n_positions,) is False at positions that are not learned from, because their item was pinned; None: all are.
    ``context`` (visitor labels,) is the context that the ranking was drawn for.
    """

    ranking: NDArray[np.int64]
    propensity: NDArray[np.float64]
    note: NDArray[np.float64] = NO_NOTE
    absent: NDArray[np.int64] = NONE_ABSENT
    learned: NDArray[np.bool_] | None = None
    context: NDArray[np.int64] = NO_CONTEXT


def decide(state: Any, rng: Any, ranking: Any, propensity: Any, context: Any) -> None:
    """Fill ``ranking`` and ``propensity`` from the state of a compiled policy, for a visitor with this context.

    Can be called from compiled code. From Python, raises TypeError if no kernel is registered for the class of state.
    A function that is registered with ``@decides`` need not have the parameter ``context``: it then ignores it.
    """
    function = _kernel_for(state, _DECIDE, "decides")
    function(state, *(rng, ranking, propensity, context)[: _n_given(function)])


def note(state: Any, ranking: Any, note: Any) -> None:
    """Fill in what a policy wants to remember of a ranking that it has just drawn: nothing, unless it has ``@notes``.

    Can be called from compiled code.
    """
    if type(state) in _NOTE:
        _NOTE[type(state)](state, ranking, note)


def learn(state: Any, ranking: Any, propensity: Any, clicks: Any, note: Any, absent: Any, context: Any) -> None:
    """Update the state of a compiled policy, in place, with the clicks on a decision; otherwise as ``decide``.

    The entry of ``ranking`` is -1 at positions that are not learned from. A function that is registered with
    ``@learns`` may lack the last one, two or three parameters: it then ignores them.
    """
    function = _kernel_for(state, _LEARN, "learns")
    function(state, *(ranking, propensity, clicks, note, absent, context)[: _n_given(function)])


def click(state: Any, ranking: Any, rng: Any, clicks: Any) -> None:
    """Fill in the ``clicks`` (n_positions,) of the users with this state on a list; otherwise as ``decide``."""
    _kernel_for(state, _CLICK, "clicks")(state, ranking, rng, clicks)


def expected_reward(state: Any, ranking: Any) -> float:
    """Return the expected number of clicks of the users with this state on a list; otherwise as ``decide``."""
    return float(_kernel_for(state, _EXPECTED_REWARD, "expects")(state, ranking))


def _kernel_for(state: Any, table: dict[type, Callable[..., Any]], decorator: str) -> Callable[..., Any]:
    """Return the kernel registered for the class of a state; raises TypeError if there is none."""
    if type(state) not in table:
        name = type(state).__qualname__
        raise TypeError(
            f"no function is registered with @{decorator}({name}) for the state {name}; decorate one, and check that "
            "its module is imported"
        )
    return table[type(state)]


@cache
def _n_given(function: Callable[..., Any]) -> int:
    """Return how many arguments a registered function takes beside the state."""
    return len(inspect.signature(getattr(function, "py_func", function)).parameters) - 1


def _with_all_parameters(function: Any) -> Any:
    """Return the function that compiled code calls for a verb: it ignores the last arguments, if ``function`` does."""
    known, n = inner_kernel(getattr(function, "py_func", function)), _n_given(function)
    return lambda state, *arguments: known(state, *arguments[:n])


_DECIDE: dict[type, Callable[..., None]] = {}
_NOTE: dict[type, Callable[..., None]] = {}
_LEARN: dict[type, Callable[..., None]] = {}
_CLICK: dict[type, Callable[..., None]] = {}
_EXPECTED_REWARD: dict[type, Callable[..., float]] = {}
register_kernels(decide, _DECIDE, adapt=_with_all_parameters)
register_kernels(note, _NOTE, otherwise=lambda state, ranking, note: None)
register_kernels(learn, _LEARN, adapt=_with_all_parameters)
register_kernels(click, _CLICK)
register_kernels(expected_reward, _EXPECTED_REWARD)


def decides(state_class: type) -> Callable[[F], F]:
    """Return a decorator that compiles a function and registers it as ``decide`` for states of that class."""
    return _registrar(_DECIDE, state_class)


def notes(state_class: type) -> Callable[[F], F]:
    """Return a decorator that compiles a function and registers it as ``note`` for states of that class."""
    return _registrar(_NOTE, state_class)


def learns(state_class: type) -> Callable[[F], F]:
    """Return a decorator that compiles a function and registers it as ``learn`` for states of that class."""
    return _registrar(_LEARN, state_class)


def clicks(state_class: type) -> Callable[[F], F]:
    """Return a decorator that compiles a function and registers it as ``click`` for users of that class."""
    return _registrar(_CLICK, state_class)


def expects(state_class: type) -> Callable[[F], F]:
    """Return a decorator that compiles a function and registers it as ``expected_reward`` for users of that class."""
    return _registrar(_EXPECTED_REWARD, state_class)


def _registrar(table: dict[type, Callable[..., Any]], state_class: type) -> Callable[[F], F]:
    def register(function: F) -> F:
        compiled = kernel(function)
        table[state_class] = compiled
        return compiled

    return register


def is_compiled(state: Any) -> bool:
    """Whether kernels for ``decide`` and ``learn`` are registered for the class of this state."""
    return type(state) in _DECIDE and type(state) in _LEARN


class Streams(NamedTuple):
    """The independent random generators of one replication."""

    labels: np.random.Generator
    users: np.random.Generator
    policy: np.random.Generator
    adversary: np.random.Generator


def streams(seed: int, replication: int) -> Streams:
    """Return the random generators of one replication; the users are the same for every policy."""
    root = np.random.SeedSequence(seed, spawn_key=(replication,))
    return Streams(*(np.random.default_rng(child) for child in root.spawn(4)))


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def leaves(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of every array, number or list in a state of nested NamedTuples and dictionaries.

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
    """Return a copy of the state with the leaves in ``values``, keyed by path; the inverse of ``leaves``."""
    parts = _parts(state)
    if parts is None:
        return values[path]
    fresh = {name: with_leaves(part, values, f"{path}.{name}" if path else str(name)) for name, part in parts.items()}
    if state is None or isinstance(state, dict):
        return None if state is None else fresh
    if hasattr(state, "__dict__"):
        changed = copy.copy(state)
        vars(changed).update(fresh)
        return changed
    return type(state)(**fresh) if hasattr(state, "_asdict") else type(state)(fresh.values())


def _parts(state: Any) -> dict[str, Any] | None:
    """Return the parts of a state by name: an empty dictionary for the state None, and None for a leaf."""
    if state is None or isinstance(state, dict):
        return state or {}
    if isinstance(state, tuple) and hasattr(state, "_asdict"):
        return state._asdict()
    # A list of numbers is a leaf because it can be saved as one array.
    if isinstance(state, tuple) or (
        isinstance(state, list) and not all(isinstance(x, (bool, int, float)) for x in state)
    ):
        return {str(k): part for k, part in enumerate(state)}
    return vars(state) if hasattr(state, "__dict__") else None


def is_work(path: str) -> bool:
    """Whether a leaf is a work array: in a field ``work``, whose contents carry nothing from one call to the next."""
    return "work" in path.split(".")


def copy_state(state: Any) -> Any:
    """Return an independent copy of a policy's state.

    All arrays in a copy of a NamedTuple, but for work arrays, are views of one buffer.

    >>> from bothworlds import policy
    >>> state = policy("ftrl-pbm").init(5, 2)
    >>> twin = copy_state(state)
    >>> twin.loss[0, 0] = 7.0
    >>> buffer_of(state)[:] = buffer_of(twin)
    >>> float(state.loss[0, 0])
    7.0
    """
    if not hasattr(state, "_asdict"):
        return copy.deepcopy(state)
    copies, starts, end = dict(leaves(state)), {}, 0
    for path, leaf in copies.items():
        if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject and not is_work(path):
            starts[path] = end
            end += -(-leaf.nbytes // ALIGNMENT) * ALIGNMENT
        else:
            copies[path] = copy.deepcopy(leaf)
    buffer = np.zeros(end, np.uint8)
    for path, start in starts.items():
        leaf = copies[path]
        copies[path] = buffer[start : start + leaf.nbytes].view(leaf.dtype).reshape(leaf.shape)
        copies[path][...] = leaf
    return with_leaves(state, copies)


def buffer_of(state: Any) -> NDArray[np.uint8]:
    """Return the buffer of a state from ``init`` or ``copy_state``, so that copying what was learned is one copy.

    States of the same policy and shape have the same layout. Raises ValueError if an array is not part of the buffer.
    """
    arrays = [leaf for path, leaf in leaves(state) if isinstance(leaf, np.ndarray) and not is_work(path)]
    buffer = arrays[0].base if arrays else np.zeros(0, np.uint8)
    if buffer is None or any(array.base is not buffer for array in arrays):
        raise ValueError(f"the arrays of {type(state).__qualname__} are not views of one buffer; use copy_state")
    return buffer
