"""Every policy is served, or refused with a reason that the documentation repeats."""

from __future__ import annotations

from pathlib import Path

import pytest

from bothworlds import policies
from bothworlds.serve.engine.learner import policy_of
from bothworlds.serve.engine.served_policies import NOT_SERVED, served_names
from bothworlds.serve.model import SurfaceSettings

GUIDE = Path(__file__).parents[3] / "docs" / "service.md"


def test_every_policy_is_served_or_has_a_reason() -> None:
    assert not set(served_names()) & set(NOT_SERVED)
    assert set(served_names()) | set(NOT_SERVED) == set(policies.names())


@pytest.mark.parametrize("name", sorted(NOT_SERVED))
def test_a_refused_policy_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(ValueError, match="depends on the order of events") as caught:
        policy_of(SurfaceSettings(slots=2, policy=name))
    assert NOT_SERVED[name] in str(caught.value)


def test_the_documentation_has_the_table_of_reasons() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for name, reason in NOT_SERVED.items():
        assert f"| `{name}` | {reason} |" in text
    served = next(line for line in text.splitlines() if line.startswith("Served: "))
    assert [word.strip("`, .") for word in served.removeprefix("Served: ").split()] == served_names()
