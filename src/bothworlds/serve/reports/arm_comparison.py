"""Policy against policy: clicks per page of the arms of a surface, each compared with the first one.

The comparisons are confidence sequences, as those with the holdout. Their error is divided between the arms.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model import LEARNER_ARM, Arm, Surface
from ..schemas import ArmComparison, ArmLine
from .inputs import segment_alpha
from .strata import ArmTotals, pair_of, sum_of
from .uplift import ARMS_ALPHA, arm_summary, untrusted, uplift_of


def compare_arms(
    surface: Surface, strata: Sequence[ArmTotals], segment: str | None = None, trusted: bool = True
) -> dict[Arm, ArmComparison]:
    """Return the comparison of every arm with the first one; of no arm if there is only one.

    The first arm is the surface's own policy, or if that has no share, the first of its ``arms``. Without ``trusted``,
    comparisons have no figures.
    """
    first = surface.first_arm
    others = [arm for arm in _policies(surface) if arm != first]
    alpha = ARMS_ALPHA * segment_alpha(segment) / max(1, len(others))

    def compared(arm: Arm) -> ArmComparison:
        pairs = [pair_of(totals, arm, first) for totals in strata]
        found = uplift_of(pairs, alpha, surface.compared_since, (f"arm {arm}", f"arm {first}"))
        return {**(found if trusted else untrusted(found)), "compared_with": first}

    return {arm: compared(arm) for arm in others}


def arm_lines(surface: Surface, strata: Sequence[ArmTotals], segment: str | None, trusted: bool) -> list[ArmLine]:
    """Return a line for every policy, the first arm first; none for a surface without arms.

    Without ``trusted``, comparisons have no figures: pages or feedback of some arm are missing.
    """
    if not surface.settings.arms:
        return []
    comparisons = compare_arms(surface, strata, segment, trusted)
    return [
        {
            "name": arm,
            "policy": policy,
            "policy_settings": policy_settings,
            "share": surface.shares[arm],
            **arm_summary(sum_of(totals[arm] for totals in strata if arm in totals)),
            "comparison": comparisons.get(arm),
            "guarded_since": surface.guarded.get(arm),
        }
        for arm, (policy, policy_settings) in _policies(surface).items()
    ]


def _policies(surface: Surface) -> dict[Arm, tuple[str, dict[str, object]]]:
    """Return policy and settings of every arm that has a share, the first arm first."""
    settings = surface.settings
    policies = {arm.name: (arm.policy, arm.policy_settings) for arm in settings.arms}
    if LEARNER_ARM in surface.asked_shares:
        policies = {LEARNER_ARM: (settings.policy, settings.policy_settings)} | policies
    return policies
