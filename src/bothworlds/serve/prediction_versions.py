r"""Versions of predicted losses: what the leader of a segment subtracts from losses while a version is in force.

A version is a matrix b' of predicted losses, stored once and never changed. An event records the version that it was
decided with. When it settles, every placement that was shown adds (1 - click - b') / p to its loss, and the version
counts one more event. The estimated losses of a segment are then

.. math:: L_{ij} = \text{loss}_{ij} + \sum_v \text{settled}_v \, b'_{v,ij}

which is a sum over settled events, free of order, and exact in units of ``LOSS_UNIT``.

An event can have a version only if every slot is learned from and every item that the version predicts could be shown.
Otherwise the second sum would charge items and slots that the event says nothing about. Other events add
(1 - click) / p, as if nothing had been predicted, and items that could not be shown are charged as in ``settlement``.
Both estimates are unbiased, so their sum is.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from ..kernels import Ints
from ..policies.predictions import Units
from .model import PREDICTION_SCALE

__all__ = ["PredictionVersion", "decode_version", "encode_version", "predicted_losses"]


class PredictionVersion(msgspec.Struct, frozen=True, array_like=True):
    """A version of predictions, as it is stored.

    ``number`` is the millisecond in which it was made, later than that of the version before. ``rounds`` is the number
    of rounds of the segment at that time, and ``renew_at`` the number at which it is replaced; it is also replaced if
    the last change (``changed_at``) or the policy is another one.
    """

    number: int
    rounds: int
    renew_at: int
    changed_at: int | None
    policy: str
    slots: int
    compressed: bytes

    def used(self) -> Units:
        """Returns b' (items, slots), in units of 1/256."""
        return np.frombuffer(zlib.decompress(self.compressed), np.uint8).reshape(-1, self.slots)

    def used_at(self, items: Sequence[int]) -> Units | None:
        """Returns b' of some items (len(items), slots); None if it predicts other items, which would be charged.

        It predicts nothing for items that were added later.
        """
        used = self.used()
        chosen = np.zeros((len(items), self.slots), np.uint8)
        known = [k for k, item in enumerate(items) if item < len(used)]
        chosen[known] = used[[items[k] for k in known]]
        return chosen if np.count_nonzero(chosen) == np.count_nonzero(used) else None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PredictionVersion).decode


def encode_version(version: PredictionVersion) -> bytes:
    """Returns a version as it is stored."""
    return _encode(version)


def decode_version(encoded: bytes) -> PredictionVersion:
    """Returns the version that was encoded.

    >>> used = np.array([[255, 0], [7, 128]], np.uint8)
    >>> version = PredictionVersion(1, 10, 11, None, "ftrl-va", 2, zlib.compress(used.tobytes()))
    >>> decode_version(encode_version(version)).used().tolist()
    [[255, 0], [7, 128]]
    """
    return _decode(encoded)


def predicted_losses(versions: Iterable[tuple[PredictionVersion, int]]) -> Ints:
    """Returns the sum of settled events times b' over versions (items, slots), in units of ``LOSS_UNIT``."""
    total = np.zeros((0, 0), np.int64)
    for version, settled in versions:
        used = version.used()
        n, m = (max(one, other) for one, other in zip(total.shape, used.shape))
        total = np.pad(total, ((0, n - total.shape[0]), (0, m - total.shape[1])))
        total[: used.shape[0], : used.shape[1]] += settled * PREDICTION_SCALE * used.astype(np.int64)
    return total
