"""Pages of a log, learned in their order: by the service, and by a ranker that is made from an export.

What is learned depends on the log alone. The state starts with the items of the first page, and grows before the first
page that was drawn from more. It has as many positions as pages have now: an earlier page with fewer says nothing of
the others, and of one with more, only the first are learned from. A policy whose state has no parts cannot grow; it
learns whole pages of the present shape, and skips all others.

Where labels are declared, pages have the texts of the visitor's labels. Values of open labels are numbered in the order
in which the log has them, and the state grows before the first page with a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, cast

import numpy as np

from ..core import Decision, Labels, check_shape, learn
from ..kernels import Floats, Ints, kernel
from ..labels import Declaration, LabelTable
from .base import CompiledPolicy, Policy
from .pages import absent_now, grown, has_parts, learns_labels, with_labels

LEAST_PROPENSITY = 1e-300  # smaller ones have no finite inverse


class LoggedPage(NamedTuple):
    """What was shown on a page, with which probabilities, and what came of it; a mask has bit j for position j."""

    number: int  # pages are learned in the order of their numbers
    n_items: int  # that there were when the list was drawn
    items: Sequence[int]  # of every position
    propensity: Sequence[float]
    rewards: Sequence[float] | Floats
    learned: int  # mask of the positions that are learned from; 0: the page is not learned
    absent: Sequence[int] = ()  # items that could not be shown there, ascending
    note: Sequence[float] = ()
    policy: str = ""  # the name of the policy that drew the list: no other one understands its note
    context: Mapping[str, str] = {}  # the visitor's labels; those that are missing are unknown


def policy_name(policy: Any) -> str:
    """Return the registered name of a policy, or that of its class."""
    return getattr(policy, "name", "") or type(policy).__name__


class LogLabels:
    """The labels that are declared for a log, and the values of every item by label.

    Values of items that are not declared are left out. Raises LabelError for a declaration or a value that is not
    allowed.
    """

    def __init__(self, visitor: Declaration, item: Declaration, items: Mapping[str, Mapping[str, Any]]) -> None:
        self.visitor, self.item_table = dict(visitor), LabelTable(item, "item_labels")
        names, rows, self.unknown = set(self.item_table.names), [], 0  # how many values of items are not known
        for name, values in items.items():
            given = {label: value for label, value in values.items() if label in names}
            row = self.item_table.row(given, f"items.{name}")
            rows.append(row.values)
            self.unknown += len(row.unknown)
        self.rows = np.array(rows, np.int64).reshape(len(items), len(names)).T  # (item labels, items)

    def of_items(self, n_items: int, visitor: Sequence[int]) -> Labels:
        """Return the labels of the first items, and of visitors with so many values; items that follow have none.

        An open label has the values of these items only, so that a state does not depend on items that come later.
        """
        rows = np.zeros((len(self.rows), n_items), np.int64)
        known = self.rows[:, :n_items]
        rows[:, : known.shape[1]] = known
        opened = self.item_table.known
        sizes = [
            1 + int(row.max(initial=0)) if name in opened else size
            for name, size, row in zip(self.item_table.names, self.item_table.sizes, rows)
        ]
        return Labels(np.array(visitor, np.int64), np.array(sizes, np.int64), rows)

    def agrees(self, other: LogLabels | None, n_items: int) -> bool:
        """Return whether others mean the same for the first items."""
        return (
            other is not None
            and (self.visitor, self.item_table.declaration) == (other.visitor, other.item_table.declaration)
            and list(self.visitor) == list(other.visitor)
            and np.array_equal(self.rows[:, :n_items], other.rows[:, :n_items])
        )


class LogState:
    """What a policy has learned from the pages of a log, and counts of these pages.

    The policy learns all pages, whichever policies have drawn them. ``n_items`` and ``n_positions`` are the shape of
    pages now; a state with parts starts with the items of the first page instead.

    ``shown``, ``clicked`` and ``loss`` are sums for every item at every position (items, positions): how often it was
    learned from, its rewards, and its (1 - reward) / propensity. An item that could not be shown is charged 1 - reward
    at each learned position, and a new one starts at the median loss of the others.

    >>> from bothworlds import policy
    >>> log = LogState(policy("comb-ucb"), 4, 1)
    >>> log.learn([LoggedPage(1, 3, [2], [0.5], [0.0], 0b1), LoggedPage(2, 4, [3], [0.25], [1.0], 0b1)])
    >>> log.state.shape.n_items, log.shown[:, 0].tolist(), log.loss[:, 0].tolist()
    (4, [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 2.0, 0.0])
    """

    def __init__(self, policy: Any, n_items: int, n_positions: int, labels: LogLabels | None = None) -> None:
        self.policy, self.shape = policy, check_shape(n_items, n_positions)
        self.labels = labels if learns_labels(policy) else None
        # With the values that they have had in the log.
        self.visitor = None if self.labels is None else LabelTable(self.labels.visitor, "labels")
        self.grows = has_parts(policy)
        self.state: Any = None  # before the first page
        self.number = 0  # of the last page, learned or not
        self.pages = self.skipped = 0  # that were learned, and that were not because the state has no parts
        self.shown, self.clicked, self.loss = np.zeros((3, 0, n_positions))

    @property
    def is_compiled(self) -> bool:
        """Whether many pages are learned by one kernel; False before the first page."""
        return self.state is not None and isinstance(self.policy, Policy) and self.policy.runs_compiled(self.state)

    def present(self, n_items: int) -> Any:
        """Return the state of the policy with the present number of items; it is a copy only where it has to grow.

        Raises what the policy raises.
        """
        if self.state is None:
            return self.new(n_items)
        if not self.grows:
            return self.state
        state = self.state
        if n_items > len(self.shown):
            state = grown(self.policy, state, n_items, self.shape.n_positions)
        if self.labels is None:
            return state
        labels = self._labels_of(state.shape.n_items)
        known = state.labels
        if state is self.state and (known.visitor.tolist(), known.item.tolist()) == tuple(map(list, labels[:2])):
            return state
        return with_labels(self.policy, state, labels)

    def _labels_of(self, n_items: int) -> Labels:
        return cast(LogLabels, self.labels).of_items(n_items, cast(LabelTable, self.visitor).sizes)

    def new(self, n_items: int) -> Any:
        """Return a state in which nothing was learned; settings of the policy may refer to items that come later."""
        m = self.shape.n_positions
        policy = self.policy.part(np.arange(n_items), np.arange(m)) if self.grows else self.policy
        if self.labels is not None:
            return cast(CompiledPolicy, policy).init(n_items, m, self._labels_of(n_items))
        return policy.init(n_items, m)

    def learn(self, pages: Sequence[LoggedPage]) -> None:
        """Learn from pages, which are in the order of their numbers; those up to ``number`` are ignored.

        The result does not depend on how a log is divided into calls. Raises ValueError for a page that is not valid,
        or what the policy raises; then what was learned is lost.
        """
        new = [page for page in pages if page.number > self.number]
        every = (1 << self.shape.n_positions) - 1
        learned = [page for page in new if page.learned & every]
        if learned and not self.grows:
            whole = [page for page in learned if self._is_whole(page)]
            self.skipped += len(learned) - len(whole)
            learned = whole
        for run in self._runs(learned):
            self._learn([self._fitted(page) for page in run])
        if new:
            self.number = new[-1].number

    def _is_whole(self, page: LoggedPage) -> bool:
        n, m = self.shape
        return page.n_items == n and len(page.items) == m and page.learned == (1 << m) - 1 and not page.absent

    def _runs(self, pages: Sequence[LoggedPage]) -> Iterator[Sequence[LoggedPage]]:
        """Yield pages that are learned without growth; the state has the size that they need, which never decreases."""
        start = 0
        for k, page in enumerate(pages):
            if self._has_new_value(page) or page.n_items > len(self.shown):
                if k > start:
                    yield pages[start:k]
                self._grow(max(page.n_items, len(self.shown), self.shape.n_positions))
                start = k
        if start < len(pages):
            yield pages[start:]

    def _has_new_value(self, page: LoggedPage) -> bool:
        """Add the values of open labels that a page is the first to have; return whether there are any."""
        if self.visitor is None:
            return False
        before = self.visitor.sizes
        self.visitor.numbers(page.context)
        return self.visitor.sizes != before

    def _grow(self, n_items: int) -> None:
        """Make room for so many items, and for all values of labels, in the state and in the counts."""
        self.state = self.present(n_items)
        old, m = self.shown.shape
        if n_items > old:
            more = np.zeros((n_items - old, m))
            self.shown, self.clicked = np.concatenate([self.shown, more]), np.concatenate([self.clicked, more])
            self.loss = np.concatenate([self.loss, more + np.median(self.loss, axis=0) if old else more])

    def _fitted(self, page: LoggedPage) -> LoggedPage:
        """Return the page with the shape of the state."""
        n, m = self.shown.shape
        if len(page.items) == m and page.n_items == n and not page.note:
            return page
        items, missing = [*page.items[:m]], max(0, m - len(page.items))
        unused = (item for item in range(n) if item not in page.items)
        fitted = page._replace(
            items=[*items, *islice(unused, missing)],
            propensity=[*page.propensity[:m], *[1.0] * missing],
            rewards=[*page.rewards[:m], *[0.0] * missing],
            absent=absent_now(page.absent, page.n_items, n),
        )
        if len(page.items) == m and page.policy == policy_name(self.policy):
            return fitted
        return fitted._replace(note=())

    def _learn(self, pages: Sequence[LoggedPage]) -> None:
        n, m = self.shown.shape
        rows = _rows_of(pages, n, m)
        known = [() if self.visitor is None else self.visitor.numbers(page.context) for page in pages]
        contexts = np.array(known, np.int64).reshape(len(pages), -1)
        if self.is_compiled:
            self._check_notes(pages)
            learn_rows(self.state, rows, contexts)
        else:
            for page, context in zip(pages, contexts):
                self.state = _learn_one(self.policy, self.state, page, m, context)
        count_rows(self.shown, self.clicked, self.loss, rows)
        self.pages += len(pages)

    def _check_notes(self, pages: Sequence[LoggedPage]) -> None:
        """Raise ValueError for a note that is not of the length that the kernel of the policy reads."""
        m = self.shape.n_positions
        whole, positions = self.policy.note_size(self.state.shape), np.arange(m)
        part = self.policy.note_of_part(self.state, positions, positions, m).size
        for page in pages:
            if page.note:
                is_whole = page.learned & (1 << m) - 1 == (1 << m) - 1 and not page.absent
                if len(page.note) != (whole if is_whole else part):
                    raise ValueError(f"a note of {policy_name(self.policy)} has {len(page.note)} numbers")


class Rows(NamedTuple):
    """Pages of one shape as arrays, with a row for each."""

    ranking: Ints  # (pages, m); -1 at positions that are not learned from
    propensity: Floats  # (pages, m)
    rewards: Floats  # (pages, m)
    notes: Floats  # those of all pages, one after the other
    note_ends: Ints  # (pages + 1,) where they end
    absent: Ints  # as notes
    absent_ends: Ints  # (pages + 1,)


def _rows_of(pages: Sequence[LoggedPage], n: int, m: int) -> Rows:
    """Return pages that fit the shape as arrays; raises ValueError for what is not an item or a probability."""
    ranking = np.array([page.items for page in pages], np.int64)
    propensity = np.array([page.propensity for page in pages], np.float64)
    rewards = np.array([page.rewards for page in pages], np.float64)
    lines = np.sort(ranking, axis=1)
    if lines[:, 0].min() < 0 or lines[:, -1].max() >= n or (lines[:, 1:] == lines[:, :-1]).any():
        raise ValueError(f"the items of a page must be different ones from 0 to {n - 1}")
    if not ((propensity > LEAST_PROPENSITY) & (propensity <= 1.0 + 1e-9)).all():
        raise ValueError("the propensities of a page must be probabilities above 0")
    if not ((rewards >= 0.0) & (rewards <= 1.0)).all():
        raise ValueError("the rewards of a page must be numbers from 0 to 1")
    every = (1 << m) - 1
    if any(page.learned & every != every for page in pages):
        ranking[~_learned(np.array([page.learned for page in pages], np.int64)[:, None], m)] = -1
    notes, note_ends = _joined([page.note for page in pages], np.float64)
    absent, absent_ends = _joined([page.absent for page in pages], np.int64)
    if absent.size and not 0 <= absent.min() <= absent.max() < n:
        raise ValueError(f"absent items must be items from 0 to {n - 1}")
    return Rows(ranking, propensity, rewards, notes, note_ends, absent, absent_ends)


def _learned(mask: Any, m: int) -> Any:
    """Return whether each of m positions is learned from."""
    return (mask >> np.arange(m)) & 1 == 1


def _joined(parts: Sequence[Sequence[float]], kind: Any) -> tuple[Any, Ints]:
    """Return sequences one after the other, and where each ends."""
    ends = np.zeros(len(parts) + 1, np.int64)
    if any(parts):
        np.cumsum([len(part) for part in parts], out=ends[1:])
    return np.fromiter(chain.from_iterable(parts), kind, int(ends[-1])), ends


def _learn_one(policy: Any, state: Any, page: LoggedPage, m: int, context: Ints) -> Any:
    """Learn from a page with the policy's own ``learn``, and return the state."""
    whole = page.learned & (1 << m) - 1 == (1 << m) - 1
    decision = Decision(
        np.array(page.items, np.int64),
        np.array(page.propensity, np.float64),
        np.array(page.note, np.float64),
        np.array(page.absent, np.int64),
        None if whole else _learned(page.learned, m),
        context,
    )
    return policy.learn(state, decision, np.array(page.rewards, np.float64))


@kernel
def learn_rows(state: Any, rows: Rows, contexts: Ints) -> None:
    """Learn from pages, each with its context, with the kernel of a policy."""
    for k in range(rows.ranking.shape[0]):
        note = rows.notes[rows.note_ends[k] : rows.note_ends[k + 1]]
        absent = rows.absent[rows.absent_ends[k] : rows.absent_ends[k + 1]]
        learn(state, rows.ranking[k], rows.propensity[k], rows.rewards[k], note, absent, contexts[k])


@kernel
def count_rows(shown: Floats, clicked: Floats, loss: Floats, rows: Rows) -> None:
    """Add pages to the counts of a log."""
    ranking, absent, ends = rows.ranking, rows.absent, rows.absent_ends
    for k in range(ranking.shape[0]):
        for j in range(ranking.shape[1]):
            i = ranking[k, j]
            if i >= 0:
                lost = 1.0 - rows.rewards[k, j]
                shown[i, j] += 1.0
                clicked[i, j] += rows.rewards[k, j]
                loss[i, j] += lost / rows.propensity[k, j]
                for a in range(ends[k], ends[k + 1]):
                    loss[absent[a], j] += lost
