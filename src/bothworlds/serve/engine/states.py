"""States: what a learner has learned from its settled events, and snapshots of it.

A state is a function of the settled log: ``LogState`` learns the events of a learner in the order of their numbers,
here as in ``Ranker.from_export``. Nothing else changes it. A snapshot spares learning everything again after a start;
one of another version, policy or shape is of no use, and the state is learned from the log.
"""

from __future__ import annotations

import copy
import json
import math
import platform
import time
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import numba
import numpy as np

from ... import __version__
from ...core import copy_state, is_work, leaves, with_leaves
from ...policies.logged_pages import LoggedPage, LogState, policy_name
from ...policies.pages import has_parts
from ..events import Event
from ..outcomes import is_learned, rewards_of

SNAPSHOT_FORMAT = "bothworlds state 1"
LEVEL = 1  # of zlib
SLICE = 0.001  # seconds for which a policy in plain Python learns before other threads get a turn
COUNTS = ("shown", "clicked", "loss")
NUMBERS = ("number", "pages", "skipped")
STATE = "state."  # before the paths of the policy's own state

Kind = Literal["array", "plain"]  # plain: a number or a list of numbers


def page_of(event: Event) -> LoggedPage:
    """Returns a settled event as a page to learn; its mask is 0 if nothing is learned from it."""
    listed = event.listed
    return LoggedPage(
        event.number or 0,
        event.n,
        listed.items,
        listed.p,
        rewards_of(event),
        listed.learn if is_learned(event) else 0,
        listed.absent,
        listed.note,
        listed.policy_id.partition(":")[0] if listed.note else "",
    )


def learn_events(state: LogState, events: Sequence[Event]) -> None:
    """Learns from settled events of one learner, which are in the order of their numbers; any thread.

    All pages of a compiled policy are learned by one kernel, which other threads do not wait for. A policy in plain
    Python learns for a millisecond at a time. Raises ValueError or what the policy raises; the state is then of no use.
    """
    pages = [page_of(event) for event in events]
    started = time.monotonic()
    for k, page in enumerate(pages):
        if state.is_compiled:
            state.learn(pages[k:])
            return
        state.learn([page])
        if time.monotonic() - started > SLICE:
            time.sleep(0)
            started = time.monotonic()


def encode(state: LogState, reset: int = 0) -> bytes:
    """Returns a snapshot of the state of a learner that was reset at this number.

    It is a line of JSON, then arrays, compressed. It has no arrays if the state of the policy is not made of arrays,
    numbers and lists of numbers: then it says what the learner has learned, but ``decode`` finds no state in it.
    """
    arrays = _arrays_of(state)
    header = _header(state.policy, *state.shape, reset) | {name: getattr(state, name) for name in NUMBERS}
    header["arrays"] = arrays and [[path, kind, a.dtype.str, a.shape] for path, (kind, a) in arrays.items()]
    body = b"".join(array.tobytes() for _, array in (arrays or {}).values())
    return json.dumps(header).encode() + b"\n" + zlib.compress(body, LEVEL)


def decode(snapshot: bytes, policy: Any, n_items: int, slots: int, reset: int = 0) -> LogState | None:
    """Returns the state of a snapshot, or None if it is not one of this policy, shape, reset and version.

    The next events are learned as if the state had never been saved, bit for bit. A damaged snapshot gives None.
    """
    line, _, body = snapshot.partition(b"\n")
    try:
        header = json.loads(line)
        arrays = header.pop("arrays")
        numbers = {name: header.pop(name) for name in NUMBERS}
        if arrays is None or header != _header(policy, n_items, slots, reset):
            return None
        return _restored(policy, n_items, slots, numbers, _split(zlib.decompress(body), arrays))
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error):
        return None


def copied(state: LogState) -> LogState:
    """Returns an independent copy of a state."""
    twin = copy.copy(state)
    twin.state = copy_state(state.state)
    twin.shown, twin.clicked, twin.loss = state.shown.copy(), state.clicked.copy(), state.loss.copy()
    return twin


def size_of(state: LogState) -> int:
    """Returns about how many bytes of memory a state takes."""
    return sum(getattr(leaf, "nbytes", 32) for _, leaf in leaves(state.state)) + 3 * state.loss.nbytes + 1024


def same_bits(one: LogState, other: LogState) -> bool:
    """Returns whether two states are equal bit for bit, but for work arrays; False if they are not made of arrays."""
    ours, theirs = _arrays_of(one), _arrays_of(other)
    if ours is None or theirs is None or any(getattr(one, name) != getattr(other, name) for name in NUMBERS):
        return False
    return {path: _bits(a) for path, (_, a) in ours.items()} == {path: _bits(a) for path, (_, a) in theirs.items()}


def _bits(array: Any) -> tuple[Any, ...]:
    return array.dtype, array.shape, array.tobytes()


def policy_label(policy: Any) -> str:
    """Returns the name of a policy with its settings: states are of the same policy if this is the same."""
    return getattr(policy, "label", "") or policy_name(policy)


def _header(policy: Any, n_items: int, slots: int, reset: int) -> dict[str, Any]:
    """Returns what must be equal for a snapshot to be of use, as JSON gives it back."""
    return {
        "format": SNAPSHOT_FORMAT,
        "policy": policy_label(policy),
        "shape": [0 if has_parts(policy) else n_items, slots],  # a state with parts grows
        "reset": reset,
        "versions": dict(_versions()),
    }


@lru_cache
def _versions() -> tuple[tuple[str, str], ...]:
    """Returns what the bits of a state depend on, beside the log."""
    return (
        ("bothworlds", __version__),
        ("numpy", np.__version__),
        ("numba", numba.__version__),
        ("machine", platform.machine()),
    )


def _arrays_of(state: LogState) -> dict[str, tuple[Kind, Any]] | None:
    """Returns everything in a state as arrays by path, and what each was; None if that is not possible."""
    found: dict[str, tuple[Kind, Any]] = {name: ("array", getattr(state, name)) for name in COUNTS}
    for path, leaf in leaves(state.state):
        if not is_work(path):
            array = np.asarray(leaf)
            is_array = isinstance(leaf, (np.ndarray, np.generic))
            if array.dtype.kind not in "biufc" or not (is_array or array.tolist() == leaf):
                return None
            found[f"{STATE}{path}"] = ("array" if is_array else "plain", array)
    return found


def _split(body: bytes, arrays: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Returns the leaves of a snapshot by path."""
    found, at = {}, 0
    for path, kind, name, shape in arrays:
        dtype = np.dtype(name)
        size = math.prod(shape) * dtype.itemsize
        array = np.frombuffer(body[at : at + size], dtype).reshape(shape).copy()
        found[path] = array if kind == "array" else array.tolist()
        at += size
    if at != len(body):
        raise ValueError("a snapshot of another length")
    return found


def _restored(policy: Any, n_items: int, slots: int, numbers: dict[str, int], found: dict[str, Any]) -> LogState | None:
    """Returns the state with these leaves, or None if they are not those of a state of the policy."""
    state = LogState(policy, n_items, slots)
    for name in COUNTS:
        setattr(state, name, found.pop(name))
    for name, value in numbers.items():
        setattr(state, name, value)
    if not found:
        return state
    fresh = state.new(len(state.loss))
    kept = dict(leaves(fresh))
    saved = {path.removeprefix(STATE): leaf for path, leaf in found.items()}
    if saved.keys() != {path for path in kept if not is_work(path)}:
        return None
    state.state = copy_state(with_leaves(fresh, kept | saved))
    return state
