"""A surface as it is served: the current policy of every segment, and cached policies for pins and exclusions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from copy import copy
from typing import NamedTuple

from ...policies import Policy
from ...policies.constraints import ConstraintError, checked_constraints
from ..model import Invalid, NotEnough, Surface, counter_key
from ..visitors import arm_intervals
from .learner import DrawnList, SegmentCounters, ServingPolicy, baseline_list, serving_policy

__all__ = ["UNCONSTRAINED", "Constraints", "PolicyPair", "ServedSegment", "ServedSurface", "constraints_of"]

MAX_CACHED = 256  # constrained policies of one segment
MAX_CACHED_CELLS = 1 << 22  # probabilities in all cached policies of a surface; with sums and weights, 24 bytes each
MAX_PRESOLVED = 32  # recently used constraints that are solved again when the counters change

Constraints = tuple[frozenset[str], tuple[tuple[int, str], ...]]  # excluded active items, items pinned to slots
UNCONSTRAINED: Constraints = (frozenset(), ())


class PolicyPair(NamedTuple):
    """The two ways to answer a request: the learner's policy, and the baseline list for the holdout."""

    learner: ServingPolicy
    baseline: DrawnList
    baseline_id: str


class ServedSurface:
    """One version of a surface, with its settings converted once and the served state of every segment.

    A change of the surface replaces the whole object; a refresh replaces the entries of ``segments``. ``policy`` and
    ``segments`` are those of the surface's own policy. Each of ``arms`` is the same surface with the policy of that
    arm, and with counters of its own; ``learner`` is the number of these counters. ``fault`` is why it cannot be
    served: then there are no segments and no arms, and the policy is another one.
    """

    __slots__ = (
        "active",
        "arms",
        "attribution_ms",
        "empty_segment",
        "fault",
        "intervals",
        "late_ms",
        "learner",
        "policy",
        "segments",
        "surface",
    )

    empty_segment: ServedSegment  # of a segment without counters; copied for new segments

    def __init__(self, surface: Surface, policy: Policy, fault: str = "") -> None:
        settings = surface.settings
        self.surface, self.policy, self.fault = surface, policy, fault
        self.active = {item.name: item for item in surface.items if item.state == "active"}
        self.intervals, self.learner = arm_intervals(surface), surface.learner
        self.attribution_ms = round(1000 * settings.attribution_seconds)
        self.late_ms = round(1000 * settings.late_seconds)
        self.segments: dict[str, ServedSegment] = {}
        self.arms: dict[str, ServedSurface] = {}

    @property
    def learners(self) -> tuple[ServedSurface, ...]:
        """The surface with its own policy, and with those of its arms."""
        return self, *self.arms.values()

    def of_learner(self, number: int) -> ServedSurface | None:
        """Returns the surface with the policy that uses the counters with this number; None if none does."""
        return next((one for one in self.learners if one.learner == number), None)

    @property
    def first(self) -> ServedSurface:
        """The surface with the policy that others are compared with: its own, or that of the first arm if it has none.

        Its own policy has no share if the shares of arms and holdout add up to 1.
        """
        return self.arms.get(self.surface.first_arm, self)

    def counter_key(self, segment: str) -> str:
        """Returns the key of the counters of a segment."""
        return counter_key(segment, self.learner)


class ServedSegment:
    """The policies of a segment for one state of its counters, and when the segment was last used (0: unknown).

    ``cached`` and ``cache`` must be called in the thread of the event loop; ``solve`` can be called in any thread.
    """

    __slots__ = ("_cache", "counters", "made_at", "served_surface", "unconstrained", "used_at")

    def __init__(
        self,
        served_surface: ServedSurface,
        counters: SegmentCounters,
        made_at: int,
        presolve: Sequence[Constraints] = (),
    ) -> None:
        self.served_surface, self.counters, self.made_at = served_surface, counters, made_at
        self.used_at = 0
        self._cache: OrderedDict[Constraints, PolicyPair] = OrderedDict()
        self.unconstrained = self.solve(UNCONSTRAINED)
        for constraints in presolve:
            self._cache[constraints] = self.solve(constraints)

    def copy(self, made_at: int, revision: int = -1) -> ServedSegment:
        """Returns the same policy for another segment, with an empty cache."""
        other = copy(self)
        other.made_at, other._cache = made_at, OrderedDict()
        other.counters = self.counters._replace(revision=revision)
        return other

    def cached(self, constraints: Constraints) -> PolicyPair | None:
        """Returns the policies for these constraints if they are cached."""
        if constraints == UNCONSTRAINED:
            return self.unconstrained
        pair = self._cache.get(constraints)
        if pair is not None:
            self._cache.move_to_end(constraints)
        return pair

    def cache(self, constraints: Constraints, pair: PolicyPair) -> None:
        """Caches solved policies; the least recently used ones are evicted."""
        self._cache[constraints] = pair
        served = self.served_surface
        settings = served.surface.settings
        cells = len(served.active) * settings.slots * len(served.segments) * (1 + len(settings.arms))
        while len(self._cache) > max(1, min(MAX_CACHED, MAX_CACHED_CELLS // cells)):
            self._cache.popitem(last=False)

    @property
    def cache_size(self) -> int:
        """The number of cached constraints."""
        return len(self._cache)

    def recently_used(self) -> list[Constraints]:
        """Returns the most recently used constraints, the latest last."""
        return list(self._cache)[-MAX_PRESOLVED:]

    def solve(self, constraints: Constraints) -> PolicyPair:
        """Solves the policies for constraints that ``constraints_of`` has validated for this surface."""
        served, (excluded, pinned) = self.served_surface, constraints
        pins = {slot: served.active[name] for slot, name in pinned}
        taken = {item.name for item in pins.values()}
        eligible = [item for item in served.active.values() if item.name not in excluded and item.name not in taken]
        learner = serving_policy(served.surface, served.policy, self.counters, eligible, pins)
        baseline = baseline_list(served.surface, eligible, pins)
        return PolicyPair(learner, baseline, "baseline:" + "-".join(map(str, baseline.items))[:64])


def constraints_of(served: ServedSurface, exclude: Sequence[str], pins: Mapping[int, str]) -> Constraints:
    """Returns the pins and exclusions of a request as a cache key; raises Invalid if they cannot be satisfied."""
    try:
        return checked_constraints(served.active, served.surface.settings.slots, exclude, pins)
    except ConstraintError as error:
        if error.part == "pins":
            raise Invalid(str(error), "/pins") from error
        excluded, active = sum(name in served.active for name in set(exclude)), len(served.active)
        errors = [{"pointer": "/exclude", "detail": f"removes {excluded} of {active} items"}] if excluded else []
        raise NotEnough(str(error), errors=errors) from error
