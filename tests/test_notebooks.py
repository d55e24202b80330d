"""The notebooks under examples/ run from the first cell to the last."""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib as mpl
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

# The variables at the top of each notebook, with the sizes of a quick run.
SIZES = {
    "paper-in-ten-minutes.ipynb": {"ROUNDS": 2_000, "SEEDS": 2},
    "click-log-to-decision.ipynb": {"PAGES": 2_000, "ROUNDS": 1_000},
}


def code_cells(notebook):
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def resized(cell, sizes):
    """The cell with other values for its variables; each must be there once."""
    for name, value in sizes.items():
        cell, found = re.subn(rf"^{name} = .*$", f"{name} = {value}", cell, flags=re.MULTILINE)
        assert found == 1, f"the first cell must set {name}"
    return cell


def run(cells, sizes):
    """Run the cells in one namespace, with figures that are not shown, and return it."""
    import matplotlib.pyplot as plt

    namespace = {"__name__": "__main__"}
    with mpl.rc_context():
        plt.switch_backend("Agg")
        try:
            for k, cell in enumerate([resized(cells[0], sizes), *cells[1:]]):
                exec(compile(cell, f"<cell {k}>", "exec"), namespace)
        finally:
            plt.close("all")
    return namespace


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_a_notebook_runs(name, capsys):
    namespace = run(code_cells(json.loads((EXAMPLES / name).read_text())), SIZES[name])
    assert namespace["figure"].axes
    assert capsys.readouterr().out


def test_a_cell_that_fails_is_noticed():
    with pytest.raises(NameError, match="missing"):
        run(["ROUNDS = 5", "missing + ROUNDS"], {"ROUNDS": 1})
    with pytest.raises(AssertionError, match="the first cell must set SEEDS"):
        run(["ROUNDS = 5"], {"SEEDS": 1})


def test_every_notebook_is_tested_and_has_no_outputs():
    assert {path.name for path in EXAMPLES.glob("**/*.ipynb")} == set(SIZES)
    for name in SIZES:
        notebook = json.loads((EXAMPLES / name).read_text())
        assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
        assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook["cells"])
