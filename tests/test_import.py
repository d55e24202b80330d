"""Importing the package is quick, because it loads nothing heavy before it is needed."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import bothworlds

HEAVY = ("numba", "llvmlite", "scipy", "matplotlib", "rich", "typer", "pyarrow", "msgspec", "starlette", "duckdb")
HEAVY += ("gymnasium", "pandas", "polars")
ROOMS = ("arena", "clicks", "core", "experiments", "geometry", "policies", "ranker", "serve", "statistics", "testing")
ROOMS += ("theory", "worlds")

REPORT = """
import json, sys
from importlib import import_module

def fresh():
    for name in [name for name in sys.modules if name.partition(".")[0] == "bothworlds"]:
        del sys.modules[name]
    return import_module("bothworlds")

def heavy():
    return [name for name in {heavy!r} if name in sys.modules]

found = []
for statement in {statements!r}:
    exec(statement)
    found.append(heavy())
print(json.dumps([found, globals().get("result")]))
"""


def in_a_fresh_interpreter(*statements):
    """Return the heavy modules that are loaded after each statement, and the variable ``result`` in the end."""
    code = REPORT.format(heavy=HEAVY, statements=statements)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    return json.loads(run.stdout)


@pytest.mark.slow
def test_nothing_heavy_is_loaded_before_it_is_needed():
    """Not by the package, its names, a client, a world, or the command line before a command runs."""
    statements = (
        "import bothworlds",
        "dir(bothworlds); bothworlds.__version__",
        "bothworlds.Client('http://127.0.0.1:1')",
        "bothworlds.world('paper/periodic-both').click_probabilities(0)",
        "import bothworlds.cli",
    )
    *library, command_line = in_a_fresh_interpreter(*statements)[0]
    assert library == [[]] * len(library)
    assert set(command_line) <= {"typer", "rich"}


@pytest.mark.slow
def test_what_is_done_with_a_log_needs_no_extra_before_it_is_done():
    [[loaded]] = in_a_fresh_interpreter("import bothworlds; bothworlds.read, bothworlds.fit, bothworlds.evaluate")[:1]
    assert set(loaded) <= {"numba", "llvmlite", "scipy"}


@pytest.mark.slow
def test_playing_needs_neither_figures_nor_tables_nor_a_terminal():
    code = "import bothworlds; bothworlds.play('uniform', 'paper/stochastic', 10, replications=1)"
    (loaded,) = in_a_fresh_interpreter(code)[0]
    assert "numba" in loaded
    assert not {"matplotlib", "pyarrow", "typer"} & set(loaded)


@pytest.mark.slow
def test_every_module_and_name_is_reachable_from_the_package_alone_and_in_any_order():
    names = bothworlds.__all__
    (*_, starred, gym), (rooms, forwards, backwards, public) = in_a_fresh_interpreter(
        f"rooms = [getattr(fresh(), name).__name__ for name in {ROOMS!r}]",
        f"orders = [[hasattr(package, name) for name in order] for order in ({names!r}, {names[::-1]!r})"
        " for package in [fresh()]]",
        "fresh(); from bothworlds import *",
        f"public = sorted(set(dir()) & set({names!r})); result = [rooms, *orders, public]",
        "fresh().gym",
    )
    assert rooms == [f"bothworlds.{name}" for name in ROOMS]
    assert all(forwards)
    assert all(backwards)
    assert public == sorted(names)
    assert "gymnasium" not in starred
    assert "gymnasium" in gym


def test_every_public_name_is_typed():
    """Type checkers see the names that are imported lazily through the block under TYPE_CHECKING."""
    module = ast.parse(Path(bothworlds.__file__).read_text())
    block = next(node for node in module.body if isinstance(node, ast.If))
    typed = [alias.name for node in block.body for alias in node.names]
    assert sorted(typed) == sorted(bothworlds.__all__)


def test_dir_lists_the_public_names():
    assert dir(bothworlds) == sorted([*bothworlds.__all__, "__version__"])


def test_the_pinned_names_are_public():
    assert {"Client", "Ranker", "play", "policies", "policy", "testing", "world", "worlds"} <= set(bothworlds.__all__)


@pytest.mark.slow
def test_what_needs_an_extra_that_is_not_installed_names_the_command_that_installs_it():
    code = """
import sys
sys.modules["gymnasium"] = sys.modules["msgspec"] = None
import bothworlds
result = []
for lookup in (lambda: bothworlds.gym, lambda: bothworlds.serve.Engine):
    try:
        lookup()
    except ImportError as error:
        result.append(str(error))
"""
    assert in_a_fresh_interpreter(code)[1] == [
        "this needs gymnasium: pip install '.[gym]' in a checkout of bothworlds",
        "Engine needs msgspec: pip install '.[service]' in a checkout of bothworlds",
    ]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'bothworlds' has no attribute 'nonsense'"):
        _ = bothworlds.nonsense
    assert not hasattr(bothworlds, "wrold")


def test_every_public_name_of_a_package_exists():
    for room in (bothworlds.arena, bothworlds.core, bothworlds.geometry, bothworlds.policies, bothworlds.worlds):
        assert all(hasattr(room, name) for name in room.__all__)
