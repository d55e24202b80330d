"""Public checks for policies and worlds: ours pass them, and so should yours."""

from .checks import CheckFailed, check_policy, check_world, policy_checks

__all__ = ["CheckFailed", "check_policy", "check_world", "policy_checks"]
