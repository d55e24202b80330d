"""Several workers on one port: each has its own socket, and the system spreads connections over them."""

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
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..config import Config
from ..model import ServiceError
from ..stores.base import StoreError
from ..stores.factory import open_store
from .run import COMPILING, NO_KEYS, Announce, address_of, is_postgres, listen, run

__all__ = ["supervise"]

RESTART_SECONDS = 1.0
POLL_SECONDS = 0.2


Work = Callable[[Config, Any], None]  # called in a worker with the settings and an event to set when it serves


def supervise(config: Config, announce: Announce, work: Work | None = None) -> None:
    """Run ``config.workers`` workers until SIGTERM or SIGINT, and replace those that die; then stop all of them.

    ``announce`` is called once all workers serve. ``work`` replaces what a worker runs, for tests. Raises ValueError if
    a worker cannot start. Must run in the main thread.
    """
    with tempfile.TemporaryDirectory(prefix="bothworlds-") as folder, listen(config, shared=True) as reservation:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        bound = msgspec.structs.replace(config, port=reservation.getsockname()[1])
        workers = _WorkerPool(bound, work or _work, folder)
        previous = {number: signal.signal(number, workers.stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            workers.run(lambda: announce_started(announce, bound, address_of(bound, reservation)))
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            del os.environ["PROMETHEUS_MULTIPROC_DIR"]


def announce_started(announce: Announce, config: Config, address: str) -> None:
    """Announce the address, and that there are no keys if the store has none."""
    kind = "PostgreSQL" if is_postgres(config.store) else config.store
    announce(f"bothworlds serves {kind} with {config.workers} workers at {address}; dashboard: {address}/")
    if is_postgres(config.store):
        with suppress(StoreError), closing(open_store(config.store, read_only=True)) as store:
            if not store.keys():
                announce(NO_KEYS)


def _work(config: Config, ready: Any) -> None:
    """Run one worker; exits with a message in one line if it cannot start."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches all processes; the supervisor stops the workers
    try:
        run(config, listen(config, shared=True), lambda text: None if text is COMPILING else ready.set())
    except (ValueError, OSError, ServiceError, StoreError) as error:
        sys.exit(f"bothworlds: {error}")


def _start_work(work: Work, config: Config, ready: Any) -> None:
    """The entry point of a worker process."""
    threading.Thread(target=_stop_with_supervisor, name="bothworlds watch", daemon=True).start()
    work(config, ready)


def _stop_with_supervisor() -> None:
    """Stop this worker once the supervisor is gone: after a kill -9 no other process would stop it."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)


class _Worker(NamedTuple):
    process: BaseProcess
    ready: Any  # an event, set once it serves


class _WorkerPool:
    """The worker processes: starts them, replaces those that die, stops them together."""

    def __init__(self, config: Config, work: Work, folder: str) -> None:
        self._config, self._work, self._folder = config, work, Path(folder)
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
                if not self._announced and all(worker.ready.is_set() for worker in self._workers):
                    on_started()
                    self._announced = True
                self._workers = [self._alive(worker) for worker in self._workers]
                time.sleep(POLL_SECONDS)
        finally:
            self._stop_all()

    def _start(self) -> _Worker:
        ready = self._context.Event()
        process = self._context.Process(target=_start_work, args=(self._work, self._config, ready))
        process.start()
        return _Worker(process, ready)

    def _alive(self, worker: _Worker) -> _Worker:
        """Return the worker, or a new one if it has died; waits before the restart if it died before it served."""
        if worker.process.is_alive() or self._stopping:
            return worker
        if not self._announced:
            raise ValueError("a worker could not start; its message is above")
        for file in self._folder.glob(f"gauge_live*_{worker.process.pid}.db"):
            file.unlink(missing_ok=True)  # gauges of the dead process
        if not worker.ready.is_set():
            time.sleep(RESTART_SECONDS)
        return self._start()

    def _stop_all(self) -> None:
        for worker in self._workers:
            if worker.process.is_alive():
                worker.process.terminate()
        for worker in self._workers:
            worker.process.join(self._config.stop_seconds + 5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
