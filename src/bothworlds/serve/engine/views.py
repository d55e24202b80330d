"""What is told of one segment, and of one event."""

from __future__ import annotations

from typing import Any

import msgspec

from ..model import LOSS_UNIT, Event, Surface, rfc3339
from .learner import Sums
from .served_surface import Shelf

__all__ = ["state_of", "told_of_event"]


def state_of(surface: Surface, segment: str, shelf: Shelf, sums: Sums, now: int) -> dict[str, Any]:
    """What has been learned of a segment, and what is served."""
    policy = shelf.plain.learner
    return {
        "surface": surface.name,
        "segment": segment,
        "items": [item.name for item in surface.items],
        "states": [item.state for item in surface.items],
        "rounds": sums.rounds,
        "loss": (sums.loss / LOSS_UNIT).tolist(),
        "shown": sums.shown.tolist(),
        "clicked": sums.clicked.tolist(),
        "marginals": {"items": [item.name for item in policy.eligible], "x": policy.marginals.tolist()},
        "policy_id": policy.id,
        "policy_age_seconds": max(0.0, (now - shelf.made_at) / 1000.0),
        "entropy": policy.entropy,
        "revision": sums.revision,
    }


def told_of_event(event: Event, surface: Surface, policy: bytes | None) -> dict[str, Any]:
    """One decision: what was shown and why, and what became of it."""
    settled = event.settled_at is not None
    return {
        "event_id": event.id.hex(),
        "surface": surface.name,
        "segment": event.segment,
        "arm": event.arm,
        "policy_id": event.policy_id,
        "created_at": rfc3339(event.created_at),
        "expires_at": rfc3339(event.expires_at),
        "late_until": rfc3339(event.late_until),
        "slots": [
            {
                "slot": slot,
                "item": surface.items[item].name,
                "p": p,
                "learn": bool(event.learn >> slot & 1),
                "pinned": bool(event.pinned >> slot & 1),
                "clicked": bool(event.clicks >> slot & 1),
                "late": bool(event.late >> slot & 1),
            }
            for slot, (item, p) in enumerate(zip(event.items, event.p))
        ],
        "absent": _absent(event, surface),
        "settled": settled,
        "settled_at": rfc3339(event.settled_at) if event.settled_at is not None else None,
        "settled_by": event.settled_by,
        "why": _why(event, policy),
        "policy": msgspec.msgpack.decode(policy) if policy else None,
    }


def _absent(event: Event, surface: Surface) -> list[str]:
    """The items that could not be shown at the slots that are learned from, of those that the surface had then."""
    absent, present = event.eligibility.absent, set(event.eligibility.present)
    if present:
        absent = tuple(i.index for i in surface.items if i.index not in present and i.added_at <= event.created_at)
    return [surface.items[index].name for index in absent if index < len(surface.items)]


def _why(event: Event, policy: bytes | None) -> str:
    if event.arm == "holdout":
        return "this visitor was held out and saw the baseline order"
    rounds = f" after {msgspec.msgpack.decode(policy)['rounds']} rounds" if policy else ""
    pinned = "; pinned slots were asked for" if event.pinned else ""
    return f"drawn with the probabilities p of the learner{rounds}{pinned}"
