"""Exclusions and pins: which items one list may show at which slots. ``Ranker`` and the service share these rules."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, Literal


class ConstraintError(ValueError):
    """Exclusions or pins that cannot be satisfied; ``part`` says which of the two, empty if there are too few items."""

    def __init__(self, sentence: str, part: Literal["exclude", "pins", ""]) -> None:
        super().__init__(sentence)
        self.part = part


def checked_constraints(
    active: Collection[Any], slots: int, exclude: Iterable[Hashable], pins: Mapping[int, Any]
) -> tuple[frozenset[Any], tuple[tuple[int, Any], ...]]:
    """Return the excluded active items, and the items pinned to slots in the order of slots; raises ConstraintError.

    >>> checked_constraints(["a", "b", "c"], 2, ["c", "gone"], {1: "a"})
    (frozenset({'c'}), ((1, 'a'),))
    >>> checked_constraints(["a", "b", "c"], 2, ["a"], {0: "a"})
    Traceback (most recent call last):
    ...
    bothworlds.policies.constraints.ConstraintError: 'a' is both pinned and excluded
    """
    excluded = frozenset(name for name in exclude if name in active)
    seen = set()
    for slot, name in pins.items():
        if not 0 <= slot < slots:
            raise ConstraintError(f"slot {slot} does not exist; the slots are 0 to {slots - 1}", "pins")
        if name not in active:
            raise ConstraintError(f"{name!r} is not an active item of this surface", "pins")
        if name in excluded:
            raise ConstraintError(f"{name!r} is both pinned and excluded", "pins")
        if name in seen:
            raise ConstraintError(f"{name!r} is pinned to two slots", "pins")
        seen.add(name)
    eligible = len(active) - len(excluded)
    if eligible < slots:
        raise ConstraintError(f"{slots} slots need {slots} items; {eligible} eligible", "exclude" if excluded else "")
    return excluded, tuple(sorted(pins.items()))
