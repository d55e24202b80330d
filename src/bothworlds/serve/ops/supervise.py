"""Several workers on one port: each has its own socket there, and the system spreads connections over them."""

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
from .run import COMPILING, NO_KEYS, is_postgres, listen, run, where

__all__ = ["supervise"]

AGAIN_SECONDS = 1.0
POLL_SECONDS = 0.2


def supervise(
    config: Config, announce: Callable[[str], None], work: Callable[[Config, Any], None] | None = None
) -> None:
    """Keep that many workers running until told to stop; then let all of them finish."""
    with tempfile.TemporaryDirectory(prefix="bothworlds-") as folder, listen(config, shared=True) as holder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        held = msgspec.structs.replace(config, port=holder.getsockname()[1])
        crew = _Crew(held, work or _work, folder)
        before = {sign: signal.signal(sign, crew.stop) for sign in (signal.SIGTERM, signal.SIGINT)}
        try:
            crew.run(lambda: _tell(announce, held, where(held, holder)))
        finally:
            for sign, handler in before.items():
                signal.signal(sign, handler)
            del os.environ["PROMETHEUS_MULTIPROC_DIR"]


def _tell(announce: Callable[[str], None], config: Config, address: str) -> None:
    kind = "PostgreSQL" if is_postgres(config.store) else config.store
    announce(f"bothworlds serves {kind} with {config.workers} workers at {address}; dashboard: {address}/")
    if is_postgres(config.store):
        with suppress(StoreError), closing(open_store(config.store, read_only=True)) as store:
            if not store.keys():
                announce(NO_KEYS)


def _work(config: Config, ready: Any) -> None:
    """What a worker does; what it refuses is told in one line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor hears it too, and tells the workers
    try:
        run(config, listen(config, shared=True), lambda said: None if said is COMPILING else ready.set())
    except (ValueError, OSError, ServiceError, StoreError) as error:
        sys.exit(f"bothworlds: {error}")


def _begin(work: Callable[[Config, Any], None], config: Config, ready: Any) -> None:
    """Where a worker begins: it is watched over even while it starts."""
    threading.Thread(target=_end_with_supervisor, name="bothworlds watch", daemon=True).start()
    work(config, ready)


def _end_with_supervisor() -> None:
    """Stop as if told to once the supervisor is gone, even by kill -9: nobody else would ever stop this worker."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)


class _Worker(NamedTuple):
    process: BaseProcess
    ready: Any  # an event that says that it serves


class _Crew:
    """The workers: started, watched, replaced if one dies, stopped together."""

    def __init__(self, config: Config, work: Callable[[Config, Any], None], folder: str) -> None:
        self._config, self._work, self._folder = config, work, Path(folder)
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []
        self._told = self._stopping = False

    def stop(self, *_: Any) -> None:
        """Begin to stop."""
        self._stopping = True

    def run(self, tell: Callable[[], None]) -> None:
        """Work until told to stop, or until it turns out that workers cannot start."""
        self._workers = [self._start() for _ in range(self._config.workers)]
        try:
            while not self._stopping:
                if not self._told and all(worker.ready.is_set() for worker in self._workers):
                    tell()
                    self._told = True
                self._workers = [self._watched(worker) for worker in self._workers]
                time.sleep(POLL_SECONDS)
        finally:
            self._finish()

    def _start(self) -> _Worker:
        ready = self._context.Event()
        process = self._context.Process(target=_begin, args=(self._work, self._config, ready))
        process.start()
        return _Worker(process, ready)

    def _watched(self, worker: _Worker) -> _Worker:
        """The worker, or another in its place; one that fails once all have served may be better off a second later."""
        if worker.process.is_alive() or self._stopping:
            return worker
        if not self._told:
            raise ValueError("a worker could not start; what it said is above")
        for file in self._folder.glob(f"gauge_live*_{worker.process.pid}.db"):
            file.unlink(missing_ok=True)  # what was true of a process that is gone
        if not worker.ready.is_set():
            time.sleep(AGAIN_SECONDS)
        return self._start()

    def _finish(self) -> None:
        for worker in self._workers:
            if worker.process.is_alive():
                worker.process.terminate()
        for worker in self._workers:
            worker.process.join(self._config.stop_seconds + 5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
