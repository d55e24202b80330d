"""A surface as it is served: what its learners draw from, also for pages with pins and exclusions."""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ...core import Shape
from ...geometry.baseline_mixture import baseline_share
from ...policies import Policy
from ...policies.constraints import ConstraintError, checked_constraints
from ...policies.logged_pages import LoggedPage, LogState
from ...policies.pages import Page, check_parts, has_parts
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
    segment_words,
)
from ..schemas import PlacedItem
from ..stores import StoreError
from ..visitors import arm_intervals
from .lists import Lists, Mixing, Source, make_lists
from .surface_rules import policy_of

if TYPE_CHECKING:
    from .replay import States

BASELINE = "baseline"  # the policy_id of the page's own order
MAX_CACHED_CELLS = 1 << 22  # probabilities in all lists for constraints of a surface
CELLS_OF_LISTS = 1 << 11  # what the rest of them counts as
REUSED, MOST_REUSED = 0.01, 64  # they are used until there are so many more pages, as a share and at most, as in Ranker

Constraints = tuple[frozenset[str], tuple[tuple[int, str], ...]]  # excluded active items, items pinned to slots
UNCONSTRAINED: Constraints = (frozenset(), ())

_order = itertools.count()


class ServedLearner:
    """A learner as it is served. ``lists`` are None until they are used in this process.

    ``used_at`` is when it was last used here (0: never). ``fault`` is why its lists could not be made: then those of
    before stay, or the page's own order is shown.
    """

    __slots__ = ("failed_at", "fault", "learner", "lists", "used_at")

    def __init__(self, learner: Learner) -> None:
        self.learner, self.used_at, self.fault, self.failed_at = learner, 0, "", 0.0
        self.lists: Lists | None = None

    def is_used(self, retry_seconds: float) -> bool:
        """Returns whether lists are needed here; if they could not be made, only after some time."""
        return self.lists is not None or (bool(self.fault) and time.monotonic() - self.failed_at >= retry_seconds)


class Served:
    """One version of a surface. A change of the surface replaces it; ``learners`` and their lists change.

    ``numbers`` are those of the learners of all arms; the holdout has that of the surface's own policy. ``fault`` is
    why a policy cannot be used: then all visitors get the page's own order.
    """

    def __init__(self, surface: Surface, states: States) -> None:
        settings = surface.settings
        self.surface, self._states, self.fault = surface, states, ""
        self.shape = Shape(max(2, len(surface.items)), settings.slots)  # states have two items, also if there is one
        self.active = {item.name: item for item in surface.items if item.state == "active"}
        self.intervals = arm_intervals(surface)
        self.attribution_ms = round(1000 * settings.attribution_seconds)
        self.late_ms = round(1000 * settings.late_seconds)
        own = surface.learner
        self.numbers: dict[Arm, int] = {BASELINE_ARM: own, LEARNER_ARM: own}
        self.numbers |= {arm.name: surface.learner_of(arm.name) for arm in settings.arms}
        self.policies: dict[int, Policy] = {}
        named: list[tuple[int, SurfaceSettings | ArmSettings]] = [(own, settings)]
        named += [(surface.learner_of(arm.name), arm) for arm in settings.arms]
        try:
            for number, one in named:
                self.policies[number] = _policy(one.policy, msgspec.json.encode(one.policy_settings), settings.slots)
        except Exception as error:  # a policy of another package may raise anything
            self.fault = str(error) or type(error).__name__
        self.learners: dict[tuple[str, int], ServedLearner] = {}
        self.by_learner_id: dict[int, ServedLearner] = {}
        self.cache: OrderedDict[tuple[int, Constraints], Lists] = OrderedDict()  # of the thread of the event loop
        self._items = np.array([item.index for item in self.active.values()], np.int64)
        place = {name: k for k, name in enumerate(settings.baseline)}
        ordered = sorted(self.active.values(), key=lambda item: (place.get(item.name, len(place)), item.index))
        self._baseline = [item.index for item in ordered]

    # Learners

    def add(self, learner: Learner) -> ServedLearner | None:
        """Serves a learner, or the present record of one; None if no arm has it."""
        if learner.number not in self.numbers.values():
            return None
        known = self.by_learner_id.get(learner.id)
        if known is None:
            known = self.by_learner_id[learner.id] = ServedLearner(learner)
            self.learners[learner.segment, learner.number] = known
        known.learner = learner
        return known

    def drop(self, ids: Collection[int]) -> None:
        """Stops serving these learners."""
        for id in ids:
            one = self.by_learner_id.pop(id, None)
            if one is not None and self.learners.get((one.learner.segment, one.learner.number)) is one:
                del self.learners[one.learner.segment, one.learner.number]

    def segments(self) -> set[str]:
        """Returns the names of all segments."""
        return {segment for segment, _ in list(self.learners)}

    def learner(self, segment: str, arm: Arm = LEARNER_ARM) -> ServedLearner | None:
        """Returns the learner of an arm for a segment; None if there is none yet."""
        return self.learners.get((segment, self.numbers.get(arm, -1)))

    def in_use(self) -> list[ServedLearner]:
        """Returns the learners that have lists."""
        return [one for one in list(self.by_learner_id.values()) if one.lists is not None]

    @property
    def why(self) -> str:
        """Why some visitors get the page's own order, or lists that are not up to date; empty if nobody does."""
        return self.fault or next((one.fault for one in list(self.by_learner_id.values()) if one.fault), "")

    # Lists

    def constraints(self, exclude: Sequence[str], pins: Mapping[int, str]) -> Constraints:
        """Returns the pins and exclusions of a request; raises Invalid if they cannot be satisfied."""
        try:
            found = checked_constraints(self.active, self.shape.n_positions, exclude, pins)
        except ConstraintError as error:
            if error.part == "pins":
                raise Invalid(str(error), "/pins") from error
            excluded, active = sum(name in self.active for name in set(exclude)), len(self.active)
            errors = [{"pointer": "/exclude", "detail": f"removes {excluded} of {active} items"}] if excluded else []
            raise NotEnough(str(error), errors=errors) from error
        if found != UNCONSTRAINED:
            for policy in self.policies.values():
                try:
                    check_parts(policy)
                except ValueError as error:
                    raise Invalid(str(error), "/pins" if found[1] else "/exclude") from error
        return found

    def page(self, constraints: Constraints) -> Page:
        """Returns what a list with these constraints may show."""
        pins = {slot: self.active[name].index for slot, name in constraints[1]}
        taken = [*pins.values(), *(self.active[name].index for name in constraints[0])]
        return Page(self._items[~np.isin(self._items, taken)] if taken else self._items, pins)

    def baseline(self, constraints: Constraints) -> Listed:
        """Returns the page's own order; every propensity is 1 and nothing is learned from it."""
        excluded, pinned = constraints
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
            order, share = next(_order), self.baseline_share(one, state.pages)
            baseline = self.baseline(constraints).items if share else ()
            return make_lists(
                state.policy,  # until the log is learned again under another policy, that of before
                state.present(self.shape.n_items),
                page,
                self.shape,
                Mixing(settings.floor, settings.minimum_exposure, share, baseline),
                seed=secrets.randbits(64),
                source=Source(one.learner.id, state.number, state.pages, made_at, order),
            )

        return self._states.read(one.learner, self.policies[one.learner.number], *self.shape, from_state)

    def baseline_share(self, one: ServedLearner, rounds: int) -> float:
        """Returns the share of pages that show the page's own order because the learner started from it."""
        own = self.surface.baseline_starts.get(one.learner.segment)
        return baseline_share(rounds, self.surface.settings.baseline_rounds if own is None else own)

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
            where = f"surface {self.surface.name!r}, {segment_words(one.learner.segment)}"
            logging.getLogger("bothworlds").error("the policy cannot be computed on %s: %s", where, error)
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

    def is_outdated(self, one: ServedLearner, lists: Lists) -> bool:
        """Returns whether a learner has learned so much since that its lists should be made again."""
        before, now = lists.source.rounds, one.lists.source.rounds if one.lists is not None else 0
        return not 0 <= now - before <= min(MOST_REUSED, REUSED * before)

    def check(self) -> None:
        """Makes the lists of new learners and discards them; raises anything that a policy raises. Blocks."""
        page = self.page(UNCONSTRAINED)
        for policy in self.policies.values():
            mixing = Mixing(self.surface.settings.floor, self.surface.settings.minimum_exposure)
            make_lists(policy, policy.init(*self.shape), page, self.shape, mixing, seed=0)


def warm_up() -> None:
    """Compiles what the default policy needs, so that the first surface is created at once."""
    _policy(SurfaceSettings(slots=2).policy, b"{}", 2)


@lru_cache(maxsize=1024)
def _policy(name: str, settings: bytes, slots: int) -> Policy:
    """Returns a policy, compiled; the same one for all surfaces with the same settings."""
    policy = policy_of(name, msgspec.json.decode(settings), slots)
    shape = Shape(slots + 2, slots)
    log, every = LogState(policy, *shape), (1 << slots) - 1
    for number in (1, 2):  # the first page of a log is learned in another way
        log.learn([LoggedPage(number, slots + 2, range(slots), [0.5] * slots, [0.0] * slots, every)])
    for items in range(slots + 2), range(slots + 1 + (not has_parts(policy))):
        make_lists(policy, log.state, Page(np.array(items), {}), shape, Mixing(1.0), seed=0)
    return policy
