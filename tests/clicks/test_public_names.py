"""The public names of ``bothworlds.clicks``."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from bothworlds import clicks


@pytest.mark.parametrize("name", clicks.__all__)
def test_every_public_name_can_be_imported(name):
    assert callable(getattr(clicks, name))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = clicks.nothing


@pytest.mark.slow
def test_no_module_shadows_a_public_name():
    """Importing a submodule sets an attribute of the package, which must not replace a function."""
    program = """
import importlib, pkgutil
from bothworlds import clicks
for module in pkgutil.iter_modules(clicks.__path__):
    importlib.import_module(f"bothworlds.clicks.{module.name}")
print(sorted(name for name in clicks.__all__ if not callable(getattr(clicks, name))))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


SIGNATURES = {
    "read": "path, format, columns, query, positions, top_items, skip_bad, clip, engine, progress",
    "fit": "log, model, method, iterations, prior, ordered, intervals, seed, progress",
    "compare": "log, models, priors, seed, reference, progress",
    "generate": "path, world, pages, queries, seed, progress",
    "score": "model, log",
    "evaluate": "log, target, marginals, estimator, windows, examination, cluster, since, clip_weights, draws, seed, "
    "label, progress",
    "load_model": "path",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_those_of_the_documentation(name):
    assert ", ".join(inspect.signature(getattr(clicks, name)).parameters) == SIGNATURES[name]


def test_the_options_of_reading_are_those_of_read_only():
    options = {"format", "top_items", "positions", "query", "skip_bad", "clip", "columns"}
    assert options <= set(inspect.signature(clicks.read).parameters)
    for function in (clicks.fit, clicks.score, clicks.compare, clicks.evaluate):
        assert not options & set(inspect.signature(function).parameters)
