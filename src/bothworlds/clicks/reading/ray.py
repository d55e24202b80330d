"""Reading on a Ray cluster: every task reads some files and counts their different pages, which are added up here.

Neither the log nor its pages have to fit into the memory of one machine, but its different pages do. The rows of a page
must be in one file.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...extras import import_extra, ray_connection
from ...progress import progress_bar
from .database import Database
from .layouts import Layout
from .session_text import odd_pages, read_text
from .sources import Source
from .tables import Filters, Notes, Reading, read_table

RESULTS = "struct_pack(position := position, item := item, click := click)"
RESULTS_TYPE = "STRUCT(position BIGINT, item VARCHAR, click TINYINT)[]"


def read_on_ray(log: Reading) -> Notes:
    """Create the table ``rows`` of the different pages of all files, with their numbers.

    A file is a task on the cluster that this process is connected to, or on a temporary one on this machine. Raises
    ValueError for bad rows, unless they are to be skipped.
    """
    notes: Notes = Counter()
    log.run(f"CREATE TEMP TABLE arrived (query VARCHAR, results {RESULTS_TYPE}, number BIGINT)")
    with ray_connection() as ray, progress_bar("counting on Ray", len(log.sources), log.progress) as report:
        task = ray.remote(_different_pages)
        waiting = [task.remote(source, log.layout, log.filters) for source in log.sources]
        for future in waiting:
            error, found, table = ray.get(future)
            if error is not None:
                raise error
            log.connection.register("arriving", table)
            log.run("INSERT INTO arrived FROM arriving")
            log.connection.unregister("arriving")
            notes.update(found)
            report(1)
    log.run(
        "CREATE TABLE rows AS SELECT event, query, unnest(results, recursive := true), number FROM (SELECT "
        "row_number() OVER () AS event, * FROM (SELECT query, results, sum(number)::BIGINT AS number FROM arrived "
        "GROUP BY ALL))"
    )
    log.run("DROP TABLE arrived")
    return notes


def _different_pages(source: Source, layout: Layout, filters: Filters) -> tuple[ValueError | None, Notes, Any]:
    """The task: notes, and a table of different pages with their numbers; or an error, which Ray would wrap."""
    database = Database()
    log = Reading(database.connection, [source], layout, filters, False)
    try:
        notes = read_text(log) if layout.is_text else read_table(log)
    except ValueError as error:
        return error, Counter(), None
    if layout.is_text:
        notes += odd_pages(log)
    page = "event" if layout.is_text or "event" in log.columns else "rowid"
    number = "any_value(number)" if layout.name == "counts" else "1"
    log.run(
        "CREATE TEMP TABLE found AS SELECT query, results, sum(number)::BIGINT AS number FROM (SELECT query, "
        f"list_sort(list({RESULTS})) AS results, {number} AS number FROM rows GROUP BY {page}, query) GROUP BY ALL"
    )
    return (
        None,
        notes,
        import_extra("pyarrow").RecordBatchReader.from_stream(database.connection.sql("FROM found")).read_all(),
    )
