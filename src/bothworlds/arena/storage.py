"""Results as Parquet or CSV files: one row for every policy, world, replication and checkpoint, and provenance.

The same results give the same file, byte for byte. Processor times differ from run to run, so they are written to a
file of their own beside it: ``results.times.json`` for ``results.parquet``.
"""

from __future__ import annotations

import csv
import json
import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..extras import check_parquet
from .result import ATTACK_COLUMNS, AttackScores, Result

#: What is said of a result beside its rewards.
PLAYED = (
    *("policy", "policy_name", "settings", "world", "world_description"),
    *("comparators", "seed", "adaptive", "first_change"),
)


def save_results(results: Sequence[Result], path: str | Path) -> Path:
    """Write results as Parquet or CSV, chosen by the ending of the name, and return the path.

    Provenance (commit, versions, settings, descriptions of the worlds) is metadata of the Parquet file under the key
    ``bothworlds``; for a CSV file it is a JSON file of the same name. Processor times go to a file beside it. Missing
    folders are created. Raises ValueError for another ending, and ImportError for Parquet without pyarrow.
    """
    path = Path(path)
    if path.suffix not in (".parquet", ".csv"):
        raise ValueError(f"results are saved as .parquet or .csv; got {path.name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    how, columns = json.dumps(provenance(results), indent=1, default=repr), _columns(results)
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values()))
        path.with_suffix(".json").write_text(how + "\n")
    else:
        pyarrow = _pyarrow()
        table = pyarrow.table(columns).replace_schema_metadata({"bothworlds": how})
        pyarrow.parquet.write_table(table, path, compression="zstd")
    times = [{"policy": result.policy, "world": result.world, "seconds": result.seconds} for result in results]
    _times_path(path).write_text(json.dumps(times, indent=1) + "\n")
    return path


def _columns(results: Sequence[Result]) -> dict[str, list[Any]]:
    """Return the columns of all results, one after the other; those of attacks are only there if there is one."""
    every = [result.columns() for result in results]
    names = dict.fromkeys(name for columns in every for name in columns)
    nothing = [float("nan")]
    return {name: [x for own in every for x in own.get(name, nothing * len(own["round"]))] for name in names}


def _times_path(path: Path) -> Path:
    return path.with_suffix(".times.json")


def load(path: str | Path, *, policy: str | None = None, world: str | None = None, rounds: int | None = None) -> Result:
    """Read one result from a Parquet file.

    ``policy`` and ``world`` are names as in ``Result.policy`` and ``Result.world``, ``rounds`` is the length of the
    game; each selects among several results. Raises ValueError unless exactly one is left.

    >>> import tempfile
    >>> from bothworlds.arena import play
    >>> result = play("uniform", "paper/stochastic", rounds=100, replications=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load(save_results([result], Path(folder) / "results.parquet"))
    >>> again.build_world()
    <Stochastic 'paper/stochastic': 10 items, 5 positions>
    """
    results = load_results(path)
    selected = [
        result
        for result in results
        if policy in (None, result.policy)
        and world in (None, result.world)
        and rounds in (None, int(result.rounds[-1]))
    ]
    if len(selected) == 1:
        return selected[0]
    some = "; ".join(f"{r.policy} in {r.world}, {r.rounds[-1]} rounds" for r in (selected or results)[:5])
    raise ValueError(
        f"{len(selected)} of the {len(results)} results in {path} match; select one by policy, world and rounds, or "
        f"read all with load_results. There are {some}{', ...' if len(selected or results) > 5 else ''}"
    )


def load_results(path: str | Path) -> list[Result]:
    """Read all results of a Parquet file, in the order in which they were saved.

    ``seconds`` comes from the file of times beside it, and is NaN without one. Raises ValueError if ``save_results``
    did not write the file, and ImportError without pyarrow.
    """
    path = Path(path)
    pyarrow = _pyarrow()
    table = pyarrow.parquet.read_table(path)
    plays = json.loads((table.schema.metadata or {}).get(b"bothworlds", b'{"plays": []}'))["plays"]
    complete = plays and all(play.keys() >= {*PLAYED, "replications", "checkpoints"} for play in plays)
    if not complete or sum(play["replications"] * play["checkpoints"] for play in plays) != table.num_rows:
        raise ValueError(f"{path} was not written by save_results: its rows do not match its metadata")
    columns = {name: table[name].to_numpy() for name in table.column_names}
    results, start = [], 0
    for play, seconds in zip(plays, _read_times(path, plays)):
        end = start + play["replications"] * play["checkpoints"]
        part = {name: values[start:end].reshape(play["replications"], -1) for name, values in columns.items()}
        scores = [part[name] for name in ATTACK_COLUMNS if name in part]
        attacked = bool(scores) and not np.isnan(scores).any()
        results.append(
            Result(
                **{name: play[name] for name in PLAYED},
                rounds=part["round"][0],
                reward=part["reward"],
                clicks=part["clicks"],
                best_fixed=part["reward"][0] + part["regret_fixed"][0],
                best_dynamic=part["reward"][0] + part["regret_dynamic"][0],
                seconds=seconds,
                attack=AttackScores(part["round"][0], *scores) if attacked else None,
            )
        )
        start = end
    return results


def _read_times(path: Path, plays: Sequence[dict[str, Any]]) -> list[float]:
    """The seconds of every result; NaN where the file of times is missing or belongs to other results."""
    try:
        times = json.loads(_times_path(path).read_text())
        if [(time["policy"], time["world"]) for time in times] == [(play["policy"], play["world"]) for play in plays]:
            return [float(time["seconds"]) for time in times]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return [float("nan")] * len(plays)


def _pyarrow() -> Any:
    check_parquet()
    import pyarrow
    import pyarrow.parquet

    return pyarrow


def provenance(results: Sequence[Result]) -> dict[str, Any]:
    """Return what is needed to make these results again: commit, versions, settings, descriptions of the worlds."""
    return {
        "commit": commit(),
        "versions": {
            "bothworlds": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "numba", "scipy")},
        },
        "plays": [
            {name: getattr(result, name) for name in PLAYED}
            | {
                "replications": int(result.reward.shape[0]),
                "rounds": int(result.rounds[-1]),
                "checkpoints": int(result.rounds.size),
            }
            for result in results
        ],
    }


@cache
def commit() -> str | None:
    """Return the commit of the checkout this code runs from, or None outside one; cached after the first call."""
    here = Path(__file__).parent
    if not (here.parents[2] / ".git").exists():
        return None  # installed; the checkout around it may be of another project
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
