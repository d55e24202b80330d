"""How a check fails: an error that names the policy or the world, and the requirement."""

from __future__ import annotations

from typing import Any


class CheckFailed(AssertionError):
    """A policy or a world fails a check; the message names it and states the requirement."""


CheckFailed.__module__ = "bothworlds.testing.checks"  # where it is documented and imported from


def require(condition: bool, checked: Any, sentence: str) -> None:
    """Raise CheckFailed unless the condition holds."""
    if not condition:
        raise failure(checked, sentence)


def standard_errors(distance: float) -> str:
    """Return a distance in standard errors as text; where nothing varies, it is only known to be large.

    >>> standard_errors(7.25), standard_errors(61199391254.7)
    ('7.2 standard errors', 'more than 100 standard errors')
    """
    return f"{distance:.1f} standard errors" if distance <= 100.0 else "more than 100 standard errors"


def failure(checked: Any, sentence: str) -> CheckFailed:
    """Return the error for a policy or a world that does not do what the sentence requires."""
    return CheckFailed(f"{getattr(checked, 'name', '') or repr(checked)}: {sentence}")
