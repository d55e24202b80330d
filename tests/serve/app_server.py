"""An ASGI app on a free port of this machine, in a thread of the test."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager

import uvicorn


@contextmanager
def listening(app, **options):
    """Yield the address of the app while it listens; ``options`` are those of Uvicorn."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        free.listen(128)
        options = {"log_level": "critical", "lifespan": "off", "timeout_graceful_shutdown": 1, "ws": "none", **options}
        config = uvicorn.Config(app, **options)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [free]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{free.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)
