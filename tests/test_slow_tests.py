"""The list of slow tests names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.slow_tests import SLOW_FILES, SLOW_TESTS

TESTS = Path(__file__).parent
ROOT = TESTS.parent


def names_in(path: Path) -> set[str]:
    """The names of the test functions in a file."""
    return set(re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE))


def test_listed_files_exist() -> None:
    gone = sorted(file for file in SLOW_FILES if not (ROOT / file).exists())
    assert not gone, f"tests/slow_tests.py lists files that do not exist: {gone}"


def test_listed_tests_exist() -> None:
    defined = {name for path in TESTS.rglob("test_*.py") for name in names_in(path)}
    gone = sorted(SLOW_TESTS - defined)
    assert not gone, f"tests/slow_tests.py lists tests that do not exist: {gone}"


def test_no_test_is_listed_twice() -> None:
    paths = [ROOT / file for file in SLOW_FILES if (ROOT / file).exists()]
    twice = sorted(SLOW_TESTS & {name for path in paths for name in names_in(path)})
    assert not twice, f"tests/slow_tests.py lists tests of files that it lists: {twice}"
