"""The script that runs every test file alone finds a file that needs another one, and continues where it was."""

from __future__ import annotations

import pytest

from tests import each_file_alone

COMPILES_FIRST = "import os\nfrom pathlib import Path\ndef test_it():\n    Path(os.environ['NUMBA_CACHE_DIR']).mkdir()"
NEEDS_THE_OTHER = "import os\ndef test_it():\n    assert os.path.exists(os.environ['NUMBA_CACHE_DIR'])"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "test_a.py").write_text(COMPILES_FIRST)
    (tmp_path / "test_b.py").write_text(NEEDS_THE_OTHER)
    return tmp_path


@pytest.mark.slow
def test_a_file_that_needs_what_another_has_compiled_is_found_and_the_rest_is_not_repeated(folder, capsys):
    def run(*options):
        status = each_file_alone.main([str(folder), *options], record=folder / "record.txt")
        return status, [line.split("(")[0] for line in capsys.readouterr().out.splitlines() if line[:1].isdigit()]

    status, lines = run("--jobs", "2")
    assert status == 1
    assert lines[0] == "2 files, 0 have passed before"
    assert lines[-1] == "1 of 2 files fail alone"
    assert sum("FAILED" in line and "test_b.py" in line for line in lines) == 1
    assert sum("passed" in line and "test_a.py" in line for line in lines) == 1

    (folder / "test_b.py").write_text("def test_it(): pass")
    status, lines = run()
    assert status == 0
    assert lines[0] == "2 files, 1 have passed before"


def test_a_run_begins_anew_when_a_source_has_changed(tmp_path):
    record = tmp_path / "record.txt"
    assert each_file_alone.passed_before(record, "one") == set()
    record.write_text("one\ntests/test_core.py\n")
    assert each_file_alone.passed_before(record, "one") == {"tests/test_core.py"}
    assert each_file_alone.passed_before(record, "two") == set()
    assert each_file_alone.passed_before(record, "one") == set()


def test_all_test_files_are_run():
    files = each_file_alone.files_in([each_file_alone.ROOT / "tests"])
    assert each_file_alone.ROOT / "tests" / "policies" / "test_all_weather.py" in files
    assert len(files) > 100
