"""Detecting what kind of file a log is: compression, CSV, NDJSON, Parquet or text, its columns and first lines."""

from __future__ import annotations

import csv
import glob
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...export_format import EXPORT_FORMAT
from ...extras import import_extra
from ...worlds.fitted import FORMAT

Paths = str | Path | Sequence[str | Path]
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
BOM = b"\xef\xbb\xbf"  # a byte order mark
INSPECTED_BYTES = 1 << 16  # at the start of a file
EXPORT_START = f'{{"format":"{EXPORT_FORMAT}"'.encode()  # of an export of the service
DELIMITERS = ",\t;|"


@dataclass(frozen=True)
class Source:
    """One file or in-memory table of a log, and what its first bytes reveal about its format."""

    path: Path
    kind: str  # "parquet", "ndjson", "text" or "memory"
    compression: str | None  # "gzip", "zstd" or None
    first_line: str = ""
    delimiter: str = ","
    columns: tuple[str, ...] = ()
    blank_lines: int = 0  # before the first line
    has_header: bool = False  # the first line is the header of an export of the service, which is not a row
    renamed: tuple[tuple[str, str], ...] = ()  # (column name of a layout, column of this file that stands for it)
    joined: tuple[str, ...] = ()  # the columns that are the query together
    table: Any = field(default=None, compare=False, repr=False)  # an Arrow table, for kind "memory"


def find_files(path: Paths) -> tuple[Path, ...]:
    """Return the files of a path: a file, several, a pattern such as ``day-*.csv``, or a folder of parts."""
    if not isinstance(path, (str, Path)):
        several = list(path) if isinstance(path, Iterable) else [path]
        if not several:
            raise ValueError("no log was given; give a file, a folder, or a pattern such as 'day-*.csv'")
        for one in several:
            if not isinstance(one, (str, Path)):
                raise ValueError(
                    "a log is a path, several paths, or a table with named columns; got "
                    f"{_type_names(path, one)}; join several tables to one, and put records into a list"
                )
        return _unique([file for one in several for file in find_files(one)])
    if not str(path):
        raise ValueError("the path of the log is empty; give a file, a folder, or a pattern such as 'day-*.csv'")
    given = Path(path)
    if given.is_dir():
        parts = sorted(p for p in given.rglob("*") if p.is_file() and not _hidden(p.relative_to(given)))
    elif given.exists():
        parts = [given]
    else:
        names = glob.glob(str(path), recursive=True)  # noqa: PTH207 - a pattern may be absolute
        parts = [Path(name) for name in sorted(names) if Path(name).is_file()]
    if not parts:
        raise ValueError(f"there is no file at {str(path)!r}; give a file, a folder, or a pattern such as 'day-*.csv'")
    return _unique(parts)


def _type_names(path: Any, one: Any) -> str:
    inside = "" if one is path else f" with {type(one).__name__}"
    return f"{type(path).__name__}{inside}"


def _unique(files: Sequence[Path]) -> tuple[Path, ...]:
    """Files in the order of their first occurrence, each once."""
    places: dict[Path, Path] = {}
    for file in files:
        places.setdefault(file.resolve(), file)
    return tuple(places.values())


def _hidden(path: Path) -> bool:
    """Whether a file or one of its folders has a name that marks it as no data, such as ``_temporary`` or ``.git``."""
    return any(part.startswith((".", "_")) for part in path.parts)


def inspect_file(path: Path) -> Source:
    """Detect the format of a file from its first bytes; its name is not used. Raises ValueError for an empty file."""
    with path.open("rb") as file:
        start = file.read(4)
    if not start:
        raise ValueError(f"{path} is empty")
    if start == b"PAR1":
        return Source(path, "parquet", None, columns=_parquet_columns(path))
    compression = next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)
    text, has_header = _first_bytes(path, compression)
    lines = text.removeprefix(BOM).lstrip(b"\r\n")
    first = lines.split(b"\n", 1)[0].decode(errors="replace").rstrip("\r")
    if not first:
        what = "has no rows" if has_header else "is empty, or starts with nothing but empty lines"
        raise ValueError(f"{path} {what}")
    second = lines.partition(b"\n")[2].partition(b"\n")[0]
    if first.lstrip().startswith(("{", "[")) or _object(second):
        if FORMAT in first[:100]:
            raise ValueError(f"{path} is a fitted model and not a log; bothworlds play --world {path} plays in it")
        # A line need not have all keys; bad lines are reported when they are read, and the last one may be cut.
        keys = dict.fromkeys(key for line in lines.split(b"\n") for key in _object(line))
        if first.lstrip().startswith("[") or not keys:
            raise ValueError(
                f"{path} is one JSON document or malformed; a log in JSON has an object for every result, each on a "
                "line"
            )
        if text.startswith(BOM):
            raise ValueError(f"{path} starts with a byte order mark, which JSON must not have; save it without one")
        return Source(path, "ndjson", compression, first, columns=tuple(keys), has_header=has_header)
    delimiter = max(DELIMITERS, key=first.count)
    blank = text[: -len(lines)].count(b"\n")
    return Source(path, "text", compression, first, delimiter, _header(path, first, delimiter), blank)


def rename_columns(source: Source, columns: Mapping[str, str], known: Sequence[str]) -> Source:
    """Return the source with ``columns`` applied, which maps some of the ``known`` column names to those of the file.

    The query may be several columns, ``"country,page"`` or a list. Raises ValueError for a name that is not known and
    for a column that the file lacks.
    """
    if not isinstance(columns, Mapping):
        raise ValueError(f'columns must map names to columns, as in {{"item": "product"}}; got {columns!r}')
    renamed, joined = [], tuple[str, ...]()
    for name, column in columns.items():
        if name not in known:
            raise ValueError(f"columns may name {', '.join(known)}; got {name!r}")
        parts = column_list(column) if name == "query" and column not in source.columns else [str(column)]
        for part in parts:
            if part not in source.columns:
                raise ValueError(f"{source.path} has no column {part!r}; it has {', '.join(source.columns)}")
        joined = tuple(parts) if len(parts) > 1 else joined
        renamed.append((name, ",".join(parts)))
    return replace(source, renamed=tuple(renamed), joined=joined)


def column_list(given: Any) -> list[str]:
    """Return the names in a list, or in a text between commas.

    >>> column_list("country, page"), column_list(["country"])
    (['country', 'page'], ['country'])
    """
    return [name.strip() for name in given.split(",")] if isinstance(given, str) else [str(name) for name in given]


def _object(line: bytes) -> dict[str, Any]:
    """The JSON object of a line; an empty one if it is anything else."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _header(path: Path, line: str, delimiter: str) -> tuple[str, ...]:
    try:
        columns = next(csv.reader([line], delimiter=delimiter))
    except csv.Error as error:
        raise ValueError(
            f"{path}, line 1: lines must end in a line feed, and no column name may contain a line break"
        ) from error
    return tuple(name.strip() or f"unnamed_{k}" for k, name in enumerate(columns))


def _parquet_columns(path: Path) -> tuple[str, ...]:
    parquet = import_extra("pyarrow.parquet")
    try:
        return tuple(parquet.read_schema(path).names)
    except Exception as error:
        raise ValueError(f"{path} starts like a Parquet file but cannot be read as one: {error}") from error


def _first_bytes(path: Path, compression: str | None) -> tuple[bytes, bool]:
    """The text at the start of a file, without the header of an export, and whether there is one."""
    try:
        with import_extra("pyarrow").input_stream(str(path), compression=compression) as stream:
            text: bytes = stream.read(INSPECTED_BYTES)
            if has_header := text.startswith(EXPORT_START):
                while b"\n" not in text and (more := stream.read(INSPECTED_BYTES)):
                    text = more
                text = text.partition(b"\n")[2] + stream.read(INSPECTED_BYTES)
    except OSError as error:
        raise ValueError(f"{path} cannot be decompressed: {error}") from error
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"{path} is in UTF-16; save it as UTF-8, as in iconv -f UTF-16 -t UTF-8")
    if b"\0" in text:
        raise ValueError(
            f"{path} is neither text nor Parquet; save it as CSV, NDJSON or Parquet, text also packed with gzip or zstd"
        )
    return text, has_header
