"""Reading tables: one scan into the table ``rows`` of a database, with its rows and pages checked.

Its columns are query, item, position and click; event, propensity and timestamp, if the log has them; number, if a row
stands for several equal ones; and all other columns of the file under the names that :func:`file_columns` returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
    skipped,
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


def read_table(
    connection: Any, sources: Sequence[Source], layout: Layout, filters: Filters, progress: bool | None
) -> Counter[str]:
    """Scan the files of a table once; return how many rows and pages were skipped or changed, by the reason in words.

    Raises ValueError for bad rows and pages, unless they are to be skipped.
    """
    columns = layout.columns(sources[0])
    _scan(connection, sources, layout, columns, filters, progress)
    texts = [str(source.path) for source in sources if source.kind == "text"]
    rejected = rejected_lines(rejects(connection, texts) if texts else [], sources)
    bad = dict(run(connection, "SELECT reason, count(*) FROM rows WHERE reason IS NOT NULL GROUP BY 1 ORDER BY 1"))
    if (bad or rejected) and not filters.skip_bad:
        raise _bad_rows(connection, sources, layout, columns, bad, rejected)
    kinds = sorted(Counter(one.kind for one in rejected).items())
    notes = Counter({f"line:{describe_rejection(kind)}": number for kind, number in kinds})
    notes.update({f"row:{requirement(columns, reason)}": number for reason, number in bad.items()})
    if bad:
        run(connection, "DELETE FROM rows WHERE reason IS NOT NULL")
    if "event" in columns:
        notes.update(_check_pages(connection, sources, layout, columns, filters, rejected, progress))
    if filters.queries:
        run(connection, f"DELETE FROM rows WHERE NOT ({filters.query_condition})")
    if "surface" in columns:
        ((surfaces,),) = run(connection, "SELECT count(DISTINCT surface) FROM rows")
        notes["surfaces"] = surfaces
    if layout.name == "counts":
        ((notes["clipped"],),) = run(connection, "SELECT count(*) FROM rows WHERE clicks > impressions")
        _split_counts(connection)
    return notes


def _scan(
    connection: Any,
    sources: Sequence[Source],
    layout: Layout,
    columns: Mapping[str, str],
    filters: Filters,
    progress: bool | None,
) -> None:
    """Create the table ``rows``, with a column ``reason``: the first check that a row fails."""
    if sources[0].kind == "memory":
        connection.register("in_memory", sources[0].table)
    scan = " UNION ALL BY NAME ".join(f"SELECT * FROM {scan_sql(group)}" for group in _alike(sources))
    kinds = {name: kind for name, kind, *_ in run(connection, f"DESCRIBE {scan}") if name != "file_row_number"}
    converted = [f"{_converted(role, name, kinds[name])} AS {role}" for role, name in columns.items()]
    if "query" not in columns:
        converted.append("'' AS query")
    ndjson = sources[0].kind == "ndjson"
    others = [name for name in kinds if name not in columns.values()]
    converted += [f"{quoted(name)} AS {quoted(stored)}" for name, stored in zip(others, file_columns(others))]
    converted.append(" AND ".join(f"{quoted(name)} IS NULL" for name in columns.values()) + " AS nothing")
    learned = " REPLACE (CASE WHEN learn = 1 THEN propensity END AS propensity)" if "learn" in columns else ""
    run(
        connection,
        f"CREATE TABLE rows AS SELECT * EXCLUDE (nothing{', learn' if learned else ''}){learned}, "
        f"({failed_check_sql(columns, ndjson, filters.clip)})::TINYINT AS reason "
        f"FROM (SELECT {', '.join(converted)} FROM ({scan}))",
        "reading rows",
        progress,
    )
    if sources[0].kind == "memory":
        connection.unregister("in_memory")


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


def _split_counts(connection: Any) -> None:
    """Make two rows of every row of counts: its impressions with a click, and those without."""
    run(
        connection,
        "CREATE TABLE split AS SELECT * EXCLUDE (impressions, clicks) FROM (SELECT *, 1::TINYINT AS click, "
        "least(clicks, impressions) AS number FROM rows UNION ALL SELECT *, 0::TINYINT AS click, "
        "impressions - least(clicks, impressions) AS number FROM rows) WHERE number > 0",
    )
    run(connection, "DROP TABLE rows")
    run(connection, "ALTER TABLE split RENAME TO rows")


def _check_pages(
    connection: Any,
    sources: Sequence[Source],
    layout: Layout,
    columns: Mapping[str, str],
    filters: Filters,
    rejected: Sequence[Rejected],
    progress: bool | None,
) -> dict[str, int]:
    """Delete pages with a position or an item twice; raise ValueError for them, unless they are to be skipped."""
    twice = " UNION ALL ".join(
        f"SELECT event, query, {role!r} AS role, {role}::VARCHAR AS value FROM rows WHERE {filters.query_condition} "
        f"GROUP BY event, query, {role} HAVING count(*) > 1"
        for role in ("position", "item")
    )
    run(
        connection,
        f"CREATE TEMP TABLE twice AS SELECT DISTINCT ON (event, query) * FROM ({twice}) ORDER BY event, query, "
        "role DESC, value",
        "checking pages",
        progress,
    )
    ((number,),) = run(connection, "SELECT count(*) FROM twice")
    if number and not filters.skip_bad:
        first = run(
            connection,
            "SELECT event::VARCHAR, role, value, min(rowid), min(other) FROM (SELECT r.rowid, t.*, lead(r.rowid) OVER "
            "(PARTITION BY t.event, t.query ORDER BY r.rowid) AS other FROM rows r JOIN twice t ON r.event = t.event "
            "AND r.query = t.query AND CASE role WHEN 'item' THEN r.item ELSE r.position::VARCHAR END = t.value) "
            f"GROUP BY event, query, role, value ORDER BY length(event::VARCHAR), 1, query LIMIT {MAX_EXAMPLES}",
        )
        places = _places(connection, sources, layout, [row for one in first for row in one[3:]], rejected)
        examples = []
        for event, role, value, one, other in first:
            (file, here, _), (other_file, there, _) = places[one], places[other]
            second = f"{other_file}, {there}" if other_file != file else there
            problem = f"event {event!r} has {columns[role]} {value!r} twice"
            examples.append(Example(file, f"{here} and {second}", problem))
        raise bad_input_error(examples, number, "pages")
    if number:
        run(connection, "DELETE FROM rows USING twice WHERE rows.event = twice.event AND rows.query = twice.query")
    run(connection, "DROP TABLE twice")
    return {"page": number}


def _bad_rows(
    connection: Any,
    sources: Sequence[Source],
    layout: Layout,
    columns: Mapping[str, str],
    bad: Mapping[int, int],
    rejected: Sequence[Rejected],
) -> ValueError:
    """Return the error for rows that fail checks (``bad`` maps checks to numbers of rows) and rejected lines."""
    order = {str(source.path): k for k, source in enumerate(sources)}
    located = [(order[one.file], one.line, Example(one.file, f"line {one.line}", one.problem)) for one in rejected]
    first = run(
        connection, f"SELECT rowid, reason FROM rows WHERE reason IS NOT NULL ORDER BY rowid LIMIT {MAX_EXAMPLES}"
    )
    places = _places(connection, sources, layout, [row for row, _ in first], rejected)
    for row, reason in first:
        file, place, values = places[row]
        number = int(place.rpartition(" ")[2])
        located.append((order[file], number, Example(file, place, row_problem(columns, reason, values))))
    examples = [example for *_, example in sorted(located)]
    return bad_input_error(examples, sum(bad.values()) + len(rejected), "rows", CLIP if MORE_CLICKS in bad else {})


def _places(
    connection: Any, sources: Sequence[Source], layout: Layout, rows: Sequence[int], rejected: Sequence[Rejected]
) -> dict[int, tuple[str, str, dict[str, str | None]]]:
    """The file, "line 4" or "row 4", and the values by role of some rows of the table, which has the order of files."""
    in_order = [source for group in _alike(sources) for source in group]
    columns, places, first = layout.columns(sources[0]), {}, 0
    for source in in_order:
        scan = scan_sql([source])
        if source.kind == "memory":
            connection.register("in_memory", source.table)
        size = run(connection, f"SELECT count(*) FROM {scan}")[0][0] if len(in_order) > 1 else max(rows, default=0) + 1
        here = [row - first for row in rows if first <= row < first + size]
        if source.kind in ("parquet", "memory"):
            names = ", ".join(f"{quoted(name)}::VARCHAR" for name in columns.values())
            for row in here:
                (values,) = run(connection, f"SELECT {names} FROM {scan} LIMIT 1 OFFSET {row}")
                places[first + row] = (str(source.path), f"row {row + 1}", dict(zip(columns, values)))
        elif here:
            for row, (line, values) in rows_at(source, layout.columns(source), here, rejected).items():
                places[first + row] = (str(source.path), f"line {line}", values)
        first += size
    return places


def keep(connection: Any, filters: Filters, has_pages: bool, number: str) -> None:
    """Delete what the filters for positions and frequent items do not keep; ``number`` is SQL for rows of each row."""
    if filters.positions is not None:
        kept = f"SELECT DISTINCT position FROM rows ORDER BY 1 LIMIT {filters.positions}"
        run(connection, f"DELETE FROM rows WHERE position NOT IN ({kept})")
    if filters.top_items is not None:
        run(
            connection,
            f"CREATE TEMP TABLE frequent AS SELECT item FROM rows GROUP BY 1 ORDER BY sum({number}) DESC, 1 "
            f"LIMIT {filters.top_items}",
        )
        others = "SELECT {} FROM rows WHERE item NOT IN (FROM frequent)"
        if has_pages:
            run(connection, f"CREATE TEMP TABLE others AS SELECT DISTINCT event, query FROM ({others.format('*')})")
            run(connection, "DELETE FROM rows USING others o WHERE rows.event = o.event AND rows.query = o.query")
        else:
            run(connection, "DELETE FROM rows WHERE item NOT IN (FROM frequent)")


def notes_of(connection: Any, found: Counter[str], filters: Filters, number_sql: str) -> tuple[str, ...]:
    """Return sentences about rows that were left out or changed, and about positions that may be a mistake."""
    everywhere = " (in the whole log, for all queries)" if filters.queries else ""
    notes = []
    for reason, number in found.items():
        noun, _, why = reason.partition(":")
        if why:
            has = ("it has " if number == 1 else "they have ") if noun == "line" else ""
            notes.append(f"{skipped(number, noun)}{everywhere}: {has}{why}")
    sentences = {
        "clipped": "{} had more clicks than impressions; clicks were clipped to impressions",
        "page": "{} left out: a position or an item is there twice",
        "surfaces": "{} are counted together; export them one by one to separate them",
        "stray": "{} on urls that their page does not show were ignored",
        "early": "{} before any page of their session were ignored" + everywhere,
        "repeats": "{} with a url twice: every impression of it is counted, and clicks count for the first",
        "record": "{} left out" + everywhere,
    }
    nouns = dict.fromkeys(sentences, "page") | {"clipped": "row", "surfaces": "surface", "record": "bad record"}
    nouns |= {"stray": "click", "early": "click"}
    for name, sentence in sentences.items():
        if found[name] > (name == "surfaces"):
            notes.append(sentence.format(plural(found[name], nouns[name])))
    return (*notes, *_position_gap(connection, number_sql))


def _position_gap(connection: Any, number: str) -> list[str]:
    """A note if positions have a gap, since those after it may be mistakes."""
    rows = run(connection, f"SELECT position, sum({number})::BIGINT FROM rows GROUP BY 1 ORDER BY 1")
    for k in range(1, len(rows)):
        before, after = rows[k - 1][0], rows[k][0]
        if after > before + 1:
            beyond = sum(number for _, number in rows[k:])
            return [
                f"positions jump from {before} to {after}, with {beyond:,} impressions from {after} on; the model has "
                "no positions in between: check that this is not a mistake"
            ]
    return []
