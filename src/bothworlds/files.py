"""Atomic file writes: a reader sees the old contents of a file or the new ones, never a part."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


def save_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write a NumPy archive atomically, as ``replacing`` does."""
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def save_text(path: Path, text: str) -> None:
    """Write a text file atomically, as ``replacing`` does."""
    with replacing(path) as file:
        file.write(text.encode())


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces ``path`` when the block ends without an error.

    The file is flushed to disk before it replaces ``path``; a reader sees the old or the new contents, never a part.
    After an error the temporary file is removed and ``path`` is unchanged.
    """
    # Not from tempfile, which creates files that only their owner may read.
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(6)}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
