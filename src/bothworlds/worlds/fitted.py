"""Worlds made from fitted click models, and the JSON file that a fitted model is saved in.

A file holds one model, ``{"positions": ..., "examination": ..., "query": ..., "item": ..., "attraction": ..., ...}``;
one model per query, ``{"models": {query: model}}``; a click model of another kind, with its name under ``"model"``; or
only parameters, ``{query: {"attr": ..., "exam": ...}}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import save_text
from .base import Matrix, Stochastic

__all__ = [
    "FORMAT",
    "VERSION",
    "expand_parameters",
    "from_document",
    "from_file",
    "from_parameters",
    "models_in",
    "read_document",
    "table_of_clicks",
    "warnings_in",
    "write_document",
]

FORMAT = "bothworlds position-based model"
CLICK_MODEL = "bothworlds click model"
VERSION = 1


def from_file(path: str | Path, query: str | None = None) -> Matrix:
    """The users of a fitted model: the ``query`` of a file written by ``bothworlds fit --out``."""
    document = read_document(path)
    try:
        world = from_document(document, query)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    # Worlds of two files must have different names in a table of results.
    world.name = world.name.replace("fitted", f"fitted {Path(path).stem}", 1)
    return world


def read_document(path: str | Path) -> dict[str, Any]:
    """Return the JSON object in the file of a fitted model; raise ValueError if there is none."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a fitted model: {error}") from error
    if not isinstance(document, dict) or not document:
        raise ValueError(f"{path} is not a fitted model; bothworlds fit LOG --out {path} writes one")
    return document


def write_document(document: Mapping[str, Any], path: str | Path) -> Path:
    """Write a model as JSON and return the path. The file is replaced as a whole or, on an error, left unchanged."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = CLICK_MODEL if "model" in document else FORMAT
    save_text(path, json.dumps({"format": kind, "version": VERSION, **document}, allow_nan=False) + "\n")
    return path


def from_document(document: Mapping[str, Any], query: str | None = None) -> Matrix:
    """The users of one query of a model. Items and positions that were never shown (None) are left out.

    >>> model = {"identified": True, "positions": [1, 2], "examination": [1.0, 0.5], "query": ["", "", ""],
    ...          "item": ["a", "b", "c"], "attraction": [0.5, 0.2, None]}
    >>> from_document(model)
    <Stochastic 'fitted': 2 items, 2 positions>
    """
    if document.get("model", "pbm") != "pbm":
        return table_of_clicks(document, query)
    models = models_in(document)
    if models is not None:
        name = _select_query(list(models), query)
        return from_document({**expand_parameters(models[name]), "name": name})
    missing = [key for key in ("examination", "attraction", "query") if key not in document]
    if missing:
        raise ValueError(f"this is not a fitted model: it has no {missing[0]!r}")
    return from_parameters(
        document["attraction"],
        document["examination"],
        document["query"],
        query,
        identified=document.get("identified", True),
        name=document.get("name"),
    )


def table_of_clicks(document: Mapping[str, Any], query: str | None = None) -> Matrix:
    """The users of one query of a click model in which clicks at different positions are independent.

    These are the affine position-based model (``trust``) and the click rates of positions or items. Items and positions
    with unknown parameters (None) are left out. Raises ValueError for models in which a click depends on other clicks.

    >>> rates = {"model": "item-ctr", "identified": True, "positions": [1], "query": ["", ""], "item": ["a", "b"],
    ...          "item_parameters": {"rate": {"value": [0.5, 0.2]}}, "shared_parameters": {}}
    >>> table_of_clicks(rates)
    <Matrix 'fitted': 2 items, 1 positions>
    """
    model = document["model"]
    if model not in ("trust", "rank-ctr", "item-ctr"):
        raise ValueError(
            f"in the click model {model} a click depends on the clicks above it, and a world gives every item a click "
            "probability at every position, independent of the rest of the list: fit pbm or trust to play in a log"
        )
    if not document["identified"]:
        raise ValueError("the model is not identified, so it does not define a world")
    chosen = _select_query(list(dict.fromkeys(document["query"])), query)
    own = np.array([name == chosen for name in document["query"]])
    m = len(document["positions"])

    def values(kind: str, name: str) -> NDArray[np.float64]:
        return np.array(document[kind][name]["value"], dtype=np.float64)

    if model == "trust":
        slope, offset = (values("shared_parameters", name) for name in ("slope", "offset"))
        table = np.outer(values("item_parameters", "attraction")[own], slope) + offset
    elif model == "rank-ctr":
        table = np.tile(values("shared_parameters", "rate"), (int(own.sum()), 1))
    else:
        table = np.tile(values("item_parameters", "rate")[own][:, None], (1, m))
    table = table[~np.isnan(table).all(axis=1)]
    table = table[:, ~np.isnan(table).any(axis=0)] if table.size else table
    if table.shape[1] > table.shape[0]:
        raise ValueError(
            f"there are {table.shape[0]} items for {table.shape[1]} positions, and a world needs at least one item for "
            f"each position; fit with --positions {max(table.shape[0], 1)}"
        )
    # The fit bounds all probabilities, up to rounding.
    world = Matrix(np.clip(table, 0.0, 1.0))
    world.name = f"fitted({chosen})" if chosen else "fitted"
    return world


def from_parameters(
    attraction: Sequence[float | None] | NDArray[np.float64],
    examination: Sequence[float | None] | NDArray[np.float64],
    queries: Sequence[str],
    query: str | None = None,
    *,
    identified: bool = True,
    name: str | None = None,
) -> Stochastic:
    """The users of one query of a model, from its numbers.

    ``attraction`` has an entry for each of ``queries``, and ``examination`` one for each position. Entries that are
    NaN or None, of items and positions that were never shown, are left out. ``query`` may be omitted if there is only
    one. The world is named after ``name``, or else after the query.

    >>> from_parameters([0.5, 0.2, float("nan")], [1.0, 0.5], ["", "", ""])
    <Stochastic 'fitted': 2 items, 2 positions>
    """
    if not identified:
        raise ValueError(
            "the model is not identified: its components cannot be compared, so it does not define a world; "
            "fit a query or positions that are connected"
        )
    if len(queries) != len(attraction):
        raise ValueError(
            f"this is not a fitted model: it has {len(attraction)} attractions and {len(queries)} queries, "
            "and needs one query for each attraction"
        )
    chosen = _select_query(list(dict.fromkeys(queries)), query)
    alpha, beta = (np.array(values, dtype=np.float64) for values in (attraction, examination))
    alpha = alpha[np.array([own == chosen for own in queries])]
    alpha, beta = alpha[~np.isnan(alpha)], beta[~np.isnan(beta)]
    if beta.size > alpha.size:
        raise ValueError(
            f"there are {alpha.size} items for {beta.size} positions, and a world needs at least one item for each "
            f"position; fit with --positions {max(alpha.size, 1)}"
        )
    world = Stochastic(alpha, beta)
    label = name or chosen
    world.name = f"fitted({label})" if label else "fitted"
    return world


def _select_query(names: list[str], query: str | None) -> str:
    """Return the requested query, or the only one; raise ValueError if it does not exist or is ambiguous."""
    some = ", ".join(repr(name) for name in names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
    if query is None and len(names) != 1:
        raise ValueError(f"the model has {len(names):,} queries; name one, as in model.json:query={names[0]}: {some}")
    if query is not None and str(query) not in names:
        raise ValueError(f"the model has no query {query!r}; there are {some}")
    return names[0] if query is None else str(query)


def models_in(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The models of a file by query, or None if the file holds a single model."""
    if "models" in document:
        return dict(document["models"])
    several = all(isinstance(one, Mapping) and {"attr", "exam"} <= set(one) for one in document.values())
    return document if several else None


def warnings_in(document: Mapping[str, Any], query: str | None = None) -> tuple[str, ...]:
    """The warnings that were saved with the model of a query, or with the only model.

    >>> warnings_in({"models": {"tea": {"warnings": ["This curve is noise."]}}}, "tea")
    ('This curve is noise.',)
    """
    models = models_in(document)
    chosen = document if models is None else models[_select_query(list(models), query)]
    return tuple(chosen.get("warnings", ()))


def expand_parameters(model: Mapping[str, Any]) -> dict[str, Any]:
    """One model of a file with all required keys, where only "attr" and "exam" may be given.

    Examination is scaled so that its largest value is 1; other models are returned as they are.
    """
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
