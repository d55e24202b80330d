"""What is ready to be served on a surface: for every segment a policy, and those for pins and exclusions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from copy import copy
from typing import NamedTuple

from ...policies import Policy
from ..model import Invalid, NotEnough, Surface
from .learner import Drawn, Served, Sums, baseline_of, served

__all__ = ["Choice", "Display", "Shelf", "Signature", "signature_of"]

CHOICES = 256  # of one segment, kept
CELLS = 1 << 23  # probabilities in all choices of a surface, kept: 64 MiB
HOT = 32  # of them, solved anew before they are asked for

Signature = tuple[frozenset[str], tuple[tuple[int, str], ...]]  # active items left out, items pinned to slots
PLAIN: Signature = (frozenset(), ())


class Choice(NamedTuple):
    """What to answer with: the learner's policy, or the baseline to those held out."""

    learner: Served
    baseline: Drawn
    baseline_id: str


class Display:
    """A surface as it is served: its settings looked up once, and a shelf for every segment."""

    __slots__ = ("active", "attribution_ms", "blank", "holdout", "late_ms", "policy", "shelves", "surface")

    blank: Shelf  # of a segment that nothing is known of

    def __init__(self, surface: Surface, policy: Policy) -> None:
        settings = surface.settings
        self.surface, self.policy = surface, policy
        self.active = {item.name: item for item in surface.items if item.state == "active"}
        self.holdout = int(settings.holdout * 2.0**64)
        self.attribution_ms = round(1000 * settings.attribution_seconds)
        self.late_ms = round(1000 * settings.late_seconds)
        self.shelves: dict[str, Shelf] = {}


class Shelf:
    """The policies of a segment for one state of its counters, and when the segment was last used (0: not known).

    ``choice`` and ``keep`` belong to the event loop's thread; ``solve`` may be called in any thread.
    """

    __slots__ = ("_choices", "display", "made_at", "plain", "sums", "used_at")

    def __init__(self, display: Display, sums: Sums, made_at: int, hot: Sequence[Signature] = ()) -> None:
        self.display, self.sums, self.made_at = display, sums, made_at
        self.used_at = 0
        self._choices: OrderedDict[Signature, Choice] = OrderedDict()
        self.plain = self.solve(PLAIN)
        for signature in hot:
            self._choices[signature] = self.solve(signature)

    def copy(self, made_at: int, revision: int = -1) -> Shelf:
        """The same policy for another segment, with choices of its own."""
        other = copy(self)
        other.made_at, other._choices = made_at, OrderedDict()
        other.sums = self.sums._replace(revision=revision)
        return other

    def choice(self, signature: Signature) -> Choice | None:
        """The policy for these pins and exclusions, if it has been solved."""
        if signature == PLAIN:
            return self.plain
        choice = self._choices.get(signature)
        if choice is not None:
            self._choices.move_to_end(signature)
        return choice

    def keep(self, signature: Signature, choice: Choice) -> None:
        """Answer with a solved policy from now on."""
        self._choices[signature] = choice
        display = self.display
        cells = len(display.active) * display.surface.settings.slots * len(display.shelves)
        while len(self._choices) > max(1, min(CHOICES, CELLS // cells)):
            self._choices.popitem(last=False)

    def hot(self) -> list[Signature]:
        """What has been asked for most lately, the latest last."""
        return list(self._choices)[-HOT:]

    def solve(self, signature: Signature) -> Choice:
        """Compute the policy for pins and exclusions that ``signature_of`` this display has allowed."""
        display, (excluded, pinned) = self.display, signature
        pins = {slot: display.active[name] for slot, name in pinned}
        taken = {item.name for item in pins.values()}
        eligible = [item for item in display.active.values() if item.name not in excluded and item.name not in taken]
        learner = served(display.surface, display.policy, self.sums, eligible, pins)
        baseline = baseline_of(display.surface, eligible, pins)
        return Choice(learner, baseline, "baseline:" + "-".join(map(str, baseline.items))[:64])


def _check_enough(display: Display, excluded: frozenset[str]) -> None:
    slots, active = display.surface.settings.slots, len(display.active)
    eligible = active - len(excluded)
    if eligible < slots:
        errors = []
        if excluded:
            errors = [{"pointer": "/exclude", "detail": f"removes {len(excluded)} of {active} items"}]
        raise NotEnough(f"{slots} slots need {slots} items; {eligible} eligible", errors=errors)


def signature_of(display: Display, exclude: Sequence[str], pins: Mapping[int, str]) -> Signature:
    """What a request asks for, in a form that finds the policy for it; Invalid if it asks for the impossible."""
    excluded = frozenset(name for name in exclude if name in display.active)
    slots, seen = display.surface.settings.slots, set()
    for slot, name in pins.items():
        if not 0 <= slot < slots:
            raise Invalid(f"slot {slot} is none of the slots 0 to {slots - 1}", "/pins")
        if name not in display.active:
            raise Invalid(f"{name!r} is no active item of this surface", "/pins")
        if name in excluded:
            raise Invalid(f"{name!r} is both pinned and excluded", "/pins")
        if name in seen:
            raise Invalid(f"{name!r} is pinned to two slots", "/pins")
        seen.add(name)
    _check_enough(display, excluded)
    return excluded, tuple(sorted(pins.items()))
