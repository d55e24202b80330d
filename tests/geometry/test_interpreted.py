"""The compiled kernels against their own source, interpreted: the same marginals, the same draws, the same rankings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from bothworlds.geometry import best_ranking, leader, sample_ranking
from tests.geometry.problems import random_problem
from tests.reference.regularizers import NAMES

ROOT = Path(__file__).parents[2]
SHAPES = [(1, 1), (3, 1), (4, 2), (3, 3), (5, 4)]


def everything():
    """Small cases of all there is, as plain numbers. Run in this process and in one that does not compile."""
    results = []
    for regularizer in NAMES:
        for shape in SHAPES:
            rng = np.random.default_rng([*shape, NAMES.index(regularizer)])
            problem = random_problem(rng, shape, regularizer)
            result = problem.solve()
            later = leader(problem.loss + rng.random(shape), problem.rate, regularizer=regularizer, warm=result)
            draws = [sample_ranking(result.marginals, rng).tolist() for _ in range(8)]
            results.append(
                {
                    "marginals": result.marginals.tolist(),
                    "later": later.marginals.tolist(),
                    "iterations": [result.iterations, later.iterations],
                    "draws": draws,
                    "best": best_ranking(problem.loss).tolist(),
                }
            )
    return results


def interpreted():
    """The same, from a process of its own in which kernels are plain functions."""
    program = "import json, tests.geometry.test_interpreted as t; print(json.dumps(t.everything()))"
    paths = [str(ROOT), *sys.path]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled here")
def test_compiled_and_interpreted_kernels_agree():
    for compiled, plain in zip(everything(), interpreted(), strict=True):
        for key in ("marginals", "later"):
            # A compiler may fuse a product with a sum, so the last digits can differ.
            assert np.allclose(compiled[key], plain[key], rtol=1e-7, atol=1e-12)
        assert compiled["draws"] == plain["draws"]
        assert compiled["best"] == plain["best"]
        assert np.abs(np.subtract(compiled["iterations"], plain["iterations"])).max() <= 2
