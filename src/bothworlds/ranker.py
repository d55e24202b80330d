"""A ranker to embed in a program: rank, feedback, save, load."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np

from .checks import is_number, whole
from .core import (
    NO_CONTEXT,
    Decision,
    Labels,
    Shape,
    check_shape,
    copy_state,
    is_work,
    leaves,
    with_leaves,
)
from .export_format import exported_context, read_export
from .files import save_arrays
from .kernels import Floats, Ints
from .labels import Declaration, LabelTable
from .policies import CompiledPolicy, Policy, check_needs, names
from .policies import policy as policy_by_name
from .policies import resolve as resolve_policy
from .policies.constraints import checked_constraints
from .policies.effects import Effects, effects_of, pairs_of
from .policies.logged_pages import LoggedPage, LogLabels, LogState
from .policies.marginals import frequencies, known_marginals
from .policies.pages import (
    Page,
    Part,
    check_learns_labels,
    check_parts,
    decide_for,
    grown,
    has_parts,
    learn_page,
    learns_labels,
    part_for,
    rank_page,
    with_labels,
)

__all__ = ["Learned", "Ranker", "Shown"]

FORMAT = "bothworlds ranker 1"
DECISIONS = 1000  # to estimate the marginals of a policy that does not know them
PAGES_AT_ONCE = 10_000  # that are read from an export and learned
MAX_ROWS = 20  # in the repr of Learned
MAX_PARTS = 256  # combinations of exclusions and pins whose parts are kept,
MAX_PART_CELLS = 1_000_000  # with at most so many pairs of item and slot in all of them
REUSED = 0.01  # a part is used until there are so many more pages than it has learned from, as a share,
MOST_REUSED = 64  # and at most so many

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


class _Waiting(NamedTuple):
    """A list that waits for feedback, and the number of items when it was drawn."""

    decision: Decision
    n_items: int


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
    labels, item_labels
        The labels of visitors and of items, with which all of them learn from each other: a list of names, or a
        dictionary from names to None (any text or boolean, at most 200 different ones), to a list of texts, or to a
        list of increasing numbers, the edges of a label with numbers. At most 8 of each. ``items`` may then be a
        dictionary from names to the values of their labels. Policies: ``all-weather`` and ``context-ts``.

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

    Items can be added, paused, resumed and removed, and one list can exclude items or pin them to slots. The rest of
    the list is drawn as if there had never been other items. An item that could not be shown is charged the loss
    observed at the slots, so that it neither gains nor loses by its absence. This needs a policy whose state has parts,
    see ``bothworlds.policies.pages``; others raise ValueError.

    >>> ranker.pause("weather")
    >>> shown = ranker.rank(exclude=["news"], pins={1: "music"})
    >>> shown.items
    ('sport', 'music')

    With labels, the list depends on the visitor. What matters is learned, and used for new items and rare visitors:

    >>> shop = {"lamp": {"category": "light"}, "bulb": {"category": "light"}, "rug": {"category": "floor"}}
    >>> ranker = Ranker(shop, slots=1, seed=0, labels=["device"], item_labels=["category"])
    >>> for k in range(800):
    ...     device, liked = [("phone", ["lamp", "bulb"]), ("desktop", ["rug"])][k % 2]
    ...     shown = ranker.rank(context={"device": device})
    ...     ranker.feedback(shown.id, [item for item in shown.items if item in liked])
    >>> bool(ranker.learned({"device": "desktop"})["rug"] > 0.8 > 0.2 > ranker.learned({"device": "phone"})["rug"])
    True
    >>> ranker.effects("device", "category")[0].effect > 0.5
    True
    """

    def __init__(
        self,
        items: Iterable[Hashable] | Mapping[Hashable, Mapping[str, Any]],
        slots: int,
        *,
        policy: str | Policy = "all-weather",
        seed: int | None = None,
        max_pending: int = 100_000,
        labels: Sequence[str] | Declaration | None = None,
        item_labels: Sequence[str] | Declaration | None = None,
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
        if whole(slots, "slots", 1) > len(self.items):
            raise ValueError(f"slots must be from 1 to the number of items, {len(self.items)}; got {slots!r}")
        shape = check_shape(len(self.items), slots)
        self.slots = shape.n_positions
        self.policy = resolve_policy(policy)
        check_needs(self.policy)
        self._visitor_labels, self._item_labels = _table(labels, "labels"), _table(item_labels, "item_labels")
        self._unknown: Counter[str] = Counter()
        values = items if isinstance(items, Mapping) else {}
        rows = [self._item_row(name, values.get(name)) for name in self._names]
        self._state = self._first_state(shape, rows)
        self._rng = np.random.default_rng(None if seed is None else whole(seed, "seed", 0))
        self._max_pending = whole(max_pending, "max_pending", 1)
        self._pending: dict[int, _Waiting] = {}
        self._rows: Ints = np.arange(shape.n_items)  # the active items
        self._learned = 0  # pages
        self._parts: dict[Any, tuple[Part | None, int]] = {}  # by constraints, with the pages it has learned from
        self._last_id = 0
        self._dropped = 0  # ids up to this one may have been dropped
        self._lock = threading.Lock()

    @property
    def items(self) -> tuple[Any, ...]:
        """The names of the items that were not removed, in the order in which they were added."""
        return tuple(name for name, state in zip(self._names, self._states) if state != "removed")

    def rank(
        self,
        *,
        exclude: Iterable[Hashable] = (),
        pins: Mapping[int, Hashable] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Shown:
        """Return the next list to show, which then waits for feedback.

        ``context`` are the visitor's labels, declared with ``labels=``; one that is missing is unknown, and a value
        that is not allowed is served as unknown and counted in ``unknown``.

        ``exclude`` are items that this list must not show, ``pins`` are items by slot, counted from 0. A pinned item
        has the propensity 1, and its slot is not learned from. Raises ValueError if this is not possible.
        """
        with self._lock:
            row, unknown = self._context(context, grow=True)
            decision = self._decide(exclude, pins or {}, row)
            self._unknown.update(f"context.{name}" for name in unknown)
            self._last_id += 1
            self._pending[self._last_id] = _Waiting(decision, len(self._names))
            if len(self._pending) > self._max_pending:
                self._dropped = next(iter(self._pending))
                del self._pending[self._dropped]
            names = tuple(self._names[i] for i in decision.ranking.tolist())
            return Shown(self._last_id, names, tuple(decision.propensity.tolist()))

    def _decide(self, exclude: Iterable[Hashable], pins: Mapping[int, Hashable], context: Ints) -> Decision:
        if not exclude and not pins:
            if len(self._rows) == len(self._names):
                return decide_for(self.policy, self._state, self._rng, context)
            page = Page(self._rows, {})
            return rank_page(self._part((), page), page, self._shape, self._rng, context)
        check_parts(self.policy)
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
        rows = [i for name, i in active.items() if name not in excluded and name not in taken.values()]
        page = Page(np.array(rows, np.int64), {slot: active[name] for slot, name in pinned})
        return rank_page(self._part(constraints, page), page, self._shape, self._rng, context)

    @property
    def _shape(self) -> Shape:
        return Shape(len(self._names), self.slots)

    def _part(self, constraints: Any, page: Page) -> Part | None:
        """Return the part of the state that a page is drawn from.

        It is computed again when there are 1% more pages, at most 64. Until then its lists have exact propensities all
        the same, so that what is learned from them is unbiased.
        """
        part, learned = self._parts.get(constraints, (None, -1))
        if learned < 0 or self._learned - learned > min(MOST_REUSED, REUSED * learned):
            if len(self._parts) >= max(1, min(MAX_PARTS, MAX_PART_CELLS // (len(self._names) * self.slots))):
                self._parts.clear()
            part = part_for(self.policy, self._state, page)
            self._parts[constraints] = part, self._learned
        return part

    # Labels

    @property
    def unknown(self) -> dict[str, int]:
        """How often a value was given that is not known, by label: ``context.NAME`` of visitors, ``items.NAME``.

        >>> ranker = Ranker(["a", "b"], slots=1, labels={"plan": ["free", "paid"]}, seed=0)
        >>> shown = ranker.rank(context={"plan": "gold"})
        >>> ranker.unknown
        {'context.plan': 1}
        """
        return dict(self._unknown)

    @property
    def _learns_labels(self) -> bool:
        return bool(self._visitor_labels.names or self._item_labels.names)

    def _item_row(self, item: Hashable, values: Mapping[str, Any] | None) -> tuple[int, ...]:
        """Return the numbers of the labels of an item; raises LabelError, and counts values that are not known."""
        row = self._item_labels.row({} if values is None else values, f"items.{item}")
        self._unknown.update(f"items.{name}" for name in row.unknown)
        return row.values

    def _first_state(self, shape: Shape, rows: Sequence[tuple[int, ...]]) -> Any:
        if not self._learns_labels:
            return self.policy.init(*shape)
        check_learns_labels(self.policy)
        return cast(CompiledPolicy, self.policy).init(*shape, self._labels(np.array(rows, np.int64).T))

    def _labels(self, items: Ints) -> Labels:
        """Return the declared labels with their present values, and those of items (item labels, items)."""
        visitor, item = (np.array(table.sizes, np.int64) for table in (self._visitor_labels, self._item_labels))
        return Labels(visitor, item, np.ascontiguousarray(items))

    def _relabel(self, items: Ints) -> None:
        """Give items these labels; what was learned of values stays with them."""
        self._state = with_labels(self.policy, self._state, self._labels(items))
        self._parts.clear()

    def _context(self, context: Mapping[str, Any] | None, grow: bool) -> tuple[Ints, tuple[str, ...]]:
        """Return the numbers of a context, and the labels whose value is not known; raises ValueError."""
        if not self._learns_labels:
            if context is not None:
                raise ValueError("context needs labels, which are declared with Ranker(..., labels=[...])")
            return NO_CONTEXT, ()
        row = self._visitor_labels.row({} if context is None else context, "context", grow=grow)
        if self._visitor_labels.sizes != tuple(self._state.labels.visitor.tolist()):
            self._relabel(self._state.labels.items)
        return np.array(row.values, np.int64), row.unknown

    def effects(self, visitor: str | None = None, item: str | None = None) -> Effects:
        """Return which pairs of labels matter, or, for one pair, what visitors with a value like.

        Without arguments, every pair with the standard deviation ``sd`` of its effects, the number of pairs of
        ``values`` that were shown and the number of ``pages`` behind it. With two labels, the effect of every pair of
        their values, with its standard error. Effects are in log-odds of a click. ``all`` stands for all visitors or
        items, ``item`` for the item itself, ``slot`` for the slot. Raises ValueError if labels are not declared.

        >>> ranker = Ranker(["a", "b"], slots=1, labels=["device"], seed=0)
        >>> sorted((pair.visitor_label, pair.item_label) for pair in ranker.effects())
        [('all', 'item'), ('all', 'item x slot'), ('device', 'all'), ('device', 'item'), ('device', 'slot')]
        """
        if (visitor is None) != (item is None):
            raise ValueError("effects needs a label of visitors and one of items, or neither")
        if not self._learns_labels:
            raise ValueError("effects need labels, which are declared with Ranker(..., labels=[...])")
        with self._lock:
            learned = self._state.effects
            if visitor is None or item is None:
                return pairs_of(learned, self._visitor_labels, self._item_labels)
            shown = {i: str(name) for i, name in enumerate(self._names) if self._states[i] != "removed"}
            return effects_of(learned, self._visitor_labels, self._item_labels, shown, visitor, item)

    # Items

    def add(self, item: Hashable, labels: Mapping[str, Any] | None = None) -> None:
        """Add an item, which starts at the median of the others; one that was paused or removed becomes active again.

        An item that comes back has what was learned of it, and what it was charged while it was away. ``labels`` are
        its labels, declared with ``item_labels=``: with them, it starts at the mean of items like it, and one that is
        there gets others. Raises ValueError if the policy cannot be changed, or for a label that is not declared.

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
            if not known:
                check_parts(self.policy)
            row = self._item_row(item, labels)
            if known:
                self._set_state(item, "active")
            else:
                self._state = grown(self.policy, self._state, len(self._names) + 1, self.slots)
                self._index[item] = len(self._names)
                self._names.append(item)
                self._states.append("active")
                self._items_changed()
            if labels is not None:
                items = self._state.labels.items.copy()
                items[:, self._index[item]] = row
                self._relabel(items)

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
        """Remove an item; what was learned of it is kept for when it is added again. Raises as ``pause`` does."""
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
        check_parts(self.policy)
        active = len(self._rows) - (old == "active") + (state == "active")
        if active < max(2, self.slots):
            raise ValueError(f"{self.slots} slots need {max(2, self.slots)} active items; there would be {active}")
        self._states[k] = state
        self._items_changed()

    def _items_changed(self) -> None:
        self._rows = np.array([i for i, state in enumerate(self._states) if state == "active"])
        self._parts.clear()

    def feedback(
        self, id: int, clicked: Iterable[Hashable] | None = None, *, rewards: Mapping[Hashable, float] | None = None
    ) -> None:
        """Learn from the clicked items of a ranking, which may be none, or from rewards from 0 to 1 by item.

        A click is a reward of 1; items without a reward have 0. Raises ValueError, and learns nothing, if the id does
        not wait for feedback or an item was not shown.

        >>> ranker = Ranker(["a", "b", "c"], slots=2, seed=0)
        >>> shown = ranker.rank()
        >>> ranker.feedback(shown.id, rewards={shown.items[0]: 0.3})
        >>> ranker.feedback(shown.id, clicked=[])
        Traceback (most recent call last):
        ...
        ValueError: id 1 had its feedback already
        """
        if clicked is not None and rewards is None:
            self.feedback_many([(id, list(clicked) if isinstance(clicked, Mapping) else clicked)])
        elif clicked is not None or rewards is None:
            raise ValueError("feedback needs clicked items or rewards; give one of the two")
        elif not isinstance(rewards, Mapping):
            raise ValueError(f"rewards must map items to numbers from 0 to 1; got {rewards!r}")
        else:
            self.feedback_many([(id, rewards)])

    def feedback_many(self, batch: Iterable[tuple[int, Iterable[Hashable] | Mapping[Hashable, float]]]) -> None:
        """Learn from several rankings: pairs of id and clicked items, or of id and rewards by item.

        Raises ValueError if any pair is invalid; then nothing is learned.

        >>> ranker = Ranker(["a", "b", "c"], slots=2, seed=0)
        >>> first, second = ranker.rank(), ranker.rank()
        >>> ranker.feedback_many([(second.id, second.items), (first.id, [])])
        >>> ranker.pending
        0
        """
        with self._lock:
            checked: dict[int, Floats] = {}
            for id, given in batch:
                decision = self._waiting(id).decision
                if id in checked:
                    raise ValueError(f"id {id!r} is in the batch twice")
                checked[id] = self._rewards(decision, id, given)
            for id, rewards in checked.items():
                self._learn(self._pending[id], rewards)
                del self._pending[id]

    def _learn(self, page: _Waiting, rewards: Floats) -> None:
        if page.n_items == len(self._names):
            self.policy.learn(self._state, page.decision, rewards)
        else:
            learn_page(self.policy, self._state, page.decision, rewards, page.n_items)
        self._learned += 1

    def learned(self, context: Mapping[str, Any] | None = None) -> Learned:
        """Return the probability of each item at each slot in the next ranking; what was learned is not changed.

        ``context`` is that of ``rank``.

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
            row, _ = self._context(context, grow=False)
            part = part_for(self.policy, self._state, Page(self._rows, {})) if has_parts(self.policy) else None
            policy, state = (self.policy, self._state) if part is None else (part.policy, part.state)
            x = known_marginals(policy, state, row)
            exact = x is not None
            if x is None:
                rng = np.random.default_rng(0)
                drawn = (policy.decide(state, rng).ranking for _ in range(DECISIONS))
                x = frequencies(drawn, (len(self._rows), self.slots))
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

    def _waiting(self, id: int) -> _Waiting:
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

    def _rewards(
        self, decision: Decision, id: int, given: Iterable[Hashable] | Mapping[Hashable, float] | None
    ) -> Floats:
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise ValueError(f"clicked must be a list of items; got {given!r}")
        slot_of = {self._names[i]: slot for slot, i in enumerate(decision.ranking.tolist())}
        rewards = np.zeros(self.slots)
        for item in given:
            if not isinstance(item, Hashable) or item not in self._index:
                raise ValueError(f"clicked must be items of this ranker; got {item!r}")
            if item not in slot_of:
                raise ValueError(f"clicked must be items that were shown; {item!r} was not shown with id {id}")
            rewards[slot_of[item]] = self._reward(item, given[item]) if isinstance(given, Mapping) else 1.0
        return rewards

    @staticmethod
    def _reward(item: Hashable, reward: Any) -> float:
        if not is_number(reward) or not 0.0 <= reward <= 1.0:
            raise ValueError(f"rewards must be numbers from 0 to 1; got {reward!r} for {item!r}")
        return float(reward)

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
            self._parts.clear()  # a loaded ranker has none
            state = {name: value for name, value in leaves(self._state) if not is_work(name)}
            arrays = {f"state/{name}": np.asarray(value) for name, value in state.items()}
            not_arrays = [name for name, value in arrays.items() if value.dtype.hasobject]
            if not_arrays:
                raise ValueError(f"policy {self.policy!r} has a state that is not made of arrays: {not_arrays[0]}")
            header = {
                "format": FORMAT,
                "policy": getattr(self.policy, "name", "") or type(self.policy).__name__,
                "settings": self.policy.settings() if isinstance(self.policy, Policy) else {},
                "items": self._names,
                "states": self._states,
                "slots": self.slots,
                "labels": _declared(self._visitor_labels),
                "item_labels": _declared(self._item_labels),
                "unknown": self._unknown,
                "rng": self._rng.bit_generator.state,
                "learned": self._learned,
                "last_id": self._last_id,
                "dropped": self._dropped,
                "max_pending": self._max_pending,
                "pending": [
                    (id, page.n_items, *(None if part is None else part.tolist() for part in page.decision))
                    for id, page in self._pending.items()
                ],
            }
            try:
                arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
            except TypeError as error:
                raise ValueError(f"policy {self.policy!r} has settings that cannot be saved: {error}") from error
            save_arrays(Path(path), arrays)

    @classmethod
    def from_export(
        cls,
        path: str | Path,
        segment: str | None = None,
        arm: str | None = None,
        policy: str | Policy | None = None,
        *,
        seed: int | None = None,
    ) -> Self:
        """Return a ranker that has learned what a surface of the service has, from an export as NDJSON or Parquet.

        It has the items and slots of the surface, and its state equals that of the service bit for bit, on the same
        type of machine with the same versions, if no events were deleted. The service also mixes uniform lists into
        those of its policy (``floor``).

        With ``segment``, it learns only from pages of visitors whose label ``segment`` has this value; with ``arm``,
        from the pages of an arm instead of those of the surface's own policy. ``policy`` learns them instead of the one
        that did in the service; one that does not learn labels learns the pages of all visitors alike. Raises
        FileNotFoundError, or ValueError if the file is not an export or has no such arm.
        """
        surface, events = read_export(path)
        try:
            served = _served_arm(surface, arm)
            if policy is None:
                policy = policy_by_name(served["policy"], **served["policy_settings"])
            policy = resolve_policy(policy)
            declared = [surface.get(field) or {} for field in ("labels", "item_labels")]
            if not learns_labels(policy):
                declared = [{}, {}]
            visitor, item = declared
            items = _exported_items(surface, item)
            labels = LogLabels(visitor, item, items) if visitor or item else None
            ranker = cls(items, surface["slots"], policy=policy, seed=seed, labels=visitor, item_labels=item)
            ranker._states = [item["state"] for item in surface["items"]]
            ranker._items_changed()
            learner = served["learner"]
            log = LogState(ranker.policy, *ranker._shape, labels)
            log.number = max((reset["number"] for reset in surface["reset"] if reset["learner"] == learner), default=0)
            pages = (
                _logged_page(rows, ranker._index)
                for rows in events
                if rows[0]["learner"] == learner and segment in (None, rows[0]["segment"])
            )
            while batch := list(islice(pages, PAGES_AT_ONCE)):
                log.learn(batch)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} cannot be learned: {error!r}") from error
        ranker._state, ranker._learned = log.present(len(items)), log.pages
        ranker._visitor_labels = log.visitor or ranker._visitor_labels
        return ranker

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
        declared: dict[str, Any] = {
            field: LabelTable(header[field][0], field, header[field][1]) for field in ("labels", "item_labels")
        }
        ranker = cls(header["items"], header["slots"], policy=policy, max_pending=header["max_pending"], **declared)
        ranker._unknown = Counter(header["unknown"])
        saved = {name.removeprefix("state/"): value for name, value in arrays.items() if name.startswith("state/")}
        state = dict(leaves(ranker._state))
        fresh = {name: value for name, value in state.items() if not is_work(name)}
        if saved.keys() != fresh.keys() or any(saved[name].shape != np.shape(fresh[name]) for name in fresh):
            raise ValueError(f"{path} has the state of another policy than {policy!r}")
        state |= {name: _like(old, saved[name]) for name, old in fresh.items()}
        ranker._state = copy_state(with_leaves(ranker._state, state))
        ranker._states = header["states"]
        ranker._items_changed()
        ranker._rng.bit_generator.state = header["rng"]
        ranker._learned, ranker._last_id, ranker._dropped = (header[key] for key in ("learned", "last_id", "dropped"))
        ranker._pending = {id: _waiting_page(*parts) for id, *parts in header["pending"]}
        return ranker


def _served_arm(surface: Mapping[str, Any], arm: str | None) -> Mapping[str, Any]:
    """Return the policy, its settings and the learner of an arm of an exported surface, or of the surface itself."""
    if arm is None:
        return surface
    arms = {known["name"]: known for known in surface["arms"]}
    if arm not in arms:
        raise ValueError(f"there is no arm {arm!r}; the surface has {', '.join(arms) or 'none'}")
    return arms[arm]


def _exported_items(surface: Mapping[str, Any], declared: Declaration) -> dict[str, dict[str, Any]]:
    """Return the items of an exported surface, each with the values of the labels that are declared."""
    values = {item["name"]: item.get("labels") or {} for item in surface["items"]}
    return {name: {label: own[label] for label in own if label in declared} for name, own in values.items()}


def _logged_page(rows: Sequence[Mapping[str, Any]], index: Mapping[Any, int]) -> LoggedPage:
    """Return the page of an exported event."""
    first, items = rows[0], [index[row["item"]] for row in rows]
    if first["n"] > len(index):
        raise ValueError(f"event {first['event']} has {first['n']} items, but the surface {len(index)}")
    absent = {index[name] for name in first.get("absent") or ()}
    if first.get("eligible"):
        absent = {*range(first["n"])} - {index[name] for name in first["eligible"]}
    return LoggedPage(
        number=first["number"],
        n_items=first["n"],
        items=items,
        propensity=[row["propensity"] for row in rows],
        rewards=[row["click"] if row.get("reward") is None else row["reward"] for row in rows],
        learned=sum(1 << slot for slot, row in enumerate(rows) if row["learn"]),
        absent=sorted(absent),
        note=first.get("note") or (),
        policy=first["policy_id"].partition(":")[0],
        context=exported_context(first),
    )


def _waiting_page(n_items: int, *parts: Any) -> _Waiting:
    """Return a list that waits for feedback from what was saved of it."""
    ranking, propensity, note, absent, learned, context = parts
    indices, numbers = (partial(np.array, dtype=kind) for kind in (np.int64, np.float64))
    mask = None if learned is None else np.array(learned, np.bool_)
    decision = Decision(indices(ranking), numbers(propensity), numbers(note), indices(absent), mask, indices(context))
    return _Waiting(decision, n_items)


def _table(given: LabelTable | Sequence[str] | Declaration | None, field: str) -> LabelTable:
    return given if isinstance(given, LabelTable) else LabelTable(given, field)


def _declared(table: LabelTable) -> tuple[Declaration, Mapping[str, Sequence[str]]]:
    """Return the declaration of labels, and the values that they have had: with these, they are declared again."""
    return table.declaration, table.known


def _like(old: Any, saved: np.ndarray[Any, Any]) -> Any:
    """Convert a saved array to the type of the original: array, list or number."""
    if isinstance(old, np.ndarray):
        return saved
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
    if "policy" not in header:
        raise ValueError(f"{path} is not a saved ranker: parts are missing")
    return arrays, header
