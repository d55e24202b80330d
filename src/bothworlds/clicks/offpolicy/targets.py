"""The targets of an evaluation: a ranking, one for every query, a table of them, marginals, or a policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...extras import import_extra
from ...kernels import Floats, Ints
from ..reading.database import Database, glob_pattern, literal, run
from ..reading.errors import plural
from ..reading.memory import as_table, label_text
from .logged import LoggedPages, Placements

READERS = {".csv": "read_csv({}, all_varchar = true, header = true)", ".parquet": "read_parquet({})"}
READERS |= dict.fromkeys((".ndjson", ".jsonl"), "read_ndjson({})")
MAX_NAMED = 5


class Mass(NamedTuple):
    """The probabilities x of items (-1: never shown in the log) at (query, position), which is sorted."""

    place: Ints  # query * (number of positions) + position
    item: Ints
    x: Floats


@dataclass(frozen=True, eq=False)
class Target:
    """A target. A policy has two parts, one for either half of the log, after training on the other half."""

    label: str
    parts: tuple[Mass, ...]
    lists: bool = True  # whether it is one list for every query
    has: NDArray[np.bool_] | None = None  # (Q,) the queries that have a ranking; the others keep theirs
    unknown: tuple[str, ...] = ()  # items that the log never shows
    notes: tuple[str, ...] = ()

    @property
    def halves(self) -> tuple[int | None, ...]:
        """The halves of the log that its parts are evaluated on; None is the whole log."""
        return (None,) if len(self.parts) == 1 else (0, 1)

    def placements(self, logged: LoggedPages, count: Ints, part: int) -> Placements:
        """Return what the target places on the pages of the log, or of one half of it, weighted by their share."""
        mass = self.parts[part % len(self.parts)]
        place, window, share = logged.traffic(count)
        start, stop = (np.searchsorted(mass.place, place, side) for side in ("left", "right"))
        size = stop - start
        of = np.repeat(np.arange(place.size), size)
        k = np.arange(of.size) - np.repeat(np.cumsum(size) - size, size) + start[of]
        query, position = np.divmod(place[of], logged.shape[2])
        page = query * logged.shape[3] + window[of]
        return Placements(
            np.zeros(of.size, np.int64), page, query, mass.item[k], position, window[of], share[of] * mass.x[k]
        )


def from_lists(given: Any, logged: LoggedPages, query_columns: Sequence[str] = ()) -> Target:
    """Return the target of a list of items for every query, a dictionary from query to list, or a table or its file.

    Queries that the log lacks are left out, and those that the target lacks keep their rankings, with notes.
    """
    named = isinstance(given, Mapping) and {str(key).lower() for key in given} >= {"position", "item"}
    if not (_is_list(given) or (isinstance(given, Mapping) and not named)):
        given = read_rankings(given, query_columns)
    queries, code = logged.pages.queries, {name: k for k, name in enumerate(logged.pages.items)}
    label, lists = "a ranking per query", dict[str, list[str]]()
    if not isinstance(given, Mapping):
        label, given = " > ".join(map(label_text, given)), dict.fromkeys(queries, given)
    for query, ranking in given.items():
        name = _query_name(query)
        if not _is_list(ranking):
            raise ValueError(f"the ranking of query {name!r} must be a list of items; got {ranking!r}")
        lists[name] = [label_text(item) for item in ranking]
        if len(set(lists[name])) < len(lists[name]):
            raise ValueError(f"query {name!r}: a ranking must not repeat an item; got {', '.join(lists[name])}")
    known = {query: names for query, names in lists.items() if query in set(queries)}
    if not known:
        raise ValueError(
            f"the log has none of the {plural(len(lists), 'query', 'queries')} of the target, such as {_some(lists)}; "
            f"its first queries are {_some(queries)}"
        )
    has, m = np.array([query in known for query in queries]), logged.shape[2]
    unknown = tuple(dict.fromkeys(name for names in known.values() for name in names if name not in code))
    if all(name in unknown for names in known.values() for name in names):
        raise ValueError(f"the log never shows an item of {', '.join(unknown)}; its first items are {_some(code)}")
    place, item = [], []
    for q in np.flatnonzero(has).tolist():
        names, needed = known[queries[q]], int(np.flatnonzero(logged.shown[q * m : q * m + m])[-1]) + 1
        if not needed <= len(names) <= m:  # every position of the query needs an item
            raise ValueError(
                f"query {queries[q]!r}: the ranking has {len(names)} items and the log {needed} positions; give one "
                "item per position, or read the log with fewer positions"
            )
        place += [q * m + j for j in range(len(names))]
        item += [code.get(name, -1) for name in names]
    notes = []
    if lacking := [query for query in lists if query not in known]:
        number = plural(len(lacking), "query", "queries")
        notes.append(f"{number} of the target, such as {_some(lacking)}, are not in the log, and are left out.")
    if not has.all():
        share, number = logged.of_query[~has].sum() / logged.total, plural(int((~has).sum()), "query", "queries")
        notes.append(
            f"{number} of the log with {share:.1%} of its pages have no ranking in the target, and keep their own."
        )
    part = Mass(np.array(place, np.int64), np.array(item, np.int64), np.ones(len(place)))
    return Target(label, (part,), True, has, unknown, tuple(notes))


def _is_list(given: Any) -> bool:
    """Whether something is a list of names, and not a table."""
    if isinstance(given, (list, tuple)):
        return not any(isinstance(one, Mapping) for one in given)
    return getattr(given, "ndim", 0) == 1 and getattr(given.dtype, "names", None) is None


def _query_name(query: Any) -> str:
    """The name of a query, which may be the values of several columns."""
    return ",".join(map(label_text, query)) if isinstance(query, tuple) else label_text(query)


def read_rankings(given: Any, query_columns: Sequence[str] = ()) -> dict[str, list[str]] | list[str]:
    """Return the rankings in a file or a table with the columns query, position, item; without a query, one ranking.

    The query may be several columns, ``query_columns``. Raises ValueError for what is no table, and with the file and
    row of a missing value, a position that is not a whole number, an item or a position that is there twice, or a
    position that is missing.
    """
    is_file = isinstance(given, Path) or (isinstance(given, str) and Path(given).suffix in READERS)
    table = _read_file(Path(given)) if is_file else as_table(given)
    if table is None:
        made = f"; bothworlds.policy({given!r}) makes a policy" if isinstance(given, str) else ""
        raise ValueError(
            "target must be a list of items, a dictionary from query to list, a table with the columns query, position "
            f"and item, or a policy; got {given!r}{made}"
        )
    origin = Path(given).name if is_file else "the table"
    columns = {name.lower(): table[name].to_pylist() for name in table.column_names}
    asked = ["query"] if "query" in columns else [name.lower() for name in query_columns]
    for name in (*asked, "position", "item"):
        if name not in columns:
            raise ValueError(f"{origin} has no column {name}; it needs {','.join(asked) or 'query'}, position, item")
    found: dict[str, dict[int, str]] = {}
    seen: dict[tuple[str, str, Any], int] = {}
    first = 2 if is_file and Path(given).suffix == ".csv" else 1
    parts = zip(*(columns[name] for name in asked)) if asked else [("",)] * len(table)
    for row, (part, position, item) in enumerate(zip(parts, columns["position"], columns["item"]), start=first):
        where = f"{origin}, row {row}"
        if item is None or not label_text(item) or part == (None,):
            raise ValueError(f"{where}: {'query' if part == (None,) else 'item'} is missing")
        query = _query_name(tuple("" if one is None else one for one in part))
        place, name = _position(position, where), label_text(item)
        for what, value in (("position", place), ("item", name)):
            if (before := seen.setdefault((query, what, value), row)) != row:
                raise ValueError(f"{where}: query {query!r} has {what} {value!r} twice (first in row {before})")
        found.setdefault(query, {})[place] = name
    if not found:
        raise ValueError(f"{origin} has no rows")
    for query, ranking in found.items():
        start, last = min(0 if 0 in ranking else 1, *ranking), max(ranking)
        if holes := [k for k in range(start, last) if k not in ranking]:
            row = seen[query, "position", last]
            raise ValueError(f"{origin}: query {query!r} has no position {holes[0]}, but position {last} (row {row})")
    lists = {query: [ranking[k] for k in sorted(ranking)] for query, ranking in found.items()}
    return lists if asked else lists[""]


def _read_file(path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    if path.suffix not in READERS:
        raise ValueError(f"{path} must end in {', '.join(READERS)}")
    connection = Database().connection
    source = READERS[path.suffix].format(literal(glob_pattern(str(path))))
    run(connection, f"CREATE TABLE target AS FROM {source}")
    return import_extra("pyarrow").RecordBatchReader.from_stream(connection.sql("FROM target")).read_all()


def _position(value: Any, where: str) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not (np.isfinite(number) and number == int(number) and number >= 0):
        raise ValueError(f"{where}: position must be a whole number; got {value!r}")
    return int(number)


def from_marginals(marginals: Mapping[Any, Any], logged: LoggedPages) -> Target:
    """Return the target of a random ranking, given the probabilities of every item at each of the log's positions."""
    if not isinstance(marginals, Mapping):
        raise ValueError(f"marginals must be a dictionary from item to probabilities; got {marginals!r}")
    m, code = logged.shape[2], {name: k for k, name in enumerate(logged.pages.items)}
    for name, row in marginals.items():
        try:
            x = np.asarray(row, np.float64)
        except (TypeError, ValueError):
            x = np.full(m, np.nan)
        if not (x.shape == (m,) and ((x >= 0.0) & (x <= 1.0)).all() and x.sum() <= 1.0 + 1e-6):
            raise ValueError(
                f"item {name!r} must have a probability for each of {m} positions, and at most 1 in all; got {row!r}"
            )
    every = np.array(list(marginals.values()), np.float64).reshape(-1, m)
    for position, one in zip(logged.pages.positions, every.sum(axis=0).tolist()):
        if abs(one - 1.0) > 1e-6:
            raise ValueError(f"marginals must add up to 1 at every position; at position {position} they are {one:.6g}")
    names = [label_text(name) for name in marginals]
    unknown = tuple(name for name, row in zip(names, every) if name not in code and row.any())
    part = mass_of(every, np.array([code.get(name, -1) for name in names]), logged.shape[0])
    return Target("marginals", (part,), False, None, unknown)


def mass_of(x: Floats, item: Ints, queries: int) -> Mass:
    """The marginals x (items, m) of one random ranking for every query."""
    every = np.broadcast_to(x, (queries, *x.shape))
    query, position, row = np.nonzero(every.transpose(0, 2, 1))
    return Mass(query * x.shape[-1] + position, item[row], every[query, row, position])


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(map(repr, listed[:MAX_NAMED])) + (", ..." if len(listed) > MAX_NAMED else "")
