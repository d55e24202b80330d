"""Engines are chosen by name, and Ray is imported only on request; tests/test_ray_cluster.py starts a cluster."""

from __future__ import annotations

import subprocess
import sys

import pytest

import bothworlds


@pytest.mark.slow
def test_nothing_imports_ray_unless_it_is_requested():
    code = "import sys, bothworlds; bothworlds.play('uniform', 'paper/stochastic', 10); print('ray' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "spark"}, "engine must be 'local' or 'ray'; got 'spark'"),
        ({"address": "10.0.0.1:6379"}, "is the address of a Ray cluster; it needs engine 'ray'"),
    ],
)
def test_wrong_engines_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        bothworlds.play("uniform", "paper/stochastic", 10, **given)
