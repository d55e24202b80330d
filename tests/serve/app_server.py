"""An ASGI application on a free port of this machine, served by Uvicorn in a thread of the test."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import uvicorn


class _Server(uvicorn.Server):
    def __init__(self, config):
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets=None):
        await super().startup(sockets)
        self.ready.set()


@contextmanager
def listening(app, **options):
    """Yield the URL of the application while it is served; ``options`` are those of Uvicorn."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        free.listen(128)
        options = {"log_level": "critical", "lifespan": "off", "timeout_graceful_shutdown": 1, "ws": "none", **options}
        config = uvicorn.Config(app, **options)
        server = _Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [free]}, daemon=True)
        thread.start()
        assert server.ready.wait(60)
        try:
            yield f"http://127.0.0.1:{free.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)
