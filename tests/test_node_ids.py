"""Every test has a node id of its own: workers would run only one of those that share one."""

from __future__ import annotations

import pytest

# A plugin that makes several items of one function and forgets to name them apart, as one of Schemathesis did.
REPEATING = """
import pytest
from tests.conftest import pytest_collection_modifyitems

@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, name, obj):
    if name.startswith("test_"):
        return [pytest.Function.from_parent(collector, name=name, callobj=obj) for _ in range({times})]
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["-n0", "-n1"])
@pytest.mark.parametrize("times", [1, 2])
def test_tests_with_one_node_id_fail(pytester: pytest.Pytester, times: int, workers: str) -> None:
    pytester.makeconftest(REPEATING.format(times=times))
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_inprocess(workers)
    if times == 1:
        result.assert_outcomes(passed=1)
    else:
        assert result.parseoutcomes().keys() == {"failed"}
        result.stdout.fnmatch_lines("*2 tests have this node id, of which workers run one: give each its own*")
