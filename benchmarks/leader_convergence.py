"""Whether the leader is always found: ``python -m benchmarks.leader_convergence [--problems N] [--seed S]``.

Draws random problems, an equal share for each regulariser: up to 50 items, often one more than positions, losses over
eight decades, rates over six, one for all pairs or different ones. Every result must be feasible, satisfy the
optimality conditions, and have the duality gap that it claims; multipliers and marginals alone are checked, in extended
precision, by the formulas of the tests. Ends with status 1 if a problem fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bothworlds.geometry import ConvergenceError
from bothworlds.progress import progress_bar
from tests.geometry.certificates import check_leader
from tests.geometry.problems import wide_problem
from tests.reference.regularizers import NAMES

REPORTED = 10  # failures that are printed for each regulariser


def failure(problem: Any) -> str:
    """Solve a problem and check its result; returns what is wrong, or an empty string."""
    try:
        check_leader(problem.solve(), *problem)
    except (ConvergenceError, AssertionError) as error:
        return str(error)
    return ""


def check(
    regularizer: str, problems: int, seed: int, report: Callable[[int], None], draw: Callable[..., Any] = wide_problem
) -> tuple[list[str], float]:
    """Return the failures among random problems of one regulariser, and the longest solve with its check in seconds."""
    failures, longest = [], 0.0
    for k in range(problems):
        problem = draw(np.random.default_rng([seed, k, NAMES.index(regularizer)]), regularizer)
        started = time.thread_time()
        wrong = failure(problem)
        longest = max(longest, time.thread_time() - started if k else 0.0)  # the first compiles
        if wrong:
            failures.append(f"seed {seed}, problem {k}, {regularizer}, shape {problem.loss.shape}: {wrong}")
        report(1)
    return failures, longest


def main() -> None:
    """Check all regularisers, print what failed, and a line for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leader_convergence", description=__doc__)
    parser.add_argument("--problems", type=int, default=100_000, help="of all regularisers together")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other problems")
    arguments = parser.parse_args()
    share = -(-arguments.problems // len(NAMES))
    failed = 0
    for regularizer in NAMES:
        with progress_bar(regularizer, share) as report:
            failures, longest = check(regularizer, share, arguments.seed, report)
        print(*failures[:REPORTED], sep="\n", end="\n" if failures else "")
        print(
            f"{regularizer}: {len(failures):,} of {share:,} problems failed; the longest took {1e3 * longest:,.0f} ms"
        )
        failed += len(failures)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
