"""The compiled fits against their own source, interpreted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from bothworlds.clicks import fit
from tests.clicks.logs import generated

ROOT = Path(__file__).parents[3]


def everything():
    """Small fits of all kinds, as plain numbers."""
    counts, found = generated(4, 4, 3, 20, seed=3, share=0.8), []
    for options in ({}, {"method": "em", "iterations": 20}, {"prior": 0.1}):
        model = fit(counts, **options)
        found.append([model.log_likelihood, model.iterations])
        found += [[row["attraction"], row["low"], row["high"], row["standard_error"]] for row in model.table()]
        found += [[row["value"], row["low"], row["high"]] for row in model.shared_table()]
    return found


@pytest.mark.slow
@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled here")
def test_compiled_and_interpreted_fits_agree():
    program = "import json, tests.clicks.fitting.test_interpreted as t; print(json.dumps(t.everything()))"
    paths = [str(ROOT), *sys.path]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for compiled, plain in zip(everything(), json.loads(done.stdout), strict=True):
        np.testing.assert_allclose(compiled, plain, rtol=1e-9)
