"""What all tests share: Hypothesis profiles, seeded randomness, and which tests are slow."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests.skips import pytest_sessionfinish
from tests.slow_tests import SLOW_FILES, SLOW_TESTS

__all__ = ["pytest_sessionfinish"]

ROOT = Path(__file__).parents[1]

# The first example of a test may compile a kernel for many seconds, so no example has a deadline.
settings.register_profile(
    "here", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False, print_blob=True
)
settings.register_profile("ci", settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests that ``tests/slow_tests.py`` lists the mark ``slow``; put files with slow tests first.

    Workers that take files in this order end at about the same time: the files that are left for the end are short.
    """
    for item in items:
        if item.path.relative_to(ROOT).as_posix() in SLOW_FILES or getattr(item, "originalname", None) in SLOW_TESTS:
            item.add_marker(pytest.mark.slow)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def cells(pytestconfig: pytest.Config) -> Path:
    """A folder that is kept between runs, for ``play(..., cells=cells)`` in tests of long games.

    A replication is played again when a source that determines it has changed; otherwise its score is read.
    """
    return Path(pytestconfig.cache.mkdir("cells"))


@pytest.fixture
def generator() -> Callable[..., np.random.Generator]:
    """Make a Generator from one or more whole numbers; seeds are never None."""

    def seeded(*seed: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(seed))

    return seeded


@pytest.fixture
def rng(generator: Callable[..., np.random.Generator]) -> np.random.Generator:
    """One seeded Generator, for tests to which any will do."""
    return generator(20240229)
