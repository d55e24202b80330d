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
    FtrlPbm(rate=0.25, tolerance=1e-06)
    """
    known = _known()
    if name not in known:
        raise ValueError(f"no policy named {name!r}; there are {', '.join(sorted(known))}")
    accepted = list(inspect.signature(known[name]).parameters)
    unknown = [setting for setting in settings if setting not in accepted]
    if unknown:
        has = f"it has {', '.join(accepted)}" if accepted else "it has none"
        raise ValueError(f"policy {name!r} has no setting {unknown[0]!r}; {has}")
    return known[name](**settings)


class Description(NamedTuple):
    """A policy in a line: what it does, what it must be told, and its settings with their published values."""

    sentence: str
    needs: tuple[str, ...]
    settings: dict[str, Any]


def describe(name: str) -> Description:
    """What the policy of that name is.

    >>> describe("uniform").needs
    ()
    """
    known = _known()[name]
    defaults = {key: given.default for key, given in inspect.signature(known).parameters.items()}
    return Description((inspect.getdoc(known) or "").partition("\n")[0], getattr(known, "needs", ()), defaults)


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
