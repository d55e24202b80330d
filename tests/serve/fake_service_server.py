"""The fake service as a program, in place of ``bothworlds serve``; its store is a file that counts starts."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

from tests.serve.app_server import listening
from tests.serve.fake_service import FakeService

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--rejecting", action="store_true")
    asked = parser.parse_args()
    asked.store.write_text(asked.store.read_text() + "x" if asked.store.exists() else "x")
    service = FakeService()
    service.rejecting = asked.rejecting
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # also in the threads of the server
    with listening(service.app, port=asked.port):
        signal.sigwait([signal.SIGTERM])
