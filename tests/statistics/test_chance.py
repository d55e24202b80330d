"""The random stream of a state: what was shown makes a difference, at once and in the leading digits."""

from __future__ import annotations

import numpy as np

from bothworlds.kernels import kernel
from bothworlds.statistics.chance import absorb, make_stream, uniform


@kernel
def after(stream, ranking):
    absorb(stream, ranking)
    return uniform(stream)


def test_one_list_that_differs_makes_a_difference_in_the_leading_digits():
    drawn = [after(make_stream(4, 2), np.array([i, (i + 1) % 10])) for i in range(10)]
    assert np.ptp(drawn) > 0.3
    assert min(np.diff(np.sort(drawn))) > 1e-3
