"""Promotion: the policy of an arm becomes that of the surface, with everything that it has learned."""

from __future__ import annotations

import msgspec

from ..model import BASELINE_ARM, LEARNER_ARM, StateConflict, Surface, Unknown
from .surface_rules import Change, changed_surface

__all__ = ["promote"]


def promote(surface: Surface, arm: str, now: int) -> Change:
    """Returns the surface with the policy and the learner of an arm, without arms; its comparison starts now.

    Promoting the surface's own policy, "learner", ends the comparison and changes nothing else. Repeating a promotion
    changes nothing. Raises Unknown if there is no such arm, StateConflict for the holdout, which has no policy, and for
    an arm that the guard has replaced.
    """
    settings = surface.settings
    if arm == BASELINE_ARM:
        raise StateConflict("the holdout shows the page's own order and has no policy; raise holdout instead")
    if not settings.arms and arm in (LEARNER_ARM, surface.promoted):
        return Change(surface)
    if arm in surface.guarded:
        raise StateConflict(
            f"arm {arm!r} gets fewer clicks than the page's own order, and the guard has replaced it; restart the "
            "comparison to try it again"
        )
    chosen = next((one for one in settings.arms if one.name == arm), None)
    if chosen is None and arm != LEARNER_ARM:
        raise Unknown(f"surface {surface.name!r} has no arm {arm!r}")
    policy, policy_settings = (
        (settings.policy, settings.policy_settings) if chosen is None else (chosen.policy, chosen.policy_settings)
    )
    changed = msgspec.structs.replace(
        surface,
        settings=msgspec.structs.replace(settings, policy=policy, policy_settings=policy_settings, arms=()),
        learner=surface.learner_of(arm),
        # An arm that is given this name later starts anew: its learner is that of the surface from now on.
        arm_learners={name: number for name, number in surface.arm_learners.items() if name != arm},
        promoted=arm,
        comparison_restarted_at=now,
        guarded_since=None,
        guarded_arms={},
    )
    return changed_surface(surface, changed, now, "promote arm", f"{arm}: {policy} is the policy of the surface")
