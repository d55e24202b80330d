"""The import of a log: rows in the layout of an export, or of another click log, as events of a surface."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import msgspec
import numpy as np

from ...core import Shape
from ...export_format import exported_context, exported_surface
from ...labels import MAX_LENGTH, is_word
from ...policies import Policy
from ...policies.logged_pages import policy_name
from ..events import Event, Listed
from ..model import (
    BASELINE_ARM,
    LEARNER_ARM,
    NAME_LENGTH,
    Arm,
    Invalid,
    Surface,
    imported_id,
    parse_event_id,
)
from ..outcomes import Rewards, fixed_point
from ..stores import Store
from .surface_rules import policy_of

MIN_IMPORTED_PROPENSITY = 1e-7  # the smallest propensity that is learned from
MAX_SLOTS = 50
MAX_TIME = 253_370_764_800_000  # milliseconds from 1970 to 9999


class InvalidRows(ValueError):
    """Rows that do not describe an event; the message is the reason in the result of an import."""


class LogImport:
    """Makes events of rows, and counts why others are ``refused``; it uses the store and blocks.

    Rows that do not describe an event of the surface are refused. What is learned must not depend on anything else, so
    that an event that is taken can always be learned, also again.
    """

    def __init__(self, surface: Surface, store: Store, now: int) -> None:
        self._surface, self._store, self._now = surface, store, now
        self._index = {item.name: item.index for item in surface.items}
        self._names: list[str] | None = None  # of the items of the surface that the log is of, if it has a header
        self._items_then: dict[int, tuple[int, frozenset[int]]] = {}
        self._learners = {learner.number: learner for learner in store.learners(surface.id)}
        self._policies: dict[Arm, Policy] = {}
        self._note_sizes: dict[tuple[Arm, int, bool], int] = {}
        erased = [learner.erased_number for learner in self._learners.values()]
        self._deleted = max([store.deleted(surface.id).number, *erased])  # the largest number that was deleted
        self._base = -1  # positions are counted from 0 or from 1, judging by the first page
        self.refused: Counter[str] = Counter()

    def events(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Event]:
        """Yields the events; raises Invalid if the log has another format."""
        for _, group in groupby(rows, key=lambda row: row.get("event") if isinstance(row, Mapping) else None):
            page = list(group)
            if isinstance(page[0], Mapping) and str(page[0].get("format", "")).startswith("bothworlds"):
                self._read_header(page.pop(0))
            if page:
                try:
                    yield self._event(page)
                except InvalidRows as error:
                    self.refused[str(error)] += 1

    def _read_header(self, header: Mapping[str, Any]) -> None:
        try:
            self._names = [str(item["name"]) for item in exported_surface(header)["items"]]
        except (KeyError, TypeError, ValueError) as error:
            raise Invalid(f"the log cannot be imported: its first line does not describe a surface: {error}") from error

    def _event(self, rows: Sequence[Mapping[str, Any]]) -> Event:
        first = rows[0] if isinstance(rows[0], Mapping) else {}
        name = first.get("event")
        if not isinstance(name, (str, int)) or name == "":
            raise InvalidRows("a row without an event id")
        event_id = parse_event_id(str(name)) or imported_id(self._surface.id, str(name))
        if self._is_deleted(first, event_id):
            raise InvalidRows("an event that was deleted")
        items = self._items(rows)
        pinned = [bool(row.get("pinned", False)) for row in rows]
        held_out = first.get("arm") == BASELINE_ARM
        learned = [not held_out and bool(row.get("learn", not pin)) for row, pin in zip(rows, pinned)]
        arm = self._arm(first, any(learned))
        p = tuple(_probability(row.get("propensity"), learn) for row, learn in zip(rows, learned))
        clicks, rewards = _outcome(rows, self._surface.settings.objective)
        policy_id = str(first.get("policy_id") or "import")[:NAME_LENGTH]
        if not policy_id.isprintable():
            raise InvalidRows("a policy_id that is not a name")
        at = _time(first.get("timestamp"), self._now)
        n, absent = self._absent(first, items, [item for item, learn in zip(items, learned) if learn])
        listed = Listed(items, p, _mask(learned), _mask(pinned), absent, policy_id=policy_id)
        return Event(
            id=event_id,
            surface_id=self._surface.id,
            learner_id=self._learners[self._surface.learner_of(arm)].id,
            arm=arm,
            created_at=at,
            expires_at=at,
            late_until=at,
            n=n,
            listed=msgspec.structs.replace(listed, note=self._note(first.get("note"), listed, arm, n)),
            context=_context(first),
            clicks=_mask(clicks),
            rewards=rewards,
            settled_at=self._now,
            settled_by="import",
        )

    def _is_deleted(self, row: Mapping[str, Any], event_id: bytes) -> bool:
        """Returns whether an event of this surface is not in its log any more, because it was deleted.

        It would be learned twice, or come back although somebody has asked for its deletion.
        """
        number = row.get("number")
        if row.get("surface") != self._surface.name or not isinstance(number, int) or number > self._deleted:
            return False
        return event_id not in self._store.find_events([event_id])

    def _items(self, rows: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
        if self._base < 0:
            self._base = int(_whole(rows[0].get("position")) == 1)
        base = self._base
        if [_whole(row.get("position")) for row in rows] != [*range(base, base + len(rows))] or len(rows) > MAX_SLOTS:
            raise InvalidRows(f"positions of an event must be {base}, {base + 1}, {base + 2}, ... in this order")
        items = tuple(self._index.get(str(row.get("item")), -1) for row in rows)
        if -1 in items:
            raise InvalidRows("an item that the surface does not have")
        if len(set(items)) < len(items):
            raise InvalidRows("an item that is twice on one page")
        return items

    def _arm(self, row: Mapping[str, Any], learned: bool) -> Arm:
        """Returns the arm that a page is counted for; ``learned`` is whether it has slots that are learned from."""
        arm, own = row.get("arm") or LEARNER_ARM, row.get("own")
        if learned and own is True and arm != BASELINE_ARM:
            return LEARNER_ARM
        if arm not in (LEARNER_ARM, BASELINE_ARM, *(one.name for one in self._surface.settings.arms)):
            raise InvalidRows("an arm that the surface does not have")
        if learned and own is False and arm == LEARNER_ARM:
            raise InvalidRows("a page of a policy that another one has replaced")
        return str(arm)

    def _absent(self, row: Mapping[str, Any], items: Sequence[int], learned: list[int]) -> tuple[int, tuple[int, ...]]:
        """Returns how many items there were, and which of them could not be shown at the slots that are learned from.

        ``learned`` are the items at these slots.
        """
        absent, eligible = _names_in(row, "absent"), _names_in(row, "eligible")
        n, unknown = self._known_items(_whole(row.get("n")))
        n = max(n, max(items) + 1)
        if not learned or not (absent or eligible or unknown):
            return n, ()
        missing = unknown | {self._index[name] for name in absent if name in self._index}
        if eligible:
            missing = frozenset(range(n)) - {self._index[name] for name in eligible if name in self._index}
        return n, tuple(sorted(index for index in missing.difference(learned) if index < n))

    def _known_items(self, n: int) -> tuple[int, frozenset[int]]:
        """Returns what the first ``n`` items of the log's surface are here: the number of items down to the last of
        them, and those before it that are not among them."""
        if self._names is None:
            return n if 0 < n <= len(self._index) else len(self._index), frozenset()
        if n not in self._items_then:
            known = {self._index[name] for name in self._names[: n if n > 0 else None] if name in self._index}
            last = max(known, default=-1) + 1
            self._items_then[n] = last, frozenset(range(last)) - known
        return self._items_then[n]

    def _note(self, note: Any, listed: Listed, arm: Arm, n: int) -> tuple[float, ...]:
        """Returns what the policy remembered of the draw, if it is still the same policy."""
        slots = self._surface.settings.slots
        if note is None or not listed.learn or len(listed.items) != slots:
            return ()
        if not isinstance(note, list) or not all(type(x) in (int, float) and math.isfinite(x) for x in note):
            raise InvalidRows("a note that is not a list of numbers")
        if arm not in self._policies:
            policies = {one.name: one for one in self._surface.settings.arms}
            settings = policies.get(arm, self._surface.settings)
            self._policies[arm] = policy_of(settings.policy, settings.policy_settings, slots)
        policy, whole = self._policies[arm], listed.learn == (1 << slots) - 1 and not listed.absent
        if listed.policy_id.partition(":")[0] != policy_name(policy):
            return ()
        if (arm, n, whole) not in self._note_sizes:
            shape, positions = Shape(n, slots), np.arange(slots)
            size = policy.note_size(shape) if whole else 0
            if not whole:
                size = policy.note_of_part(policy.init(*shape), positions, positions, slots).size
            self._note_sizes[arm, n, whole] = size
        if len(note) != self._note_sizes[arm, n, whole]:
            raise InvalidRows("a note that is not of the policy that it names")
        return tuple(map(float, note))


def _context(row: Mapping[str, Any]) -> dict[str, str]:
    context = exported_context(row)
    for name, value in context.items():
        if not (is_word(name) and is_word(value)):
            raise InvalidRows(f"a label that is not a text of 1 to {MAX_LENGTH} printable characters")
    return context


def _names_in(row: Mapping[str, Any], column: str) -> frozenset[str]:
    names = row.get(column)
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise InvalidRows(f"a value of {column!r} that is not a list of items")
    return frozenset(names or ())


def _outcome(rows: Sequence[Mapping[str, Any]], objective: str) -> tuple[list[int], Rewards]:
    """Returns the clicks of a page, and its rewards in fixed point; none if the surface counts clicks."""
    given = [row.get("reward") for row in rows]
    if objective == "clicks":
        if given != [None] * len(given):
            raise InvalidRows("a reward, but the surface counts clicks")
        clicks = [_whole(row.get("click")) for row in rows]
        if not {*clicks} <= {0, 1}:
            raise InvalidRows("a click other than 0 and 1")
        return clicks, ()
    try:
        rewards = tuple(fixed_point(value) for value in given)
    except ValueError as error:
        raise InvalidRows("a reward that is not a number from 0 to 1, on a surface that counts rewards") from error
    return [reward > 0 for reward in rewards], rewards


def _mask(slots: Iterable[int]) -> int:
    return sum(1 << slot for slot, there in enumerate(slots) if there)


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, (bool, int)) or (isinstance(value, float) and value.is_integer()) else -1


def _probability(value: Any, learn: bool) -> float:
    if not learn and value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not MIN_IMPORTED_PROPENSITY <= value <= 1.0:
        raise InvalidRows(f"a propensity that is not a number from {MIN_IMPORTED_PROPENSITY:g} to 1")
    return float(value)


def _time(value: Any, now: int) -> int:
    if value is None:
        return now
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        at = round(moment.timestamp() * 1000)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise InvalidRows("a timestamp that is not an ISO 8601 time") from error
    if not 0 <= at < MAX_TIME:
        raise InvalidRows("a timestamp outside the years 1970 to 9998")
    return at
