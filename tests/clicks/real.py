"""Real logs, which are no part of the project: where they are, or a reason to skip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("BOTHWORLDS_DATA", Path(__file__).parents[3] / "shared" / "data"))

needs_real_logs = pytest.mark.skipif(
    not (ROOT / "yandex" / "trainSample").exists(), reason="real logs are not here; BOTHWORLDS_DATA names their folder"
)
