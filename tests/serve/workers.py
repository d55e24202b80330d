"""The processes in which a service of several workers does its work."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any


def workers_of(service: subprocess.Popen[Any]) -> list[int]:
    """Which processes of a service are workers; whoever ends meanwhile is none."""
    children = Path(f"/proc/{service.pid}/task/{service.pid}/children").read_text().split()
    return [int(pid) for pid in children if "spawn_main" in _command_of(pid)]


def _command_of(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
