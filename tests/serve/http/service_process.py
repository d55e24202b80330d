"""Runs ``service_program.py`` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

SCRIPT = Path(__file__).parent / "service_program.py"
PATIENCE = 60.0  # seconds; long, since other tests may keep the machine busy


@contextmanager
def service(*words, host="127.0.0.1", port=0, workers=1, descriptors=None, **settings):
    """Yield the process and its address; ``settings`` are environment variables without their prefix."""
    command = [sys.executable, "-W", "error", str(SCRIPT), host, str(port), str(workers), *words]
    if descriptors is not None:
        command = ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh", *command]
    environment = os.environ | {f"BOTHWORLDS_{name.upper()}": str(value) for name, value in settings.items()}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        line = next((line for line in iter(process.stdout.readline, "") if " at " in line), "")
        yield process, line.partition(" at ")[2].partition(";")[0]
    finally:
        process.kill()
        process.communicate()


def until(condition):
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
