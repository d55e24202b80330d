"""Logs in every layout, and their counts and pages in one call."""

from __future__ import annotations

import gzip
from itertools import groupby

import pyarrow
import pyarrow.csv
import pyarrow.parquet

from bothworlds.clicks import Log, generate, read
from bothworlds.clicks.log import as_pages


def counts(log, **options):
    """The counts of what ``read`` accepts."""
    return (log if isinstance(log, Log) else read(log, progress=False, **options)).counts()


def count_pages(log, **options):
    """The different pages of what ``read`` accepts."""
    return as_pages(read(log, progress=False, **options))


def write(path, world="paper/stochastic", pages=300, layout="tidy", queries=1, **options):
    """Generate a log, and write it again in another layout; tables as the name of the file says, and text."""
    if layout == "tidy" and path.suffix in (".gz", ".zst"):
        plain = generate(path.with_suffix(""), world, pages, queries=queries, **options)
        with pyarrow.output_stream(path, compression={".gz": "gzip", ".zst": "zstd"}[path.suffix]) as file:
            file.write(plain.read_bytes())
        plain.unlink()
        return path
    if layout == "tidy":
        return generate(path, world, pages, queries=queries, **options)
    columns = pyarrow.parquet.read_table(
        generate(path.with_suffix(".tidy.parquet"), world, pages, queries=queries, **options)
    ).to_pydict()
    path.with_suffix(".tidy.parquet").unlink()
    columns.setdefault("query", ["1"] * len(columns["event"]))
    rows = [dict(zip(columns, values)) for values in zip(*columns.values())]
    packed = gzip.compress if path.suffix == ".gz" else bytes
    if layout in ("relpred", "yandex"):
        written = _session if layout == "relpred" else _record
        text = "".join(written(event, list(page)) for event, page in groupby(rows, lambda row: row["event"]))
        path.write_bytes(packed(text.encode()))
        return path
    table = pyarrow.Table.from_pylist({"obd": _bandit, "service": _export, "counts": _counts}[layout](rows))
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    elif ".ndjson" in path.suffixes:
        import json

        path.write_bytes(packed("".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()))
    else:
        pyarrow.csv.write_csv(table, path)
    return path


def _session(event, page):
    urls = "\t".join(str(row["item"]) for row in page)
    clicks = "".join(f"{event}\t{row['position']}\tC\t{row['item']}\n" for row in page if row["click"])
    return f"{event}\t0\tQ\t{page[0]['query']}\t0\t{urls}\n{clicks}"


def _record(event, page):
    urls, clicked = (",".join(str(row["item"]) for row in some) for some in (page, [r for r in page if r["click"]]))
    return f"{page[0]['query']}_0\t{urls} : {clicked.replace(',', ' , ')};\n"


def _bandit(rows):
    names = {"item": "item_id", "position": "position", "click": "click", "propensity": "propensity_score"}
    return [{"timestamp": row["event"], **{new: row[old] for old, new in names.items()}} for row in rows]


def _export(rows):
    common = {"surface": "generated", "arm": "learner", "policy_id": "uniform", "pinned": False, "learn": True}
    names = ("position", "item", "click", "propensity")
    return [
        {"event": str(row["event"]), "timestamp": row["event"], "segment": str(row["query"])}
        | {name: row[name] for name in names}
        | common
        for row in rows
    ]


def _counts(rows):
    def key(row):
        return str(row["query"]), row["item"], row["position"]

    found = []
    for (query, item, position), same in groupby(sorted(rows, key=key), key):
        clicks = [row["click"] for row in same]
        found.append(
            {"query": query, "item": item, "position": position, "impressions": len(clicks), "clicks": sum(clicks)}
        )
    return found
