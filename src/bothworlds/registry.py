"""Things that are made by name and settings: policies and worlds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

__all__ = ["defaults_of", "make", "sentence_of"]

T = TypeVar("T")


def make(kind: str, known: Mapping[str, Callable[..., T]], name: str, settings: dict[str, Any]) -> T:
    """What is known under that name, with these settings; a name or a setting that is not known is refused.

    >>> make("colour", {"red": dict}, "blue", {})
    Traceback (most recent call last):
    ...
    ValueError: no colour named 'blue'; there are red
    """
    if name not in known:
        raise ValueError(f"no {kind} named {name!r}; there are {', '.join(sorted(known))}{_suggestion(name, known)}")
    accepted = list(defaults_of(known[name]))
    unknown = [setting for setting in settings if setting not in accepted]
    if unknown:
        has = f"it has {', '.join(accepted)}" if accepted else "it has none"
        raise ValueError(f"{kind} {name!r} has no setting {unknown[0]!r}; {has}")
    return known[name](**settings)


def _suggestion(name: str, known: Collection[str]) -> str:
    """A question that names what may have been meant: names that contain the text, or else that are spelled alike.

    >>> _suggestion("ftrl", ["ftpl", "ftrl-pbm"]), _suggestion("unifrom", ["mw", "uniform"]), _suggestion("x", ["mw"])
    ('; did you mean ftrl-pbm?', '; did you mean uniform?', '')
    """
    asked = name.lower()
    containing = sorted(one for one in known if len(asked) > 2 and asked in one.lower())
    alike = containing[:3] or get_close_matches(asked, known)
    return f"; did you mean {' or '.join(alike)}?" if alike else ""


def defaults_of(maker: Callable[..., Any]) -> dict[str, Any]:
    """The settings of a maker, with their defaults."""
    return {name: parameter.default for name, parameter in inspect.signature(maker).parameters.items()}


def sentence_of(maker: Callable[..., Any]) -> str:
    """What it makes: the first line of its docstring."""
    return (inspect.getdoc(maker) or "").partition("\n")[0]
