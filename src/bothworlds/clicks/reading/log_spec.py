"""What is to be read of a log: its files or table, their layout, and the filters."""

from __future__ import annotations

from dataclasses import dataclass

from .file_format import LogSource
from .layouts import LAYOUTS, Layout, TableLayout, TextLayout


@dataclass(frozen=True)
class LogSpec:
    """The files or the table of a log, their layout, and the filters; the readers of this package take it.

    :class:`bothworlds.clicks.Log` is the public class, which adds the methods that call the readers.
    """

    sources: tuple[LogSource, ...]
    layout: str  # the name of the layout
    top_items: int | None = None
    positions: int | None = None
    queries: tuple[str, ...] = ()
    skip_bad: bool = False
    clip: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the files."""
        return tuple(str(source.path) for source in self.sources)

    @property
    def origin(self) -> str:
        """The name of the log in messages: its first file, and how many more there are."""
        first = self.sources[0].path.name
        return first if len(self.sources) == 1 else f"{first} and {len(self.sources) - 1} more"

    @property
    def form(self) -> Layout:
        """The definition of the layout."""
        return LAYOUTS[self.layout]

    @property
    def columns(self) -> dict[str, str]:
        """The column of each role (item, position, click, ...); empty for logs that are not tables."""
        return self.form.columns(self.sources[0]) if isinstance(self.form, TableLayout) else {}

    @property
    def has_propensities(self) -> bool:
        """Whether the log has a column of propensities."""
        return "propensity" in self.columns

    @property
    def has_pages(self) -> bool:
        """Whether events group the rows into result pages."""
        return isinstance(self.form, TextLayout) or "event" in self.columns
