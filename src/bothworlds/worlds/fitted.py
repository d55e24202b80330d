"""Worlds made from fitted click models, and the JSON file that a fitted model is saved in.

A file holds one model, ``{"model": "pbm", "item": ..., "item_parameters": {"attraction": {"value": ...}}, ...}``; one
model per query, ``{"models": {query: model}}``; or only the parameters of position-based models, ``{query: {"attr":
..., "exam": ...}}``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import save_text
from .base import Matrix, Stochastic, World
from .click_world import world_of

FORMAT = "bothworlds click model"
VERSION = 1

Parameters = Mapping[str, NDArray[np.float64]]  # values by name


def from_file(path: str | Path, query: str | None = None) -> World:
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
    if document.get("version", VERSION) != VERSION:
        raise ValueError(f"{path} has version {document['version']!r} of the format; this program reads {VERSION}")
    return document


def write_document(document: Mapping[str, Any], path: str | Path) -> Path:
    """Write a model as JSON and return the path. The file is replaced as a whole or, on an error, left unchanged."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_text(path, json.dumps({"format": FORMAT, "version": VERSION, **document}, allow_nan=False) + "\n")
    return path


def models_in(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The models of a file by query, or None if the file holds a single model."""
    if "models" in document:
        return dict(document["models"])
    several = all(isinstance(model, Mapping) and {"attr", "exam"} <= set(model) for model in document.values())
    return {query: _position_based(query, model) for query, model in document.items()} if several else None


def _position_based(query: str, model: Mapping[str, Any]) -> dict[str, Any]:
    """The model of a file that has parameters only: it counts as identified. The largest examination becomes 1."""
    top, n = max(model["exam"], default=0.0), len(model["attr"])
    if not top > 0.0:
        raise ValueError("this is not a fitted model: no position has an examination above 0")
    positions = list(range(1, len(model["exam"]) + 1))
    return {
        "model": "pbm",
        "identified": True,
        "positions": positions,
        "query": [query] * n,
        "item": [str(i) for i in range(n)],
        "item_parameters": {"attraction": {"value": [min(value * top, 1.0) for value in model["attr"]]}},
        "shared_parameters": {
            "examination": {"of": list(map(str, positions)), "value": [value / top for value in model["exam"]]}
        },
    }


def select_model(document: Mapping[str, Any], query: str | None) -> Mapping[str, Any]:
    """The model of a query, or the only model."""
    models = models_in(document)
    return document if models is None else models[_select_query(list(models), query)]


def warnings_in(document: Mapping[str, Any], query: str | None = None) -> tuple[str, ...]:
    """The warnings that were saved with the model of a query, or with the only model.

    >>> warnings_in({"models": {"tea": {"warnings": ["This curve is noise."]}}}, "tea")
    ('This curve is noise.',)
    """
    return tuple(select_model(document, query).get("warnings", ()))


def from_document(document: Mapping[str, Any], query: str | None = None) -> World:
    """The users of one query of a model.

    Items and positions with unknown parameters (None) are left out. Models in which a click depends on other clicks
    are worlds that answer a whole list; there, the positions of the log are the first positions of a page. Raises
    ValueError if the model is not identified, or lacks a parameter that users of any list would need.

    >>> model = {"model": "pbm", "identified": True, "positions": [1, 2], "query": [""] * 3, "item": ["a", "b", "c"],
    ...          "item_parameters": {"attraction": {"value": [0.5, 0.2, None]}},
    ...          "shared_parameters": {"examination": {"value": [1.0, 0.5]}}}
    >>> from_document(model)
    <Stochastic 'fitted': 2 items, 2 positions>
    >>> from_document({**model, "model": "cascade", "shared_parameters": {}})
    <ClickWorld 'fitted': 2 items, 2 positions>
    """
    model = select_model(document, query)
    missing = [name for name in ("model", "item_parameters", "shared_parameters", "query") if name not in model]
    if missing:
        raise ValueError(f"this is not a fitted model: it has no {missing[0]!r}")
    if not model["identified"]:
        raise ValueError(
            "the model is not identified: some of its parameters cannot be compared, so it does not define a world; "
            "fit a query or positions that are connected"
        )
    chosen = _select_query(list(dict.fromkeys(model["query"])), query)
    own = np.array([name == chosen for name in model["query"]])
    items = {name: _values(given)[own] for name, given in model["item_parameters"].items()}
    shared = {name: _values(given) for name, given in model["shared_parameters"].items()}
    make = _independent if model["model"] in ("pbm", "trust", "rank-ctr", "item-ctr") else _dependent
    world = make(model["model"], items, shared, int(own.sum()), len(model["positions"]))
    world.name = f"fitted({chosen})" if chosen else "fitted"
    return world


def _values(parameter: Mapping[str, Any]) -> NDArray[np.float64]:
    return np.array(parameter["value"], dtype=np.float64)


def _independent(model: str, items: Parameters, shared: Parameters, n: int, m: int) -> World:
    """The users of a model in which clicks at different positions are independent."""
    if model == "pbm":
        alpha, beta = (part[~np.isnan(part)] for part in (items["attraction"], shared["examination"]))
        _check_enough_items(alpha.size, beta.size)
        return Stochastic(alpha, beta)
    from ..statistics.click_users import table_of, users_of  # imports the compiler

    table = table_of(users_of(model, items, shared, n, m))
    table = table[~np.isnan(table).all(axis=1)]
    table = table[:, ~np.isnan(table).any(axis=0)] if table.size else table
    _check_enough_items(*table.shape)
    return Matrix(table)


def _dependent(model: str, items: Parameters, shared: Parameters, n: int, m: int) -> World:
    """The users of a model in which a click depends on the clicks above it.

    An item is left out if its attraction is not known, or if it has been clicked and its satisfaction is not known.
    The satisfaction of an item that is never clicked has no effect, and neither has continuation after the last
    position.
    """
    alpha = items["attraction"]
    known = ~np.isnan(alpha)
    if "satisfaction" in items:
        satisfaction = np.where(alpha == 0.0, 0.0, items["satisfaction"])
        known &= ~np.isnan(satisfaction)
        items = {**items, "satisfaction": satisfaction}
    items = {name: values[known] for name, values in items.items()}
    _check_enough_items(int(known.sum()), m)
    if model == "dcm":
        shared = {"continuation": np.append(shared["continuation"][: m - 1], 0.0)}
    for name, values in shared.items():
        for k in np.flatnonzero(np.isnan(values)).tolist():
            raise ValueError(f"the log does not determine {_label(model, name, k)}; fit with fewer --positions")
    if model == "ubm":  # only products are determined, and they are probabilities
        top = max(float(shared["examination"].max()), 1.0)
        items = {"attraction": np.minimum(items["attraction"] * top, 1.0)}
        shared = {"examination": np.clip(shared["examination"] / top, 0.0, 1.0)}
    return world_of(model, items, shared, m)


def _label(model: str, name: str, k: int) -> str:
    if model == "dcm":
        return f"{name} after position {k + 1}"
    if model != "ubm":
        return name
    from ..statistics.click_users import ranks_of_column  # imports the compiler

    rank, last = ranks_of_column(k)
    return f"the {name} of position {rank} {f'after a click at {last}' if last else 'without a click above'}"


def _check_enough_items(n: int, m: int) -> None:
    if m > n:
        raise ValueError(
            f"there are {n} items for {m} positions, and a world needs at least one item for "
            f"each position; fit with --positions {max(n, 1)}"
        )


def _select_query(names: list[str], query: str | None) -> str:
    """Return the requested query, or the only one; raise ValueError if it does not exist or is ambiguous."""
    some = ", ".join(repr(name) for name in names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
    if query is None and len(names) != 1:
        raise ValueError(f"the model has {len(names):,} queries; name one, as in model.json:query={names[0]}: {some}")
    if query is not None and str(query) not in names:
        raise ValueError(f"the model has no query {query!r}; there are {some}")
    return names[0] if query is None else str(query)
