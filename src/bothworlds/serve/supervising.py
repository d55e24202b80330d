"""Several workers on one port: each has its own socket there, and the system spreads connections over them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec

from .config import Config
from .running import is_postgres, listen, run, where

__all__ = ["supervise"]

FIRST_SECONDS = 5.0  # a worker that ends before then could not start
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
            crew.run(lambda: announce(_listening(held, where(held, holder))))
        finally:
            for sign, handler in before.items():
                signal.signal(sign, handler)
            del os.environ["PROMETHEUS_MULTIPROC_DIR"]


def _listening(config: Config, address: str) -> str:
    kind = "PostgreSQL" if is_postgres(config.store) else config.store
    return f"bothworlds serves {kind} with {config.workers} workers at {address}; dashboard: {address}/"


def _work(config: Config, ready: Any) -> None:
    """What a worker does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor hears it too, and tells the workers
    run(config, listen(config, shared=True), lambda _: ready.set())


class _Crew:
    """The workers: started, watched, replaced if one dies, stopped together."""

    def __init__(self, config: Config, work: Callable[[Config, Any], None], folder: str) -> None:
        self._config, self._work, self._folder = config, work, Path(folder)
        self._context = multiprocessing.get_context("spawn")
        self._ready = self._context.Event()
        self._workers: list[tuple[BaseProcess, float]] = []
        self._stopping = False

    def stop(self, *_: Any) -> None:
        """Begin to stop."""
        self._stopping = True

    def run(self, tell: Callable[[], None]) -> None:
        """Work until told to stop, or until workers cannot start."""
        self._workers = [self._start() for _ in range(self._config.workers)]
        told = False
        try:
            while not self._stopping:
                if not told and self._ready.is_set():
                    tell()
                    told = True
                self._workers = [self._watched(worker, started) for worker, started in self._workers]
                time.sleep(POLL_SECONDS)
        finally:
            self._finish()

    def _start(self) -> tuple[BaseProcess, float]:
        worker = self._context.Process(target=self._work, args=(self._config, self._ready))
        worker.start()
        return worker, time.monotonic()

    def _watched(self, worker: BaseProcess, started: float) -> tuple[BaseProcess, float]:
        if worker.is_alive() or self._stopping:
            return worker, started
        if time.monotonic() - started < FIRST_SECONDS:
            raise ValueError("a worker ended as soon as it was started; what it said is above")
        for file in self._folder.glob(f"gauge_live*_{worker.pid}.db"):
            file.unlink(missing_ok=True)  # what was true of a process that is gone
        return self._start()

    def _finish(self) -> None:
        for worker, _ in self._workers:
            if worker.is_alive():
                worker.terminate()
        for worker, _ in self._workers:
            worker.join(self._config.stop_seconds + 5)
            if worker.is_alive():
                worker.kill()
                worker.join()
