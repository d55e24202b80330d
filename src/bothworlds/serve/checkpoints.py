"""Checkpoints: signed sums that stand in for deleted events, so that counters can still be rebuilt exactly.

A checkpoint has the sums of the deleted events of one segment that were decided in a range of seconds, as a block of
time has them, and the number of these events. Every store signs its checkpoints with a key of its own. The key is kept
in the store: the signature finds checkpoints that were changed by mistake or by hand, not those of somebody who has
read the key.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from .model import Event, RemovedBlock
from .time_blocks import TimeBlock, decode_cells, encode_cells, merged

__all__ = [
    "Checkpoint",
    "SignedCheckpoint",
    "checkpoint_key",
    "is_genuine",
    "merged_checkpoints",
    "opened",
    "page_of",
    "removed_block",
    "signed",
]

PageCounts = dict[tuple[str, str], int]  # (segment, arm) -> settled events; the arm of imported ones is empty


class Checkpoint(NamedTuple):
    """The sums of deleted events of a segment, and how many there were of each arm and version of predictions."""

    surface_id: int
    segment: str
    sums: TimeBlock
    pages: PageCounts
    settled: tuple[tuple[int, int], ...] = ()  # versions of predictions, and events that were learned from

    @property
    def start(self) -> int:
        return self.sums.start

    @property
    def until(self) -> int:
        return self.sums.until


class SignedCheckpoint(NamedTuple):
    """A checkpoint as it is stored."""

    surface_id: int
    segment: str
    start: int
    until: int
    body: bytes
    signature: bytes


class _Body(msgspec.Struct, frozen=True, array_like=True):
    surface_id: int
    segment: str
    sums: RemovedBlock
    pages: tuple[tuple[str, str, int], ...]
    settled: tuple[tuple[int, int], ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Body).decode


def checkpoint_key(draw_key: bytes) -> bytes:
    """Returns the key that signs the checkpoints of a store; ``draw_key`` is never rotated."""
    return blake2b(b"", digest_size=32, key=draw_key, person=b"checkpoint").digest()


def page_of(event: Event) -> tuple[str, str]:
    """Returns the segment and the arm that a settled event is counted for; the arm of an imported one is empty."""
    return event.segment, "" if event.settled_by == "import" else event.arm


def signed(checkpoint: Checkpoint, key: bytes) -> SignedCheckpoint:
    """Returns the checkpoint as it is stored.

    >>> from bothworlds.serve.time_blocks import cells_from
    >>> sums = TimeBlock(0, 8, 2, cells_from({(0, 1): (5, 2, 1)}))
    >>> stored = signed(Checkpoint(1, "", sums, {("", "learner"): 2}), b"key")
    >>> is_genuine(stored, b"key"), is_genuine(stored._replace(until=16), b"key"), is_genuine(stored, b"other")
    (True, False, False)
    >>> opened(stored).pages
    {('', 'learner'): 2}
    """
    pages = tuple((*arm, count) for arm, count in sorted(checkpoint.pages.items()))
    sums = removed_block(checkpoint.sums)
    body = _encode(_Body(checkpoint.surface_id, checkpoint.segment, sums, pages, checkpoint.settled))
    place = (checkpoint.surface_id, checkpoint.segment, checkpoint.start, checkpoint.until)
    return SignedCheckpoint(*place, body, _signature(body, key))


def is_genuine(stored: SignedCheckpoint, key: bytes) -> bool:
    """Returns whether a checkpoint is as it was signed, and stored for the segment and range that it is about."""
    if not hmac.compare_digest(stored.signature, _signature(stored.body, key)):
        return False
    body = _decode(stored.body)
    place = (body.surface_id, body.segment, body.sums.start, body.sums.until)
    return place == (stored.surface_id, stored.segment, stored.start, stored.until)


def opened(stored: SignedCheckpoint) -> Checkpoint:
    """Returns the content of a stored checkpoint; does not check the signature. Raises ValueError if it is damaged."""
    try:
        body = _decode(stored.body)
        sums = TimeBlock(
            body.sums.start, body.sums.until, body.sums.rounds, decode_cells(body.sums.cells), body.sums.mixture
        )
    except Exception as error:  # msgspec, zlib and NumPy each have their own
        raise ValueError("the checkpoint cannot be read") from error
    pages = {(name, arm): count for name, arm, count in body.pages}
    return Checkpoint(body.surface_id, body.segment, sums, pages, body.settled)


def merged_checkpoints(start: int, until: int, parts: Sequence[Checkpoint]) -> Checkpoint:
    """Returns the sum of checkpoints of one segment, as one of this range."""
    pages: Counter[tuple[str, str]] = Counter()
    settled: Counter[int] = Counter()
    for part in parts:
        pages.update(part.pages)
        settled.update(dict(part.settled))
    sums = merged(start, until, [part.sums for part in parts])
    return Checkpoint(parts[0].surface_id, parts[0].segment, sums, dict(pages), tuple(sorted(settled.items())))


def removed_block(block: TimeBlock) -> RemovedBlock:
    """Returns a block as it is stored with what has removed it."""
    return RemovedBlock(block.start, block.until, block.rounds, encode_cells(block.cells), block.mixture)


def _signature(body: bytes, key: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")
