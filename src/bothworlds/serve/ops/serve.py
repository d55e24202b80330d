"""``bothworlds serve``: one process, or several workers."""

from __future__ import annotations

from ..config import Config
from ..http.server import reserve
from .run import Announce, check_workers, run
from .supervise import supervise


def serve(config: Config, announce: Announce) -> None:
    """Run the service until SIGTERM or SIGINT; ``announce`` is called with its address once it is ready.

    Raises ValueError, with a sentence for the terminal, if the service cannot start. Must run in the main thread.
    """
    if config.workers > 1:
        check_workers(config)
    reservation, config = reserve(config)
    with reservation:
        if config.workers > 1:
            supervise(config, announce)
        else:
            run(config, announce)
