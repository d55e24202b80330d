"""Saved states of earlier releases, converted to the fields that states have now.

Arrays whose entries had numbers have become fields with names. A saved state is a dictionary from the path of a leaf,
as ``core.leaves`` gives it, to its array; the tables below list the paths that have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["with_current_fields"]

_EPOCHS = ("rounds", "length", "horizon")
_ALTERNATIVE = ("log_theta", "log_kappa", "log_shared", "head", "column", "gradient", "hessian", "variable", "system")

# Old path: new paths of its entries along the first axis; an entry without a path is dropped.
_SPLIT: dict[str, tuple[str, ...]] = {
    "epochs.clock": tuple(f"epochs.{name}" for name in _EPOCHS),
    "plan.clock": tuple(f"plan.{name}" for name in _EPOCHS),
    "leading.effort": ("leading.effort.steps", "leading.effort.most_steps", "leading.effort.sweeps"),
    "desk.prices": ("placement.price", "placement.distance"),
    "desk.sorted": ("placement.items", "placement.positions"),
    "basis": ("basis_shown", "basis_clicked"),
    "moves": ("proposed", "accepted"),
    "place": ("rounds", "current"),
    "sweeps": ("sweeps", "early_sweeps", "early"),
    "planner.effort": (
        "planner.effort.plans",
        "planner.effort.programmes",
        "",
        "planner.effort.pivots",
        "planner.effort.ended_by_rounding",
        "planner.effort.unsolved",
    ),
    "planner.lp.size": ("planner.lp.n_rows", "planner.lp.n_added"),
    "planner.lp.scale": ("planner.lp.largest_cost", "planner.lp.largest_bound"),
    "planner.rival.pair": tuple(f"planner.alternative.{name}" for name in ("weight", "rate", "curvature")),
    "planner.rival.force": ("planner.alternative.a_gradient", "planner.alternative.a_curvature"),
    **{
        f"planner.rival.{name}": (f"planner.alternative.{name}", f"planner.alternative.{name}_step")
        for name in ("b", "a", "slack", "lam")
    },
}
_RENAMED: dict[str, str] = {
    "tally": "sums",
    "topped": "last_on_top",
    "plan.found": "plan.n_lists",
    "planner.rival.step": "planner.alternative.solution",
    **{f"desk.{name}": f"placement.{name}" for name in ("cost", "labels", "potential", "links")},
    **{f"planner.rival.{name}": f"planner.alternative.{name}" for name in _ALTERNATIVE},
}
# Path of a leaf that was added: its value for a state in which every item has a row of its own and no sums are kept,
# from the value in an initial state.
_ADDED: dict[str, Callable[[Any], Any]] = {
    "leading.every": lambda fresh: fresh,
    "leading.sharing": lambda fresh: False,
    "leading.rows.item": lambda fresh: np.arange(len(fresh)),
    "leading.rows.place": lambda fresh: np.arange(len(fresh)),
    "leading.work.copies": np.ones_like,
    "leading.work.line_copies": np.zeros_like,
    "leading.work.least_mu": lambda fresh: fresh,
    "leading.urn.shared": np.zeros_like,
    "leading.urn.shared_from": np.zeros_like,
    "rows.item": lambda fresh: np.arange(len(fresh)),
    "rows.place": lambda fresh: np.arange(len(fresh)),
    "sampler.items": lambda fresh: fresh,
    "totals.kept": lambda fresh: False,
}
_ADDED |= {f"totals.{name}": lambda fresh: fresh for name in ("clicks", "impressions", "looks")}
_ADDED |= {f"complete.{name}": lambda fresh: fresh for name in ("own", "item", "place")}
# Likewise: the value is the number of items, which is the length of another leaf.
_N_ITEMS = {"leading.rows.own": "leading.rows.item", "leading.urn.n_rows": "leading.rows.item", "rows.own": "rows.item"}


def with_current_fields(saved: Mapping[str, NDArray[Any]], fresh: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the leaves of a saved state under their present paths.

    ``fresh`` are the leaves of an initial state of the same policy. Leaves that it has in the same shape are returned
    unchanged, and so are leaves with an unknown path, which the caller must reject.

    >>> with_current_fields({"epochs.clock": np.array([7.0, np.inf, 500.0])}, {"epochs.horizon": np.zeros(1)})
    {'epochs.rounds': array([7.]), 'epochs.length': array([inf]), 'epochs.horizon': array([500.])}
    """
    current: dict[str, NDArray[Any]] = {}
    for path, value in saved.items():
        if path in fresh and np.shape(fresh[path]) == value.shape:
            current[path] = value
        elif path in _SPLIT and len(value) == len(_SPLIT[path]):
            for new, entry in zip(_SPLIT[path], value):
                if new:
                    current[new] = entry.reshape(np.shape(fresh[new]) if new in fresh else np.shape(entry) or (1,))
        else:
            current[_RENAMED.get(path, path)] = value
    if "detector.blocks" not in current and np.size(fresh.get("detector.blocks", 0)) == 0:
        # Saved before there was a setting ``detect``, or without it: the detector has seen nothing.
        current |= {path: np.asarray(value) for path, value in fresh.items() if path.startswith("detector.")}
    return _with_added_leaves(current, fresh)


def _with_added_leaves(current: dict[str, NDArray[Any]], fresh: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the leaves with those that the state of a policy did not have in earlier releases."""
    added = {path: _ADDED[path](value) for path, value in fresh.items() if path in _ADDED}
    added |= {path: np.array([len(fresh[items])]) for path, items in _N_ITEMS.items() if items in fresh}
    return {path: np.asarray(value) for path, value in added.items()} | current
