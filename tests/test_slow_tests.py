"""The list of slow tests names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.slow_tests import SHARED_SETUP, SLOW_FILES, SLOW_TESTS

TESTS = Path(__file__).parent
FILES = {path.name: path.read_text() for path in [*TESTS.rglob("test_*.py"), *TESTS.parent.glob("docs/*.md")]}


def test_listed_files_exist() -> None:
    assert not (SLOW_FILES | SHARED_SETUP) - FILES.keys(), "tests/slow_tests.py lists files that do not exist"


def test_listed_tests_exist() -> None:
    defined = {name for text in FILES.values() for name in re.findall(r"\bdef (test_\w+)\(", text)}
    assert not SLOW_TESTS - defined, "tests/slow_tests.py lists tests that do not exist"


def test_no_test_is_listed_twice() -> None:
    in_slow_files = {name for file in SLOW_FILES for name in re.findall(r"\bdef (test_\w+)\(", FILES[file])}
    assert not SLOW_TESTS & in_slow_files, "tests/slow_tests.py lists tests of files that it lists"
