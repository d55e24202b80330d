"""Warm start: counters derived from a fitted click model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..model import LOSS_UNIT, Adjustment, Cell, Increments, Invalid, Surface
from .surface_rules import median

__all__ = ["warm_start_of"]

MAX_ROUNDS = 100_000_000


def warm_start_of(
    surface: Surface, model: Mapping[str, Any], rounds: int, segment: str, now: int, actor: str
) -> Adjustment:
    """Returns the counters that ``rounds`` rounds would have added if visitors clicked as a fitted model predicts.

    Each round costs an item at a slot its probability of no click, 1 - attraction * examination. An item that is not in
    the model gets the median of the others. Raises Invalid if the model does not fit the surface.
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= MAX_ROUNDS:
        raise Invalid(f"rounds must be an integer from 1 to {MAX_ROUNDS}; got {rounds!r}", "/rounds")
    examination = _numbers(model.get("examination"), "examination")
    slots = surface.settings.slots
    if len(examination) < slots or any(beta is None for beta in examination[:slots]):
        raise Invalid(f"the model must have the examination of {slots} positions", "/model/examination")
    names, attractions = model.get("item", model.get("items")), _numbers(model.get("attraction"), "attraction")
    if not isinstance(names, (list, tuple)) or len(names) != len(attractions):
        raise Invalid("the model must have one attraction for every item", "/model/attraction")
    known = {str(name): alpha for name, alpha in zip(names, attractions) if alpha is not None}
    attraction = {item.index: known[item.name] for item in surface.items if item.name in known}
    if not attraction:
        raise Invalid("the model has none of the surface's items", "/model/item")
    cells = []
    for slot in range(slots):
        loss = {
            i: round(rounds * LOSS_UNIT * (1.0 - alpha * (examination[slot] or 0.0))) for i, alpha in attraction.items()
        }
        typical = median(loss.values())
        cells += [Cell(item.index, slot, loss=loss.get(item.index, typical)) for item in surface.items]
    increments = Increments(surface_id=surface.id, segment=segment, rounds=rounds, cells=tuple(sorted(cells)))
    return Adjustment(increments=increments, at=now, actor=actor, reason="warm start from a click model")


def _numbers(values: Any, name: str) -> list[float | None]:
    """Returns a list of probabilities, None where one is missing; raises Invalid."""
    if not isinstance(values, (list, tuple)):
        raise Invalid(f"the model has no {name}", f"/model/{name}")
    for value in values:
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0
        ):
            raise Invalid(f"{name} must be numbers from 0 to 1; got {str(value)[:40]!r}", f"/model/{name}")
    return [None if value is None or math.isnan(value) else float(value) for value in values]
