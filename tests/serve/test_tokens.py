"""Tokens: what is signed comes back as it was, and nothing else is believed."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.serve.engine_types import Feedback
from bothworlds.serve.records import Event
from bothworlds.serve.tokens import LONGEST_WINDOW, SECRETS, Forged, open_secrets, rotate_secret

from .fakes import FakeStore
from .running import answer, with_engine

EVENT = Event(
    id=bytes(range(16)),
    surface_id=3,
    segment="mobile",
    arm="learner",
    policy_id="abc",
    created_at=1,
    expires_at=2,
    late_until=3,
    items=(5, 0, 700),
    p=(0.1, 1 / 3, 1.0),
    learn=0b011,
)


def test_a_token_tells_the_event_exactly():
    signer, _ = open_secrets(FakeStore())
    assert signer.read(signer.sign(EVENT)) == EVENT


@given(st.data())
def test_no_token_is_believed_that_was_changed_anywhere(data):
    signer, _ = open_secrets(FakeStore())
    token = signer.sign(EVENT)
    signed = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    at = data.draw(st.integers(0, len(signed) - 1))
    signed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Forged):
        signer.read(base64.urlsafe_b64encode(bytes(signed)).rstrip(b"=").decode())
    with pytest.raises(Forged):
        signer.read(token[: data.draw(st.integers(0, len(token) - 2))])


@given(st.text())
def test_any_text_is_read_or_refused(text):
    signer, _ = open_secrets(FakeStore())
    signer.knows(text)
    with pytest.raises(Forged):
        signer.read(text)


def test_secrets_are_made_once_and_differ_between_stores():
    store = FakeStore()
    (one, key), (again, same) = open_secrets(store), open_secrets(store)
    assert key == same
    assert one.sign(EVENT) == again.sign(EVENT) != open_secrets(FakeStore())[0].sign(EVENT)


def test_old_tokens_are_good_until_their_late_window_can_be_over():
    store = FakeStore()
    old = open_secrets(store)[0].sign(EVENT)
    assert rotate_secret(store, now=1000) == 2
    signer, _ = open_secrets(store)
    assert signer.read(old) == EVENT
    assert signer.sign(EVENT) != old
    rotate_secret(store, now=1000 + LONGEST_WINDOW - 1)
    assert open_secrets(store)[0].read(old) == EVENT
    rotate_secret(store, now=1000 + LONGEST_WINDOW)
    with pytest.raises(Forged):
        open_secrets(store)[0].read(old)
    assert len(msgspec.msgpack.decode(store.facts[SECRETS])) == 3


@with_engine()
async def test_forged_and_foreign_tokens_change_nothing(engine, store, clock):
    one, two = await engine.rank("home", "r1"), await engine.rank("home", "r2")
    bad = [
        Feedback(one.event_id, two.token, [0], True),
        Feedback(one.event_id, one.token[:-2] + "xx", [0], True),
        Feedback(one.event_id, one.token[:20], [0], True),
        Feedback(one.event_id, "", [0], True),
        Feedback(one.event_id, "é" * 40, [0], True),
        Feedback("nonsense", one.token, [0], True),
        Feedback(one.event_id, one.token, [3], True),
        Feedback(one.event_id, one.token, [-1], True),
    ]
    results = await engine.feedback(bad)
    assert {result.status for result in results} == {"rejected"}
    assert all(result.reason for result in results)
    assert store.totals() == {}


@with_engine(attribution_seconds=60, late_seconds=100)
async def test_expired_tokens_change_nothing(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    engine._writer.remember = None
    clock.at += 160_001
    assert (await answer(engine, ranked, [0])).status == "expired"
    assert all(not counts[3] for counts in store.totals().values())  # no click was counted


@with_engine()
async def test_rotation_keeps_tokens_that_are_out(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    await engine.rotate_secret(actor="test")
    assert (await answer(engine, ranked, [0])).status == "accepted"
    again = await engine.rank("home", "r2")
    assert (await answer(engine, again, [0])).status == "accepted"
    assert not any("key" in str(entry).lower() for entry in store.entries)


@with_engine()
async def test_a_secret_made_by_another_process_is_found(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    rotate_secret(store, clock())
    other, _ = open_secrets(store)
    token = other.sign(engine._signer.read(ranked.token))
    (result,) = await engine.feedback([Feedback(ranked.event_id, token, [0], True)])
    assert result.status == "accepted"
