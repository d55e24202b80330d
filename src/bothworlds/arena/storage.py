"""Results on disk: one row for every policy, world, replication and checkpoint, and how they were made."""

from __future__ import annotations

import csv
import json
import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .. import __version__
from .result import COLUMNS, Result

__all__ = ["commit", "load_results", "provenance", "save_results"]


def save_results(results: Sequence[Result], path: str | Path) -> Path:
    """Write results as Parquet or CSV, chosen by the ending of the name; provenance goes along.

    Parquet carries it as metadata under ``bothworlds``; CSV has it as JSON in a file of the same name beside it.
    """
    path = Path(path)
    if path.suffix not in (".parquet", ".csv"):
        raise ValueError(f"results are saved as .parquet or .csv; got {path.name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    how = json.dumps(provenance(results), indent=1, default=repr)
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for result in results:
                writer.writerows(result.rows())
        path.with_suffix(".json").write_text(how + "\n")
    else:
        _write_parquet(results, path, how)
    return path


def _write_parquet(results: Sequence[Result], path: Path, how: str) -> None:
    pyarrow = _pyarrow()
    columns = list(zip(*(row for result in results for row in result.rows())))
    table = pyarrow.table(dict(zip(COLUMNS, columns))).replace_schema_metadata({"bothworlds": how})
    pyarrow.parquet.write_table(table, path, compression="zstd")


def load_results(path: str | Path) -> list[Result]:
    """Results that were saved as Parquet. What a run cost is not kept with what it found: ``seconds`` is NaN.

    >>> import tempfile
    >>> from bothworlds.arena import play
    >>> result = play("uniform", "paper/stochastic", rounds=100, seeds=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load_results(save_results([result], Path(folder) / "results.parquet"))
    >>> bool((again[0].reward == result.reward).all())
    True
    """
    pyarrow = _pyarrow()
    table = pyarrow.parquet.read_table(path)
    plays = json.loads((table.schema.metadata or {}).get(b"bothworlds", b'{"plays": []}'))["plays"]
    columns = {name: table[name].to_numpy() for name in COLUMNS}
    results, start = [], 0
    for play in plays:
        end = start + play["replications"] * play["checkpoints"]
        part = {name: values[start:end].reshape(play["replications"], -1) for name, values in columns.items()}
        results.append(
            Result(
                policy=play["policy"],
                world=play["world"],
                settings=play["settings"],
                seed=play["seed"],
                rounds=part["round"][0],
                reward=part["reward"],
                clicks=part["clicks"],
                best_fixed=part["reward"][0] + part["regret_fixed"][0],
                best_dynamic=part["reward"][0] + part["regret_dynamic"][0],
                seconds=float("nan"),
                adaptive=play["adaptive"],
                first_change=play.get("first_change"),
            )
        )
        start = end
    if start != table.num_rows or not plays:
        raise ValueError(f"{path} does not hold results that were saved here: rows and plays do not match")
    return results


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("Parquet needs pyarrow: pip install 'bothworlds[parquet]', or save as .csv") from error
    return pyarrow


def provenance(results: Sequence[Result]) -> dict[str, Any]:
    """What somebody needs to make these results again: commit, versions, settings."""
    return {
        "commit": commit(),
        "versions": {
            "bothworlds": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in _PACKAGES},
        },
        "plays": [
            {
                "policy": result.policy,
                "settings": result.settings,
                "world": result.world,
                "seed": result.seed,
                "replications": int(result.reward.shape[0]),
                "rounds": int(result.rounds[-1]),
                "checkpoints": int(result.rounds.size),
                "adaptive": result.adaptive,
                "first_change": result.first_change,
            }
            for result in results
        ],
    }


_PACKAGES = ("numpy", "numba", "scipy")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def commit() -> str | None:
    """The commit of the checkout this code runs from, if it does, as it was when first asked for."""
    here = Path(__file__).parent
    if not (here.parents[2] / ".git").exists():
        return None  # installed, perhaps inside somebody else's checkout
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return described.stdout.strip() or None if described.returncode == 0 else None
