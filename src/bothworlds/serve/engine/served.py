"""Surfaces as they are served: what their learners draw from, also for pages with pins and exclusions."""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
import time
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...core import NO_CONTEXT, Shape
from ...geometry.mixtures import baseline_share
from ...labels import LabelError, LabelTable
from ...policies import Policy
from ...policies.constraints import ConstraintError, checked_constraints
from ...policies.logged_pages import LoggedPage, LogLabels, LogState
from ...policies.pages import Page, check_parts, has_parts, learns_labels
from ..events import Learner, Listed
from ..model import (
    BASELINE_ARM,
    LEARNER_ARM,
    Arm,
    ArmSettings,
    Invalid,
    NotEnough,
    Surface,
    SurfaceSettings,
    Unknown,
    label_fault,
)
from ..schemas import PlacedItem
from ..stores import Store, StoreError
from .lists import Lists, Mixing, Source, make_lists
from .states import States, Target
from .store_calls import in_thread
from .surface_rules import policy_of

BASELINE = "baseline"  # the policy_id of the page's own order
DRAWS = 1 << 64  # an arm is chosen by a number below this
MAX_CACHED_CELLS = 1 << 22  # probabilities in all lists for constraints of a surface
CELLS_OF_LISTS = 1 << 11  # what the rest of them counts as
REUSED, MOST_REUSED = 0.01, 64  # they are used until there are so many more pages, as a share and at most, as in Ranker


Context = tuple[tuple[str, str], ...]  # the labels of a visitor that are learned; without unknown values


class Visitor(NamedTuple):
    """Labels of a visitor without unknown ones, those that are learned, and the labels whose value is not known."""

    labels: dict[str, str]
    learned: Context = ()
    unknown: tuple[str, ...] = ()


NOBODY = Visitor({})


class Constraints(NamedTuple):
    """For what a list is: which active items it must not show, which it must show at which slot, and for whom."""

    excluded: frozenset[str] = frozenset()
    pinned: tuple[tuple[int, str], ...] = ()
    context: Context = ()

    @property
    def is_whole(self) -> bool:
        """Whether all active items can be shown at all slots."""
        return not self.excluded and not self.pinned


UNCONSTRAINED = Constraints()

_order = itertools.count()


class ServedLearner:
    """A learner as it is served. ``lists``, for a visitor without a context, are None until they are used here.

    ``used_at`` is when it was last used here (0: never). ``fault`` is why its lists could not be made: then those of
    before stay, or the page's own order is shown.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner, self.used_at, self.fault, self.failed_at = learner, 0, "", 0.0
        self.lists: Lists | None = None


class Served:
    """One version of a surface. A change of the surface replaces it; ``learners`` and their lists change.

    ``numbers`` are those of the learners of all arms; the holdout has that of the surface's own policy. ``fault`` is
    why a policy cannot be used: then all visitors get the page's own order. ``unknown`` counts values of labels that
    are not known, by label, since this process started.
    """

    def __init__(self, surface: Surface, states: States, before: Served | None = None) -> None:
        settings = surface.settings
        self.surface, self._states, self.fault = surface, states, ""
        self.shape = Shape(max(2, len(surface.items)), settings.slots)  # states have two items, also if there is one
        self.active = {item.name: item for item in surface.items if item.state == "active"}
        self._starts, self._arms = _arm_intervals(surface)
        self.attribution_ms = round(1000 * settings.attribution_seconds)
        self.late_ms = round(1000 * settings.late_seconds)
        own = surface.learner
        self.numbers: dict[Arm, int] = {BASELINE_ARM: own, LEARNER_ARM: own}
        self.numbers |= {arm.name: surface.learner_of(arm.name) for arm in settings.arms}
        self.visitors, self._visitors_lock = LabelTable(surface.known_labels, "labels"), threading.Lock()
        self.unknown: Counter[str] = Counter() if before is None else before.unknown
        if before is not None:
            self._admit(before.visitors.known)
        self.labels: LogLabels | None = None
        self.policies: dict[int, Policy] = {}
        named: list[tuple[int, SurfaceSettings | ArmSettings]] = [(own, settings)]
        named += [(surface.learner_of(arm.name), arm) for arm in settings.arms]
        try:
            if surface.labels or surface.item_labels:
                items = {item.name: item.labels for item in surface.items}
                self.labels = LogLabels(surface.labels, surface.item_labels, items)
            for number, one in named:
                settled = msgspec.json.encode(one.policy_settings)
                self.policies[number] = _policy(one.policy, settled, settings.slots, self.labels is not None)
        except Exception as error:  # a policy of another package may raise anything
            self.fault = str(error) or type(error).__name__
        learning = not self.fault and all(map(learns_labels, self.policies.values()))
        self.may_declare_segment = settings.labels is None and learning  # by the first request with a segment
        self.learners: dict[int, ServedLearner] = {}  # by number
        self.by_learner_id: dict[int, ServedLearner] = {}
        self.cache: OrderedDict[tuple[int, Constraints], Lists] = OrderedDict()  # of the thread of the event loop
        self._items = np.array([item.index for item in self.active.values()], np.int64)
        place = {name: k for k, name in enumerate(settings.baseline)}
        ordered = sorted(self.active.values(), key=lambda item: (place.get(item.name, len(place)), item.index))
        self._baseline = [item.index for item in ordered]

    def arm_of(self, draw: int) -> Arm:
        """Returns the arm that a number below ``DRAWS`` chooses."""
        return self._arms[bisect_right(self._starts, draw) - 1]

    # Learners

    def add(self, learner: Learner) -> ServedLearner | None:
        """Serves a learner, or the present record of one; None if no arm has it."""
        if learner.number not in self.numbers.values():
            return None
        known = self.by_learner_id.get(learner.id)
        if known is None:
            known = self.by_learner_id[learner.id] = ServedLearner(learner)
            self.learners[learner.number] = known
        known.learner = learner
        return known

    def learner(self, arm: Arm = LEARNER_ARM) -> ServedLearner:
        """Returns the learner of an arm."""
        return self.learners[self.numbers[arm]]

    def target(self, one: ServedLearner) -> Target:
        """Returns with what a learner learns."""
        return Target(self.policies[one.learner.number], *self.shape, self.labels)

    @property
    def why(self) -> str:
        """Why some visitors get the page's own order, or lists that are not up to date; empty if nobody does."""
        return self.fault or next((one.fault for one in list(self.by_learner_id.values()) if one.fault), "")

    # Labels of visitors

    def visitor(self, given: Mapping[str, Any], *, grow: bool = True) -> Visitor:
        """Returns a visitor with these labels; raises Invalid. New values of open labels are admitted if ``grow``."""
        try:
            with self._visitors_lock:
                row, unknown = self.visitors.row(given, "context", grow=grow)
                texts = self.visitors.texts(row)
        except LabelError as error:
            raise label_fault(error, "context") from error
        labels = {name: text for name, text in texts.items() if text}
        learned = tuple((name, labels[name]) for name in self.surface.labels if name in labels)
        return Visitor(labels, learned, unknown)

    def _admit(self, known: Mapping[str, Sequence[str]]) -> None:
        with self._visitors_lock:
            for name, values in known.items():
                for value in values:
                    self.visitors.numbers({name: value})

    # Lists

    def constraints(self, exclude: Sequence[str], pins: Mapping[int, str], context: Context = ()) -> Constraints:
        """Returns for what the list of a request is; raises Invalid if its pins and exclusions cannot be satisfied."""
        try:
            found = Constraints(
                *checked_constraints(self.active, self.shape.n_positions, exclude, pins), context=context
            )
        except ConstraintError as error:
            if error.part == "pins":
                raise Invalid(str(error), "/pins") from error
            excluded, active = sum(name in self.active for name in set(exclude)), len(self.active)
            errors = [{"pointer": "/exclude", "detail": f"removes {excluded} of {active} items"}] if excluded else []
            raise NotEnough(str(error), errors=errors) from error
        if not found.is_whole:
            for policy in self.policies.values():
                try:
                    check_parts(policy)
                except ValueError as error:
                    raise Invalid(str(error), "/pins" if found.pinned else "/exclude") from error
        return found

    def page(self, constraints: Constraints) -> Page:
        """Returns what a list with these constraints may show."""
        pins = {slot: self.active[name].index for slot, name in constraints.pinned}
        taken = [*pins.values(), *(self.active[name].index for name in constraints.excluded)]
        return Page(self._items[~np.isin(self._items, taken)] if taken else self._items, pins)

    def baseline(self, constraints: Constraints) -> Listed:
        """Returns the page's own order; every propensity is 1 and nothing is learned from it."""
        excluded, pinned, _ = constraints
        pins = {slot: self.active[name].index for slot, name in pinned}
        taken = {self.active[name].index for name in excluded}.union(pins.values())
        rest = (item for item in self._baseline if item not in taken)
        slots = range(self.shape.n_positions)
        items = tuple(pins[slot] if slot in pins else next(rest) for slot in slots)
        return Listed(items, (1.0,) * len(items), 0, sum(1 << slot for slot in pins), policy_id=BASELINE)

    def placed(self, listed: Listed) -> tuple[PlacedItem, ...]:
        """Returns the slots of a list."""
        items, learn, pinned = self.surface.items, listed.learn, listed.pinned
        return tuple(
            [
                PlacedItem(slot, items[item].name, p, bool(pinned >> slot & 1), bool(learn >> slot & 1))
                for slot, (item, p) in enumerate(zip(listed.items, listed.p))
            ]
        )

    def make(self, one: ServedLearner, constraints: Constraints = UNCONSTRAINED, made_at: int = 0) -> Lists:
        """Returns new lists of the present state of a learner. Blocks: not for the event loop.

        Raises StoreError if the state cannot be read, and anything that a policy raises.
        """
        page, settings = self.page(constraints), self.surface.settings

        def from_state(state: LogState) -> Lists:
            order, share = next(_order), self.baseline_share(state.pages)
            row = NO_CONTEXT
            if state.visitor is not None:
                self._admit(state.visitor.known)
                row = np.array(state.visitor.numbers(dict(constraints.context), grow=False), np.int64)
            baseline = self.baseline(constraints).items if share else ()
            return make_lists(
                state.policy,  # until the log is learned again under another policy, that of before
                state.present(self.shape.n_items),
                page,
                self.shape,
                Mixing(settings.floor, settings.minimum_exposure, share, baseline),
                seed=secrets.randbits(64),
                source=Source(one.learner.id, state.number, state.pages, made_at, order),
                context=row,
            )

        return self._states.read(one.learner, self.target(one), from_state)

    def baseline_share(self, rounds: int) -> float:
        """Returns the share of pages that show the page's own order because the surface started from it."""
        return baseline_share(rounds, self.surface.settings.baseline_rounds)

    def publish(self, one: ServedLearner, made_at: int) -> None:
        """Draws from the present state of a learner from now on; blocks, in any thread. Raises StoreError.

        If the lists cannot be made, those of before stay, and ``fault`` says why.
        """
        if self.fault:
            return
        try:
            lists = self.make(one, made_at=made_at)
        except StoreError:
            raise
        except Exception as error:
            self.failed(one, error)
            return
        one.fault = ""
        if one.lists is None or one.lists.source.order < lists.source.order:
            one.lists = lists

    def failed(self, one: ServedLearner, error: Exception) -> None:
        """Notes why lists of a learner could not be made."""
        if not one.fault:
            message = "the policy cannot be computed on surface %r: %s"
            logging.getLogger("bothworlds").error(message, self.surface.name, error)
        one.fault, one.failed_at = str(error) or type(error).__name__, time.monotonic()

    def cached(self, one: ServedLearner, constraints: Constraints) -> Lists | None:
        """Returns the cached lists with these constraints, if there are any; called in the loop."""
        cache, key = self.cache, (one.learner.id, constraints)
        lists = cache.get(key)
        if lists is not None:
            cache.move_to_end(key)
        return lists

    def keep(self, one: ServedLearner, constraints: Constraints, lists: Lists) -> None:
        """Caches lists; the least recently used ones are evicted; called in the loop."""
        cache = self.cache
        cache[one.learner.id, constraints] = lists
        cells = max(CELLS_OF_LISTS, len(self.active) * self.shape.n_positions)
        while len(cache) > max(1, MAX_CACHED_CELLS // cells):
            cache.popitem(last=False)

    def is_outdated(self, one: ServedLearner, constraints: Constraints, lists: Lists) -> bool:
        """Returns whether lists should be made again: those of a context at every publication, others more rarely."""
        if one.lists is None:
            return True
        before, now = lists.source, one.lists.source
        if constraints.is_whole:
            return before.number < now.number
        return not 0 <= now.rounds - before.rounds <= min(MOST_REUSED, REUSED * before.rounds)

    def check(self) -> None:
        """Makes the lists of new learners and discards them; raises anything that a policy raises. Blocks."""
        page = self.page(UNCONSTRAINED)
        for policy in self.policies.values():
            mixing = Mixing(self.surface.settings.floor, self.surface.settings.minimum_exposure)
            state = LogState(policy, *self.shape, self.labels).present(self.shape.n_items)
            make_lists(policy, state, page, self.shape, mixing, seed=0)


class Registry:
    """Surfaces and learners that this process knows.

    ``surfaces`` and ``by_id`` map names and ids to served surfaces; any thread may read them at any time. Methods that
    change something block, raise StoreError, and can be called in any thread but that of the event loop. A request that
    still uses what they replace is answered correctly: it logs the probabilities that its list was drawn with.
    """

    def __init__(self, store: Store, states: States, clock: Callable[[], int], *, shared: bool = False) -> None:
        self.store, self.states, self.clock, self.shared = store, states, clock, shared
        self.surfaces: dict[str, Served] = {}
        self.by_id: dict[int, Served] = {}
        self._removed: set[int] = set()  # ids of surfaces that were deleted
        self._lock = threading.RLock()  # of changes
        self._revision = -1

    # Reading: any thread, at once

    def served(self, name: str) -> Served:
        """Returns a surface as it is served; raises Unknown."""
        served = self.surfaces.get(name)
        if served is None:
            raise Unknown(f"there is no surface {name!r}")
        return served

    def surface(self, name: str) -> Surface:
        """Returns a surface; raises Unknown."""
        return self.served(name).surface

    def all_surfaces(self) -> list[Surface]:
        """Returns all surfaces by name."""
        return [served.surface for _, served in sorted(self.surfaces.items())]

    def learner(self, surface_id: int, learner_id: int) -> ServedLearner | None:
        """Returns a learner; None if it is not known here, or belongs to an arm that is not served any more."""
        served = self.by_id.get(surface_id)
        return None if served is None else served.by_learner_id.get(learner_id)

    async def catch_up(self) -> None:
        """Reads changes that other processes made, if the store is shared; for the event loop. Raises Unavailable."""
        if self.shared:
            await in_thread(self.refresh)

    # Changes: they block

    def refresh(self) -> None:
        """Reads the surfaces and learners that any process has changed since the last call."""
        revision = self.store.revision()
        with self._lock:
            if revision == self._revision:
                return
            stored = self.store.surfaces()
            for surface_id in self.by_id.keys() - {surface.id for surface in stored}:
                self.remove(surface_id)
            learners: dict[int, list[Learner]] = {}
            for learner in self.store.learners():
                learners.setdefault(learner.surface_id, []).append(learner)
            for surface in stored:
                self._install(surface, learners.get(surface.id, ()))
            self._revision = revision

    def replace(self, surface: Surface) -> Served:
        """Serves this version of a surface from now on; returns the version in force, which may be a later one.

        Learners are read again. Lists that are in use are made again before.
        """
        with self._lock:
            return self._install(surface, self.store.learners(surface.id))

    def _install(self, surface: Surface, learners: Iterable[Learner]) -> Served:
        old = self.by_id.get(surface.id)
        if old is not None and (surface.id in self._removed or old.surface.version > surface.version):
            return old
        is_same = old is not None and old.surface.version == surface.version
        served = old if old is not None and is_same else Served(surface, self.states, old)
        for learner in learners:
            one = served.by_learner_id.get(learner.id)
            was_reset = one is not None and one.learner.reset_number != learner.reset_number
            one = served.add(learner)
            before = None if old is None else old.by_learner_id.get(learner.id)
            if one is not None and before is not None:
                one.used_at = before.used_at
                if before.lists is not None and (served is not old or was_reset):
                    served.publish(one, self.clock())
        if served is not old and surface.id not in self._removed:
            self.surfaces[surface.name] = self.by_id[surface.id] = served
        return served

    def check(self, surface: Surface) -> None:
        """Makes the lists of a version of a surface, for new learners and for those in use, and discards them.

        Raises ValueError, ConvergenceError or another error of a policy if one cannot be made.
        """
        served, old = Served(surface, self.states), self.by_id.get(surface.id)
        if served.fault:
            raise ValueError(served.fault)
        served.check()
        for one in [] if old is None else list(old.by_learner_id.values()):
            tried = served.add(one.learner)
            if tried is not None and one.lists is not None:
                served.make(tried)

    def renew(self, ids: Collection[int]) -> None:
        """Makes the lists in use of these learners again, from states that have changed otherwise than by learning."""
        with self._lock:
            for served in list(self.by_id.values()):
                for id in served.by_learner_id.keys() & set(ids):
                    one = served.by_learner_id[id]
                    if one.lists is not None or one.fault:
                        served.publish(one, self.clock())
                    served.cache = type(served.cache)()

    def remove(self, surface_id: int) -> None:
        """Stops serving a surface that was deleted from the store."""
        with self._lock:
            self._removed.add(surface_id)
            served = self.by_id.pop(surface_id, None)
            if served is not None:
                if self.surfaces.get(served.surface.name) is served:  # the name may be in use again
                    del self.surfaces[served.surface.name]
                self.states.forget(list(served.by_learner_id))


def _arm_intervals(surface: Surface) -> tuple[list[int], list[Arm]]:
    """Returns where the interval of each arm starts, which is as long as its share, and the arms.

    Of an arm that the guard has replaced, only the end of its interval is left, so that nobody else changes arms.
    """
    starts, arms, start = [], [], 0.0
    for arm, share in surface.asked_shares.items():
        if arm in surface.guarded:
            starts.append(start)
            arms.append(BASELINE_ARM)
            starts.append(start + share * (1.0 - surface.settings.floor))
        else:
            starts.append(start)
        arms.append(arm)
        start += share
    return [int(at * DRAWS) for at in starts], arms


def warm_up() -> None:
    """Compiles what the default policy needs, so that the first surface is created at once."""
    for labelled in (False, True):
        _policy(SurfaceSettings(slots=2).policy, b"{}", 2, labelled)


@lru_cache(maxsize=1024)
def _policy(name: str, settings: bytes, slots: int, labelled: bool = False) -> Policy:
    """Returns a policy, compiled; the same one for all surfaces with the same settings."""
    policy = policy_of(name, msgspec.json.decode(settings), slots)
    shape = Shape(slots + 2, slots)
    labels = LogLabels({"label": None}, {}, {}) if labelled else None
    log, every = LogState(policy, *shape, labels), (1 << slots) - 1
    for number in (1, 2):  # the first page of a log is learned in another way
        log.learn([LoggedPage(number, slots + 2, range(slots), [0.5] * slots, [0.0] * slots, every)])
    for items in range(slots + 2), range(slots + 1 + (not has_parts(policy))):
        make_lists(policy, log.state, Page(np.array(items), {}), shape, Mixing(1.0), seed=0)
    return policy
