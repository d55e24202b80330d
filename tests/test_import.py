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


def in_a_fresh_interpreter(code):
    """Return what a new interpreter prints, read as JSON."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    return json.loads(run.stdout)


def loaded_by(statement):
    report = f"import json, sys; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    return in_a_fresh_interpreter(f"{statement}; {report}")


def test_importing_the_package_loads_nothing_heavy():
    assert loaded_by("import bothworlds") == []


def test_dir_loads_nothing_heavy():
    assert loaded_by("import bothworlds; dir(bothworlds); bothworlds.__version__") == []


def test_the_client_needs_no_extra_and_no_compiler():
    assert loaded_by("import bothworlds; bothworlds.Client('http://127.0.0.1:1')") == []


@pytest.mark.parametrize("name", [*ROOMS, "theory", "worlds"])
def test_every_documented_module_is_reachable_from_the_package(name):
    code = f"import json, bothworlds; print(json.dumps(bothworlds.{name}.__name__))"
    assert in_a_fresh_interpreter(code) == f"bothworlds.{name}"


def test_the_worlds_need_no_compiler():
    assert loaded_by("import bothworlds; bothworlds.world('paper/periodic-both').click_probabilities(0)") == []


def test_the_command_line_loads_no_heavy_library_before_a_command_runs():
    assert set(loaded_by("import bothworlds.cli")) <= {"typer", "rich"}


def test_playing_needs_neither_figures_nor_tables_nor_a_terminal():
    code = "import bothworlds; bothworlds.play('uniform', 'paper/stochastic', 10, seeds=1)"
    assert not {"matplotlib", "pyarrow", "typer"} & set(loaded_by(code))


@pytest.mark.parametrize("name", bothworlds.__all__)
def test_every_public_name_resolves(name):
    assert getattr(bothworlds, name) is getattr(bothworlds, name)


def test_all_public_names_resolve_in_a_fresh_interpreter_in_any_order():
    code = "import json, bothworlds; print(json.dumps([bool(getattr(bothworlds, n)) for n in {}]))"
    for order in (bothworlds.__all__, bothworlds.__all__[::-1]):
        assert all(in_a_fresh_interpreter(code.format(order)))


def test_every_public_name_is_typed():
    """Type checkers see the names that are imported lazily through the block under TYPE_CHECKING."""
    module = ast.parse(Path(bothworlds.__file__).read_text())
    block = next(node for node in module.body if isinstance(node, ast.If))
    typed = [alias.name for node in block.body for alias in node.names]
    assert sorted(typed) == sorted(bothworlds.__all__)


def test_a_star_import_gives_the_public_names():
    code = "import json\nfrom bothworlds import *\nprint(json.dumps(sorted(set(dir()) & set({!r}))))"
    assert in_a_fresh_interpreter(code.format(bothworlds.__all__)) == sorted(bothworlds.__all__)


def test_dir_lists_the_public_names():
    assert dir(bothworlds) == sorted([*bothworlds.__all__, "__version__"])


def test_the_pinned_names_are_public():
    assert {"Client", "Ranker", "play", "policies", "policy", "testing", "world", "worlds"} <= set(bothworlds.__all__)


def test_gymnasium_is_imported_only_if_it_is_used():
    assert "gymnasium" not in loaded_by("from bothworlds import *")
    assert "gymnasium" in loaded_by("import bothworlds; bothworlds.gym")


def test_without_gymnasium_the_command_that_installs_it_is_named():
    code = "import sys; sys.modules['gymnasium'] = None\nimport json, bothworlds\n"
    code += "try: bothworlds.gym\nexcept ImportError as error: print(json.dumps(str(error)))"
    assert in_a_fresh_interpreter(code) == "this needs gymnasium: pip install '.[gym]' in a checkout of bothworlds"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'bothworlds' has no attribute 'nonsense'"):
        _ = bothworlds.nonsense
    assert not hasattr(bothworlds, "wrold")


def test_every_public_name_of_a_package_exists():
    for room in (bothworlds.arena, bothworlds.core, bothworlds.geometry, bothworlds.policies, bothworlds.worlds):
        assert all(hasattr(room, name) for name in room.__all__)


def test_the_engine_names_the_extra_that_it_needs():
    code = """
import json, sys
sys.modules["msgspec"] = None
import bothworlds
try:
    bothworlds.serve.Engine
except ImportError as error:
    print(json.dumps(str(error)))
"""
    assert in_a_fresh_interpreter(code) == "Engine needs msgspec: pip install '.[service]' in a checkout of bothworlds"
