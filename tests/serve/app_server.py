"""An ASGI application on a free port of this machine, served in a thread of the test as the service is."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager

from bothworlds.serve.config import Config
from bothworlds.serve.http import server


@contextmanager
def listening(app, port=0, *, started=False, **settings):
    """Yield the URL of the application while it is served; with ``started``, it is a service that has to be started."""
    reservation, config = server.reserve(Config(port=port, stop_seconds=1, **settings))
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve():
        if started:
            await app.start()
        async with server.listening(app, config):
            ready.set()
            await stop.wait()
        if started:
            await app.stop()

    def run():
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, daemon=True)
    with reservation:
        thread.start()
        assert ready.wait(600)  # it may have to compile kernels
        try:
            yield f"http://{config.host}:{config.port}"
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(10)
