"""Codes of labels: a hash table that numbers whole numbers from 0 on, in the order in which it meets them.

``slots`` is open-addressed, with the columns label plus 1, or 0 if the slot is empty, and code. The caller makes room
before it asks for codes, so that kernels allocate nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...kernels import Ints, inner_kernel, kernel


class LabelCodes(NamedTuple):
    """The labels that have a code."""

    slots: Ints  # (size, 2); the size is a power of 2, or 0 without room
    labels: Ints  # in the order of their codes
    fill: Ints  # (1,) the number of labels


def make_label_codes() -> LabelCodes:
    """Return an empty table without room."""
    return LabelCodes(np.zeros((0, 2), np.int64), np.zeros(0, np.int64), np.zeros(1, np.int64))


def known_labels(codes: LabelCodes) -> Ints:
    """Return the labels in the order of their codes."""
    return codes.labels[: codes.fill[0]]


def make_code_room(codes: LabelCodes, labels: int) -> LabelCodes:
    """Return a table with the same codes and room for more labels; the given one must not be used any more."""
    needed = int(codes.fill[0]) + labels
    if 3 * needed <= 2 * len(codes.slots):
        return codes
    slots = np.zeros((1 << (3 * needed // 2).bit_length(), 2), np.int64)
    roomier = LabelCodes(slots, np.empty(len(slots), np.int64), np.zeros(1, np.int64))
    _refill(known_labels(codes), roomier)
    return roomier


@kernel
def _refill(labels: Ints, codes: LabelCodes) -> None:
    for label in labels:
        code_of(codes, label)


@inner_kernel
def code_of(codes: LabelCodes, label: int) -> Any:
    """Return the code of a label, at least 0, which gets one if it has none."""
    slots, mask = codes.slots, codes.slots.shape[0] - 1
    s = np.int64((np.uint64(label) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    while slots[s, 0] != label + 1:
        if slots[s, 0] == 0:
            code = codes.fill[0]
            slots[s, 0], slots[s, 1], codes.labels[code] = label + 1, code, label
            codes.fill[0] = code + 1
            return code
        s = (s + 1) & mask
    return slots[s, 1]
