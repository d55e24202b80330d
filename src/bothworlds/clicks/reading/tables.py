"""Reading tables: one scan into the table ``rows`` of a database, with its rows and pages checked.

Its columns are query, item, position and click; event, propensity and timestamp, if the log has them; number, if a row
stands for several equal ones; and all other columns of the file under the names that :func:`file_columns` returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ...export_format import EXPORT_FORMAT
from .database import glob_pattern, in_list, literal, quoted, rejects, run
from .errors import (
    CLIP,
    MAX_EXAMPLES,
    Example,
    Rejected,
    bad_input_error,
    describe_rejection,
    plural,
    rejected_lines,
    requirement,
    row_problem,
    rows_at,
)
from .layouts import Layout
from .rows import MORE_CLICKS, click_sql, failed_check_sql, integer_sql, label_sql, propensity_sql
from .sources import Source

HEADER_COLUMN = "format"  # of the first line of an export
NO_PARTITIONS = "hive_partitioning = false"  # a folder named query=tea would replace the column
CONVERTERS = {
    "position": integer_sql, "impressions": integer_sql, "clicks": integer_sql, "click": click_sql, "learn": click_sql,
    "propensity": propensity_sql, "timestamp": lambda name, kind: quoted(name), "event": label_sql,
}  # fmt: skip
# Names that columns of the file without a role do not keep.
OWN_COLUMNS = {
    *(*CONVERTERS, "query", "item", "surface", "policy", "arm"),
    *("number", "reason", "nothing"),
}


class Filters(NamedTuple):
    """What is kept of a log: queries, the first positions, then pages made only of the most frequent items there."""

    queries: tuple[str, ...] = ()
    positions: int | None = None
    top_items: int | None = None
    skip_bad: bool = False
    clip: bool = False

    @property
    def query_condition(self) -> str:
        return f"query IN {in_list(self.queries)}" if self.queries else "true"

    @property
    def everywhere(self) -> str:
        """A remark on what is counted before the filter for queries is applied."""
        return " (in the whole log, for all queries)" if self.queries else ""


# Numbers of rows and pages that were left out or changed, by a noun and a sentence about so many of it.
Notes = Counter[tuple[str, str]]


@dataclass(frozen=True)
class Reading:
    """A log that is read into the table ``rows`` of a database."""

    connection: Any
    sources: Sequence[Source]
    layout: Layout
    filters: Filters
    progress: bool | None

    @cached_property
    def columns(self) -> dict[str, str]:
        """The columns of the file by role; without the query, if it is several columns."""
        columns, joined = self.layout.columns(self.sources[0]), self.sources[0].joined
        return {role: name for role, name in columns.items() if role != "query" or not joined}

    def run(self, sql: str, title: str = "") -> list[Any]:
        """Execute a statement, with a progress bar if it has a title."""
        return run(self.connection, sql, title, self.progress)


def read_table(log: Reading) -> Notes:
    """Scan the files of a table once; raise ValueError for bad rows and pages, unless they are to be skipped."""
    columns, filters = log.columns, log.filters
    _scan(log)
    texts = [str(source.path) for source in log.sources if source.kind == "text"]
    rejected = rejected_lines(rejects(log.connection, texts) if texts else [], log.sources)
    bad = dict(log.run("SELECT reason, count(*) FROM rows WHERE reason IS NOT NULL GROUP BY 1 ORDER BY 1"))
    if (bad or rejected) and not filters.skip_bad:
        raise _bad_rows(log, bad, rejected)
    kinds = sorted(Counter(one.kind for one in rejected).items())
    notes = Counter(
        {
            ("line", f"{{}} {{was}} skipped{filters.everywhere}: {{has}} {describe_rejection(kind)}"): number
            for kind, number in kinds
        }
    )
    for reason, number in bad.items():
        notes["row", f"{{}} {{was}} skipped{filters.everywhere}: {requirement(columns, reason)}"] = number
    if bad:
        log.run("DELETE FROM rows WHERE reason IS NOT NULL")
    if "event" in columns:
        notes["page", "{} left out: a position or an item is there twice"] = _check_pages(log, rejected)
    if filters.queries:
        log.run(f"DELETE FROM rows WHERE NOT ({filters.query_condition})")
    if "surface" in columns:
        ((surfaces,),) = log.run("SELECT count(DISTINCT surface) FROM rows")
        notes["surface", "{} are counted together; export them one by one to separate them"] = surfaces * (surfaces > 1)
    if log.layout.name == "counts":
        ((clipped,),) = log.run("SELECT count(*) FROM rows WHERE clicks > impressions")
        notes["row", "{} had more clicks than impressions; clicks were clipped to impressions"] = clipped
        _split_counts(log)
    return notes


def _scan(log: Reading) -> None:
    """Create the table ``rows``, with a column ``reason``: the first check that a row fails."""
    columns, first = log.columns, log.sources[0]
    if first.kind == "memory":
        log.connection.register("in_memory", first.table)
    scan = " UNION ALL BY NAME ".join(f"SELECT * FROM {scan_sql(group)}" for group in _alike(log.sources))
    kinds = {name: kind for name, kind, *_ in log.run(f"DESCRIBE {scan}") if name != "file_row_number"}
    converted = [f"{_converted(role, name, kinds[name])} AS {role}" for role, name in columns.items()]
    if "query" not in columns:
        parts = [f"coalesce(({label_sql(name, kinds[name])})::VARCHAR, '')" for name in first.joined]
        converted.append((" || ',' || ".join(parts) or "''") + " AS query")
    others = [name for name in kinds if name not in columns.values()]
    converted += [f"{quoted(name)} AS {quoted(stored)}" for name, stored in zip(others, file_columns(others))]
    converted.append(" AND ".join(f"{quoted(name)} IS NULL" for name in columns.values()) + " AS nothing")
    learned = " REPLACE (CASE WHEN learn = 1 THEN propensity END AS propensity)" if "learn" in columns else ""
    log.run(
        f"CREATE TABLE rows AS SELECT * EXCLUDE (nothing{', learn' if learned else ''}){learned}, "
        f"({failed_check_sql(columns, first.kind == 'ndjson', log.filters.clip)})::TINYINT AS reason "
        f"FROM (SELECT {', '.join(converted)} FROM ({scan}))",
        "reading rows",
    )
    if first.kind == "memory":
        log.connection.unregister("in_memory")


def file_columns(names: Sequence[str]) -> list[str]:
    """Return the names in the table ``rows`` of columns of the file that have no role there."""
    return [f"{name} of the file" if name.lower() in OWN_COLUMNS else name for name in names]


def _converted(role: str, name: str, kind: str) -> str:
    """SQL for a column of the layout, converted from that of the file."""
    if role in CONVERTERS:
        return str(CONVERTERS[role](name, kind))
    label = f"({label_sql(name, kind)})::VARCHAR"
    return f"coalesce({label}, '')" if role == "query" else label


def _alike(sources: Sequence[Source]) -> list[list[Source]]:
    """Sources in groups that one table function of DuckDB reads."""
    groups: dict[Any, list[Source]] = {}
    for source in sources:
        groups.setdefault((source.compression, source.delimiter, source.blank_lines), []).append(source)
    return list(groups.values())


def scan_sql(sources: Sequence[Source]) -> str:
    """Return the table function of DuckDB that reads files of one kind."""
    files, first = literal([glob_pattern(str(source.path)) for source in sources]), sources[0]
    if first.kind == "memory":
        return "in_memory"
    if first.kind == "parquet":
        return f"read_parquet({files}, union_by_name = true, file_row_number = true, {NO_PARTITIONS})"
    compression = literal(first.compression or "none")
    names = list(first.columns) if first.kind == "ndjson" else _unique(first.columns)
    has_header = any(source.has_header for source in sources) and HEADER_COLUMN not in names
    text = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in [*names, *([HEADER_COLUMN] if has_header else [])])
    if first.kind == "ndjson":
        rows = (
            f"read_json({files}, format = 'newline_delimited', columns = {{{text}}}, ignore_errors = true, "
            f"compression = {compression}, {NO_PARTITIONS})"
        )
        kept = f"{quoted(HEADER_COLUMN)} IS DISTINCT FROM {literal(EXPORT_FORMAT)}"
        return f"(SELECT * EXCLUDE ({quoted(HEADER_COLUMN)}) FROM {rows} WHERE {kept})" if has_header else rows
    return (
        f"read_csv({files}, auto_detect = false, header = true, skip = {first.blank_lines}, "
        f"delim = {literal(first.delimiter)}, quote = '\"', escape = '\"', columns = {{{text}}}, store_rejects = true, "
        f"rejects_limit = 0, compression = {compression}, {NO_PARTITIONS})"
    )


def _unique(names: Sequence[str]) -> list[str]:
    """Names of columns, with a new name for each that repeats an earlier one, ignoring case."""
    lower = [name.lower() for name in names]
    return [f"{name}, column {k + 1}" if lower[k] in lower[:k] else name for k, name in enumerate(names)]


def _split_counts(log: Reading) -> None:
    """Make two rows of every row of counts: its impressions with a click, and those without."""
    log.run(
        "CREATE TABLE split AS SELECT * EXCLUDE (impressions, clicks) FROM (SELECT *, 1::TINYINT AS click, "
        "least(clicks, impressions) AS number FROM rows UNION ALL SELECT *, 0::TINYINT AS click, "
        "impressions - least(clicks, impressions) AS number FROM rows) WHERE number > 0"
    )
    log.run("DROP TABLE rows")
    log.run("ALTER TABLE split RENAME TO rows")


def _check_pages(log: Reading, rejected: Sequence[Rejected]) -> int:
    """Delete pages with a position or an item twice; raise ValueError for them, unless they are to be skipped."""
    twice = " UNION ALL ".join(
        f"SELECT event, query, {role!r} AS role, {role}::VARCHAR AS value FROM rows WHERE "
        f"{log.filters.query_condition} GROUP BY event, query, {role} HAVING count(*) > 1"
        for role in ("position", "item")
    )
    log.run(
        f"CREATE TEMP TABLE twice AS SELECT DISTINCT ON (event, query) * FROM ({twice}) ORDER BY event, query, "
        "role DESC, value",
        "checking pages",
    )
    ((number,),) = log.run("SELECT count(*) FROM twice")
    if number and not log.filters.skip_bad:
        first = log.run(
            "SELECT event::VARCHAR, role, value, min(rowid), min(other) FROM (SELECT r.rowid, t.*, lead(r.rowid) OVER "
            "(PARTITION BY t.event, t.query ORDER BY r.rowid) AS other FROM rows r JOIN twice t ON r.event = t.event "
            "AND r.query = t.query AND CASE role WHEN 'item' THEN r.item ELSE r.position::VARCHAR END = t.value) "
            f"GROUP BY event, query, role, value ORDER BY length(event::VARCHAR), 1, query LIMIT {MAX_EXAMPLES}"
        )
        places = _places(log, [row for one in first for row in one[3:]], rejected)
        examples = []
        for event, role, value, one, other in first:
            (file, here, _), (other_file, there, _) = places[one], places[other]
            second = f"{other_file}, {there}" if other_file != file else there
            problem = f"event {event!r} has {log.columns[role]} {value!r} twice"
            examples.append(Example(file, f"{here} and {second}", problem))
        raise bad_input_error(examples, number, "pages")
    if number:
        log.run("DELETE FROM rows USING twice WHERE rows.event = twice.event AND rows.query = twice.query")
    log.run("DROP TABLE twice")
    return int(number)


def _bad_rows(log: Reading, bad: Mapping[int, int], rejected: Sequence[Rejected]) -> ValueError:
    """Return the error for rows that fail checks (``bad`` maps checks to numbers of rows) and rejected lines."""
    order = {str(source.path): k for k, source in enumerate(log.sources)}
    located = [(order[one.file], one.line, Example(one.file, f"line {one.line}", one.problem)) for one in rejected]
    first = log.run(f"SELECT rowid, reason FROM rows WHERE reason IS NOT NULL ORDER BY rowid LIMIT {MAX_EXAMPLES}")
    places = _places(log, [row for row, _ in first], rejected)
    for row, reason in first:
        file, place, values = places[row]
        problem = row_problem(log.columns, reason, values)
        located.append((order[file], int(place.rpartition(" ")[2]), Example(file, place, problem)))
    examples = [example for *_, example in sorted(located)]
    return bad_input_error(examples, sum(bad.values()) + len(rejected), "rows", CLIP if MORE_CLICKS in bad else {})


def _places(
    log: Reading, rows: Sequence[int], rejected: Sequence[Rejected]
) -> dict[int, tuple[str, str, dict[str, str | None]]]:
    """The file, "line 4" or "row 4", and the values by role of some rows of the table, which has the order of files."""
    places, first = {}, 0
    for source in (source for group in _alike(log.sources) for source in group):
        scan, columns = scan_sql([source]), log.layout.columns(source)
        if source.kind == "memory":
            log.connection.register("in_memory", source.table)
        size = log.run(f"SELECT count(*) FROM {scan}")[0][0] if len(log.sources) > 1 else max(rows, default=0) + 1
        here = [row - first for row in rows if first <= row < first + size]
        if source.kind in ("parquet", "memory"):
            names = ", ".join(f"{quoted(name)}::VARCHAR" for name in columns.values())
            for row in here:
                (values,) = log.run(f"SELECT {names} FROM {scan} LIMIT 1 OFFSET {row}")
                places[first + row] = (str(source.path), f"row {row + 1}", dict(zip(columns, values)))
        elif here:
            for row, (line, given) in rows_at(source, columns, here, rejected).items():
                places[first + row] = (str(source.path), f"line {line}", given)
        first += size
    return places


def keep(log: Reading, has_pages: bool, number: str) -> None:
    """Delete what the filters for positions and frequent items do not keep; ``number`` is SQL for rows of each row."""
    if log.filters.positions is not None:
        kept = f"SELECT DISTINCT position FROM rows ORDER BY 1 LIMIT {log.filters.positions}"
        log.run(f"DELETE FROM rows WHERE position NOT IN ({kept})")
    if log.filters.top_items is not None:
        log.run(
            f"CREATE TEMP TABLE frequent AS SELECT item FROM rows GROUP BY 1 ORDER BY sum({number}) DESC, 1 "
            f"LIMIT {log.filters.top_items}"
        )
        other = "item NOT IN (FROM frequent)"
        if has_pages:
            log.run(f"CREATE TEMP TABLE others AS SELECT DISTINCT event, query FROM rows WHERE {other}")
            log.run("DELETE FROM rows USING others o WHERE rows.event = o.event AND rows.query = o.query")
        else:
            log.run(f"DELETE FROM rows WHERE {other}")


def sentences(log: Reading, found: Notes, number_sql: str) -> tuple[str, ...]:
    """Return sentences about rows that were left out or changed, and about positions that may be a mistake."""
    one, several = {"was": "was", "has": "it has"}, {"was": "were", "has": "they have"}
    notes = [
        sentence.format(plural(number, noun), **(one if number == 1 else several))
        for (noun, sentence), number in found.items()
        if number
    ]
    rows = log.run(f"SELECT position, sum({number_sql})::BIGINT FROM rows GROUP BY 1 ORDER BY 1")
    for k in range(1, len(rows)):
        before, after = rows[k - 1][0], rows[k][0]
        if after > before + 1:
            beyond = sum(number for _, number in rows[k:])
            notes.append(
                f"positions jump from {before} to {after}, with {beyond:,} impressions from {after} on; the model has "
                "no positions in between: check that this is not a mistake"
            )
            break
    return tuple(notes)
