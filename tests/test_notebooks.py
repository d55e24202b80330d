"""The notebooks under examples/ run in a kernel, with the packages that they ask for and no others.

``python -m tests.test_notebooks`` runs them at full size and writes their outputs into the files.
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from packaging.requirements import Requirement

EXAMPLES = Path(__file__).parents[1] / "examples"

# The variables at the top of each notebook, with the sizes of a quick run.
SIZES = {
    "paper-in-ten-minutes.ipynb": {"ROUNDS": 2_000, "SEEDS": 2},
    "click-log-to-decision.ipynb": {"PAGES": 2_000, "ROUNDS": 1_000},
    "a-list-for-every-visitor.ipynb": {"PAGES": 8_000, "SEEDS": 2},
    "evaluate-a-new-ranking.ipynb": {"PAGES": 8_000},
}

PROGRESS = re.compile(r"(.+: \d+% after .*\n)+")

HIDE = """
def hide(names):
    import sys

    class Hidden:
        def find_spec(name, path=None, target=None):
            if name in names:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Hidden)
    for name in names:
        sys.modules.pop(name, None)
"""


def requirements(*names):
    """The distributions that pip would install for these, such as bothworlds[clicks], with all that they need."""
    found, todo = set(), [Requirement(name) for name in names]
    while todo:
        one = todo.pop()
        for extra in {"", *one.extras}:
            if (one.name.lower(), extra) in found:
                continue
            found.add((one.name.lower(), extra))
            for line in metadata.requires(one.name) or ():
                need = Requirement(line)
                if need.marker is None or need.marker.evaluate({"extra": extra}):
                    todo.append(need)
    return {re.sub(r"[-_.]+", "-", name) for name, _ in found}


def asked_for(notebook):
    """The packages of the line with pip in the first cell, as bothworlds[...]."""
    return "bothworlds" + re.search(r"pip install .*?(\[[a-z,]+\])", notebook.cells[0].source)[1]


def others(*names):
    """The modules here that pip would not install for these; and ipywidgets, even if it is not here."""
    wanted = requirements(*names, "ipykernel")
    owners = metadata.packages_distributions().items()
    own = {re.sub(r"[-_.]+", "-", name.lower()) for name in wanted}
    return {"ipywidgets"} | {
        module
        for module, owned in owners
        if module.isidentifier() and not own & {re.sub(r"[-_.]+", "-", name.lower()) for name in owned}
    }


def resized(cell, sizes):
    """The cell with other values for its variables; each must be there once."""
    for name, value in sizes.items():
        cell, found = re.subn(rf"^{name} = .*$", f"{name} = {value}", cell, flags=re.MULTILINE)
        assert found == 1, f"the first cell must set {name}"
    return cell


def run(notebook, hidden=()):
    """Run a notebook in a kernel of its own that cannot import these modules; its cells then have their outputs."""
    client = NotebookClient(notebook, kernel_name="python3", timeout=None, startup_timeout=600)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(f"{HIDE}\nhide({list(hidden)})\ndel hide"))
    with client.setup_kernel():
        for k, cell in enumerate(notebook.cells):
            client.execute_cell(cell, k, store_history=k > 0)
            if "outputs" in cell:  # on a slow machine, long work writes lines of progress
                cell.outputs = [one for one in cell.outputs if not PROGRESS.fullmatch(one.get("text", ""))]
    del notebook.cells[0]
    return notebook


def texts(notebook):
    """What the cells print and return, as text."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [part for one in outputs for part in (one.get("text"), one.get("data", {}).get("text/plain")) if part]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "paper-in-ten-minutes.ipynb",
        "a-list-for-every-visitor.ipynb",
        "evaluate-a-new-ranking.ipynb",
        pytest.param("click-log-to-decision.ipynb", marks=pytest.mark.nightly),
    ],
)
def test_a_notebook_runs_with_the_packages_it_asks_for(name):
    notebook = nbformat.read(EXAMPLES / name, 4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    first.source = resized(first.source, SIZES[name])
    run(notebook, others(asked_for(notebook)))
    check_outputs(notebook)


def check_outputs(notebook):
    """Every cell has been run, in order; there is a figure; there are no warnings and nothing of the machine."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert {output.get("name", "stdout") for output in outputs} == {"stdout"}
    for text in texts(notebook):
        assert not re.search(r"/home/|/root/|/tmp/|/work/|\.venv|Warning|Traceback", text)


def notebook_of(*cells):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


@pytest.mark.slow
@pytest.mark.nightly
def test_counting_with_a_progress_bar_needs_no_widgets():
    table = "{'event': [1, 1], 'position': [1, 2], 'item': ['a', 'b'], 'click': [0, 1]}"
    cells = (
        "from bothworlds import clicks",
        f"clicks.read({table}).counts()",
        f"clicks.read({table}, progress=True).counts().pages",
    )
    done = run(notebook_of(*cells), ["ipywidgets"])
    assert texts(done) == ["<Counts: 2 items at 2 positions, 2 impressions, 1 clicks>", "1"]


@pytest.mark.slow
@pytest.mark.nightly
def test_a_cell_that_fails_and_one_that_needs_another_package_are_noticed():
    with pytest.raises(CellExecutionError, match="missing"):
        run(notebook_of("ROUNDS = 5", "missing + ROUNDS"))
    with pytest.raises(CellExecutionError, match="No module named 'duckdb'"):
        run(notebook_of("import duckdb"), others("bothworlds[figures]"))


def test_packages_that_a_notebook_does_not_ask_for_are_hidden_and_sizes_must_be_there():
    with pytest.raises(AssertionError, match="the first cell must set SEEDS"):
        resized("ROUNDS = 5", {"SEEDS": 1})
    assert not others("bothworlds[clicks]") & {"duckdb", "numpy", "numba", "pyarrow", "IPython"}
    assert others("bothworlds[clicks]") >= {"matplotlib", "polars", "ray", "pytest"}


def test_every_notebook_is_tested_and_has_its_outputs():
    assert {path.name for path in EXAMPLES.glob("**/*.ipynb")} == set(SIZES)
    for name in SIZES:
        notebook = nbformat.read(EXAMPLES / name, 4)
        assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
        assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
        check_outputs(notebook)
        assert (EXAMPLES / name).stat().st_size < 150_000


def renew_outputs():
    for name in SIZES:
        notebook = nbformat.read(EXAMPLES / name, 4)
        run(notebook, others(asked_for(notebook)))
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # times
        check_outputs(notebook)
        notebook.metadata.language_info = {"name": "python"}
        nbformat.write(notebook, EXAMPLES / name)


if __name__ == "__main__":
    renew_outputs()
