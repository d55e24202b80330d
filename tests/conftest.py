"""What all tests share: Hypothesis profiles, seeded randomness, and which tests are slow."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests.slow_tests import SLOW_FILES, SLOW_TESTS

TESTS = Path(__file__).parent

# The first example of a test may compile a kernel for many seconds, so no example has a deadline.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("here"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests that ``tests/slow_tests.py`` lists the mark ``slow``."""
    for item in items:
        file = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
        if file in SLOW_FILES or getattr(item, "originalname", None) in SLOW_TESTS:
            item.add_marker(pytest.mark.slow)


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
