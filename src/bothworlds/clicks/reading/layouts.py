"""The formats of click logs: the roles that columns may have, and what a record of text looks like.

To add a format of tables, add its roles to ``LAYOUTS``; :func:`bothworlds.clicks.read` and ``--format`` accept it from
then on, and files are recognised by their columns. Records of text also need a statement in ``session_text.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .sources import Source

NUMBER = r"\d{1,18}"
LINE = rf"{NUMBER}\t{NUMBER}\t(Q\t{NUMBER}\t{NUMBER}(\t{NUMBER})+|C\t{NUMBER})\r?"
RECORD = rf"\s*{NUMBER}_{NUMBER}\t\s*{NUMBER}(\s*,\s*{NUMBER})*\s*:\s*({NUMBER}(\s*,\s*{NUMBER})*)?\s*"


@dataclass(frozen=True)
class Layout:
    """A format of click logs: ``name`` is the value of ``--format``.

    A table maps the roles that the readers know to the accepted names of their columns, in lower case. Text has no
    roles, and a pattern of its start instead.
    """

    name: str
    description: str  # for error messages: the columns, or the shape of a record
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    required: tuple[str, ...] = ()  # roles that a file must have
    foreign: tuple[str, ...] = ()  # columns that indicate another layout
    start: str = ""  # a regular expression of the start of a text

    @property
    def is_text(self) -> bool:
        return bool(self.start)

    def mismatch(self, source: Source) -> str | None:
        """Return why a file cannot have this layout, or None if it can."""
        if self.is_text:
            if source.kind == "text" and re.match(self.start, source.first_line):
                return None
            start = f"its first line {source.first_line[:60]!r} is not {self.description}"
            return start if source.first_line else "it is a table"
        columns = self.columns(source)
        missing = [" or ".join(self.roles[role]) for role in self.required if role not in columns]
        if missing:
            return f"it has no column {', no column '.join(missing)}"
        used = {(name, column) for role, column in columns.items() for name in self.roles[role]}
        unused = ["=".join(pair) for pair in source.renamed if pair not in used]
        return f"it has no use for {unused[0]}" if unused else None

    def foreign_columns(self, source: Source) -> list[str]:
        """Return the columns of a file that indicate another layout."""
        return [name for name in self.foreign if name in _columns_by_name(source)]

    def columns(self, source: Source) -> dict[str, str]:
        """Return the column of each role: the renamed one, or else one of an accepted name, ignoring case."""
        here, renamed = _columns_by_name(source), dict(source.renamed)
        columns = {}
        for role, names in self.roles.items():
            column = next((known[name] for known in (renamed, here) for name in names if name in known), None)
            if column is not None:
                columns[role] = column
        return columns


TIMES = ("timestamp", "time", "date", "day")
TIDY = Layout(
    "tidy",
    "columns event, position, item, click and optionally propensity, query, timestamp",
    roles={
        "event": ("event",),
        "position": ("position",),
        "item": ("item", "action"),  # action, reward and pscore as in open bandit pipeline
        "click": ("click", "reward"),
        "propensity": ("propensity", "pscore", "propensity_score"),
        "query": ("query",),
        "timestamp": TIMES,
    },
    required=("position", "item", "click"),
    foreign=("policy_id",),
)
COUNTS = Layout(
    "counts",
    "columns item, position, impressions, clicks and optionally query, date",
    roles={
        "item": ("item", "url"),
        "position": ("position", "pos"),
        "impressions": ("impressions", "impression"),
        "clicks": ("clicks", "click"),
        "query": ("query",),
        "timestamp": TIMES,
    },
    required=("item", "position", "impressions", "clicks"),
    foreign=("event", "propensity", "pscore", "propensity_score"),
)
OBD = Layout(
    "obd",
    "Open Bandit Dataset: timestamp, item_id, position, click, propensity_score",
    roles={
        "timestamp": ("timestamp",),
        "item": ("item_id",),
        "position": ("position",),
        "click": ("click",),
        "propensity": ("propensity_score",),
    },
    required=("item", "position", "click", "propensity"),
)
RELPRED = Layout(
    "relpred",
    "SessionID TimePassed Q QueryID RegionID URL... or SessionID TimePassed C URL, between tabs",
    start=rf"{LINE}\s*$",
)
SERVICE = Layout(
    "service",
    "the service's export: event, timestamp, surface, segment, arm, policy_id, position, item, click, propensity, ...",
    roles={
        "event": ("event",),
        "timestamp": ("timestamp",),
        "query": ("segment",),
        "position": ("position",),
        "item": ("item",),
        "click": ("click",),
        "propensity": ("propensity",),
        "learn": ("learn",),
        "surface": ("surface",),
        "policy": ("policy_id",),
        "arm": ("arm",),
    },
    required=("event", "query", "position", "item", "click", "propensity", "policy", "arm"),
)
YANDEX = Layout(
    "yandex",
    "QUERY_REGION, a tab, url,...,url : clicked url , ... ;",
    start=r"\s*\d+_\d+\t\s*\d+(\s*,\s*\d+)*\s*:",
)
LAYOUTS = {layout.name: layout for layout in (TIDY, COUNTS, OBD, RELPRED, SERVICE, YANDEX)}
# All column names of all layouts.
COLUMN_NAMES = tuple(
    dict.fromkeys(name for layout in LAYOUTS.values() for names in layout.roles.values() for name in names)
)


def layout_of(name: str) -> Layout:
    """Return the layout with a name; raise ValueError if there is none.

    >>> layout_of("obd").description
    'Open Bandit Dataset: timestamp, item_id, position, click, propensity_score'
    """
    if name not in LAYOUTS:
        raise ValueError(f"there is no format {name!r}; there are {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


def common_layout(sources: Sequence[Source], name: str | None = None) -> Layout:
    """Return the layout of all files of a log.

    Raises ValueError if they have several, or if the columns of tables differ, which DuckDB reads in one statement.
    """
    layouts = {detect(source, name).name: source.path for source in sources}
    if len(layouts) > 1:
        listed = ", ".join(f"{name} like {file}" for name, file in layouts.items())
        raise ValueError(f"the files of a log must have the same format, and these have several: {listed}")
    layout, first = LAYOUTS[next(iter(layouts))], sources[0]
    for source in () if layout.is_text else sources:
        for chosen in layout.columns(source).values():
            same = [name for name in source.columns if name.lower() == chosen.lower()]
            if len(same) > 1:
                both = " and ".join(same)
                raise ValueError(f"{source.path} has the columns {both}, where one is expected; rename the others")
        used = [layout.columns(one) if one.kind == "ndjson" else one.columns for one in (first, source)]
        if source.kind != first.kind or used[0] != used[1]:
            raise ValueError(f"the files of a log must have the same columns; {first.path} and {source.path} do not")
    return layout


def detect(source: Source, name: str | None = None) -> Layout:
    """Return the layout of a file. Raises ValueError if none or several match, or if it is not the one named."""
    matching = [layout for layout in LAYOUTS.values() if layout.mismatch(source) is None]
    unambiguous = [layout for layout in matching if not layout.foreign_columns(source)]
    if name is not None:
        layout = layout_of(name)
        why_not = layout.mismatch(source)
        # Columns of other layouts matter only if one of those matches.
        if why_not is None and unambiguous and layout not in unambiguous:
            why_not = f"it has a column {layout.foreign_columns(source)[0]}"
        if why_not is not None:
            raise ValueError(f"{source.path} is not in the format {name}: {why_not}")
        return layout
    if len(unambiguous) == 1:
        return unambiguous[0]
    candidates = unambiguous or matching or LAYOUTS.values()
    known = "; ".join(f"{layout.name} ({layout.description})" for layout in candidates)
    if matching:
        raise ValueError(f"the format of {source.path} is ambiguous; name one of: {known}")
    if has_column_names(source):
        raise ValueError(
            f"{source.path} has the columns {', '.join(source.columns[:20])}, which match no format; name them, "
            "as in --columns position=rank,item=product,click=clicked (in Python, columns=...); a log has the "
            f"{TIDY.description}, and a table of counts the {COUNTS.description}"
        )
    raise ValueError(
        f"the format of {source.path} is unknown, starting {source.first_line[:60]!r}; a table starts with the names "
        f"of its columns; known are {known}"
    )


def has_column_names(source: Source) -> bool:
    """Whether a file has named columns: Parquet, a table in memory, or a first line of several names and no numbers."""
    numbers = any(name.replace(".", "").isdigit() for name in source.columns)
    return not source.first_line or (len(source.columns) > 1 and not numbers)


def _columns_by_name(source: Source) -> dict[str, str]:
    """Columns by name in lower case; a renamed column is known by its new name only."""
    taken = {column for _, column in source.renamed}
    own = {column.lower(): column for column in reversed(source.columns) if column not in taken}
    return own | dict(source.renamed)
