"""A log: which files, in which layout, and what of it is wanted. Looking at the head of a file is all it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from .reading.file_format import Head, Paths, find_files, look_at, with_names
from .reading.frames import as_table, look_at_table, name_of
from .reading.layouts import LAYOUTS, NAMES, Layout, TableLayout, TextLayout, detect

__all__ = ["Log", "read"]


@dataclass(frozen=True)
class Log:
    """A click log, on disk or in memory, with the filters it is to be read through; only its head has been read yet."""

    heads: tuple[Head, ...]
    layout: str  # its name
    top_items: int | None = None
    positions: int | None = None
    queries: tuple[str, ...] = ()
    skip_bad: bool = False
    clip: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The files."""
        return tuple(str(head.path) for head in self.heads)

    @property
    def origin(self) -> str:
        """Where it comes from, in words."""
        first = self.heads[0].path.name
        return first if len(self.heads) == 1 else f"{first} and {len(self.heads) - 1} more"

    @property
    def form(self) -> Layout:
        """The layout itself."""
        return LAYOUTS[self.layout]

    @property
    def columns(self) -> dict[str, str]:
        """Which column plays which role; nothing for logs that are not tables."""
        return self.form.columns(self.heads[0]) if isinstance(self.form, TableLayout) else {}

    @property
    def has_propensities(self) -> bool:
        """Whether the log says how likely each item was to be where it was shown."""
        return "propensity" in self.columns

    @property
    def has_pages(self) -> bool:
        """Whether events group the rows into result pages."""
        return isinstance(self.form, TextLayout) or "event" in self.columns

    def rows(self, connection: Any) -> Any:
        """The rows that the filters keep, checked, as a DuckDB relation.

        Columns: event, query, item (text), position (whole, as in the file), click (0 or 1), propensity (NULL where
        there is none) and timestamp.
        """
        return self.checked(connection)[0]

    def checked(self, connection: Any, progress: bool | None = False) -> tuple[Any, tuple[str, ...]]:
        """The rows, as :meth:`rows` gives them, and in sentences what was skipped or changed to get them."""
        if not isinstance(self.form, TableLayout) or self.layout == "counts":
            raise ValueError(
                f"{self.origin} is in the format {self.layout}, which has no row for every result with the probability "
                "of showing it there: fit a model to it instead, and play rankings and policies in its world"
            )
        from .reading.duckdb_counts import checked_rows

        return checked_rows(self, connection, progress)

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
) -> Log:
    """Look at a click log: a file, several, a pattern or a folder of parts, in a layout that is found or named.

    A table in memory is a log too: a data frame, columns by name, records. It is not copied: what is changed in it
    before the log is counted may be counted. Where columns have names of their own, ``columns`` says which is which:
    ``{"item": "product", "click": "clicked"}``.

    Of the log, ``query`` keeps one query or several, ``positions`` then cuts pages to their first positions, and
    ``top_items`` then keeps the pages made only of the most frequent items of what is left; where rows do not form
    pages, it keeps the rows of these items. ``skip_bad`` leaves out bad lines and counts them, and ``clip`` takes
    more clicks than impressions for as many.

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
    heads = (look_at_table(table),) if table is not None else tuple(look_at(file) for file in find_files(path))
    if columns:
        heads = tuple(with_names(head, columns, NAMES) for head in heads)
    layouts = {detect(head, format).name: head.path for head in heads}
    if len(layouts) > 1:
        said = ", ".join(f"{name} like {file}" for name, file in layouts.items())
        raise ValueError(f"the files of a log must be in one format, and these are in several: {said}")
    _check_alike(heads, LAYOUTS[next(iter(layouts))])
    for head in heads:
        _check_columns(head, LAYOUTS[next(iter(layouts))])
    several = query if isinstance(query, Iterable) and not isinstance(query, str) else (query,)
    queries = () if query is None else tuple(map(name_of, several))
    if query is not None and not queries:
        raise ValueError("query names no query; leave it out to keep all of them")
    return Log(heads, next(iter(layouts)), top_items, positions, queries, skip_bad, clip)


def _at_least_one(name: str, value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or value < 1):
        raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}")
    return None if value is None else int(value)


def _check_alike(heads: Sequence[Head], layout: Layout) -> None:
    """Refuse tables that differ in kind or in columns: they would have to be read one by one."""
    if not isinstance(layout, TableLayout):
        return
    first = heads[0]
    for head in heads[1:]:
        same = layout.columns(head) == layout.columns(first) if head.kind == "ndjson" else head.columns == first.columns
        if head.kind != first.kind or not same:
            raise ValueError(f"the files of a log must have the same columns; {first.path} and {head.path} do not")


def _check_columns(head: Head, layout: Layout) -> None:
    """Refuse columns that are there twice, or in the name of a folder such as query=tea and not in the file."""
    if not isinstance(layout, TableLayout):
        return
    for chosen in layout.columns(head).values():
        same = [name for name in head.columns if name.lower() == chosen.lower()]
        if len(same) > 1:
            raise ValueError(
                f"{head.path} has the columns {' and '.join(same)}, where one is expected; rename the others"
            )
    lacking = {name for role, names in layout.roles.items() if role not in layout.columns(head) for name in names}
    for folder in head.path.parts[:-1]:
        name, equals, _ = folder.partition("=")
        if equals and name.lower() in lacking:
            raise ValueError(
                f"{head.path} has no column {name}, and the folder {folder} is not read as one; "
                "write the column into the files"
            )
