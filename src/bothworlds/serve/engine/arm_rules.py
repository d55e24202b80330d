"""Rules for the arms of a surface: which are valid, and which learner each of them has.

A learner is a set of counters with a number. An arm gets a new number when its name is first used, and keeps it, so
that no change of settings discards what it has learned.
"""

from __future__ import annotations

import math

import msgspec

from ..model import BASELINE_ARM, LEARNER_ARM, NO_SHARE, Invalid, Surface, checked_name
from .learner import policy_of
from .served_policies import served_names

__all__ = ["MAX_ARMS", "check_arms", "compares_the_same", "with_learners"]

MAX_ARMS = 8


def check_arms(surface: Surface) -> None:
    """Raises Invalid if names, policies or shares of the arms are not valid."""
    settings = surface.settings
    if len(settings.arms) > MAX_ARMS:
        raise Invalid(f"a surface has at most {MAX_ARMS} arms; got {len(settings.arms)}", "/arms")
    for k, arm in enumerate(settings.arms):
        checked_name(arm.name, "the name of an arm", f"/arms/{k}/name")
        if arm.name in (BASELINE_ARM, LEARNER_ARM):
            raise Invalid(f"{arm.name!r} is the name of an arm that every surface has", f"/arms/{k}/name")
        if any(other.name == arm.name for other in settings.arms[:k]):
            raise Invalid(f"arm {arm.name!r} is listed twice", f"/arms/{k}/name")
        if not (math.isfinite(arm.share) and NO_SHARE < arm.share <= 1.0):
            raise Invalid(f"the share of an arm must be above 0 and at most 1; got {arm.share!r}", f"/arms/{k}/share")
        try:
            policy_of(msgspec.structs.replace(settings, policy=arm.policy, policy_settings=arm.policy_settings))
        except ValueError as error:
            if arm.policy_settings:
                raise Invalid(str(error), f"/arms/{k}/policy_settings") from error
            detail = f"{error}; the service can use {', '.join(served_names())}"
            raise Invalid(detail, f"/arms/{k}/policy") from error
    total = settings.holdout + sum(arm.share for arm in settings.arms)
    if settings.arms and total > 1.0 + NO_SHARE:
        raise Invalid(f"holdout and the shares of arms add up to {total:.10g}, which is more than 1", "/arms")


def with_learners(surface: Surface) -> Surface:
    """Returns the surface with a learner for every arm; a name that was used before keeps its learner."""
    numbers, count = dict(surface.arm_learners), surface.n_learners
    for arm in surface.settings.arms:
        if arm.name not in numbers:
            numbers[arm.name], count = count, count + 1
    return msgspec.structs.replace(surface, arm_learners=numbers, n_learners=count)


def compares_the_same(before: Surface, after: Surface) -> bool:
    """Returns whether two versions of a surface have arms with the same names, policies and settings."""
    one, other = (
        [(arm.name, arm.policy, arm.policy_settings) for arm in surface.settings.arms] for surface in (before, after)
    )
    return one == other
