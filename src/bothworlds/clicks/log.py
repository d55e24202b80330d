"""Click logs: :func:`read` inspects one, :class:`Log` describes it, :func:`counts` counts it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

from .counts import Counts
from .pages import Pages
from .reading.duckdb_counts import count_table, selected_rows
from .reading.duckdb_pages import count_table_pages
from .reading.duckdb_relations import connect
from .reading.file_format import LogSource, Paths, find_files, inspect_file, rename_columns
from .reading.frames import as_count_tables, as_table, inspect_table, label_text
from .reading.layouts import COLUMN_NAMES, LAYOUTS, Layout, TableLayout, TextLayout, detect
from .reading.log_spec import LogSpec
from .reading.ray_counts import count_on_ray, count_pages_on_ray
from .reading.text_counts import count_text, count_text_pages

ENGINES = ("duckdb", "ray")
NEEDS_PAGES = "a model of clicks that depend on each other needs whole pages"


@dataclass(frozen=True)
class Log(LogSpec):
    """A click log, on disk or in memory, with its filters. Only the first bytes of its files have been read.

    :func:`read` makes one.
    """

    engine: str = "duckdb"
    progress: bool | None = None

    @cached_property
    def _counted(self) -> Counts:
        return counts(self, engine=self.engine, progress=self.progress)

    @property
    def items(self) -> tuple[str, ...]:
        """The names of items, numbers first."""
        return self._counted.items

    @property
    def n_pages(self) -> int | None:
        """The number of result pages; None if the log has no pages."""
        return self._counted.pages

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about rows that were left out or changed while reading."""
        return self._counted.notes

    def counts(self) -> Counts:
        """Return impressions and clicks per (query, item, position)."""
        return self._counted

    def pages(self, by: Sequence[str] = ()) -> Pages:
        """Return the different pages of the log, and how often each occurred."""
        return count_pages(self, engine=self.engine, progress=self.progress)

    def rows(self, connection: Any) -> Any:
        """Return the rows that pass the checks and the filters, as a relation of the DuckDB ``connection``.

        Columns: event, query, item (text), position (integer, as in the file), click (0 or 1), propensity (NULL if
        missing) and timestamp. Raises ValueError for bad rows, unless the log was read with ``skip_bad``, and for a
        log that has no rows with one result each.
        """
        return self.checked(connection)[0]

    def checked(self, connection: Any, progress: bool | None = False) -> tuple[Any, tuple[str, ...]]:
        """Return the relation of :meth:`rows`, and notes on the rows that were skipped or changed."""
        if not isinstance(self.form, TableLayout) or self.layout == "counts":
            raise ValueError(
                f"{self.origin} is in the format {self.layout}, which has no row with a propensity for every result: "
                "fit a model to it instead, and evaluate rankings and policies in its world"
            )
        return selected_rows(self, connection, progress)

    def __repr__(self) -> str:
        return f"<Log {self.origin!r}: {self.layout}>"


def read(
    path: Paths | Any,
    format: str | None = None,
    *,
    top_items: int | None = None,
    positions: int | None = None,
    query: str | float | Iterable[str | float] | None = None,
    skip_bad: bool = False,
    clip: bool = False,
    columns: Mapping[str, str] | None = None,
    engine: str = "duckdb",
    progress: bool | None = None,
) -> Log:
    """Inspect a click log and return a description of it, without reading more than the first bytes of its files.

    Parameters
    ----------
    path
        A file, several, a pattern or a folder of parts; or a table in memory: a data frame, columns by name, records.
        A table is not copied, so that later changes to it may be counted.
    format
        The layout, which is detected if it is not given.
    query, positions, top_items
        Filters, applied in this order: keep one query or several; cut pages to their first positions; keep pages made
        only of the most frequent remaining items (or rows of these items, if rows do not form pages).
    skip_bad
        Leave out bad rows and count them, instead of raising an error.
    clip
        Count as many clicks as impressions where there are more clicks, instead of raising an error.
    columns
        The names of columns that differ from those of the layout: ``{"item": "product", "click": "clicked"}``.

    Raises ValueError if there is no file, if files differ in their format, or if the format cannot be detected.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "log.csv"
    ...     _ = path.write_text("event,position,item,click\\n1,1,tea,0\\n1,2,milk,1\\n")
    ...     log = read(path)
    >>> log.layout, log.has_pages, log.has_propensities
    ('tidy', True, False)
    >>> read({"rank": [1, 2], "item": ["tea", "milk"], "click": [0, 1]}, columns={"position": "rank"})
    <Log 'the table': tidy>
    """
    top_items, positions = _at_least_one("top_items", top_items), _at_least_one("positions", positions)
    table = as_table(path)
    sources = (inspect_table(table),) if table is not None else tuple(inspect_file(file) for file in find_files(path))
    if columns:
        sources = tuple(rename_columns(source, columns, COLUMN_NAMES) for source in sources)
    layouts = {detect(source, format).name: source.path for source in sources}
    if len(layouts) > 1:
        listed = ", ".join(f"{name} like {file}" for name, file in layouts.items())
        raise ValueError(f"the files of a log must have the same format, and these have several: {listed}")
    layout = next(iter(layouts))
    _check_alike(sources, LAYOUTS[layout])
    for source in sources:
        _check_columns(source, LAYOUTS[layout])
    several = query if isinstance(query, Iterable) and not isinstance(query, str) else (query,)
    queries = () if query is None else tuple(map(label_text, several))
    if query is not None and not queries:
        raise ValueError("query is empty; leave it out to keep all queries")
    return Log(sources, layout, top_items, positions, queries, skip_bad, clip, engine, progress)


def as_counts(log: Any) -> Counts:
    """Return counts of a log, its path or a table in memory; of pages; or counts as they are."""
    return log.counts() if isinstance(log, Pages) else counts(log)


def as_pages(log: Any) -> Pages:
    """Return the pages of a log, its path or a table in memory; or pages as they are."""
    return count_pages(log)


def counts(
    log: Any,
    *,
    engine: str = "duckdb",
    progress: bool | None = None,
    format: str | None = None,
    top_items: int | None = None,
    positions: int | None = None,
    query: str | float | Iterable[str | float] | None = None,
    skip_bad: bool = False,
    clip: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Counts:
    """Count the impressions and clicks of a log per (query, item, position).

    ``log`` is a :class:`Log`, or a path or table that :func:`read` accepts, together with the options of :func:`read`.
    Counts are returned as they are, and a pair of tables (shown, clicked) of shape (n_items, n_positions) becomes
    counts; neither takes options.

    Memory is bounded for any size of the log. ``engine="ray"`` distributes the work over the machines of a Ray cluster
    and returns the same counts. ``progress`` is whether to show a progress bar on standard error; if it is None, one is
    shown on a terminal.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "log.csv"
    ...     _ = path.write_text("event,position,item,click\\n1,1,tea,0\\n1,2,milk,1\\n2,1,tea,1\\n")
    ...     counted = counts(path)
    >>> counted.items, counted.shown.tolist(), counted.clicked.tolist(), counted.pages
    (('milk', 'tea'), [1, 2], [1, 1], 2)
    """
    _check_engine(engine)
    options: dict[str, Any] = {
        "format": format,
        "top_items": top_items,
        "positions": positions,
        "query": query,
        "skip_bad": skip_bad,
        "clip": clip,
        "columns": columns,
    }
    pair = as_count_tables(log)
    given = [name for name, value in options.items() if value is not None and value is not False]
    if given and (pair is not None or isinstance(log, (Counts, Log))):
        raise ValueError(f"{given[0]} is an option for reading a log, and this one has been read already")
    if isinstance(log, Counts):
        return log
    if pair is not None:
        return Counts.from_tables(pair.shown, pair.clicked, items=pair.items, positions=pair.positions)
    if not isinstance(log, Log):
        log = read(log, **options)
    with connect() as connection:
        if engine == "ray":
            return count_on_ray(connection, log, progress)
        if isinstance(log.form, TextLayout):
            return count_text(connection, log, progress)
        return count_table(connection, log, progress)


def count_pages(
    log: Any,
    *,
    engine: str = "duckdb",
    progress: bool | None = None,
    format: str | None = None,
    top_items: int | None = None,
    positions: int | None = None,
    query: str | float | Iterable[str | float] | None = None,
    skip_bad: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Pages:
    """Count the different result pages of a log: lists of items with their clicks.

    ``log`` and the options are those of :func:`counts`; page counts are returned as they are. Memory grows with the
    number of different pages. ``engine="ray"`` returns the same pages. Raises ValueError for a log whose rows do not
    form pages.

    >>> table = {"event": [1, 1, 2, 2], "position": [1, 2, 1, 2], "item": ["a", "b", "a", "b"], "click": [0, 1, 0, 1]}
    >>> count_pages(table)
    <Pages: 2 items at 2 positions, 2 pages, 1 of them different>
    """
    _check_engine(engine)
    options: dict[str, Any] = {
        "format": format,
        "top_items": top_items,
        "positions": positions,
        "query": query,
        "skip_bad": skip_bad,
        "columns": columns,
    }
    given = [name for name, value in options.items() if value is not None and value is not False]
    if given and isinstance(log, (Pages, Log)):
        raise ValueError(f"{given[0]} is an option for reading a log, and this one has been read already")
    if isinstance(log, Pages):
        return log
    if isinstance(log, Counts) or as_count_tables(log) is not None:
        raise ValueError(f"{NEEDS_PAGES}; these are counts per item and position")
    if not isinstance(log, Log):
        log = read(log, **options)
    if not log.has_pages:
        why = "has no column event" if log.layout == "tidy" else f"is in the format {log.layout}, which has no pages"
        raise ValueError(f"{NEEDS_PAGES}, and {log.origin} {why}")
    with connect() as connection:
        if engine == "ray":
            return count_pages_on_ray(connection, log, progress)
        count = count_text_pages if isinstance(log.form, TextLayout) else count_table_pages
        return count(connection, log, progress)


def _check_engine(engine: str) -> None:
    if engine not in ENGINES:
        raise ValueError(f"there is no engine {engine!r}; there are {' and '.join(ENGINES)}")


def _at_least_one(name: str, value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or value < 1):
        raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}")
    return None if value is None else int(value)


def _check_alike(sources: Sequence[LogSource], layout: Layout) -> None:
    """Raise ValueError if tables differ in kind or columns: DuckDB reads them in one statement."""
    if not isinstance(layout, TableLayout):
        return
    first = sources[0]
    for source in sources[1:]:
        if source.kind == "ndjson":
            same = layout.columns(source) == layout.columns(first)
        else:
            same = source.columns == first.columns
        if source.kind != first.kind or not same:
            raise ValueError(f"the files of a log must have the same columns; {first.path} and {source.path} do not")


def _check_columns(source: LogSource, layout: Layout) -> None:
    """Raise ValueError for duplicate columns, and for a column that only the name of a folder has (query=tea)."""
    if not isinstance(layout, TableLayout):
        return
    for chosen in layout.columns(source).values():
        same = [name for name in source.columns if name.lower() == chosen.lower()]
        if len(same) > 1:
            raise ValueError(
                f"{source.path} has the columns {' and '.join(same)}, where one is expected; rename the others"
            )
    lacking = {name for role, names in layout.roles.items() if role not in layout.columns(source) for name in names}
    for folder in source.path.parts[:-1]:
        name, equals, _ = folder.partition("=")
        if equals and name.lower() in lacking:
            raise ValueError(
                f"{source.path} has no column {name}, and the folder {folder} is not read as one; "
                "write the column into the files"
            )
