"""``bothworlds serve``: one process, or several workers on one port.

Each worker has its own socket, and the system spreads connections over them.

A worker is replaced if its process dies, or if its event loop gives no sign of life: it is stopped, or blocked.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ..config import Config
from ..http.server import reserve
from ..model import ServiceError
from ..stores import StoreError, open_store
from .run import Announce, Beat, announce_started, check_workers, run

RESTART_SECONDS = 1.0
POLL_SECONDS = 0.2
HANG_SECONDS = 5.0  # without a beat

Work = Callable[[Config, Beat], None]  # called in a worker with the settings and what to call as a sign of life


def serve(config: Config, announce: Announce) -> None:
    """Run the service until SIGTERM or SIGINT; ``announce`` is called with its address once it is ready.

    Raises ValueError, with a sentence for the terminal, if the service cannot start. Must run in the main thread.
    """
    if config.workers > 1:
        check_workers(config)
    reservation, config = reserve(config)
    with reservation:
        (supervise if config.workers > 1 else run)(config, announce)


def supervise(config: Config, announce: Announce, work: Work | None = None) -> None:
    """Run ``config.workers`` workers until SIGTERM or SIGINT, replacing those that die or hang; then stop all of them.

    The port must be reserved (``server.reserve``). ``announce`` is called once all workers serve, and when one hangs.
    ``work`` replaces what a worker runs, for tests. Raises ValueError if a worker cannot start. Must run in the main
    thread.
    """
    with tempfile.TemporaryDirectory(prefix="bothworlds-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        workers = _WorkerPool(config, work or _work, folder, announce)
        previous = {number: signal.signal(number, workers.stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            workers.run(lambda: announce_started(announce, config, _is_open(config)))
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            del os.environ["PROMETHEUS_MULTIPROC_DIR"]


def _is_open(config: Config) -> bool:
    """Return whether the store is known to have no keys."""
    with suppress(StoreError), closing(open_store(config.store, read_only=True)) as store:
        return not store.keys()
    return False


def _work(config: Config, beat: Beat) -> None:
    """Run one worker; exits with a message in one line if it cannot start."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches all processes; the supervisor stops the workers
    try:
        run(config, lambda _: None, beat=beat)
    except (ValueError, OSError, ServiceError, StoreError) as error:
        sys.exit(f"bothworlds: {error}")


def _start_work(work: Work, config: Config, beats: Any) -> None:
    """The entry point of a worker process."""

    def beat() -> None:
        beats.value += 1

    threading.Thread(target=_stop_with_supervisor, name="bothworlds watch", daemon=True).start()
    work(config, beat)


def _stop_with_supervisor() -> None:
    """Stop this worker once the supervisor is gone: after a kill -9 no other process would stop it."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)


@dataclass
class _Worker:
    """A worker process, and how many signs of life it has given; the first when it serves."""

    process: BaseProcess
    beats: Any  # a counter in shared memory
    seen: int = 0  # beats at the last check
    checks: int = 0  # since the last beat

    @property
    def serves(self) -> bool:
        return self.beats.value > 0

    def hangs(self) -> bool:
        """Return whether a worker that served has given no sign of life for long.

        Checks are counted instead of seconds: after a pause of the whole machine, workers have time to go on.
        """
        self.checks = self.checks + 1 if self.beats.value == self.seen else 0
        self.seen = self.beats.value
        return self.serves and self.checks * POLL_SECONDS > HANG_SECONDS


class _WorkerPool:
    """The worker processes: starts them, replaces those that die or hang, stops them together."""

    def __init__(self, config: Config, work: Work, folder: str, announce: Announce) -> None:
        self._config, self._work, self._folder, self._announce = config, work, Path(folder), announce
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []
        self._announced = self._stopping = False

    def stop(self, *_: Any) -> None:
        """Make ``run`` stop the workers and return; a signal handler."""
        self._stopping = True

    def run(self, on_started: Callable[[], None]) -> None:
        """Run the workers until ``stop``; raises ValueError if one dies before all have served."""
        self._workers = [self._start() for _ in range(self._config.workers)]
        try:
            while not self._stopping:
                if not self._announced and all(worker.serves for worker in self._workers):
                    on_started()
                    self._announced = True
                self._workers = [self._alive(worker) for worker in self._workers]
                time.sleep(POLL_SECONDS)
        finally:
            self._stop_all()

    def _start(self) -> _Worker:
        beats = self._context.RawValue("Q", 0)
        process = self._context.Process(target=_start_work, args=(self._work, self._config, beats))
        process.start()
        return _Worker(process, beats)

    def _alive(self, worker: _Worker) -> _Worker:
        """Return the worker, or a new one if it has died or hangs; waits if it died before it served."""
        if self._stopping:
            return worker
        if worker.process.is_alive():
            if not worker.hangs():
                return worker
            self._announce(f"Worker {worker.process.pid} has not responded for {HANG_SECONDS:g} seconds: replacing it.")
            _kill(worker.process)
        if not self._announced:
            raise ValueError("a worker could not start; its message is above")
        for file in self._folder.glob(f"gauge_live*_{worker.process.pid}.db"):
            file.unlink(missing_ok=True)  # gauges of the dead process
        if not worker.serves:
            time.sleep(RESTART_SECONDS)
        return self._start()

    def _stop_all(self) -> None:
        for worker in self._workers:
            if worker.process.is_alive():
                worker.process.terminate()
        for worker in self._workers:
            worker.process.join(self._config.stop_seconds + 5)
            if worker.process.is_alive():
                _kill(worker.process)


def _kill(process: BaseProcess) -> None:
    """Kill a process, also one that is stopped, and wait for its end."""
    process.kill()
    process.join()
