"""How large a deviation confidence bounds allow for, and what forgetting does to it."""

from __future__ import annotations

import math

from ..kernels import inner_kernel
from .settings import Forgetting

__all__ = ["memory", "round_level"]


def memory(policy: Forgetting) -> float:
    """How many rounds a policy remembers at most; no bound needs to hold for longer than that.

    >>> import bothworlds
    >>> memory(bothworlds.policy("comb-ts")), memory(bothworlds.policy("comb-ts", window=500))
    (inf, 500.0)
    >>> memory(bothworlds.policy("comb-ts", discount=0.5))
    2.0
    """
    if policy.window is not None:
        return float(policy.window)
    return 1.0 / (1.0 - policy.discount) if policy.discount < 1.0 else math.inf


@inner_kernel
def round_level(t: float) -> float:
    r""":math:`\log t + 3 \log \log t`, the second term not below 0."""
    return math.log(t) + 3.0 * math.log(max(1.0, math.log(t)))
