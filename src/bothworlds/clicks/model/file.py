"""Models in files: JSON that other programs can read, one column for every quantity."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import save_text
from ...worlds.fitted import models_in, plain, read

if TYPE_CHECKING:
    from .model import Model, Models

__all__ = ["document_of", "load_model", "write_document"]

FORMAT = "bothworlds position-based model"
VERSION = 1


def document_of(model: Model) -> dict[str, Any]:
    """A model as plain lists; None stands for what is not known."""
    numbers = {
        "positions": model.positions,
        "examination": model.examination,
        **_spread("examination", model.position_spread),
        "position_component": model.components.positions,
        "position_impressions": model.position_counts[0],
        "position_clicks": model.position_counts[1],
        "query": model.queries,
        "item": model.items,
        "attraction": model.attraction,
        **_spread("attraction", model.item_spread),
        "item_component": model.components.items,
        "item_impressions": model.item_counts[0],
        "item_clicks": model.item_counts[1],
    }
    plainly = ("method", "prior", "origin", "iterations", "converged", "identified", "warnings")
    return {
        **{name: getattr(model, name) for name in plainly},
        "log_likelihood": _known(model.log_likelihood),
        **{name: [_known(value) for value in np.asarray(column).tolist()] for name, column in numbers.items()},
    }


def write_document(document: Mapping[str, Any], path: str | Path) -> Path:
    """Write JSON: either the whole new file or what was there before."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_text(path, json.dumps({"format": FORMAT, "version": VERSION, **document}, allow_nan=False) + "\n")
    return path


def load_model(path: str | Path) -> Model | Models:
    """The model or models in a file that ``save`` has written; also files of {query: {"attr": ..., "exam": ...}}."""
    document = read(path)
    if document.get("version", VERSION) != VERSION:
        raise ValueError(f"{path} has version {document['version']!r} of the format; this program reads {VERSION}")
    try:
        models = models_in(document)
        return _model(document) if models is None else _models(models)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a fitted model: it has no usable {error}") from error


def _models(documents: Mapping[str, Any]) -> Models:
    from ..fitting.warnings import typical_errors
    from .model import Models
    from .perplexity import Flat

    found = {str(query): _model({**plain(one), "name": query}) for query, one in documents.items()}
    positions = tuple(sorted({position for model in found.values() for position in model.positions}))
    curves, parts = np.full((len(found), len(positions)), np.nan), np.full((len(found), len(positions)), -1)
    for curve, part, model in zip(curves, parts, found.values()):
        places = [positions.index(position) for position in model.positions]
        curve[places], part[places] = model.examination, model.components.positions
    flat = Flat(
        tuple(item for model in found.values() for item in model.items),
        tuple(query for query, model in found.items() for _ in model.items),
        positions,
        np.concatenate([model.attraction for model in found.values()]),
        np.repeat(np.arange(len(found)), [len(model.items) for model in found.values()]),
        curves,
        np.concatenate([model.components.items for model in found.values()]),
        parts,
    )
    names = ("log_likelihood", "iterations", "converged", "identified")
    totals = {name: [getattr(model, name) for model in found.values()] for name in names}
    totals["error"] = [typical_errors(model.position_spread.error, model.examination) for model in found.values()]
    return Models(found.__getitem__, flat, totals, tuple(found))


def _model(document: Mapping[str, Any]) -> Model:
    """Files of others have parameters only: they count as converged and identified."""
    from .model import Components, Model

    n, m = len(document["item"]), len(document["positions"])
    name = str(document.get("name", ""))
    return Model(
        items=tuple(document["item"]),
        queries=tuple(query or name for query in document["query"]),
        positions=tuple(document["positions"]),
        attraction=_numbers(document["attraction"]),
        examination=_numbers(document["examination"]),
        log_likelihood=_number(document.get("log_likelihood")),
        iterations=int(document.get("iterations", 0)),
        converged=bool(document.get("converged", True)),
        identified=bool(document.get("identified", True)),
        components=Components(_whole(document, "item_component", n), _whole(document, "position_component", m)),
        warnings=tuple(document.get("warnings", ())),
        method=str(document.get("method", "")),
        prior=float(document.get("prior", 0.0)),
        origin=str(document.get("origin", "")),
        item_spread=_spread_of(document, "attraction", n),
        position_spread=_spread_of(document, "examination", m),
        item_counts=np.array([_whole(document, f"item_{word}", n) for word in ("impressions", "clicks")]),
        position_counts=np.array([_whole(document, f"position_{word}", m) for word in ("impressions", "clicks")]),
    )


def _spread(name: str, spread: Any) -> dict[str, Any]:
    return {f"{name}_{part}": getattr(spread, part) for part in spread._fields}


def _spread_of(document: Mapping[str, Any], name: str, size: int) -> Any:
    from ..fitting.intervals import Spread

    return Spread(*(_numbers(document.get(f"{name}_{part}", [None] * size)) for part in Spread._fields))


def _whole(document: Mapping[str, Any], name: str, size: int) -> Any:
    return np.array(document.get(name, [0] * size), dtype=np.int64)


def _numbers(values: Any) -> Any:
    return np.array(values, dtype=np.float64)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
