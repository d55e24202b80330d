"""Thousands of items that cannot be shown fit into a token and a row, and those of earlier versions are read."""

from __future__ import annotations

import msgspec
import pytest

from bothworlds.serve.eligibility_format import PackedEligibility, pack, unpack
from bothworlds.serve.engine.tokens import MAX_TOKEN_LENGTH, Signer, open_secrets
from bothworlds.serve.model import Eligibility
from bothworlds.serve.stores.rows import event_of, row_of

from .fakes import FakeStore
from .stores.samples import an_event

CASES = [
    Eligibility(),
    Eligibility(absent=(0,)),
    Eligibility(present=(3, 49_999)),
    Eligibility(absent=tuple(range(100))),
    Eligibility(present=tuple(range(1, 20_000, 2))),
    Eligibility(absent=tuple(range(0, 49_999, 500))),
]


@pytest.mark.parametrize("eligibility", CASES)
def test_every_form_is_read_back(eligibility: Eligibility):
    assert unpack(pack(eligibility)) == eligibility
    event = an_event(1, eligibility=eligibility)
    assert event_of(row_of(event)) == event
    signer: Signer = open_secrets(FakeStore())[0]
    token = signer.sign(event)
    assert signer.read(token) == event
    assert len(token) < MAX_TOKEN_LENGTH / 2


@pytest.mark.parametrize("eligibility", CASES)
def test_the_form_of_earlier_versions_is_read(eligibility: Eligibility):
    earlier = msgspec.msgpack.encode(eligibility)
    assert unpack(msgspec.msgpack.decode(earlier, type=PackedEligibility)) == eligibility


def test_numbers_alone_would_not_fit():
    assert len(msgspec.msgpack.encode(CASES[4])) * 4 / 3 > MAX_TOKEN_LENGTH  # why there are bitmaps
