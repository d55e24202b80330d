"""The targets of an evaluation: a ranking, one for every query, a table of them, marginals, or a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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


def from_ranking(ranking: Sequence[Any], logged: LoggedPages) -> Target:
    """Return the target that shows one list for every query, given as names in the order of the log's positions."""
    names = [label_text(name) for name in ranking]
    m = logged.shape[2]
    if len(names) != m:
        raise ValueError(
            f"the ranking has {len(names)} items and the log {m} positions; give one item per position, or read "
            "the log with fewer positions"
        )
    _check_once(names, "a ranking must not repeat an item")
    if not set(names) & set(logged.pages.items):
        raise ValueError(f"the log never shows an item of {', '.join(names)}; its first items are {_items(logged)}")
    return _from_lists(logged, dict.fromkeys(logged.pages.queries, names), " > ".join(names))


def from_rankings(rankings: Mapping[Any, Sequence[Any]], logged: LoggedPages) -> Target:
    """Return the target of a dictionary from query to list. Queries that the log lacks are left out, with a note."""
    lists: dict[str, list[str]] = {}
    for query, ranking in rankings.items():
        if isinstance(ranking, (str, bytes)) or not isinstance(ranking, (Sequence, np.ndarray)):
            raise ValueError(f"the ranking of query {_query_name(query)!r} must be a list of items; got {ranking!r}")
        name = _query_name(query)
        if name in lists:
            raise ValueError(f"query {name!r} has two rankings")
        lists[name] = [label_text(item) for item in ranking]
        _check_once(lists[name], f"query {name!r}: a ranking must not repeat an item")
    known = {query: names for query, names in lists.items() if query in set(logged.pages.queries)}
    if not known:
        raise ValueError(
            f"the log has none of the {plural(len(lists), 'query', 'queries')} of the target, such as "
            f"{_some(tuple(lists))}; its first queries are {_some(logged.pages.queries)}"
        )
    _check_lengths(known, logged)
    found = _from_lists(logged, known, "a ranking per query")
    notes = []
    if len(known) < len(lists):
        lacking = tuple(query for query in lists if query not in known)
        notes.append(
            f"{plural(len(lacking), 'query', 'queries')} of the target, such as {_some(lacking)}, are not in the log, "
            "and are left out."
        )
    if found.has is not None and not found.has.all():
        share = logged.of_query[~found.has].sum() / logged.total
        notes.append(
            f"{plural(int((~found.has).sum()), 'query', 'queries')} of the log with {share:.1%} of its pages have no "
            "ranking in the target, and keep their own."
        )
    return replace(found, notes=tuple(notes))


def _query_name(query: Any) -> str:
    """The name of a query, which may be the values of several columns."""
    return ",".join(map(label_text, query)) if isinstance(query, tuple) else label_text(query)


def _check_once(names: Sequence[str], message: str) -> None:
    if len(set(names)) < len(names):
        raise ValueError(f"{message}; got {', '.join(names)}")


def _check_lengths(lists: Mapping[str, Sequence[str]], logged: LoggedPages) -> None:
    """Every position of a query needs an item, and there are none beyond the positions of the log."""
    queries, positions = logged.pages.queries, logged.pages.positions
    shown = (logged.shown > 0.0).reshape(len(queries), -1)
    needed = {query: int(np.flatnonzero(row)[-1]) + 1 for query, row in zip(queries, shown) if row.any()}
    for query, names in lists.items():
        if not needed[query] <= len(names) <= len(positions):
            raise ValueError(
                f"query {query!r}: the ranking has {len(names)} items and the log {needed[query]} positions; give one "
                "item per position, or read the log with fewer positions"
            )


def _from_lists(logged: LoggedPages, lists: Mapping[str, Sequence[str]], label: str) -> Target:
    code = {name: k for k, name in enumerate(logged.pages.items)}
    has, m = np.zeros(logged.shape[0], bool), logged.shape[2]
    place, item = [], []
    for q, query in enumerate(logged.pages.queries):
        names = lists.get(query)
        has[q] = names is not None
        for j, name in enumerate(names or ()):
            place.append(q * m + j)
            item.append(code.get(name, -1))
    unknown = dict.fromkeys(name for names in lists.values() for name in names if name not in code)
    part = Mass(np.array(place, np.int64), np.array(item, np.int64), np.ones(len(place)))
    return Target(label, (part,), True, has, tuple(unknown))


def read_rankings(given: Any, query_columns: Sequence[str] = ()) -> dict[str, list[str]] | None:
    """Return the rankings in a file or a table with the columns position, item and, unless there is one list, query.

    The query may be several columns, ``query_columns``. The result has the key "" without a query. Returns None for
    what is no table. Raises ValueError with the file and row of a missing value, a position that is not a whole number,
    an item or a position that is there twice, or a position that is missing.
    """
    is_file = isinstance(given, Path) or (isinstance(given, str) and Path(given).suffix in READERS)
    table = _read_file(Path(given)) if is_file else as_table(given)
    if table is None:
        return None
    origin = Path(given).name if is_file else "the table"
    columns = {name.lower(): table[name].to_pylist() for name in table.column_names}
    for name in ("position", "item"):
        if name not in columns:
            raise ValueError(
                f"{origin} has no column {name}; a ranking per query has the columns query, position, item"
            )
    found: dict[str, dict[int, tuple[str, int]]] = {}
    first = 2 if is_file and Path(given).suffix == ".csv" else 1
    queries = columns.get("query", [""] * len(columns["item"]))
    if query_columns and "query" not in columns:
        if missing := [name for name in query_columns if name.lower() not in columns]:
            raise ValueError(f"{origin} has no column {missing[0]}; the query is {','.join(query_columns)}")
        parts = zip(*(columns[name.lower()] for name in query_columns))
        queries = [_query_name(tuple("" if part is None else part for part in row)) for row in parts]
    for row, (query, position, item) in enumerate(zip(queries, columns["position"], columns["item"]), start=first):
        where = f"{origin}, row {row}"
        if item is None or query is None or not label_text(item):
            raise ValueError(f"{where}: {'query' if query is None else 'item'} is missing")
        ranking = found.setdefault(label_text(query), {})
        place, name = _position(position, where), label_text(item)
        if place in ranking:
            raise ValueError(f"{where}: query {label_text(query)!r} has position {place} twice (first in row "
                             f"{ranking[place][1]})")  # fmt: skip
        if same := next((other for other, at in ranking.values() if other == name), None):
            at = next(at for other, at in ranking.values() if other == same)
            raise ValueError(f"{where}: query {label_text(query)!r} has item {name!r} twice (first in row {at})")
        ranking[place] = (name, row)
    if not found:
        raise ValueError(f"{origin} has no rows")
    return {query: _in_order(ranking, f"{origin}: query {query!r}") for query, ranking in found.items()}


def _read_file(path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    if path.suffix not in READERS:
        raise ValueError(f"{path} must end in {', '.join(READERS)}")
    connection = Database().connection
    source = READERS[path.suffix].format(literal(glob_pattern(str(path))))
    run(connection, f"CREATE TABLE target AS FROM {source}")
    from ...extras import import_extra

    return import_extra("pyarrow").RecordBatchReader.from_stream(connection.sql("FROM target")).read_all()


def _position(value: Any, where: str) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not (np.isfinite(number) and number == int(number) and number >= 0):
        raise ValueError(f"{where}: position must be a whole number; got {value!r}")
    return int(number)


def _in_order(ranking: dict[int, tuple[str, int]], where: str) -> list[str]:
    places = sorted(ranking)
    hole = next((k for k in range(places[0], places[-1]) if k not in ranking), None)
    if places[0] > 1:
        hole = 1
    if hole is not None:
        raise ValueError(f"{where} has no position {hole}, but position {places[-1]} (row {ranking[places[-1]][1]})")
    return [ranking[k][0] for k in places]


def from_marginals(marginals: Mapping[Any, Any], logged: LoggedPages) -> Target:
    """Return the target of a random ranking, given the probabilities of every item at each of the log's positions."""
    if not isinstance(marginals, Mapping):
        raise ValueError(f"marginals must be a dictionary from item to probabilities; got {marginals!r}")
    m, code = logged.shape[2], {name: k for k, name in enumerate(logged.pages.items)}
    rows = [(label_text(name), _probabilities(name, row, m)) for name, row in marginals.items()]
    total = sum((row for _, row in rows), np.zeros(m))
    for position, one in zip(logged.pages.positions, total.tolist()):
        if abs(one - 1.0) > 1e-6:
            raise ValueError(
                f"marginals must add up to 1 over the items of every position; at position {position} they add up to "
                f"{one:.6g}"
            )
    item = np.array([code.get(name, -1) for name, _ in rows])
    unknown = tuple(name for name, row in rows if name not in code and row.any())
    return Target(
        "marginals", (mass_of(np.array([row for _, row in rows]), item, logged.shape[0]),), False, None, unknown
    )


def mass_of(x: Floats, item: Ints, queries: int) -> Mass:
    """The marginals x (items, m) of one random ranking for every query, or (Q, items, m) of one for each."""
    every = np.broadcast_to(x, (queries, *x.shape[-2:]))
    query, position, row = np.nonzero(every.transpose(0, 2, 1))
    return Mass(query * x.shape[-1] + position, item[row], every[query, row, position])


def _probabilities(name: Any, row: Sequence[float], m: int) -> Floats:
    try:
        values = np.asarray(row, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the marginals of item {name!r} must be numbers; got {row!r}") from error
    if values.shape != (m,):
        raise ValueError(f"item {name!r} must have a probability for each of {m} positions; got shape {values.shape}")
    if not ((values >= 0.0) & (values <= 1.0)).all() or values.sum() > 1.0 + 1e-6:
        raise ValueError(
            f"item {name!r} must have probabilities that add up to at most 1 over positions; got {values.tolist()}"
        )
    return values


def _items(logged: LoggedPages) -> str:
    return _some(logged.pages.items)


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:MAX_NAMED])) + (", ..." if len(names) > MAX_NAMED else "")
