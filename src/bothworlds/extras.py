"""Libraries of optional extras, imported when they are first needed, and the connection to a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any


def install_command(extra: str) -> str:
    """Return how to install an optional extra of this package, which no package index has.

    >>> print(install_command("gym"))
    pip install '.[gym]' in a checkout of bothworlds
    """
    return f"pip install '.[{extra}]' in a checkout of bothworlds"


def import_extra(module: str, extra: str = "clicks", requirement: str | None = None) -> Any:
    """Import a library of an optional extra; raise ImportError with the command that installs it.

    ``requirement`` is what to install instead of the extra, for a library that belongs to none.
    """
    try:
        return import_module(module)
    except ImportError as error:
        install = f"pip install {requirement}" if requirement else install_command(extra)
        raise ImportError(f"this needs {module.partition('.')[0]}: {install}") from error


def check_figures() -> None:
    """Raise ImportError if figures cannot be drawn. Matplotlib is not imported, so that this can be checked first."""
    if find_spec("matplotlib") is None:
        raise ImportError(f"figures need matplotlib: {install_command('figures')}")


def check_parquet() -> None:
    """Raise ImportError if Parquet files of results cannot be written. PyArrow is not imported."""
    if find_spec("pyarrow") is None:
        raise ImportError(f"Parquet needs pyarrow: {install_command('parquet')}, or save as .csv")


@contextmanager
def ray_connection(address: str | None = None) -> Iterator[Any]:
    """Yield the module ``ray``, connected to a cluster.

    A process that is connected already uses that connection and keeps it. Otherwise this connects to ``address``, or
    to the cluster of the environment variable ``RAY_ADDRESS``, or starts a temporary cluster on this machine, and
    disconnects afterwards. Raises ImportError without Ray, and ConnectionError if there is no cluster at ``address``.
    """
    ray = import_extra("ray", "ray")
    address = address or os.environ.get("RAY_ADDRESS")
    if ray.is_initialized():
        yield ray
        return
    # An interrupt kills the workers before they remove their temporary files, so these are in a folder of their own.
    with TemporaryDirectory(prefix="bothworlds-", ignore_cleanup_errors=True) as folder:
        local = {"include_dashboard": False, "runtime_env": {"env_vars": {"TMPDIR": folder}}}
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", **({"address": address} if address else local))
            yield ray
        finally:
            ray.shutdown()
