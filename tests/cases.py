"""Cases that share a cause are a loop in one test: a failure names its case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(**values: object) -> Iterator[None]:
    """Name the case in whatever is raised."""
    try:
        yield
    except BaseException as error:
        error.add_note("in the case " + ", ".join(f"{name}={value!r}" for name, value in values.items()))
        raise
