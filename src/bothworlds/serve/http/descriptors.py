"""File descriptors: how many connections may use, and noticing when none is left."""

from __future__ import annotations

import errno
import math
import os
import sys

from ..observability.logs import warn_throttled
from ..observability.metrics import Metrics

__all__ = ["check_free_descriptor", "descriptor_ceiling"]


def descriptor_ceiling(reserved: int) -> float:
    """The first descriptor number that a connection may not have: ``reserved`` below the limit, at least half of it.

    The system assigns the lowest free number. A connection with a number at or above the ceiling therefore means that
    at least so many descriptors are open, whatever they are used for. Without a limit the ceiling is infinite.
    """
    if sys.platform == "win32":
        return math.inf
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return math.inf if limit == resource.RLIM_INFINITY else max(limit - reserved, limit // 2)


def check_free_descriptor(metrics: Metrics) -> None:
    """Count and log it if the process (EMFILE) or the system (ENFILE) has no file descriptor left.

    The event loop accepts connections with libuv, which then resets new ones and reports nothing.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        metrics.exhausted()
        warn_throttled("descriptors exhausted", detail=error.strerror)
