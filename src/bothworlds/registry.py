"""Construction by name and settings, for policies and worlds."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

T = TypeVar("T")


def make(kind: str, known: Mapping[str, Callable[..., T]], name: str, settings: dict[str, Any]) -> T:
    """Return what is registered under a name, with these settings; raises ValueError for an unknown name or setting.

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


def parsed_name(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``name:setting=value,...``; values are Python literals. Raises ValueError if they cannot be parsed.

    >>> parsed_name("ftrl-pbm:rate=0.3"), parsed_name("uniform")
    (('ftrl-pbm', {'rate': 0.3}), ('uniform', {}))
    """
    name, _, rest = text.partition(":")
    advice = f"cannot read the settings in {text!r}; write them like {name}:setting=0.5,other=3,list=[0,1,2]"
    try:
        call = ast.parse(f"dict({rest})", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError(advice)
        settings = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        if len(settings) < len(call.keywords) or any(keyword.arg is None for keyword in call.keywords):
            raise ValueError(advice)
    except (SyntaxError, ValueError) as error:
        raise ValueError(advice) from error
    return name, settings


def _suggestion(name: str, known: Collection[str]) -> str:
    """Return a suggestion for an unknown name: names that contain it, otherwise names with a similar spelling."""
    wanted = name.lower()
    containing = sorted(word for word in known if len(wanted) > 2 and wanted in word.lower())
    similar = containing[:3] or get_close_matches(wanted, known)
    return f"; did you mean {' or '.join(similar)}?" if similar else ""


def defaults_of(maker: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters of a class or function, with their defaults."""
    return {name: parameter.default for name, parameter in inspect.signature(maker).parameters.items()}


def sentence_of(maker: Callable[..., Any]) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(maker) or "").partition("\n")[0]
