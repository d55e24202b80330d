"""The versions of Python that the package allows are those that its tests are run on, everywhere they are written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTED = ["3.11", "3.12", "3.13"]


def next_minor(version):
    major, minor = version.split(".")
    return f"{major}.{int(minor) + 1}"


def test_the_package_declares_the_versions_that_are_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={TESTED[0]},<{next_minor(TESTED[-1])}"
    listed = [line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert listed == TESTED


def test_make_refuses_all_other_versions():
    bounds = re.findall(r"\((\d+), (\d+)\)", (ROOT / "Makefile").read_text())
    assert [".".join(bound) for bound in bounds] == [TESTED[0], TESTED[-1]]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "Makefile", "docs/tutorial.md", "deploy/Dockerfile"])
def test_texts_name_only_versions_that_are_tested(name):
    written = re.findall(r"[Pp]ython[ :]?(3\.\d+)|(?<=to |or )(3\.\d\d)\b", (ROOT / name).read_text())
    assert {version for pair in written for version in pair if version} <= {*TESTED}
    assert written
