"""Ways to rank: one file each. Adding a file here is the whole job of adding a policy.

A policy from another package registers through the entry point group ``bothworlds.policies``, or is simply passed as
an object wherever a name is accepted.
"""

from __future__ import annotations

import inspect
import pkgutil
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from ..registry import defaults_of, make, sentence_of
from .base import CompiledPolicy, Policy, checked_feedback, told

__all__ = [
    "CompiledPolicy",
    "Description",
    "Policy",
    "checked_feedback",
    "describe",
    "names",
    "policy",
    "resolve",
    "told",
]


def names() -> list[str]:
    """The names of all policies known here, those of other packages included.

    >>> "ftrl-pbm" in names()
    True
    """
    return sorted(_known())


def policy(name: str, **settings: Any) -> Policy:
    """The policy of that name, with these settings.

    >>> policy("ftrl-pbm", rate=0.25)
    FtrlPbm(restart=None, rate=0.25, tolerance=1e-06)
    """
    return make("policy", _known(), name, settings)


class Description(NamedTuple):
    """A policy in a line: what it does, what it must be told, and its settings with their published values."""

    sentence: str
    needs: tuple[str, ...]
    settings: dict[str, Any]
    additive: bool  # can its state be made from sums over events, as the service needs it?


def describe(name: str) -> Description:
    """What the policy of that name is.

    >>> describe("uniform").needs
    ()
    """
    known = _known()[name]
    additive = getattr(known, "resumed", Policy.resumed) is not Policy.resumed
    return Description(sentence_of(known), getattr(known, "needs", ()), defaults_of(known), additive)


def resolve(given: str | Policy) -> Policy:
    """A policy, whether given by name or as an object."""
    if isinstance(given, str):
        return policy(given)
    missing = [verb for verb in ("init", "decide", "learn") if not callable(getattr(given, verb, None))]
    if missing or isinstance(given, type):
        raise ValueError(f"policy must be a name or an object with init, decide and learn; got {given!r}")
    return given


@cache
def _known() -> dict[str, type[Policy]]:
    found: dict[str, type[Policy]] = {}
    for module in pkgutil.iter_modules(__path__):
        for item in vars(import_module(f"{__name__}.{module.name}")).values():
            if inspect.isclass(item) and issubclass(item, Policy) and item.name:
                found[item.name] = item
    for entry in entry_points(group="bothworlds.policies"):
        found[entry.name] = entry.load()
    return found
