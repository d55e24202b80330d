"""Loading models from JSON files; :meth:`Model.save` writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels import Floats, Ints
from ...worlds.fitted import VERSION, expand_parameters, models_in, read_document
from .click_model import ClickModel
from .model import Components, Model, Models
from .perplexity import ModelArrays
from .uncertainty import Spread, typical_errors


def load_model(path: str | Path) -> Model | Models | ClickModel:
    """Return the model or models in a file written by ``save``, or in one of {query: {"attr": ..., "exam": ...}}.

    Raises ValueError if the file is not a fitted model, or has another version of the format.
    """
    document = read_document(path)
    if document.get("version", VERSION) != VERSION:
        raise ValueError(f"{path} has version {document['version']!r} of the format; this program reads {VERSION}")
    try:
        if document.get("model", "pbm") != "pbm":
            return ClickModel.from_document(document)
        models = models_in(document)
        return _model(document) if models is None else _models(models)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a fitted model: it has no usable {error}") from error


def _models(documents: Mapping[str, Any]) -> Models:
    models = {str(query): _model({**expand_parameters(one), "name": query}) for query, one in documents.items()}
    positions = tuple(sorted({position for model in models.values() for position in model.positions}))
    curves, components = np.full((len(models), len(positions)), np.nan), np.full((len(models), len(positions)), -1)
    for curve, component, model in zip(curves, components, models.values()):
        columns = [positions.index(position) for position in model.positions]
        curve[columns], component[columns] = model.examination, model.components.positions
    arrays = ModelArrays(
        tuple(item for model in models.values() for item in model.items),
        tuple(query for query, model in models.items() for _ in model.items),
        positions,
        np.concatenate([model.attraction for model in models.values()]),
        np.repeat(np.arange(len(models)), [len(model.items) for model in models.values()]),
        curves,
        np.concatenate([model.components.items for model in models.values()]),
        components,
    )
    names = ("log_likelihood", "iterations", "converged", "identified")
    totals = {name: [getattr(model, name) for model in models.values()] for name in names}
    totals["error"] = [typical_errors(model.position_spread.error, model.examination) for model in models.values()]
    return Models(models.__getitem__, arrays, totals, tuple(models))


def _model(document: Mapping[str, Any]) -> Model:
    """One model; if a file has parameters only, the model counts as converged and identified."""
    n, m = len(document["item"]), len(document["positions"])
    name = str(document.get("name", ""))
    return Model(
        items=tuple(document["item"]),
        queries=tuple(query or name for query in document["query"]),
        positions=tuple(document["positions"]),
        attraction=_floats(document["attraction"]),
        examination=_floats(document["examination"]),
        log_likelihood=_float(document.get("log_likelihood")),
        iterations=int(document.get("iterations", 0)),
        converged=bool(document.get("converged", True)),
        identified=bool(document.get("identified", True)),
        components=Components(_ints(document, "item_component", n), _ints(document, "position_component", m)),
        warnings=tuple(document.get("warnings", ())),
        method=str(document.get("method", "")),
        prior=float(document.get("prior", 0.0)),
        origin=str(document.get("origin", "")),
        item_spread=_spread(document, "attraction", n),
        position_spread=_spread(document, "examination", m),
        item_counts=np.array([_ints(document, f"item_{word}", n) for word in ("impressions", "clicks")]),
        position_counts=np.array([_ints(document, f"position_{word}", m) for word in ("impressions", "clicks")]),
    )


def _spread(document: Mapping[str, Any], name: str, size: int) -> Spread:
    return Spread(*(_floats(document.get(f"{name}_{part}", [None] * size)) for part in Spread._fields))


def _ints(document: Mapping[str, Any], name: str, size: int) -> Ints:
    return np.array(document.get(name, [0] * size), dtype=np.int64)


def _floats(values: Any) -> Floats:
    return np.array(values, dtype=np.float64)


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)
