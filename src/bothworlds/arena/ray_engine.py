"""Replications on a Ray cluster.

A cell is one Ray task of one core. Ray plays the cells of a lost node again on another one. The results are those of
this machine to the last bit, as long as all nodes have the same sources (each task checks that) and the same kind of
processor (compiled code may round differently on another kind).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from ..extras import import_extra, ray_connection
from ..kernels import SOURCES_DIGEST
from .game import Game
from .loop import Score, replicate
from .parallel import Cell, ReportRounds

RETRIES = 10  # of a cell whose node or process was lost
QUEUED = 2  # cells per core that wait on the cluster, so that a core that becomes free has work at once
POLL = 0.5  # seconds until an interrupt is noticed


class RayEngine:
    """Plays cells on the Ray cluster at an address, as ``ray_connection`` finds it.

    At most ``jobs`` cells are on the cluster at a time; if not given, as many as its cores can play.
    """

    def __init__(self, address: str | None = None, jobs: int | None = None) -> None:
        self.address, self.jobs = address, jobs

    def prepare(self, games: Sequence[Game], progress: bool | None) -> None:
        """Import Ray; kernels are compiled on the nodes. Raises ImportError without Ray."""
        import_extra("ray", "ray")

    def play(
        self, games: Sequence[Game], cells: Sequence[Cell], report: ReportRounds
    ) -> Iterator[tuple[Cell, Score | Exception]]:
        """Play the cells; ``report`` is called in this thread when a cell has ended. Raises ConnectionError."""
        if not cells:
            return
        with ray_connection(self.address) as ray:
            task = ray.remote(_play_cell).options(num_cpus=1, max_retries=RETRIES)
            shared = {g: ray.put(games[g]) for g in {cell.game for cell in cells}}
            waiting, running = deque(cells), dict[Any, Cell]()
            try:
                while waiting or running:
                    limit = self.jobs or QUEUED * max(1, int(ray.cluster_resources().get("CPU", 1)))
                    while waiting and len(running) < limit:
                        cell = waiting.popleft()
                        running[task.remote(shared[cell.game], cell.replication, SOURCES_DIGEST)] = cell
                    ended, _ = ray.wait(list(running), num_returns=1, timeout=POLL)
                    report(cells[0].game, 0)
                    for reference in ended:
                        cell = running.pop(reference)
                        report(cell.game, games[cell.game].rounds)
                        yield cell, _outcome(ray, reference)
            finally:
                for reference in running:
                    ray.cancel(reference, force=True)


def _outcome(ray: Any, reference: Any) -> Score | Exception:
    """The score of a task that has ended, or the exception that it raised, or that Ray raised for a lost process."""
    try:
        score: Score = ray.get(reference)
        return score
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        return cause if isinstance(cause, Exception) else error
    except ray.exceptions.RayError as error:
        return RuntimeError(f"Ray lost it {RETRIES + 1} times: {str(error).splitlines()[0]}")


def _play_cell(game: Game, replication: int, sources: str) -> Score:
    """One task. Raises RuntimeError on a node with other sources than those of the process that started it."""
    if sources != SOURCES_DIGEST:
        raise RuntimeError(f"node {os.uname().nodename} has another version of bothworlds; install the same on all")
    return replicate(game, replication, lambda rounds: None)
