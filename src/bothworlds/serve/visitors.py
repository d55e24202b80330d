"""Visitors: the keyed hash that stands for a visitor's id, the bucket that she is counted in, and the arm of a request.

The id itself is never stored. With a visitor, the arm is a hash of the surface, the comparison and the visitor, so that
it stays with her until the comparison starts again; without one, it is drawn for every page.
"""

from __future__ import annotations

from bisect import bisect_right
from hashlib import blake2b
from typing import NamedTuple

from .model import BASELINE_ARM, Arm, Surface

BUCKETS = 200  # visitors are counted in so many buckets; the variance of a rate is that between buckets
VISITOR_LENGTH = 256  # characters of a visitor's id
SUMS_KEPT_MS = 8 * 86_400_000  # reports compare the last hours with the week before, also across comparisons
DRAWS = 1 << 64  # an arm is chosen by a number below this


def visitor_hash(visitor: str, key: bytes) -> bytes:
    """Returns the 16 bytes that stand for a visitor, the same on all surfaces; without the key they tell nothing.

    >>> visitor_hash("v1", b"key") == visitor_hash("v1", b"key") != visitor_hash("v1", b"other key")
    True
    """
    return blake2b(visitor.encode(), digest_size=16, key=key, person=b"visitor").digest()


def sums_kept_since(surface: Surface, now: int) -> int:
    """Returns from when on the sums by buckets of visitors are kept: those of the comparison, and of the last week."""
    return min(now - SUMS_KEPT_MS, surface.compared_since)


def visitor_draw(surface: Surface, visitor: bytes, key: bytes) -> int:
    """Returns the number that chooses the arm of a visitor, given by her hash, in the current comparison."""
    comparison = surface.comparison_restarted_at or 0
    content = b"%d\x00%d\x00%b" % (surface.id, comparison, visitor)
    return int.from_bytes(blake2b(content, digest_size=8, key=key, person=b"arm").digest(), "little")


def bucket_of(visitor: bytes) -> int:
    """Returns the bucket of a visitor, given by her hash; it does not depend on her arm."""
    return int.from_bytes(visitor[:8], "little") % BUCKETS


class ArmIntervals(NamedTuple):
    """Which arm a number chooses: ``arms[k]`` the numbers from ``starts[k]`` on."""

    starts: tuple[int, ...]
    arms: tuple[Arm, ...]

    def arm_of(self, draw: int) -> Arm:
        """Returns the arm that a number below 2^64 chooses."""
        return self.arms[bisect_right(self.starts, draw) - 1]


def arm_intervals(surface: Surface) -> ArmIntervals:
    """Returns an interval for every arm, as long as its share.

    Of an arm that the guard has replaced, only the end of its interval is left, so that nobody else changes arms.
    """
    starts, arms, start = [], [], 0.0
    for arm, share in surface.asked_shares.items():
        if arm in surface.guarded:
            starts.append(start)
            arms.append(BASELINE_ARM)
            starts.append(start + share * (1.0 - surface.settings.floor))
        else:
            starts.append(start)
        arms.append(arm)
        start += share
    return ArmIntervals(tuple(int(at * DRAWS) for at in starts), tuple(arms))
