"""Public checks for policies and worlds; those of this package pass them, and third-party ones should, too."""

from .checks import CheckFailed, check_policy, check_world, policy_checks

__all__ = ["CheckFailed", "check_policy", "check_world", "policy_checks"]
