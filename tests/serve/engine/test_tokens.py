"""Tokens restore the signed event exactly; all other tokens are rejected."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.serve.engine.tokens import (
    GRACE,
    MAX_TOKEN_LENGTH,
    MAX_WINDOW,
    SECRETS,
    InvalidToken,
    Secret,
    Signer,
    open_secrets,
    rotate_secret,
)
from bothworlds.serve.events import Event, Listed
from bothworlds.serve.model import MAX_ITEMS_EVER

LISTED = Listed((5, 0, 700), (0.1, 1 / 3, 1.0), 0b011, 0b100, (3, 4), (0.5, -1.0), "all-weather:1234567890ab")
EVENT = Event(
    id=bytes(range(16)),
    surface_id=3,
    learner_id=17,
    context={"segment": "mobile", "device": "phone"},
    arm="learner",
    created_at=1,
    expires_at=2,
    late_until=3,
    n=800,
    listed=LISTED,
    visitor=bytes(16),
    counted=False,
)
SIGNER = Signer([Secret(1, bytes(range(32)))])
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def changed(**changes):
    names = set(Listed.__struct_fields__) & set(changes)
    listed = msgspec.structs.replace(LISTED, **{name: changes.pop(name) for name in names})
    return msgspec.structs.replace(EVENT, listed=listed, **changes)


def test_a_token_restores_the_event_exactly():
    for event in (
        EVENT,
        changed(visitor=None, counted=True),
        changed(absent=()),
        changed(absent=tuple(range(10, 700))),
    ):
        assert SIGNER.read(SIGNER.sign(event)) == event


def test_tokens_are_short():
    five = changed(
        items=(1, 22, 3, 14, 5), p=(0.123456789,) * 5, learn=31, pinned=0, absent=(), note=(), visitor=None, context={}
    )
    now = 1_700_000_000_000
    five = msgspec.structs.replace(five, created_at=now, expires_at=now + 600_000, late_until=now + 87_000_000)
    assert 150 < len(SIGNER.sign(five)) < 250
    long = changed(
        items=tuple(range(60_000, 60_000 + 50)),
        p=(0.1,) * 50,
        note=(0.1,) * 51,
        absent=tuple(range(0, MAX_ITEMS_EVER, 2)),
        n=MAX_ITEMS_EVER + 20_000,
        context={f"{k}" * 64: "é" * 64 for k in range(8)},
    )
    assert len(SIGNER.sign(long)) < MAX_TOKEN_LENGTH
    assert SIGNER.read(SIGNER.sign(long)) == long


@pytest.mark.parametrize("length", [6, 7, 8])  # so that the last character has 0, 2 or 4 idle bits
def test_only_one_text_is_the_token_of_an_event(length):
    token = SIGNER.sign(changed(policy_id="p" * length))
    others = [token[:-1] + last for last in ALPHABET if last != token[-1]]
    others += [token + end for end in ("=", "==", "!!!!", "\n", " ")]
    others += [token[:8] + "...." + token[8:], token.replace("-", "+").replace("_", "/") + "===="]
    for other in others:
        with pytest.raises(InvalidToken):
            SIGNER.read(other)
    SIGNER.read(token)


@given(st.data())
def test_a_token_with_any_changed_byte_is_rejected(data):
    token = SIGNER.sign(EVENT)
    signed = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    at = data.draw(st.integers(0, len(signed) - 1))
    signed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InvalidToken):
        SIGNER.read(base64.urlsafe_b64encode(bytes(signed)).rstrip(b"=").decode())
    with pytest.raises(InvalidToken):
        SIGNER.read(token[: data.draw(st.integers(0, len(token) - 2))])


@given(st.text())
def test_any_text_is_read_or_refused(text):
    with pytest.raises(InvalidToken):
        SIGNER.read(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"late_until": 2 + MAX_WINDOW},
        {"expires_at": 0},
        {"late_until": 1},
        {"items": (1, 2)},
        {"items": (-1, 2, 3)},
        {"items": (1, 2, 800)},
        {"items": (), "p": ()},
        {"p": (0.0, 0.5, 0.5)},
        {"p": (0.1, 0.5, 1.5)},
    ],
)
def test_tokens_with_impossible_decisions_are_rejected(changes):
    with pytest.raises(InvalidToken, match="impossible"):
        SIGNER.read(SIGNER.sign(changed(**changes)))


def test_secrets_are_made_once_and_differ_between_stores(store, other_store):
    (one, key), (again, same) = open_secrets(store), open_secrets(store)
    assert key == same
    assert one.sign(EVENT) == again.sign(EVENT) != open_secrets(other_store)[0].sign(EVENT)


def test_a_rotated_secret_is_kept_until_all_its_tokens_have_expired(store):
    old = open_secrets(store)[0].sign(EVENT)
    assert rotate_secret(store, now=1000) == 2
    signer, _ = open_secrets(store)
    assert signer.read(old) == EVENT
    assert signer.sign(EVENT) != old
    rotate_secret(store, now=1000 + MAX_WINDOW - 1)
    assert open_secrets(store)[0].read(old) == EVENT
    rotate_secret(store, now=1000 + MAX_WINDOW)
    with pytest.raises(InvalidToken):
        open_secrets(store)[0].read(old)
    assert len(msgspec.msgpack.decode(store.get(SECRETS))) == 3


def moved(at):
    return msgspec.structs.replace(EVENT, created_at=at, expires_at=at, late_until=at)


def test_a_retired_secret_signs_nothing_new(store):
    leaked = open_secrets(store)[0]
    rotate_secret(store, now=1000)
    signer, _ = open_secrets(store)
    at = 1000 + GRACE
    assert signer.read(leaked.sign(moved(at)))  # within the grace period another process may still sign with it
    with pytest.raises(InvalidToken, match="retired"):
        signer.read(leaked.sign(moved(at + 1)))
    assert signer.read(signer.sign(moved(at + 1)))


def test_old_secrets_can_be_forgotten_at_once(store):
    old = open_secrets(store)[0].sign(EVENT)
    rotate_secret(store, now=0, forget=True)
    with pytest.raises(InvalidToken):
        open_secrets(store)[0].read(old)
