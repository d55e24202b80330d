"""Public checks for policies and worlds; those of this package pass them, and third-party ones should, too."""

from .checks import check_policy, policy_checks
from .failure import CheckFailed
from .world_checks import check_world

__all__ = ["CheckFailed", "check_policy", "check_world", "policy_checks"]
