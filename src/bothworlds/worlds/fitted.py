"""Worlds from fitted models, as they are written to files: {"positions": ..., "examination": ..., ...}."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .base import Stochastic

__all__ = ["from_document", "from_file", "models_in", "plain", "read", "warnings_in"]


def from_file(path: str | Path, query: str | None = None) -> Stochastic:
    """The users of a fitted model: the ``query`` of a file that ``bothworlds fit --out`` has written."""
    document = read(path)
    try:
        world = from_document(document, query)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    # Two files in one table must not look the same.
    world.name = world.name.replace("fitted", f"fitted {Path(path).stem}", 1)
    return world


def read(path: str | Path) -> dict[str, Any]:
    """A file of a fitted model as it stands."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a fitted model: {error}") from error
    if not isinstance(document, dict) or not document:
        raise ValueError(f"{path} is not a fitted model; bothworlds fit LOG --out {path} writes one")
    return document


def from_document(document: Mapping[str, Any], query: str | None = None) -> Stochastic:
    """The users of one query of a model. Items and positions that were never shown are left out.

    >>> model = {"identified": True, "positions": [1, 2], "examination": [1.0, 0.5], "query": ["", "", ""],
    ...          "item": ["a", "b", "c"], "attraction": [0.5, 0.2, None]}
    >>> from_document(model)
    <Stochastic 'fitted': 2 items, 2 positions>
    """
    models = models_in(document)
    if models is not None:
        name = _chosen(list(models), query)
        return from_document({**plain(models[name]), "name": name})
    missing = [key for key in ("examination", "attraction", "query") if key not in document]
    if missing:
        raise ValueError(f"this is not a fitted model: it has no {missing[0]!r}")
    if not document.get("identified", True):
        raise ValueError(
            "the model is not identified: its parts cannot be compared, and no world follows from them; "
            "fit a query or positions that hang together"
        )
    if len(document["query"]) != len(document["attraction"]):
        raise ValueError(
            f"this is not a fitted model: it has {len(document['attraction'])} attractions and "
            f"{len(document['query'])} queries, and needs one for each"
        )
    name = _chosen(list(dict.fromkeys(document["query"])), query)
    rows = np.array([asked == name for asked in document["query"]])
    alpha = np.array(document["attraction"], dtype=np.float64)[rows]
    beta = np.array(document["examination"], dtype=np.float64)
    alpha, beta = alpha[~np.isnan(alpha)], beta[~np.isnan(beta)]
    if beta.size > alpha.size:
        raise ValueError(
            f"there are {alpha.size} items for {beta.size} positions, and a world needs one for each; "
            f"fit with --positions {max(alpha.size, 1)}"
        )
    world = Stochastic(alpha, beta)
    said = document.get("name") or name
    world.name = f"fitted({said})" if said else "fitted"
    return world


def _chosen(names: list[str], query: str | None) -> str:
    some = ", ".join(repr(name) for name in names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
    if query is None and len(names) != 1:
        raise ValueError(f"the model has {len(names):,} queries; name one, as in model.json:query={names[0]}: {some}")
    if query is not None and str(query) not in names:
        raise ValueError(f"the model has no query {query!r}; there are {some}")
    return names[0] if query is None else str(query)


def models_in(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The models of a file by query, where it has several: ours, or those of {query: {"attr": ..., "exam": ...}}."""
    if "models" in document:
        return dict(document["models"])
    several = all(isinstance(one, Mapping) and {"attr", "exam"} <= set(one) for one in document.values())
    return document if several else None


def warnings_in(document: Mapping[str, Any], query: str | None = None) -> tuple[str, ...]:
    """What a file says against the model of a query, or against the only one.

    >>> warnings_in({"models": {"tea": {"warnings": ["This curve is noise."]}}}, "tea")
    ('This curve is noise.',)
    """
    models = models_in(document)
    chosen = document if models is None else models[_chosen(list(models), query)]
    return tuple(chosen.get("warnings", ()))


def plain(model: Mapping[str, Any]) -> dict[str, Any]:
    """One model of a file, also of those that list only "attr" and "exam"."""
    if "attr" not in model:
        return dict(model)
    top = max(model["exam"], default=0.0)
    if not top > 0.0:
        raise ValueError("this is not a fitted model: no position has an examination above 0")
    return {
        "positions": list(range(1, len(model["exam"]) + 1)),
        "examination": [value / top for value in model["exam"]],
        "query": [""] * len(model["attr"]),
        "item": [str(i) for i in range(len(model["attr"]))],
        "attraction": [min(value * top, 1.0) for value in model["attr"]],
    }
