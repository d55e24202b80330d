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
from .base import Matrix, Stochastic, World
from .browsing_world import Browsing
from .chain_world import cascade, click_chain, dependent_clicks, dynamic_bayesian
from .list_world import ListWorld

FORMAT = "bothworlds position-based model"
CLICK_MODEL = "bothworlds click model"
VERSION = 1


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
    return document


def write_document(document: Mapping[str, Any], path: str | Path) -> Path:
    """Write a model as JSON and return the path. The file is replaced as a whole or, on an error, left unchanged."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = CLICK_MODEL if "model" in document else FORMAT
    save_text(path, json.dumps({"format": kind, "version": VERSION, **document}, allow_nan=False) + "\n")
    return path


def from_document(document: Mapping[str, Any], query: str | None = None) -> World:
    """The users of one query of a model. Items and positions that were never shown (None) are left out.

    >>> model = {"identified": True, "positions": [1, 2], "examination": [1.0, 0.5], "query": ["", "", ""],
    ...          "item": ["a", "b", "c"], "attraction": [0.5, 0.2, None]}
    >>> from_document(model)
    <Stochastic 'fitted': 2 items, 2 positions>
    """
    if document.get("model", "pbm") != "pbm":
        return users_of_click_model(document, query)
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


def users_of_click_model(document: Mapping[str, Any], query: str | None = None) -> World:
    """The users of one query of a click model other than the position-based one.

    Items and positions with unknown parameters (None) are left out. Models in which a click depends on other clicks
    are worlds that answer a whole list; there, the positions of the log are the first positions of a page. Raises
    ValueError if the model is not identified, or lacks a parameter that users of any list would need.

    >>> rates = {"model": "item-ctr", "identified": True, "positions": [1], "query": ["", ""], "item": ["a", "b"],
    ...          "item_parameters": {"rate": {"value": [0.5, 0.2]}}, "shared_parameters": {}}
    >>> users_of_click_model(rates)
    <Matrix 'fitted': 2 items, 1 positions>
    >>> first = {"model": "cascade", "identified": True, "positions": [1], "query": ["", ""], "item": ["a", "b"],
    ...          "item_parameters": {"attraction": {"value": [0.5, 0.2]}}, "shared_parameters": {}}
    >>> users_of_click_model(first)
    <Chain 'fitted': 2 items, 1 positions>
    """
    if not document["identified"]:
        raise ValueError("the model is not identified, so it does not define a world")
    chosen = _select_query(list(dict.fromkeys(document["query"])), query)
    own = np.array([name == chosen for name in document["query"]])
    items = {name: _values(one)[own] for name, one in document["item_parameters"].items()}
    shared = {name: _values(one) for name, one in document["shared_parameters"].items()}
    m = len(document["positions"])
    if document["model"] in ("trust", "rank-ctr", "item-ctr"):
        world: World = _table(document["model"], items, shared, int(own.sum()), m)
    else:
        world = _list_world(document["model"], items, shared, m)
    world.name = f"fitted({chosen})" if chosen else "fitted"
    return world


def _values(parameter: Mapping[str, Any]) -> NDArray[np.float64]:
    return np.array(parameter["value"], dtype=np.float64)


Parameters = Mapping[str, NDArray[np.float64]]  # values by name


def _table(model: str, items: Parameters, shared: Parameters, n: int, m: int) -> Matrix:
    """The users of a model in which clicks at different positions are independent."""
    if model == "trust":
        table = np.outer(items["attraction"], shared["slope"]) + shared["offset"]
    elif model == "rank-ctr":
        table = np.tile(shared["rate"], (n, 1))
    else:
        table = np.tile(items["rate"][:, None], (1, m))
    table = table[~np.isnan(table).all(axis=1)]
    table = table[:, ~np.isnan(table).any(axis=0)] if table.size else table
    _check_enough_items(*table.shape)
    # The fit bounds all probabilities, up to rounding.
    return Matrix(np.clip(table, 0.0, 1.0))


def _list_world(model: str, items: Parameters, shared: Parameters, m: int) -> ListWorld:
    """The users of a model in which a click depends on the clicks above it.

    An item is left out if its attraction is not known, or if it has been clicked and its satisfaction is not known.
    The satisfaction of an item that is never clicked has no effect, and neither has continuation after the last
    position.
    """
    alpha = items["attraction"]
    satisfaction = np.where(alpha == 0.0, 0.0, items.get("satisfaction", np.zeros(alpha.size)))
    known = ~(np.isnan(alpha) | np.isnan(satisfaction))
    alpha, satisfaction = alpha[known], satisfaction[known]
    _check_enough_items(alpha.size, m)
    if model == "ubm":
        gamma = shared["examination"]
        for column in np.flatnonzero(np.isnan(gamma)).tolist():
            rank, last = [(k, last) for k in range(1, m + 1) for last in range(k)][column]
            after = f"after a click at {last}" if last else "without a click above"
            raise ValueError(
                f"the log does not determine the examination of position {rank} {after}; fit with fewer --positions"
            )
        top = max(float(gamma.max()), 1.0)  # only products are determined, and they are probabilities
        return Browsing(np.minimum(alpha * top, 1.0), np.clip(gamma / top, 0.0, 1.0))
    if model == "cascade":
        return cascade(alpha, m)
    for name, values in shared.items():
        used = values[: m - 1] if model == "dcm" else values
        if np.isnan(used).any():
            where = f" after position {int(np.isnan(used).argmax()) + 1}" if model == "dcm" else ""
            raise ValueError(f"the log does not determine {name}{where}; fit with fewer --positions")
    if model == "dcm":
        return dependent_clicks(alpha, np.nan_to_num(shared["continuation"], nan=0.0))
    if model == "sdbn":
        return dynamic_bayesian(alpha, satisfaction, 1.0, m)
    if model == "dbn":
        return dynamic_bayesian(alpha, satisfaction, float(shared["gamma"][0]), m)
    if model == "ccm":
        return click_chain(alpha, [float(shared[f"tau {k}"][0]) for k in (1, 2, 3)], m)
    raise ValueError(f"there is no world for the click model {model!r}")


def _check_enough_items(n: int, m: int) -> None:
    if m > n:
        raise ValueError(
            f"there are {n} items for {m} positions, and a world needs at least one item for "
            f"each position; fit with --positions {max(n, 1)}"
        )


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
    _check_enough_items(alpha.size, beta.size)
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
