"""The stored form of which items could be shown: few items as numbers, many as a bitmap.

A surface may have 20,000 items. If a quarter of them are paused, their numbers would be 15,000 bytes of every event and
token; as bits they are 2,500.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
import numpy as np

from .model import ALL_ELIGIBLE, Eligibility

__all__ = ["PackedEligibility", "pack", "unpack"]

FEW = 64  # items that are stored as numbers

Items = tuple[int, ...]


class PackedEligibility(msgspec.Struct, frozen=True, array_like=True):
    """An ``Eligibility`` whose lists may be bitmaps; stores and tokens of earlier versions have numbers only."""

    absent: Items | bytes = ()
    present: Items | bytes = ()


def pack(eligibility: Eligibility) -> PackedEligibility:
    """Return the stored form.

    >>> unpack(pack(Eligibility(absent=(2, 3)))), len(pack(Eligibility(absent=tuple(range(0, 20_000, 2)))).absent)
    (Eligibility(absent=(2, 3), present=()), 2500)
    """
    return PackedEligibility(_packed(eligibility.absent), _packed(eligibility.present))


def unpack(packed: PackedEligibility) -> Eligibility:
    """Return the eligibility of a stored form."""
    if not packed.absent and not packed.present:
        return ALL_ELIGIBLE
    return Eligibility(_unpacked(packed.absent), _unpacked(packed.present))


def _packed(items: Items) -> Items | bytes:
    return items if len(items) <= FEW else _bitmap(items)


@lru_cache(maxsize=64)
def _bitmap(items: Items) -> Items | bytes:
    bits = np.zeros(max(items) + 1, np.uint8)
    bits[list(items)] = 1
    bitmap = np.packbits(bits, bitorder="little").tobytes()
    return bitmap if len(bitmap) < 2 * len(items) else items


def _unpacked(items: Items | bytes) -> Items:
    return _numbers(items) if isinstance(items, bytes) else items


@lru_cache(maxsize=64)
def _numbers(bitmap: bytes) -> Items:
    return tuple(np.flatnonzero(np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")).tolist())
