"""``python service_program.py HOST PORT WORKERS``: serve a temporary store, with requests that take long or fail."""

from __future__ import annotations

import asyncio
import gc
import itertools
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from bothworlds.serve.config import load_config
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.http.app import Service
from bothworlds.serve.http.server import reserve
from bothworlds.serve.model import DRAW_KEY
from bothworlds.serve.ops.run import OpenService, run
from bothworlds.serve.ops.supervise import supervise
from tests.serve.running import temporary_store


class SlowEngine(Engine):
    """Takes long for a certain request id, exports without end or until a failure, and prints when it has stopped."""

    async def rank(self, surface, request_id, **options):
        if request_id == "slow":
            print("asked", flush=True)
            await asyncio.sleep(0.7)
        return await super().rank(surface, request_id, **options)

    async def start(self):
        if "broken" in sys.argv:
            raise RuntimeError("the engine does not start")
        await super().start()
        self.log.export = exported
        await self.administration.put_surface("home", {"slots": 2, "items": ["a", "b", "c"]}, actor="test")

    async def stop(self):
        if "kept" in sys.argv:
            print("kept", gc.get_freeze_count(), flush=True)
        await super().stop()
        print("stopped", flush=True)


def exported(surface):
    """Rows without end, or until a failure; prints when the export was released."""
    try:
        for k in range(5000) if "failing" in sys.argv else itertools.count():
            yield {"event": f"e{k}", "position": 0, "item": "a", "click": 0, "propensity": 0.5}
        raise OSError("the disk is gone")
    finally:
        print("export released", flush=True)


def opened(config, json):
    store = temporary_store()
    store.put(DRAW_KEY, bytes(32))  # events have the same ids in every run
    return OpenService(Service(SlowEngine(store), store, config, json_log=json), store)


def say(sentence):
    print(sentence, flush=True)


def work(config, beat):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run(config, lambda _: None, opened, beat)
    except ValueError as error:
        sys.exit(f"refused: {error}")


def main(host, port, workers, *_):
    config = load_config(None, host=host, port=int(port), workers=int(workers), request_log="log" in sys.argv)
    try:
        reservation, config = reserve(config)
        with reservation:
            if config.workers > 1:
                supervise(config, say, work)
            else:
                run(config, say, opened)
    except ValueError as error:
        sys.exit(f"refused: {error}")


if __name__ == "__main__":
    gc.disable()  # no connection may stay open until the next collection
    main(*sys.argv[1:])
