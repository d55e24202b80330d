"""What all tests share: Hypothesis profiles, seeded randomness, node ids, the order of files, what a skip means."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

# Threads of BLAS wait for each other in loops: with a test process per core, L-BFGS would take ten times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests.skips import pytest_sessionfinish

__all__ = ["pytest_sessionfinish"]

# The first example of a test may compile a kernel for many seconds, so no example has a deadline.
settings.register_profile(
    "here", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False, print_blob=True
)
settings.register_profile("ci", settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests that share a node id fail, of which workers run only one, and put files with many slow tests first.

    Workers that take files in this order end at about the same time: the files that are left for the end are short.
    """
    named = Counter(item.nodeid for item in items)
    for item in items:
        if named[item.nodeid] > 1:
            sentence = f"{named[item.nodeid]} tests have this node id, of which workers run one: give each its own"
            item.runtest = partial(pytest.fail, sentence, pytrace=False)  # type: ignore[method-assign]
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


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
