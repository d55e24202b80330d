"""Reading on a Ray cluster: every task reads some files and counts their different pages, which are added up here.

Neither the log nor its pages have to fit into the memory of one machine, but its different pages do. The rows of a page
must be in one file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...extras import import_extra, ray_connection
from ...progress import progress_bar
from .database import Database, run
from .layouts import Layout
from .session_text import odd_pages, read_text
from .sources import Source
from .tables import Filters, read_table

RESULTS = "struct_pack(position := position, item := item, click := click)"
RESULTS_TYPE = "STRUCT(position BIGINT, item VARCHAR, click TINYINT)[]"


def read_on_ray(
    connection: Any, sources: Sequence[Source], layout: Layout, filters: Filters, progress: bool | None
) -> Counter[str]:
    """Create the table ``rows`` of the different pages of all files, with their numbers; return notes by reason.

    A file is a task on the cluster that this process is connected to, or on a temporary one on this machine. Raises
    ValueError for bad rows, unless they are to be skipped.
    """
    notes: Counter[str] = Counter()
    run(connection, f"CREATE TEMP TABLE arrived (query VARCHAR, results {RESULTS_TYPE}, number BIGINT)")
    with ray_connection() as ray, progress_bar("counting on Ray", len(sources), progress) as report:
        task = ray.remote(_different_pages)
        waiting = [task.remote(source, layout, filters) for source in sources]
        for future in waiting:
            error, found, table = ray.get(future)
            if error is not None:
                raise error
            connection.register("arriving", table)
            run(connection, "INSERT INTO arrived FROM arriving")
            connection.unregister("arriving")
            notes.update(found)
            report(1)
    run(
        connection,
        "CREATE TABLE rows AS SELECT event, query, unnest(results, recursive := true), number FROM (SELECT "
        "row_number() OVER () AS event, * FROM (SELECT query, results, sum(number)::BIGINT AS number FROM arrived "
        "GROUP BY ALL))",
    )
    run(connection, "DROP TABLE arrived")
    return notes


def _different_pages(source: Source, layout: Layout, filters: Filters) -> tuple[ValueError | None, Counter[str], Any]:
    """The task: notes, and a table of different pages with their numbers; or an error, which Ray would wrap."""
    database = Database()
    connection = database.connection
    try:
        if layout.is_text:
            notes = read_text(connection, [source], layout, filters, False)
            notes += odd_pages(connection)
        else:
            notes = read_table(connection, [source], layout, filters, False)
    except ValueError as error:
        return error, Counter(), None
    page = "event" if layout.is_text or "event" in layout.columns(source) else "rowid"
    number = "any_value(number)" if layout.name == "counts" else "1"
    pages = (
        "SELECT query, results, sum(number)::BIGINT AS number FROM (SELECT query, "
        f"list_sort(list({RESULTS})) AS results, {number} AS number FROM rows GROUP BY {page}, query) GROUP BY ALL"
    )
    run(connection, f"CREATE TEMP TABLE found AS {pages}")
    table = import_extra("pyarrow").RecordBatchReader.from_stream(connection.sql("FROM found")).read_all()
    return None, notes, table
