"""Click logs: :func:`read` scans one into a database, and a :class:`Log` counts it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import whole
from ..extras import import_extra
from .counts import Counts
from .pages import Pages
from .reading.database import Database, interrupts, literal, quoted, run
from .reading.layouts import COLUMN_NAMES, common_layout, has_column_names
from .reading.memory import as_table, inspect_table, label_text
from .reading.ray import read_on_ray
from .reading.session_text import odd_pages, read_text
from .reading.sources import Paths, Source, column_list, find_files, inspect_file, rename_columns
from .reading.tables import Filters, Reading, file_columns, keep, read_table, sentences

ENGINES = ("duckdb", "ray")
NEEDS_PAGES = "a model of clicks that depend on each other needs whole pages"
WINDOWS = ("day", "week")
CLICK_BITS, ITEM_BITS = 1, 40  # a result is one number: position, item and click


@dataclass(frozen=True, eq=False)
class Log:
    """A click log that has been read: the table ``rows`` of a database; :func:`read` makes one.

    The table has the columns query, item, position and click; event, propensity and timestamp, if the log has them; and
    all other columns of the file.
    """

    database: Database = field(repr=False)
    layout: str
    origin: str  # the name of the log in messages: its first file, and how many more there are
    columns: Mapping[str, str]  # names of columns in the file -> in the table
    has_pages: bool
    has_propensities: bool
    notes: tuple[str, ...]  # sentences about rows that were left out or changed while reading
    number: str = "1"  # SQL for how many equal rows a row stands for
    time: str | None = None  # SQL for the time in seconds since 1970, NULL where the timestamp does not have one
    where: str = "true"  # SQL condition on rows
    query_columns: tuple[str, ...] = ()  # of the file, if the query is several columns
    progress: bool | None = False

    @property
    def items(self) -> tuple[str, ...]:
        """The names of items, numbers first."""
        return self._counted.items

    @property
    def queries(self) -> tuple[str, ...]:
        """The names of queries, numbers first."""
        return self._counted.queries

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions, numbered as in the log, in increasing order."""
        return self._counted.positions

    @cached_property
    def n_pages(self) -> int | None:
        """The number of result pages; None if the log has no pages."""
        if not self.has_pages:
            return None
        page = f"SELECT any_value({self.number}) AS number FROM rows WHERE {self.where} GROUP BY event, query"
        return int(self._run(f"SELECT coalesce(sum(number), 0)::BIGINT FROM ({page})")[0][0])

    @cached_property
    def has_times(self) -> bool:
        """Whether every row has a time: a date, or a number of seconds since 1970."""
        if self.time is None:
            return False
        ((rows, timed),) = self._run(f"SELECT count(*), count({self.time}) FROM rows WHERE {self.where}")
        return bool(rows == timed > 0)

    def n_windows(self, windows: str) -> int:
        """Return the number of days or weeks of the log; ``windows`` is "day" or "week"."""
        return int(self._run(f"SELECT count(DISTINCT {self._window(windows)}) FROM rows WHERE {self.where}")[0][0])

    @cached_property
    def _counted(self) -> Counts:
        return self._count(None)

    def counts(self, windows: str | None = None) -> Counts:
        """Return impressions and clicks per (query, item, position), and per day or week if ``windows`` says so."""
        return self._counted if windows is None else self._count(windows)

    def _count(self, windows: str | None) -> Counts:
        window = f", {self._window(windows)} AS label" if windows else ""
        self._run(
            f"CREATE OR REPLACE TEMP TABLE summed AS SELECT query, item, position{window}, "
            f"sum({self.number})::BIGINT AS shown, sum({self.number} * click)::BIGINT AS clicked "
            f"FROM rows WHERE {self.where} GROUP BY ALL"
        )
        names = self._labels("summed")
        found = self._arrays(
            f"SELECT q.code AS query, i.code AS item, position, {'label, ' if windows else ''}shown, clicked "
            "FROM summed JOIN codes_query q USING (query) JOIN codes_item i USING (item) ORDER BY ALL"
        )
        labels, window_codes = np.unique(found["label"].to_numpy(), return_inverse=True) if windows else ((), None)
        return Counts(
            **names,
            **{name: found[name].to_numpy() for name in ("query", "item", "shown", "clicked")},
            position=np.searchsorted(names["positions"], found["position"].to_numpy()),
            origin=self.origin,
            pages=self.n_pages,
            notes=self.notes,
            windows=tuple(map(str, labels)),
            window=window_codes,
        )

    def pages(self, windows: str | None = None, propensities: bool = False, by: Sequence[str] = ()) -> Pages:
        """Return the different pages of the log, and how often each occurred, in an order that only they determine.

        Pages are different if anything that is asked for differs: the window of their first time, a ``"day"`` or
        ``"week"``; the propensities of their results; or the values of the columns ``by`` of the file. A log without
        pages has pages of one result.
        """
        names, size = self._labels(f"(SELECT * FROM rows WHERE {self.where})"), ITEM_BITS
        result = f"(position << {size}) | (i.code << {CLICK_BITS}) | click"
        keys = {"label": f"min({self._window(windows)})"} if windows else {}
        keys |= {f"by_{k}": f"min({self._column(name)}::VARCHAR)" for k, name in enumerate(by)}
        if propensities:
            propensity = "propensity" if self.has_propensities else "NULL::DOUBLE"
            result = f"struct_pack(result := {result}, propensity := {propensity})"
        page = "event" if self.has_pages else "rows.rowid"
        selected = ", ".join(["q.code AS query", *(f"{value} AS {name}" for name, value in keys.items())])
        self._run(
            f"CREATE OR REPLACE TEMP TABLE different AS SELECT query, {''.join(f'{name}, ' for name in keys)}results, "
            f"sum(number)::BIGINT AS number FROM (SELECT {selected}, list_sort(list({result})) AS results, "
            f"any_value({self.number}) AS number FROM rows JOIN codes_item i USING (item) JOIN codes_query q USING "
            f"(query) WHERE {self.where} GROUP BY {page}, q.code) GROUP BY ALL ORDER BY ALL",
            "counting pages",
        )
        found = self._arrays("FROM different")
        self._run("DROP TABLE different")
        lists = found["results"].combine_chunks()
        flat = lists.flatten()
        packed = (flat.field("result") if propensities else flat).to_numpy()
        labels, window = np.unique(found["label"].to_numpy(), return_inverse=True) if windows else ((), None)
        return Pages(
            **names,
            query=found["query"].to_numpy(),
            starts=np.concatenate([[0], np.cumsum(lists.value_lengths().to_numpy(), dtype=np.int64)]),
            item=((packed >> CLICK_BITS) & ((1 << (size - CLICK_BITS)) - 1)).astype(np.int32),
            position=np.searchsorted(names["positions"], packed >> size).astype(np.int16),
            click=(packed & 1).astype(np.uint8),
            count=found["number"].to_numpy(),
            origin=self.origin,
            notes=self.notes,
            windows=tuple(map(str, labels)),
            window=window,
            propensity=flat.field("propensity").to_numpy(zero_copy_only=False) if propensities else None,
            by={name: found[f"by_{k}"].to_numpy() for k, name in enumerate(by)},
        )

    def rows(self, columns: str) -> Any:
        """Return columns of all rows, in the order of the log, as an Arrow table."""
        return self._arrays(f"SELECT {columns} FROM rows WHERE {self.where} ORDER BY rowid")

    def since(self, date: Any) -> Log:
        """Return the log of the rows at or after a date, such as "2026-01-31". Raises ValueError if none are left."""
        if not self.has_times:
            raise ValueError(f"{self.origin} has no times; a column timestamp must have a date in every row")
        try:
            ((start,),) = self._run(f"SELECT epoch({literal(str(date))}::TIMESTAMPTZ)")
        except ValueError as error:
            raise ValueError(f"since must be a date, such as 2026-01-31; got {date!r}") from error
        later = replace(self, where=f"{self.where} AND {self.time} >= {start!r}")
        if not self._run(f"SELECT count(*) FROM rows WHERE {later.where}")[0][0]:
            raise ValueError(f"nothing is left of {self.origin}: it has no rows since {date}")
        return later

    def _run(self, sql: str, title: str = "") -> list[Any]:
        return run(self.database.connection, sql, title, self.progress)

    def _arrays(self, sql: str) -> Any:
        """The columns of a result, as an Arrow table."""
        with interrupts():
            # The only way to read Arrow that all supported releases of DuckDB share.
            stream = self.database.connection.sql(sql)
            return import_extra("pyarrow").RecordBatchReader.from_stream(stream).read_all()

    def _labels(self, table: str) -> dict[str, Any]:
        """The sorted labels of a table, numbers by value and then text; their indices go into tables of codes."""
        labels: dict[str, Any] = {}
        for name, plural, order in (
            ("query", "queries", "try_cast(query AS HUGEINT) NULLS LAST, query"),
            ("item", "items", "try_cast(item AS HUGEINT) NULLS LAST, item"),
            ("position", "positions", "position"),
        ):
            self._run(
                f"CREATE OR REPLACE TEMP TABLE codes_{name} AS SELECT {name}, row_number() OVER (ORDER BY {order}) - 1 "
                f"AS code FROM (SELECT DISTINCT {name} FROM {table})"
            )
            labels[plural] = tuple(label for (label,) in self._run(f"SELECT {name} FROM codes_{name} ORDER BY code"))
        return labels

    def _window(self, windows: str) -> str:
        """SQL for the first day of the day or week of a row."""
        if windows not in WINDOWS:
            raise ValueError(f"windows must be None, 'day' or 'week'; got {windows!r}")
        if not self.has_times:
            raise ValueError(f"{self.origin} has no times; a column timestamp must have a date in every row")
        return f"date_trunc('{windows}', make_timestamp(({self.time} * 1000000)::BIGINT))::DATE::VARCHAR"

    def _column(self, name: str) -> str:
        """SQL for a column, by its name in the file or its role."""
        known = {column.lower(): stored for column, stored in self.columns.items()}
        if name.lower() not in known:
            raise ValueError(f"{self.origin} has no column {name!r}; it has {', '.join(self.columns)}")
        return quoted(known[name.lower()])

    def __repr__(self) -> str:
        return f"<Log {self.origin!r}: {self.layout}>"


def read(
    path: Paths | Any,
    format: str | None = None,
    *,
    columns: Mapping[str, Any] | None = None,
    query: str | float | Iterable[str | float] | None = None,
    positions: int | None = None,
    top_items: int | None = None,
    skip_bad: bool = False,
    clip: bool = False,
    engine: str = "duckdb",
    progress: bool | None = None,
) -> Log:
    """Read a click log, once, into a database in memory that spills to disk.

    Parameters
    ----------
    path
        A file, several, a pattern or a folder of parts; or a table in memory: a data frame, columns by name, records.
    format
        The layout, which is detected if it is not given.
    columns
        The names of columns that differ from those of the layout: ``{"item": "product", "click": "clicked"}``. Several
        columns are the query together with ``{"query": "country,page"}`` or a list: a query is then ``"DE,3"``.
    query, positions, top_items
        Filters, applied in this order: keep one query or several; cut pages to their first positions; keep pages made
        only of the most frequent remaining items (or rows of these items, if rows do not form pages). If ``query`` has
        names of columns, ``"country,page"``, these are the query together; a single one, if there is no column query.
    skip_bad
        Leave out bad rows and count them, instead of raising an error.
    clip
        Count as many clicks as impressions where there are more clicks, instead of raising an error.
    engine
        ``"duckdb"``, or ``"ray"``: every task reads a file on a Ray cluster and returns its different pages. The log
        then has neither propensities nor times.
    progress
        Whether to show a progress bar on standard error; if it is None, one is shown on a terminal.

    Raises ValueError if there is no file, if files differ in their format, if the format cannot be detected, for bad
    rows, and if nothing is left.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "log.csv"
    ...     _ = path.write_text("event,position,item,click\\n1,1,tea,0\\n1,2,milk,1\\n2,1,tea,1\\n")
    ...     log = read(path)
    >>> log.layout, log.has_pages, log.has_propensities, log.n_pages
    ('tidy', True, False, 2)
    >>> counts = log.counts()
    >>> counts.items, counts.shown.tolist(), counts.clicked.tolist()
    (('milk', 'tea'), [1, 2], [1, 1])
    >>> read({"rank": [1, 2], "item": ["tea", "milk"], "click": [0, 1]}, columns={"position": "rank"})
    <Log 'the table': tidy>
    """
    if engine not in ENGINES:
        raise ValueError(f"there is no engine {engine!r}; there are {' and '.join(ENGINES)}")
    table = as_table(path)
    sources = (inspect_table(table),) if table is not None else tuple(inspect_file(file) for file in find_files(path))
    if _are_columns(query, columns, sources[0]):
        columns, query = {**(columns or {}), "query": query}, None
    filters = Filters(
        _queries(query),
        None if positions is None else whole(positions, "positions", 1),
        None if top_items is None else whole(top_items, "top_items", 1),
        skip_bad,
        clip,
    )
    if columns:
        sources = tuple(rename_columns(source, columns, COLUMN_NAMES) for source in sources)
    layout = common_layout(sources, format)
    database = Database()
    log = Reading(database.connection, sources, layout, filters, progress)
    found = (read_on_ray if engine == "ray" else read_text if layout.is_text else read_table)(log)
    names = log.columns
    has_pages, weighted = layout.is_text or "event" in names, engine == "ray" or layout.name == "counts"
    number = "number" if weighted else "1"
    keep(log, has_pages, number)
    if layout.is_text and engine != "ray":
        found = odd_pages(log) + found
    origin = sources[0].path.name if len(sources) == 1 else f"{sources[0].path.name} and {len(sources) - 1} more"
    if not log.run("SELECT count(*) FROM (FROM rows LIMIT 1)")[0][0]:
        raise ValueError(_nothing_left(origin, filters))
    kinds = {name: kind for name, kind, *_ in log.run("DESCRIBE rows")}
    others = [name for name in dict.fromkeys(n for s in sources for n in s.columns) if name not in names.values()]
    stored = dict(zip(others, file_columns(others))) | {name: role for role, name in names.items()}
    stored = {role: role for role in names} | stored
    return Log(
        database=database,
        layout=layout.name,
        origin=origin,
        columns={name: column for name, column in stored.items() if column in kinds},
        has_pages=has_pages,
        has_propensities="propensity" in kinds,
        notes=sentences(log, found, number),
        number=number,
        time=_time(kinds.get("timestamp")),
        query_columns=sources[0].joined,
        progress=progress,
    )


def as_counts(log: Any) -> Counts:
    """Return counts of a log, its path or a table in memory; of pages; or as they are."""
    if isinstance(log, Counts):
        return log
    return (log if isinstance(log, (Log, Pages)) else read(log)).counts()


def as_pages(log: Any) -> Pages:
    """Return the pages of a log, its path or a table in memory; or pages as they are.

    Raises ValueError for a log whose rows do not form pages.
    """
    if isinstance(log, Pages):
        return log
    if isinstance(log, Counts):
        raise ValueError(f"{NEEDS_PAGES}; these are counts per item and position")
    given = log if isinstance(log, Log) else read(log)
    if not given.has_pages:
        why = (
            "has no column event" if given.layout == "tidy" else f"is in the format {given.layout}, which has no pages"
        )
        raise ValueError(f"{NEEDS_PAGES}, and {given.origin} {why}")
    return given.pages()


def _time(kind: str | None) -> str | None:
    """SQL for the time of a row in seconds, by the type of its timestamp."""
    if kind is None:
        return None
    if kind.startswith(("TIMESTAMP", "DATE")):
        return "epoch(timestamp)"
    if kind == "VARCHAR":
        return "coalesce(try_cast(timestamp AS DOUBLE), epoch(try_cast(timestamp AS TIMESTAMPTZ)))"
    return "try_cast(timestamp AS DOUBLE)"


def _are_columns(query: Any, columns: Any, source: Source) -> bool:
    """Whether a query names columns of a file, and not a query to keep."""
    if not isinstance(query, str) or not has_column_names(source) or "query" in (columns or {}):
        return False
    names = column_list(query)
    has_query = "query" in map(str.lower, source.columns)
    return set(names) <= set(source.columns) and (len(names) > 1 or not has_query)


def _queries(query: Any) -> tuple[str, ...]:
    several = query if isinstance(query, Iterable) and not isinstance(query, str) else (query,)
    queries = () if query is None else tuple(map(label_text, several))
    if query is not None and not queries:
        raise ValueError("query is empty; leave it out to keep all queries")
    return queries


def _nothing_left(origin: str, filters: Filters) -> str:
    if filters.queries:
        queries = literal(filters.queries)[1:-1]
        return f"nothing is left of {origin}: there is no query {queries}, or the filters remove all its pages"
    skipped = ", or all of them were skipped" if filters.skip_bad else ""
    return f"nothing is left of {origin}: it has no rows, or its filters remove them all{skipped}"
