"""Real logs, which are no part of the project: where they are, or a reason to skip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("BOTHWORLDS_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")

needs_real_logs = pytest.mark.skipif(
    not (ROOT / "yandex" / "trainSample").exists(), reason="real logs are not here; BOTHWORLDS_DATA names their folder"
)


def real_file(name: str) -> Path:
    """A file of real clicks; the test is skipped where there is none."""
    if not (ROOT / name).is_file():
        pytest.skip(f"no {name} here; BOTHWORLDS_DATA names the folder of real logs")
    return ROOT / name
