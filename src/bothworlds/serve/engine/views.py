"""Views of the engine's state as the types of ``schemas``: the state of a segment, and one event."""

from __future__ import annotations

from typing import TypedDict

import msgspec
import numpy as np

from ...policies.marginals import most_shown_rows
from ..model import BASELINE_ARM, LEARNER_ARM, LOSS_UNIT, Event, Surface, rfc3339
from ..schemas import EventView, StateView
from .learner import SegmentCounters
from .served_surface import ServedSegment

__all__ = ["event_view", "state_view"]


class RewardField(TypedDict, total=False):
    """The field of a slot that only surfaces with rewards have."""

    reward: float


def state_view(
    surface: Surface, name: str, segment: ServedSegment, counters: SegmentCounters, now: int, limit: int
) -> StateView:
    """Returns the counters of a segment and the probabilities that are served.

    If there are more items than ``limit``, those that are shown with the largest probability are returned.
    """
    policy, known = segment.unconstrained.learner, segment.counters
    served_rows = most_shown_rows(policy.marginals, limit)
    exposure = np.zeros((len(surface.items), 1))
    exposure[[item.index for item in policy.eligible], 0] = policy.marginals.sum(axis=1)
    rows = most_shown_rows(exposure, limit)
    return {
        "surface": surface.name,
        "segment": name,
        "items": [surface.items[row].name for row in rows],
        "items_total": len(surface.items),
        "states": [surface.items[row].state for row in rows],
        "rounds": counters.rounds,
        "loss": (counters.loss[rows] / LOSS_UNIT).tolist(),
        "shown": counters.shown[rows].tolist(),
        "clicked": counters.clicked[rows].tolist(),
        "marginals": {
            "items": [policy.eligible[row].name for row in served_rows],
            "x": policy.marginals[served_rows].tolist(),
        },
        "policy_id": policy.id,
        "policy_age_seconds": max(0.0, (now - segment.made_at) / 1000.0),
        "entropy": policy.entropy,
        "revision": counters.revision,
        "changed_at": _time_of(known.changed_at),
        "leader_alone_since": _time_of(known.alone_since),
        "leader_alone_until_rounds": known.wake or None,
        "baseline_share": known.baseline_share(surface.settings),
    }


def _time_of(second: int | None) -> str | None:
    return None if second is None else rfc3339(1000 * second)


def event_view(event: Event, surface: Surface, policy: bytes | None) -> EventView:
    """Returns one decision and its outcome; ``policy`` is the stored policy that drew it, if it is still stored."""
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
                **_reward(event, surface, slot),
            }
            for slot, (item, p) in enumerate(zip(event.items, event.p))
        ],
        "absent": _absent_items(event, surface),
        "settled": event.settled_at is not None,
        "settled_at": rfc3339(event.settled_at) if event.settled_at is not None else None,
        "settled_by": event.settled_by,
        "why": _explanation(event, policy),
        "policy": msgspec.msgpack.decode(policy) if policy else None,
    }


def _reward(event: Event, surface: Surface, slot: int) -> RewardField:
    """Returns the reward of a slot if the surface counts rewards, else nothing."""
    if surface.settings.objective == "clicks":
        return {}
    return {"reward": event.rewards[slot] / LOSS_UNIT if event.rewards else 0.0}


def _absent_items(event: Event, surface: Surface) -> list[str]:
    """Returns the items that existed at the time of the event but could not be shown at its learned slots."""
    absent, present = event.eligibility.absent, set(event.eligibility.present)
    if present:
        absent = tuple(i.index for i in surface.items if i.index not in present and i.added_at <= event.created_at)
    return [surface.items[index].name for index in absent if index < len(surface.items)]


def _explanation(event: Event, policy: bytes | None) -> str:
    if event.arm == BASELINE_ARM:
        return "this visitor was in the holdout and saw the baseline order"
    rounds = f" after {msgspec.msgpack.decode(policy)['rounds']} rounds" if policy else ""
    pinned = "; the request pinned some slots" if event.pinned else ""
    learner = "the learner" if event.arm == LEARNER_ARM else f"arm {event.arm!r}"
    return f"drawn with the probabilities p of {learner}{rounds}{pinned}"
