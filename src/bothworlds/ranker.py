"""A ranker to embed in a program: rank, feedback, save, load."""

from __future__ import annotations

import json
import threading
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from .core import Decision, check_shape, leaves, save_arrays, with_leaves
from .kernels import Floats
from .policies import Policy
from .policies import policy as policy_by_name
from .policies import resolve as resolve_policy
from .policies.marginals import counted_marginals, known_marginals
from .policies.saved_states import with_current_fields

__all__ = ["Learned", "Ranker", "Shown"]

FORMAT = "bothworlds ranker 1"
DECISIONS = 1000  # to estimate the marginals of a policy that does not know them
MAX_ROWS = 20  # in the repr of Learned


@dataclass(frozen=True, slots=True)
class Shown:
    """A list to show: ``items`` by slot, the probability of each at its slot, and an ``id`` for the feedback."""

    id: int
    items: tuple[Any, ...]
    propensities: tuple[float, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Learned:
    """The probability of each item at each slot in the next ranking.

    ``probabilities`` (items, slots) has a row for every item, in the order of ``items``, and a column for every slot;
    columns sum to 1. ``exact`` is False if they are estimated from a thousand decisions, with an error of about 0.01.
    ``learned[item]`` is the row of an item, and ``numpy.asarray(learned)`` the whole array.
    """

    items: tuple[Any, ...]
    probabilities: Floats
    exact: bool

    def __getitem__(self, item: Hashable) -> Floats:
        if item not in self.items:
            raise KeyError(item)
        return self.probabilities[self.items.index(item)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.probabilities, dtype=dtype)

    def to_dict(self) -> dict[Any, list[float]]:
        """Return the probabilities of every item, one per slot."""
        return dict(zip(self.items, self.probabilities.tolist()))

    def __repr__(self) -> str:
        """Return a table; items that are shown most often come first."""
        slots = self.probabilities.shape[1]
        order = np.argsort(-self.probabilities.sum(axis=1), kind="stable")[:MAX_ROWS].tolist()
        names = [str(self.items[i]) for i in order]
        width = max(len(name) for name in ("item", *names))
        lines = [f"{'item':{width}}" + "".join(f"{f'slot {j + 1}':>9}" for j in range(slots))]
        for name, i in zip(names, order):
            lines.append(f"{name:{width}}" + "".join(f"{p:9.3f}" for p in self.probabilities[i]))
        if len(self.items) > MAX_ROWS:
            lines.append(f"and {len(self.items) - MAX_ROWS:,} more items")
        if not self.exact:
            lines.append(f"estimated from {DECISIONS:,} decisions")
        return "\n".join(lines)


class Ranker:
    """Fills slots from a pool of items and learns from clicks.

    Parameters
    ----------
    items
        The names of the items, all different. To save the ranker, they must be strings or whole numbers.
    slots
        The number of items to show at a time.
    policy
        The name of a policy, or a policy object.
    seed
        Makes all rankings reproducible; random if None.
    max_pending
        How many rankings may wait for feedback. Beyond that the oldest is dropped: feedback on it raises ValueError.

    Examples
    --------
    Visitors who click on the weather at any slot:

    >>> ranker = Ranker(["news", "sport", "weather", "music"], slots=2, seed=3)
    >>> for _ in range(500):
    ...     shown = ranker.rank()
    ...     ranker.feedback(shown.id, [item for item in shown.items if item == "weather"])
    >>> sum("weather" in ranker.rank().items for _ in range(100)) > 90
    True

    Feedback may come late and in any order. Items without a click count as not clicked once feedback is given.
    All methods are thread-safe.
    """

    def __init__(
        self,
        items: Iterable[Hashable],
        slots: int,
        *,
        policy: str | Policy = "ftrl-pbm",
        seed: int | None = None,
        max_pending: int = 100_000,
    ) -> None:
        if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
            raise ValueError(f"items must be a list of names; got {items!r}")
        self.items = tuple(items)
        try:
            self._index = {item: i for i, item in enumerate(self.items)}
        except TypeError as error:
            raise ValueError(f"items must be hashable: {error}") from error
        if len(self._index) < len(self.items):
            repeated = next(item for i, item in enumerate(self.items) if self._index[item] != i)
            raise ValueError(f"items must be different; {repeated!r} occurs twice")
        if isinstance(slots, bool) or not isinstance(slots, (int, np.integer)) or not 1 <= slots <= len(self.items):
            raise ValueError(f"slots must be from 1 to the number of items, {len(self.items)}; got {slots!r}")
        if isinstance(max_pending, bool) or not isinstance(max_pending, (int, np.integer)) or max_pending < 1:
            raise ValueError(f"max_pending must be at least 1; got {max_pending!r}")
        shape = check_shape(len(self.items), int(slots))
        self.slots = shape.n_positions
        self.policy = resolve_policy(policy)
        self._state = self.policy.init(*shape)
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0):
            raise ValueError(f"seed must be a whole number of at least 0, or None; got {seed!r}")
        self._rng = np.random.default_rng(seed)
        self._max_pending = max_pending
        self._pending: dict[int, Decision] = {}
        self._last_id = 0
        self._dropped = 0  # ids up to this one may have been dropped
        self._lock = threading.Lock()

    def rank(self) -> Shown:
        """Return the next list to show, which then waits for feedback."""
        with self._lock:
            decision = self.policy.decide(self._state, self._rng)
            self._last_id += 1
            self._pending[self._last_id] = decision
            if len(self._pending) > self._max_pending:
                self._dropped = next(iter(self._pending))
                del self._pending[self._dropped]
            names = tuple(self.items[i] for i in decision.ranking.tolist())
            return Shown(self._last_id, names, tuple(decision.propensity.tolist()))

    def feedback(self, id: int, clicked: Iterable[Hashable]) -> None:
        """Learn from the clicked items of a ranking, which may be none.

        Raises ValueError, and learns nothing, if the id does not wait for feedback or an item was not shown.

        >>> ranker = Ranker(["a", "b", "c"], slots=2, seed=0)
        >>> shown = ranker.rank()
        >>> ranker.feedback(shown.id, [])
        >>> ranker.feedback(shown.id, [])
        Traceback (most recent call last):
        ...
        ValueError: id 1 had its feedback already
        """
        self.feedback_many([(id, clicked)])

    def feedback_many(self, batch: Iterable[tuple[int, Iterable[Hashable]]]) -> None:
        """Learn from several rankings: pairs of id and clicked items.

        Raises ValueError if any pair is invalid; then nothing is learned.

        >>> ranker = Ranker(["a", "b", "c"], slots=2, seed=0)
        >>> first, second = ranker.rank(), ranker.rank()
        >>> ranker.feedback_many([(second.id, second.items), (first.id, [])])
        >>> ranker.pending
        0
        """
        with self._lock:
            checked: dict[int, Floats] = {}
            for id, clicked in batch:
                decision = self._decision(id)
                if id in checked:
                    raise ValueError(f"id {id!r} is in the batch twice")
                checked[id] = self._clicks(decision, id, clicked)
            for id, clicks in checked.items():
                self.policy.learn(self._state, self._pending[id], clicks)
                del self._pending[id]

    def learned(self) -> Learned:
        """Return the probability of each item at each slot in the next ranking; the state is not changed.

        It is exact for policies that know their marginals, such as ``ftrl-pbm``. For others it is estimated from a
        thousand decisions with a fixed seed.

        >>> ranker = Ranker(["news", "sport", "weather"], slots=2, seed=3)
        >>> for _ in range(200):
        ...     shown = ranker.rank()
        ...     ranker.feedback(shown.id, [item for item in shown.items if item == "weather"])
        >>> learned = ranker.learned()
        >>> list(learned.to_dict()), bool(learned["weather"].sum() > 0.9)
        (['news', 'sport', 'weather'], True)
        """
        shape = (len(self.items), self.slots)
        with self._lock:
            known = known_marginals(self.policy, self._state)
            if known is not None:
                return Learned(self.items, known, True)
            rng = np.random.default_rng(0)
            return Learned(self.items, counted_marginals(self.policy, self._state, shape, DECISIONS, rng), False)

    def __repr__(self) -> str:
        policy = getattr(self.policy, "label", "") or type(self.policy).__name__
        return (
            f"<Ranker: {len(self.items)} items, {self.slots} slots, {policy}, "
            f"{self._last_id:,} shown, {self.pending:,} pending>"
        )

    @property
    def pending(self) -> int:
        """The number of rankings that wait for feedback."""
        return len(self._pending)

    def _decision(self, id: int) -> Decision:
        is_integer = isinstance(id, (int, np.integer)) and not isinstance(id, bool)
        if is_integer and id in self._pending:
            return self._pending[id]
        if is_integer and 1 <= id <= self._last_id:
            if id <= self._dropped:
                raise ValueError(
                    f"id {id} had its feedback already, or was dropped: at most {self._max_pending} wait for feedback"
                )
            raise ValueError(f"id {id} had its feedback already")
        raise ValueError(f"id must be one that rank() returned; got {id!r}")

    def _clicks(self, decision: Decision, id: int, clicked: Iterable[Hashable]) -> Floats:
        if isinstance(clicked, (str, bytes)) or not isinstance(clicked, Iterable):
            raise ValueError(f"clicked must be a list of items; got {clicked!r}")
        slot_of = {self.items[i]: slot for slot, i in enumerate(decision.ranking.tolist())}
        clicks = np.zeros(self.slots)
        for item in clicked:
            if not isinstance(item, Hashable) or item not in self._index:
                raise ValueError(f"clicked must be items of this ranker; got {item!r}")
            if item not in slot_of:
                raise ValueError(f"clicked must be items that were shown; {item!r} was not shown with id {id}")
            clicks[slot_of[item]] = 1.0
        return clicks

    def save(self, path: str | Path) -> None:
        """Write the whole state to a file; a loaded ranker behaves the same from then on.

        The file is a NumPy archive of plain arrays with a JSON header; loading it executes no code. Raises ValueError
        if the items or the policy cannot be saved, and FileNotFoundError if the folder does not exist.
        """
        other = [item for item in self.items if type(item) not in (str, int)]
        if other:
            raise ValueError(f"items must be strings or whole numbers to be saved; got {other[0]!r}")
        if not Path(path).parent.is_dir():
            raise FileNotFoundError(f"there is no folder {Path(path).parent} to save the ranker in")
        with self._lock:
            arrays = {f"state/{name}": np.asarray(value) for name, value in leaves(self._state)}
            not_arrays = [name for name, value in arrays.items() if value.dtype.hasobject]
            if not_arrays:
                raise ValueError(f"policy {self.policy!r} has a state that is not made of arrays: {not_arrays[0]}")
            header = {
                "format": FORMAT,
                "policy": getattr(self.policy, "name", "") or type(self.policy).__name__,
                "settings": self.policy.settings() if isinstance(self.policy, Policy) else {},
                "items": list(self.items),
                "slots": self.slots,
                "rng": self._rng.bit_generator.state,
                "last_id": self._last_id,
                "forgotten": self._dropped,
                "max_pending": self._max_pending,
            }
            arrays["pending/id"] = np.array(list(self._pending), dtype=np.int64)
            for part in Decision._fields:
                parts: Sequence[Any] = [getattr(decision, part) for decision in self._pending.values()]
                arrays[f"pending/{part}"] = np.array(parts).reshape(len(parts), self.slots)
            try:
                arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
            except TypeError as error:
                raise ValueError(f"policy {self.policy!r} has settings that cannot be saved: {error}") from error
            save_arrays(Path(path), arrays)

    @classmethod
    def load(cls, path: str | Path, *, policy: Policy | None = None) -> Self:
        """Return the ranker that was saved to a file; a policy that is not registered must be passed again.

        Raises FileNotFoundError, or ValueError if the file is not a saved ranker or has the state of another policy.

        >>> import tempfile, pathlib
        >>> ranker = Ranker(["a", "b", "c"], slots=2, seed=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ranker.save(pathlib.Path(folder) / "ranker")
        ...     twin = Ranker.load(pathlib.Path(folder) / "ranker")
        >>> twin.rank() == ranker.rank()
        True
        """
        arrays, header = _read(Path(path))
        if policy is None:
            policy = policy_by_name(header["policy"], **header["settings"])
        ranker = cls(header["items"], header["slots"], policy=policy, max_pending=header["max_pending"])
        saved = {name.removeprefix("state/"): value for name, value in arrays.items() if name.startswith("state/")}
        fresh = dict(leaves(ranker._state))
        saved = with_current_fields(saved, fresh)
        if saved.keys() != fresh.keys() or any(saved[name].shape != np.shape(fresh[name]) for name in fresh):
            raise ValueError(f"{path} has the state of another policy than {policy!r}")
        ranker._state = with_leaves(ranker._state, {name: _like(old, saved[name]) for name, old in fresh.items()})
        ranker._rng.bit_generator.state = header["rng"]
        ranker._last_id, ranker._dropped = header["last_id"], header["forgotten"]
        decisions = map(Decision, arrays["pending/ranking"].astype(np.int64), arrays["pending/propensity"])
        ranker._pending = dict(zip(arrays["pending/id"].tolist(), decisions))
        return ranker


def _like(old: Any, saved: np.ndarray[Any, Any]) -> Any:
    """Convert a saved array to the type of the original: array, list or number."""
    if isinstance(old, np.ndarray):
        return saved.copy()
    return saved.tolist() if isinstance(old, list) else type(old)(saved.item())


def _read(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop("header").tobytes())
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged archive can fail in any way
        raise ValueError(f"{path} is not a saved ranker: {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        format = header.get("format") if isinstance(header, dict) else header
        raise ValueError(f"{path} is not a saved ranker that this version reads ({FORMAT!r}); it is {format!r}")
    missing = {"policy", "settings", "items", "slots", "rng", "last_id", "forgotten", "max_pending"} - header.keys()
    if missing or not {f"pending/{part}" for part in ("id", *Decision._fields)} <= arrays.keys():
        raise ValueError(f"{path} is not a saved ranker: parts are missing")
    return arrays, header
