"""The head of a file: how it is packed, what kind of file it is, its columns and first lines."""

from __future__ import annotations

import csv
import glob
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

__all__ = ["Head", "Paths", "find_files", "first_records", "look_at", "needs", "unpacking", "with_names"]

Paths = str | Path | Sequence[str | Path]
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
BOM = b"\xef\xbb\xbf"  # a byte order mark
LOOK = 1 << 16  # bytes
DELIMITERS = ",\t;|"


@dataclass(frozen=True)
class Head:
    """What the start of a file says about all of it."""

    path: Path
    kind: str  # "parquet", "ndjson", "text" or "memory"
    compression: str | None  # "gzip", "zstd" or None
    first: str = ""  # the first line
    delimiter: str = ","
    columns: tuple[str, ...] = ()
    blank: int = 0  # empty lines before the first
    called: tuple[tuple[str, str], ...] = ()  # names that are known here, and the columns that go by another
    table: Any = field(default=None, compare=False, repr=False)  # of Arrow, if it is in memory


def needs(module: str, extra: str = "clicks") -> Any:
    """Import a library of an extra, or say how to install it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"this needs {module.partition('.')[0]}: pip install 'bothworlds[{extra}]'") from error


def find_files(path: Paths) -> tuple[Path, ...]:
    """The files meant by a path: a file, several, a pattern such as ``day-*.csv``, or a folder of parts."""
    if not isinstance(path, (str, Path)):
        several = list(path) if isinstance(path, Iterable) else [path]
        if not several:
            raise ValueError("no log was given; give a file, a folder, or a pattern such as 'day-*.csv'")
        for one in several:
            if not isinstance(one, (str, Path)):
                raise ValueError(
                    "a log is a path, several of them, or a table with named columns; got "
                    f"{_said(path, one)}; join several tables to one, and put records into a list"
                )
        return _once([file for one in several for file in find_files(one)])
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
    return _once(parts)


def _said(path: Any, one: Any) -> str:
    inside = "" if one is path else f" with {type(one).__name__}"
    return f"{type(path).__name__}{inside}"


def _once(files: Sequence[Path]) -> tuple[Path, ...]:
    """Each file where it comes first, however often it is named."""
    places: dict[Path, Path] = {}
    for file in files:
        places.setdefault(file.resolve(), file)
    return tuple(places.values())


def _hidden(path: Path) -> bool:
    """Whether a file, or a folder it is in, is set aside by its name, as ``_temporary`` and ``.git`` are."""
    return any(part.startswith((".", "_")) for part in path.parts)


def look_at(path: Path) -> Head:
    """Look at the first bytes of a file; its name plays no part."""
    with path.open("rb") as file:
        start = file.read(4)
    if not start:
        raise ValueError(f"{path} is empty")
    if start == b"PAR1":
        return Head(path, "parquet", None, columns=_parquet_columns(path))
    compression = next((name for magic, name in MAGIC.items() if start.startswith(magic)), None)
    text = _start(path, compression)
    lines = text.removeprefix(BOM).lstrip(b"\r\n")
    first = lines.split(b"\n", 1)[0].decode(errors="replace").rstrip("\r")
    if not first:
        raise ValueError(f"{path} is empty, or has nothing but empty lines at its start")
    second = lines.partition(b"\n")[2].partition(b"\n")[0]
    if first.lstrip().startswith(("{", "[")) or _is_object(second):
        _check_lines(path, first.strip(), whole=b"\n" in lines, going_on=_is_object(second))
        if text.startswith(BOM):
            raise ValueError(f"{path} starts with a byte order mark, which JSON must not have; save it without one")
        return Head(path, "ndjson", compression, first, columns=_keys(path, lines))
    delimiter = max(DELIMITERS, key=first.count)
    blank = text[: -len(lines)].count(b"\n")
    return Head(path, "text", compression, first, delimiter, _header(path, first, delimiter), blank)


def first_records(head: Head) -> list[str]:
    """The records at the start of a text, ended by semicolons or the ends of lines; the last may be cut."""
    return re.split("[\n;]", _start(head.path, head.compression).removeprefix(BOM).decode(errors="replace"))


def with_names(head: Head, columns: Mapping[str, str], known: Sequence[str]) -> Head:
    """The head of a table whose columns have names of their own: ``columns`` says which stands for which known one."""
    if not isinstance(columns, Mapping):
        raise ValueError(f'columns must say which is which, as in {{"item": "product"}}; got {columns!r}')
    for name, column in columns.items():
        if name not in known:
            raise ValueError(f"columns may name {', '.join(known)}; got {name!r}")
        if str(column) not in head.columns:
            raise ValueError(f"{head.path} has no column {column!r}; it has {', '.join(head.columns)}")
    return replace(head, called=tuple((name, str(column)) for name, column in columns.items()))


def _is_object(line: bytes) -> bool:
    """Whether a line is an object of JSON, all of it."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _check_lines(path: Path, first: str, whole: bool, going_on: bool) -> None:
    """Refuse JSON that is one document, and not an object on every line.

    ``whole`` says if the first line is, and ``going_on`` if the second is an object, so that the first is just broken.
    """
    from ..model.file import FORMAT

    if FORMAT in first[:100]:
        raise ValueError(f"{path} is a fitted model and not a log; bothworlds play --world {path} plays in it")
    try:
        json.loads(first)
        document = first.startswith("[")
    except json.JSONDecodeError as error:
        document = not going_on and (not whole or error.pos >= len(first))
    if document:
        raise ValueError(f"{path} is one JSON document; a log in JSON has an object for every result, each on a line")


def _header(path: Path, line: str, delimiter: str) -> tuple[str, ...]:
    try:
        columns = next(csv.reader([line], delimiter=delimiter))
    except csv.Error as error:
        raise ValueError(f"{path}, line 1: lines must end in a line feed, and no column may hold a break") from error
    return tuple(name.strip() or f"unnamed_{k}" for k, name in enumerate(columns))


def _parquet_columns(path: Path) -> tuple[str, ...]:
    parquet = needs("pyarrow.parquet")
    try:
        return tuple(parquet.read_schema(path).names)
    except Exception as error:
        raise ValueError(f"{path} starts like a Parquet file but cannot be read as one: {error}") from error


@contextmanager
def unpacking(path: str | Path) -> Iterator[None]:
    """Say of the file what is wrong with how it is packed."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        raise ValueError(f"{path} cannot be unpacked: {error}") from error


def _start(path: Path, compression: str | None) -> bytes:
    with unpacking(path), needs("pyarrow").input_stream(str(path), compression=compression) as stream:
        text: bytes = stream.read(LOOK)
    if b"\0" in text:
        raise ValueError(f"{path} is not a text file, nor Parquet")
    return text


def _keys(path: Path, text: bytes) -> tuple[str, ...]:
    """The keys of all lines that were looked at: not every line need have all of them."""
    keys: dict[str, None] = {}
    for line in text.split(b"\n"):
        with suppress(ValueError):  # bad lines are found later, and the last may be cut
            found = json.loads(line)
            keys.update(dict.fromkeys(found if isinstance(found, dict) else ()))
    if not keys:
        raise ValueError(f"{path}, line 1: this looks like JSON but is malformed, and so are the lines after it")
    return tuple(keys)
