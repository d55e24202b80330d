"""Reading records of text by SQL: the pages and clicks of sessions, or pages with their clicks."""

from __future__ import annotations

from collections import Counter

from .database import glob_pattern, literal, rejects
from .errors import MAX_EXAMPLES, MAX_TEXT, Example, bad_input_error, rejected_lines
from .layouts import LINE, RECORD
from .rows import LAST_POSITION
from .sources import Source
from .tables import Notes, Reading

LONG = 2 * LAST_POSITION  # characters that a record of too many results has at least
MAX_LINE = 1 << 30  # bytes; all records of the native layout may be on one line

# (pattern of a record, SQL for its number of results, SQL for the records of a line)
RECORDS = {
    "relpred": (LINE, "len(string_split(text, chr(9))) - 5", "rtrim(text, chr(13))"),
    "yandex": (
        RECORD,
        "len(string_split(text, ','))",
        "trim(unnest(string_split(text, ';')), ' ' || chr(9) || chr(13))",
    ),
}
# A record of a session is a page or a click.
SESSIONS = """
CREATE OR REPLACE TEMP TABLE split AS
SELECT event, f[1]::BIGINT AS session, CASE f[3] WHEN 'Q' THEN f[4]::BIGINT || '_' || f[5]::BIGINT END AS query,
       CASE f[3] WHEN 'Q' THEN f[6:]::BIGINT[] END AS items, CASE f[3] WHEN 'C' THEN f[4]::BIGINT END AS url
FROM (SELECT event, string_split(text, chr(9)) AS f FROM records WHERE good)"""
# A click belongs to the last page above it that shows the url; other clicks are stray clicks of the last page above.
CLICKS = """
CREATE OR REPLACE TEMP TABLE clicks AS
SELECT any_value(c.url) AS url, max(p.event) AS last, max(p.event) FILTER (list_contains(p.items, c.url)) AS event
FROM (SELECT * FROM split WHERE url IS NOT NULL) c LEFT JOIN (SELECT * FROM split WHERE url IS NULL) p
ON p.session = c.session AND p.event < c.event GROUP BY c.event"""
PAGES = {
    "relpred": """
SELECT event, query, items, urls, coalesce(stray, 0) AS stray FROM split
LEFT JOIN (SELECT event, list(DISTINCT url) AS urls FROM clicks GROUP BY event) USING (event)
LEFT JOIN (SELECT last AS event, count(*) AS stray FROM clicks WHERE event IS NULL GROUP BY last) USING (event)
WHERE url IS NULL""",
    "yandex": """
SELECT event, split_part(f[1], '_', 1)::BIGINT || '_' || split_part(f[1], '_', 2)::BIGINT AS query, items, urls,
       len(list_filter(urls, lambda url: NOT list_contains(items, url))) AS stray
FROM (SELECT event, f, regexp_extract_all(f[2], '\\d+')::BIGINT[] AS items,
             regexp_extract_all(f[3], '\\d+')::BIGINT[] AS urls
      FROM (SELECT event, string_split(replace(text, chr(9), ':'), ':') AS f FROM records WHERE good))""",
}
# A url that is twice on a page is clicked where it comes first.
ROWS = """
INSERT INTO rows SELECT {first} + event, query, unnest(items)::VARCHAR, unnest(generate_series(1, len(items))),
    unnest(list_transform(items, lambda url, k: (urls IS NOT NULL AND list_contains(urls, url)
                                                 AND list_position(items, url) = k)::TINYINT))
FROM pages WHERE {queries}"""
ODD = """
INSERT INTO odd SELECT {first} + event, stray FROM pages
WHERE {queries} AND (stray > 0 OR len(list_distinct(items)) < len(items))"""


def read_text(log: Reading) -> Notes:
    """Read the records of text files; raise ValueError for bad ones, unless they are to be skipped.

    Pages that show a url twice or have clicks on urls that they do not show are in the table ``odd``, with the number
    of these clicks.
    """
    filters, layout, everywhere = log.filters, log.layout.name, log.filters.everywhere
    log.run("CREATE TABLE rows (event BIGINT, query VARCHAR, item VARCHAR, position BIGINT, click TINYINT)")
    log.run("CREATE TEMP TABLE odd (event BIGINT, stray BIGINT)")
    examples: list[Example] = []
    records, early, first = 0, 0, 0
    for source in log.sources:
        bad, found = _read_records(log, source)
        records, examples = records + bad, examples + found
        if records and not filters.skip_bad:
            continue
        if layout == "relpred":
            log.run(SESSIONS)
            log.run("DROP TABLE records")
            log.run(CLICKS, "assigning clicks")
            early += log.run("SELECT count(*) FROM clicks WHERE last IS NULL")[0][0]
        log.run(f"CREATE OR REPLACE TEMP TABLE pages AS {PAGES[layout]}", "reading pages")
        log.run("DROP TABLE IF EXISTS split")
        for statement in (ROWS, ODD):
            log.run(statement.format(first=first, queries=filters.query_condition))
        first += 1 + log.run("SELECT coalesce(max(event), 0) FROM pages")[0][0]
        log.run("DROP TABLE pages")
    if records and not filters.skip_bad:
        raise bad_input_error(examples, records, "records")
    before = f"{{}} before any page of their session were ignored{everywhere}"
    return Counter({("click", before): early, ("bad record", f"{{}} left out{everywhere}"): records})


def _read_records(log: Reading, source: Source) -> tuple[int, list[Example]]:
    """Create the table ``records`` of a file; return the number of bad ones, and the first of them."""
    pattern, size, records = RECORDS[log.layout.name]
    lines = (
        f"SELECT row_number() OVER () AS line, text FROM read_csv({literal(glob_pattern(str(source.path)))}, "
        "auto_detect = false, header = false, delim = '\x01', quote = '', escape = '', columns = {'text': 'VARCHAR'}, "
        f"max_line_size = {MAX_LINE}, store_rejects = true, rejects_limit = 0, "
        f"compression = {literal(source.compression or 'none')}, hive_partitioning = false)"
    )
    log.run(
        "CREATE OR REPLACE TEMP TABLE records AS SELECT row_number() OVER () AS event, *, "
        f"length(text) > {LONG} AND {size} > {LAST_POSITION} AS too_long, "
        f"regexp_full_match(text, {literal(pattern)}) AND NOT too_long AS good "
        f"FROM (SELECT line, {records} AS text FROM ({lines})) WHERE text <> ''",
        "reading records",
    )
    rejected = rejected_lines(rejects(log.connection, [str(source.path)]), [source])
    bad = log.run("SELECT line, text, too_long, count(*) OVER () FROM records WHERE NOT good ORDER BY event LIMIT 3")
    found = [(one.line, one.problem) for one in rejected[:MAX_EXAMPLES]]
    for line, text, too_long, _ in bad:
        before = 0  # rejected lines have no row
        while before < (passed := sum(one.line <= line + before for one in rejected)):
            before = passed
        expected = (
            f"a result page has at most {LAST_POSITION:,} results"
            if too_long
            else f"{log.layout.description} is expected"
        )
        found.append((line + before, f"{expected}, in {text[:MAX_TEXT]!r}"))
    examples = [Example(str(source.path), f"line {line}", problem) for line, problem in sorted(found)]
    return len(rejected) + (bad[0][3] if bad else 0), examples


def odd_pages(log: Reading) -> Notes:
    """Return the numbers of stray clicks and of pages that show a url twice, among the pages that are kept."""
    kept = "FROM odd SEMI JOIN rows USING (event)"
    ((stray,),) = log.run(f"SELECT coalesce(sum(stray), 0)::BIGINT {kept}")
    twice = (
        f"SELECT DISTINCT event FROM rows SEMI JOIN (SELECT * {kept}) USING (event) "
        "GROUP BY event, item HAVING count(*) > 1"
    )
    ((repeats,),) = log.run(f"SELECT count(*) FROM ({twice})")
    counted = "{} with a url twice: every impression of it is counted, and clicks count for the first"
    return Counter(
        {("click", "{} on urls that their page does not show were ignored"): stray, ("page", counted): repeats}
    )
