"""The export of a surface: what the service writes, and what ``Ranker.from_export`` and ``clicks.read`` read.

An export is NDJSON, one JSON object per line, or Parquet. The first line of NDJSON is a header, every other line a row;
in Parquet, the header is JSON under the metadata key ``bothworlds`` of the schema::

    {"format": "bothworlds export 1", "surface": {
        "name": "home", "objective": "clicks", "slots": 3, "floor": 0.005,
        "policy": "all-weather", "policy_settings": {}, "learner": 0,
        "arms": [{"name": "counts", "policy": "context-ts", "policy_settings": {}, "share": 0.2, "learner": 1}],
        "labels": {"device": null}, "item_labels": {"category": null},
        "items": [{"name": "lamp", "state": "active", "labels": {"category": "light"}},
                  {"name": "vase", "state": "removed", "labels": {}}],
        "reset": [{"learner": 0, "number": 17}]}}

``items`` are all items in the order of their indices, ``state`` is "active", "paused" or "removed". ``learner`` is the
number of the learner that the surface's own policy, or an arm, has now. ``labels`` and ``item_labels`` are declared as
in ``Ranker``; ``labels`` may be null. ``reset`` lists the learners that were reset: their state does not contain events
up to this number. Readers ignore fields that they do not know.

A row is one slot of a settled event. Events follow each other by ``number``, the rows of an event by ``position``.
Columns of every row:

==============  =====================================================================================================
``event``       the id of the event, in hexadecimal
``timestamp``   when the list was drawn, RFC 3339
``surface``     its name
``segment``     the value of the visitor's label ``segment``; "" if unknown
``context.x``   that of the label x, for every other label that is declared
``arm``         "learner", "holdout", or the name of an arm, when the list was drawn
``own``         whether the surface's own policy has learned from the event, whatever its arm
``learner``     the number of the learner that the event belongs to
``policy_id``   the name of the policy that drew the list, then ":" and anything; "baseline" for the holdout,
                "import" for an imported event whose log does not say
``number``      of the event in the log of the surface: the order in which events are learned
``n``           items of the surface when the list was drawn, including removed ones
``settled``     why it is settled: "final", "deadline", "import", "unconfirmed" or "void"
``position``    of the slot, from 1
``item``        the name of the item shown
``click``       0 or 1; with rewards, 1 for a reward above 0
``reward``      0 to 1; only where the objective is rewards
``propensity``  of the item at the slot
``pinned``      whether the request has chosen the item
``learn``       whether the slot was learned from: False at every slot of an event that is not learned (holdout,
                "unconfirmed", "void", or one of too many of a visitor), else at pinned ones
==============  =====================================================================================================

Columns of the first row of an event; missing or null in the others, and where there is nothing to say:

==============  =====================================================================================================
``absent``      names of the items, of the first ``n``, that could not be shown at the learned slots; or
``eligible``    names of all others of the first ``n``, if these are fewer: those that could be shown there
``note``        numbers that the policy remembered of the draw
==============  =====================================================================================================

Late clicks, which came after an event was settled, are not in the export. JSON and Parquet keep every bit of a number,
so a policy that learns the rows of a learner by ``number`` gets its state bit for bit, unless events were deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from .extras import import_extra

EXPORT_FORMAT = "bothworlds export 1"
METADATA_KEY = "bothworlds"  # of the header in the metadata of Parquet
PARQUET = b"PAR1"

Row = Mapping[str, Any]


def exported_surface(header: object) -> dict[str, Any]:
    """Return the surface that a header describes; raises ValueError for anything else, and for another format.

    >>> exported_surface({"format": "bothworlds export 1", "surface": {"name": "home"}})
    {'name': 'home'}
    """
    surface = header.get("surface") if isinstance(header, dict) else None
    if not isinstance(surface, dict):
        raise ValueError("it does not start with the header of an export")
    if header["format"] != EXPORT_FORMAT:  # type: ignore[index]
        raise ValueError(f"it has the format {header['format']!r}; this version reads {EXPORT_FORMAT!r}")  # type: ignore[index]
    return surface


def exported_context(row: Row) -> dict[str, str]:
    """Return the values of the visitor's labels that a row has, without unknown ones.

    >>> exported_context({"event": "e1", "segment": "", "context.device": "phone"})
    {'device': 'phone'}
    """
    prefix = "context."
    found = {name.removeprefix(prefix): row[name] for name in row if name.startswith(prefix) and row[name]}
    return found | ({"segment": row["segment"]} if row.get("segment") else {})


def read_export(path: str | Path) -> tuple[dict[str, Any], Iterator[list[Row]]]:
    """Return the surface of an export, and its events in the order of the file: the rows of each.

    Rows are read while they are iterated. Raises FileNotFoundError, ValueError if the file is not an export, or
    ImportError for Parquet without PyArrow.
    """
    path = Path(path)
    with path.open("rb") as file:
        start = file.read(len(PARQUET))
    try:
        header, rows = _read_parquet(path) if start == PARQUET else _read_lines(path)
        return exported_surface(header), (list(event) for _, event in groupby(rows, itemgetter("event")))
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} is not the export of a surface: {error}") from error


def _read_lines(path: Path) -> tuple[object, Iterator[Row]]:
    with path.open("rb") as file:
        header = json.loads(file.readline())

    def rows() -> Iterator[Row]:
        with path.open("rb") as file:
            file.readline()
            yield from map(json.loads, file)

    return header, rows()


def _read_parquet(path: Path) -> tuple[object, Iterator[Row]]:
    file = import_extra("pyarrow.parquet", "parquet").ParquetFile(path)
    header = json.loads((file.schema_arrow.metadata or {}).get(METADATA_KEY.encode(), b"null"))
    batches: Iterable[Any] = file.iter_batches()
    return header, (row for batch in batches for row in batch.to_pylist())
