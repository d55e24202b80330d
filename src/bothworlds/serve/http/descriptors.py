"""File descriptors: how many connections may use, and a check whether any is left."""

from __future__ import annotations

import errno
import math
import os
import sys

from ..observability.logs import warn_throttled
from ..observability.metrics import Metrics

__all__ = ["check_free_descriptor", "descriptor_ceiling"]


def descriptor_ceiling(reserved: int) -> float:
    """Return the first descriptor number that a connection may not have.

    It is ``reserved`` below the limit of the process, and at least half of the limit; infinite without a limit. The
    system assigns the lowest free number: a connection with a number at or above the ceiling means that at least so
    many descriptors are open, by connections or by anything else.
    """
    if sys.platform == "win32":
        return math.inf
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return math.inf if limit == resource.RLIM_INFINITY else max(limit - reserved, limit // 2)


def check_free_descriptor(metrics: Metrics) -> None:
    """Count and log it if the process (EMFILE) or the system (ENFILE) has no free file descriptor.

    Without this check nothing would show it: libuv, which accepts the connections, resets new ones silently.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        metrics.count_exhausted_descriptors()
        warn_throttled("descriptors exhausted", detail=error.strerror)
