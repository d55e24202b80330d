"""A ranker to embed in a program: rank, feedback, save, load."""

from __future__ import annotations

import json
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from .core import Decision, check_shape, leaves, save_arrays, with_leaves
from .kernels import Floats, Ints
from .policies import Policy, check_needs, names
from .policies import policy as policy_by_name
from .policies import resolve as resolve_policy
from .policies.constraints import checked_constraints
from .policies.item_ledger import ItemLedger
from .policies.marginals import counted_marginals, known_marginals

__all__ = ["Learned", "Ranker", "Shown"]

FORMAT = "bothworlds ranker 1"
CHANGED_FORMAT = "bothworlds ranker 2"  # with items that are not active, or lists with exclusions or pins
DECISIONS = 1000  # to estimate the marginals of a policy that does not know them
MAX_ROWS = 20  # in the repr of Learned
MAX_SOLVED = 256  # combinations of exclusions and pins whose states are kept until the next feedback

SUMS = ("loss", "shown", "clicked")

ItemState = Literal["active", "paused", "removed"]


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
    columns sum to 1, and rows of paused items are 0. ``exact`` is False if they are estimated from a thousand
    decisions, with an error of about 0.01.
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


class _Page(NamedTuple):
    """A list that waits for feedback: a decision over all items that ever existed, and what it could not show."""

    decision: Decision
    rows: Ints  # the items that could be shown at slots without a pin
    absent: tuple[int, ...]
    pinned: tuple[int, ...]  # slots
    mixture: tuple[float, ...] = ()  # of a policy that mixes two learners: see ``Mixture.record``


class Ranker:
    """Fills slots from a pool of items and learns from clicks.

    Parameters
    ----------
    items
        The names of the items, all different. To save the ranker, they must be strings or whole numbers.
    slots
        The number of items to show at a time.
    policy
        The name of a policy, with settings as on the command line (``"ftrl-pbm:rate=0.3"``), or a policy object.
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

    Items can be added, paused, resumed and removed, and one list can exclude items or pin them to slots. An item that
    could not be shown is charged the loss observed at the slots, so that it neither gains nor loses by its absence.
    This needs a policy whose state is a sum over pages, as the service does; others raise ValueError. A policy that
    detects changes starts again with all pages when items are changed, excluded or pinned, because these sums do
    not record when a page was shown; the service keeps them by time.

    >>> ranker.pause("weather")
    >>> shown = ranker.rank(exclude=["news"], pins={1: "music"})
    >>> shown.items
    ('sport', 'music')
    """

    def __init__(
        self,
        items: Iterable[Hashable],
        slots: int,
        *,
        policy: str | Policy = "all-weather",
        seed: int | None = None,
        max_pending: int = 100_000,
    ) -> None:
        if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
            raise ValueError(f"items must be a list of names; got {items!r}")
        self._names = list(items)
        try:
            self._index = {item: i for i, item in enumerate(self._names)}
        except TypeError as error:
            raise ValueError(f"items must be hashable: {error}") from error
        if len(self._index) < len(self._names):
            repeated = next(item for i, item in enumerate(self._names) if self._index[item] != i)
            raise ValueError(f"items must be different; {repeated!r} occurs twice")
        self._states: list[ItemState] = ["active"] * len(self._names)
        if isinstance(slots, bool) or not isinstance(slots, (int, np.integer)) or not 1 <= slots <= len(self.items):
            raise ValueError(f"slots must be from 1 to the number of items, {len(self.items)}; got {slots!r}")
        if isinstance(max_pending, bool) or not isinstance(max_pending, (int, np.integer)) or max_pending < 1:
            raise ValueError(f"max_pending must be at least 1; got {max_pending!r}")
        shape = check_shape(len(self.items), int(slots))
        self.slots = shape.n_positions
        self.policy = resolve_policy(policy)
        check_needs(self.policy)
        self._state = self.policy.init(*shape)
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0):
            raise ValueError(f"seed must be a whole number of at least 0, or None; got {seed!r}")
        self._rng = np.random.default_rng(seed)
        self._max_pending = max_pending
        self._pending: dict[int, _Page] = {}
        self._part = self.policy  # for the active items
        self._rows: Ints = np.arange(shape.n_items)  # the active items
        additive = getattr(type(self.policy), "resumed", Policy.resumed) is not Policy.resumed
        self._ledger = ItemLedger(*shape) if additive else None
        self._is_additive = False  # checked when items are first changed, excluded or pinned
        self._stale = False  # the state has to be computed from the ledger
        self._solved: dict[Any, Any] = {}  # states for exclusions and pins
        self._last_id = 0
        self._dropped = 0  # ids up to this one may have been dropped
        self._lock = threading.Lock()

    @property
    def items(self) -> tuple[Any, ...]:
        """The names of the items that were not removed, in the order in which they were added."""
        return tuple(name for name, state in zip(self._names, self._states) if state != "removed")

    def rank(self, *, exclude: Iterable[Hashable] = (), pins: Mapping[int, Hashable] | None = None) -> Shown:
        """Return the next list to show, which then waits for feedback.

        ``exclude`` are items that this list must not show, ``pins`` are items by slot, counted from 0. A pinned item
        has the propensity 1, and its slot is not learned from. Raises ValueError if this is not possible.
        """
        with self._lock:
            page = self._constrained_page(exclude, pins or {}) if exclude or pins else self._page()
            self._last_id += 1
            self._pending[self._last_id] = page
            if len(self._pending) > self._max_pending:
                self._dropped = next(iter(self._pending))
                del self._pending[self._dropped]
            names = tuple(self._names[i] for i in page.decision.ranking.tolist())
            return Shown(self._last_id, names, tuple(page.decision.propensity.tolist()))

    def _page(self) -> _Page:
        state = self._current_state()
        decision = self._part.decide(state, self._rng)
        mixture = self._mixture_record(self._part, state, decision) if self._ledger is not None else ()
        if len(self._rows) < len(self._names):
            decision = Decision(self._rows[decision.ranking], decision.propensity)
        return _Page(decision, self._rows, self._absent(self._rows), (), mixture)

    def _constrained_page(self, exclude: Iterable[Hashable], pins: Mapping[int, Hashable]) -> _Page:
        self._check_additive()
        if isinstance(exclude, (str, bytes)) or not isinstance(exclude, Iterable):
            raise ValueError(f"exclude must be a list of items; got {exclude!r}")
        if not isinstance(pins, Mapping):
            raise ValueError(f"pins must map slots to items; got {pins!r}")
        exclude = tuple(exclude)
        active = {self._names[i]: i for i in self._rows.tolist()}
        unknown = [item for item in (*exclude, *pins.values()) if item not in self._index]
        if unknown:
            raise ValueError(f"exclude and pins must be items of this ranker; got {unknown[0]!r}")
        constraints = checked_constraints(active, self.slots, exclude, pins)
        excluded, pinned = constraints
        taken = dict(pinned)
        free = [slot for slot in range(self.slots) if slot not in taken]
        rows = np.array([i for name, i in active.items() if name not in excluded and name not in taken.values()])
        ranking, propensity = np.empty(self.slots, np.int64), np.ones(self.slots)
        mixture: tuple[float, ...] = ()
        for slot, name in pinned:
            ranking[slot] = active[name]
        if free and len(rows) == 1:
            ranking[free] = rows
        elif free:
            part = self.policy.part(rows, np.array(free))
            if constraints not in self._solved:
                if len(self._solved) >= MAX_SOLVED:
                    self._solved.clear()
                self._solved[constraints] = part.resumed(self._sums().part(rows, free))
            decision = part.decide(self._solved[constraints], self._rng)
            ranking[free], propensity[free] = rows[decision.ranking], decision.propensity
            if record := self._mixture_record(part, self._solved[constraints], decision):
                weights = np.zeros(self.slots)
                weights[free] = record[1:]
                mixture = (record[0], *weights.tolist())
        return _Page(Decision(ranking, propensity), rows, self._absent(rows), tuple(taken), mixture)

    @staticmethod
    def _mixture_record(policy: Any, state: Any, decision: Decision) -> tuple[float, ...]:
        mixture = policy.mixture(state) if isinstance(policy, Policy) else None
        return () if mixture is None else mixture.record(decision)

    def _absent(self, rows: Ints) -> tuple[int, ...]:
        if len(rows) == len(self._names):
            return ()
        return tuple(sorted(set(range(len(self._names))).difference(rows.tolist())))

    def _current_state(self) -> Any:
        if self._stale:
            self._state = self._part.resumed(self._sums().part(self._rows, range(self.slots)))
            self._stale = False
        return self._state

    def _sums(self) -> ItemLedger:
        if self._ledger is None:
            raise ValueError(f"policy {self.policy!r} keeps no sums over pages")
        return self._ledger

    def _check_additive(self) -> None:
        """Raise ValueError if the state of the policy cannot be computed from sums over pages."""
        if self._ledger is None:
            resumed = getattr(self.policy, "resumed", None)
            if resumed is not None:
                resumed(ItemLedger(len(self._names), self.slots).part(self._rows, range(self.slots)))
            raise ValueError(f"items cannot be changed, excluded or pinned: {self.policy!r} keeps no sums over pages")
        if not self._is_additive:
            if getattr(self.policy, "window", None) is not None or getattr(self.policy, "discount", 1.0) < 1.0:
                raise ValueError(f"items cannot be changed, excluded or pinned: {self.policy!r} forgets pages by age")
            self._part.resumed(self._ledger.part(self._rows, range(self.slots)))
            self._is_additive = True

    # Items

    def add(self, item: Hashable) -> None:
        """Add an item, which starts at the median of the others; one that was paused or removed becomes active again.

        An item that comes back has what was learned of it, and what it was charged while it was away. Raises
        ValueError if the policy cannot be changed.

        >>> ranker = Ranker(["a", "b", "c"], slots=2, seed=0)
        >>> ranker.add("d")
        >>> ranker.items
        ('a', 'b', 'c', 'd')
        """
        with self._lock:
            try:
                known = item in self._index
            except TypeError as error:
                raise ValueError(f"items must be hashable: {error}") from error
            if known:
                self._set_state(item, "active")
                return
            self._check_additive()
            self._sums().add_item(self._rows.tolist())
            self._index[item] = len(self._names)
            self._names.append(item)
            self._states.append("active")
            self._items_changed()

    def pause(self, item: Hashable) -> None:
        """Do not show an item until it is resumed. Raises ValueError if it is not known or is needed to fill slots."""
        with self._lock:
            self._set_state(item, "paused")

    def resume(self, item: Hashable) -> None:
        """Show a paused item again. Raises ValueError if it is not known or was removed."""
        with self._lock:
            if item in self._index and self._states[self._index[item]] == "removed":
                raise ValueError(f"item {item!r} was removed; add it again")
            self._set_state(item, "active")

    def remove(self, item: Hashable) -> None:
        """Remove an item. Its sums are kept in case it is added again. Raises ValueError as ``pause`` does."""
        with self._lock:
            self._set_state(item, "removed")

    def _set_state(self, item: Hashable, state: ItemState) -> None:
        if item not in self._index:
            raise ValueError(f"there is no item {item!r}")
        k = self._index[item]
        old = self._states[k]
        if old == state:
            return
        if old == "removed" and state == "paused":
            raise ValueError(f"item {item!r} was removed; add it again first")
        self._check_additive()
        active = len(self._rows) - (old == "active") + (state == "active")
        if active < max(2, self.slots):
            raise ValueError(f"{self.slots} slots need {max(2, self.slots)} active items; there would be {active}")
        self._states[k] = state
        self._items_changed()

    def _items_changed(self) -> None:
        self._rows = np.array([i for i, state in enumerate(self._states) if state == "active"])
        self._part = self.policy.part(self._rows, np.arange(self.slots))
        self._stale = True
        self._solved.clear()

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
                decision = self._waiting(id).decision
                if id in checked:
                    raise ValueError(f"id {id!r} is in the batch twice")
                checked[id] = self._clicks(decision, id, clicked)
            for id, clicks in checked.items():
                self._learn(self._pending[id], clicks)
                del self._pending[id]

    def _learn(self, page: _Page, clicks: Floats) -> None:
        if page.rows is self._rows and not page.pinned:
            if not self._stale:
                decision = page.decision
                if len(self._rows) < len(self._names):
                    decision = Decision(np.searchsorted(self._rows, decision.ranking), decision.propensity)
                self._part.learn(self._state, decision, clicks)
        else:  # the list was chosen from other items than the active ones
            self._stale = True
        if self._ledger is not None:
            self._ledger.settle(page.decision, clicks, page.pinned, page.absent, page.mixture)
            self._solved.clear()

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
        with self._lock:
            x = known_marginals(self._part, self._current_state())
            exact = x is not None
            if x is None:
                shape = (len(self._rows), self.slots)
                x = counted_marginals(self._part, self._state, shape, DECISIONS, np.random.default_rng(0))
            table = np.zeros((len(self._names), self.slots))
            table[self._rows] = x
            kept = [i for i, state in enumerate(self._states) if state != "removed"]
            return Learned(self.items, table[kept], exact)

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

    def _waiting(self, id: int) -> _Page:
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
        slot_of = {self._names[i]: slot for slot, i in enumerate(decision.ranking.tolist())}
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
        other = [item for item in self._names if type(item) not in (str, int)]
        if other:
            raise ValueError(f"items must be strings or whole numbers to be saved; got {other[0]!r}")
        if not Path(path).parent.is_dir():
            raise FileNotFoundError(f"there is no folder {Path(path).parent} to save the ranker in")
        with self._lock:
            arrays = {f"state/{name}": np.asarray(value) for name, value in leaves(self._current_state())}
            not_arrays = [name for name, value in arrays.items() if value.dtype.hasobject]
            if not_arrays:
                raise ValueError(f"policy {self.policy!r} has a state that is not made of arrays: {not_arrays[0]}")
            pages = self._pending
            changed = any(state != "active" for state in self._states) or any(
                page.absent or page.pinned for page in pages.values()
            )
            header = {
                "format": CHANGED_FORMAT if changed else FORMAT,
                "policy": getattr(self.policy, "name", "") or type(self.policy).__name__,
                "settings": self.policy.settings() if isinstance(self.policy, Policy) else {},
                "items": self._names,
                "slots": self.slots,
                "rng": self._rng.bit_generator.state,
                "last_id": self._last_id,
                "forgotten": self._dropped,
                "max_pending": self._max_pending,
                "states": self._states,
                "absent": {id: page.absent for id, page in pages.items() if page.absent},
                "pinned": {id: page.pinned for id, page in pages.items() if page.pinned},
            }
            if self._ledger is not None:
                header["rounds"] = self._ledger.rounds
                header["mixture_sums"] = [self._ledger.spread, self._ledger.difference, self._ledger.variance]
                header["mixtures"] = {id: page.mixture for id, page in pages.items() if page.mixture}
                arrays |= {f"ledger/{name}": getattr(self._ledger, name) for name in SUMS}
            arrays["pending/id"] = np.array(list(pages), dtype=np.int64)
            for part in Decision._fields:
                parts: Sequence[Any] = [getattr(page.decision, part) for page in pages.values()]
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
            if header["policy"] not in names():
                raise ValueError(f"{path} has the state of {header['policy']!r}, which is not registered: pass policy=")
            policy = policy_by_name(header["policy"], **header["settings"])
        ranker = cls(header["items"], header["slots"], policy=policy, max_pending=header["max_pending"])
        ranker._restore_items(arrays, header)
        saved = {name.removeprefix("state/"): value for name, value in arrays.items() if name.startswith("state/")}
        fresh = dict(leaves(ranker._state))
        if saved.keys() != fresh.keys() or any(saved[name].shape != np.shape(fresh[name]) for name in fresh):
            raise ValueError(f"{path} has the state of another policy than {policy!r}")
        ranker._state = with_leaves(ranker._state, {name: _like(old, saved[name]) for name, old in fresh.items()})
        ranker._rng.bit_generator.state = header["rng"]
        ranker._last_id, ranker._dropped = header["last_id"], header["forgotten"]
        decisions = map(Decision, arrays["pending/ranking"].astype(np.int64), arrays["pending/propensity"])
        ranker._pending = {
            id: ranker._restored_page(decision, header, str(id))
            for id, decision in zip(arrays["pending/id"].tolist(), decisions)
        }
        return ranker

    def _restore_items(self, arrays: Mapping[str, np.ndarray[Any, Any]], header: Mapping[str, Any]) -> None:
        """Set the states of items and the sums; a file of an older version with pages has no sums."""
        if "rounds" in header and self._ledger is not None:
            self._ledger.rounds = header["rounds"]
            sums = header.get("mixture_sums", (0.0, 0.0, 0.0))
            self._ledger.spread, self._ledger.difference, self._ledger.variance = sums
            for name in SUMS:
                setattr(self._ledger, name, arrays[f"ledger/{name}"].astype(np.float64))
        elif header["last_id"]:
            self._ledger = None
        states = header.get("states", self._states)
        if states != self._states:
            self._states = states
            self._items_changed()
            self._current_state()

    def _restored_page(self, decision: Decision, header: Mapping[str, Any], id: str) -> _Page:
        missing, slots, mixture = (tuple(header.get(name, {}).get(id, ())) for name in ("absent", "pinned", "mixtures"))
        same = not slots and missing == self._absent(self._rows)
        rows = self._rows if same else np.setdiff1d(np.arange(len(self._names)), missing)
        return _Page(decision, rows, missing, slots, mixture)


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
    if not isinstance(header, dict) or header.get("format") not in (FORMAT, CHANGED_FORMAT):
        format = header.get("format") if isinstance(header, dict) else header
        raise ValueError(f"{path} is not a saved ranker that this version reads ({FORMAT!r}); it is {format!r}")
    missing = {"policy", "settings", "items", "slots", "rng", "last_id", "forgotten", "max_pending"} - header.keys()
    if missing or not {f"pending/{part}" for part in ("id", *Decision._fields)} <= arrays.keys():
        raise ValueError(f"{path} is not a saved ranker: parts are missing")
    return arrays, header
