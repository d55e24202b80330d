"""Tokens restore the signed event exactly; all other tokens are rejected."""

from __future__ import annotations

import asyncio
import base64
import hmac
import threading

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.serve.engine.tokens import (
    GRACE,
    MAX_WINDOW,
    SECRETS,
    SIGNATURE_BYTES,
    InvalidToken,
    Secret,
    Signer,
    TokenBody,
    open_secrets,
    rotate_secret,
)
from bothworlds.serve.model import Event, Unavailable
from bothworlds.serve.schemas import FeedbackEvent

from ..fakes import FakeStore
from ..running import Clock, answer, eventually, running, with_engine, written

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


def test_a_token_restores_the_event_exactly():
    signer, _ = open_secrets(FakeStore())
    assert signer.read(signer.sign(EVENT)) == EVENT


ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@pytest.mark.parametrize("length", [6, 7, 8])  # of the policy's id, so that the last character has 0, 2 or 4 idle bits
def test_only_one_text_is_the_token_of_an_event(length):
    signer, _ = open_secrets(FakeStore())
    token = signer.sign(msgspec.structs.replace(EVENT, policy_id="p" * length))
    others = [token[:-1] + last for last in ALPHABET if last != token[-1]]
    others += [token + end for end in ("=", "==", "!!!!", "\n", " ")]
    others += [token[:8] + "...." + token[8:], token.replace("-", "+").replace("_", "/") + "===="]
    for other in others:
        with pytest.raises(InvalidToken):
            signer.read(other)
    signer.read(token)


@given(st.data())
def test_a_token_with_any_changed_byte_is_rejected(data):
    signer, _ = open_secrets(FakeStore())
    token = signer.sign(EVENT)
    signed = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    at = data.draw(st.integers(0, len(signed) - 1))
    signed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InvalidToken):
        signer.read(base64.urlsafe_b64encode(bytes(signed)).rstrip(b"=").decode())
    with pytest.raises(InvalidToken):
        signer.read(token[: data.draw(st.integers(0, len(token) - 2))])


@pytest.mark.slow
@given(st.text())
def test_any_text_is_read_or_refused(text):
    signer, _ = open_secrets(FakeStore())
    signer.knows(text)
    with pytest.raises(InvalidToken):
        signer.read(text)


def test_secrets_are_made_once_and_differ_between_stores():
    store = FakeStore()
    (one, key), (again, same) = open_secrets(store), open_secrets(store)
    assert key == same
    assert one.sign(EVENT) == again.sign(EVENT) != open_secrets(FakeStore())[0].sign(EVENT)


def test_a_rotated_secret_is_kept_until_all_its_tokens_have_expired():
    store = FakeStore()
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
    assert len(msgspec.msgpack.decode(store.facts[SECRETS])) == 3


@with_engine()
async def test_forged_and_foreign_tokens_change_nothing(engine, store, clock):
    one, two = await engine.rank("home", "r1"), await engine.rank("home", "r2")
    bad = [
        FeedbackEvent(one.event_id, two.token, [0], True),
        FeedbackEvent(one.event_id, one.token[:-2] + "xx", [0], True),
        FeedbackEvent(one.event_id, one.token[:20], [0], True),
        FeedbackEvent(one.event_id, "", [0], True),
        FeedbackEvent(one.event_id, "é" * 40, [0], True),
        FeedbackEvent("nonsense", one.token, [0], True),
        FeedbackEvent(one.event_id, one.token, [3], True),
        FeedbackEvent(one.event_id, one.token, [-1], True),
    ]
    results = await engine.feedback(bad)
    assert {result.status for result in results} == {"rejected"}
    assert all(result.reason for result in results)
    assert store.totals() == {}


@with_engine(attribution_seconds=60, late_seconds=100)
async def test_expired_tokens_change_nothing(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    engine.writer.enqueue_decision = None
    clock.at += 160_001
    assert (await answer(engine, ranked, [0])).status == "expired"
    assert all(not counts[3] for counts in store.totals().values())  # no click was counted


@with_engine()
async def test_tokens_stay_valid_after_a_rotation(engine, store, clock):
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
    token = other.sign(engine.secrets.signer.read(ranked.token))
    (result,) = await engine.feedback([FeedbackEvent(ranked.event_id, token, [0], True)])
    assert result.status == "accepted"


@with_engine()
async def test_a_lookup_of_a_secret_does_not_block_other_requests(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    rotate_secret(store, clock())
    token = open_secrets(store)[0].sign(engine.secrets.signer.read(ranked.token))
    slow, begun, go_on = store.put, threading.Event(), threading.Event()

    def stalled(*given, **options):
        begun.set()
        assert go_on.wait(60)
        return slow(*given, **options)

    store.put = stalled
    searching = [
        asyncio.create_task(engine.feedback([FeedbackEvent(ranked.event_id, token, [0], True)])) for _ in range(2)
    ]
    await eventually(begun.is_set)
    assert (await engine.rank("home", "r1")).event_id == ranked.event_id
    go_on.set()
    assert sorted([(await one)[0].status for one in searching]) == ["accepted", "duplicate"]


@with_engine()
async def test_a_token_is_not_rejected_while_its_secret_cannot_be_read(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    rotate_secret(store, clock())
    token = open_secrets(store)[0].sign(engine.secrets.signer.read(ranked.token))
    store.broken = "away"
    for _ in range(2):
        with pytest.raises(Unavailable):
            await engine.feedback([FeedbackEvent(ranked.event_id, token, [0], True)])
    store.broken = ""
    assert (await engine.feedback([FeedbackEvent(ranked.event_id, token, [0], True)]))[0].status == "accepted"


@with_engine()
async def test_a_token_signed_while_its_secret_is_deleted_is_not_returned_again(engine, store, clock):
    class Overtaken:
        """Signs a token, and deletes all secrets before the token is returned."""

        def __init__(self, signer):
            self.numbers, self.sign = signer.numbers, lambda event: (signer.sign(event), forget())[0]

    def forget():
        rotate_secret(store, clock(), forget=True)
        engine.secrets.reload()

    engine.secrets.signer = Overtaken(engine.secrets.signer)
    await engine.rank("home", "r1")
    await written(engine)
    again = await engine.rank("home", "r1")
    assert (await answer(engine, again, [0])).status == "accepted"


def test_a_retired_secret_signs_nothing_new():
    store = FakeStore()
    leaked = open_secrets(store)[0]
    rotate_secret(store, now=1000)
    signer, _ = open_secrets(store)
    at = 1000 + GRACE
    assert signer.read(leaked.sign(moved(at)))  # within the grace period another process may still sign with it
    with pytest.raises(InvalidToken, match="retired"):
        signer.read(leaked.sign(moved(at + 1)))
    assert signer.read(signer.sign(moved(at + 1)))


@pytest.mark.parametrize(
    "changes",
    [
        {"late_until": 2 + MAX_WINDOW},
        {"expires_at": 0},
        {"late_until": 1},
        {"items": (1, 2)},
        {"items": (-1, 2, 3)},
        {"items": (), "p": ()},
        {"p": (0.0, 0.5, 0.5)},
        {"p": (0.1, 0.5, 1.5)},
    ],
)
def test_tokens_with_impossible_decisions_are_rejected(changes):
    signer, _ = open_secrets(FakeStore())
    with pytest.raises(InvalidToken, match="impossible"):
        signer.read(signer.sign(msgspec.structs.replace(EVENT, **changes)))


def test_old_secrets_can_be_forgotten_at_once():
    store = FakeStore()
    old = open_secrets(store)[0].sign(EVENT)
    rotate_secret(store, now=0, forget=True)
    with pytest.raises(InvalidToken):
        open_secrets(store)[0].read(old)


def test_two_rotations_at_once_make_two_secrets():
    store = FakeStore()
    open_secrets(store)
    put, numbers = store.put, []

    def overtaken(key, value, **options):
        store.put = put
        numbers.append(rotate_secret(store, now=5))
        return put(key, value, **options)

    store.put = lambda key, value, **options: (
        put(key, value, **options) if not options.get("expected") else overtaken(key, value, **options)
    )
    numbers.append(rotate_secret(store, now=6))
    assert numbers == [2, 3]
    assert open_secrets(store)[0].number == 3
    assert open_secrets(store)[0].numbers == {1, 2, 3}


def test_tokens_without_pins_are_read():
    key = bytes(range(32))
    fields = TokenBody.__struct_fields__
    body = msgspec.msgpack.encode([getattr(EVENT, name) for name in fields[: fields.index("pinned")]])
    signed = (1).to_bytes(2, "big") + hmac.digest(key, body, "sha256")[:SIGNATURE_BYTES] + body
    assert Signer([Secret(1, key)]).read(base64.urlsafe_b64encode(signed).rstrip(b"=").decode()).pinned == 0b100


def moved(at):
    return msgspec.structs.replace(EVENT, created_at=at, expires_at=at, late_until=at)


@with_engine()
async def test_forgetting_secrets_gives_new_tokens_to_requests_that_are_sent_again(engine, store, clock):
    ranked = await engine.rank("home", "r1")
    await written(engine)
    await engine.rotate_secret(actor="test", forget=True)
    assert (await answer(engine, ranked, [0])).status == "rejected"
    again = await engine.rank("home", "r1")
    assert again.slots == ranked.slots
    assert (await answer(engine, again, [0])).status == "accepted"


def test_a_process_signs_with_the_secret_that_another_has_made():
    async def whole():
        store, clock = FakeStore(), Clock()
        async with running(store, clock=clock, shared=True, refresh_ms=5) as engine:
            await engine.put_surface("home", {"slots": 1, "items": ["a"]}, actor="test")
            rotate_secret(store, clock())
            engine.secrets.followed_at = -1e9
            await eventually(lambda: engine.secrets.signer.number != 1)
            assert engine.secrets.signer.number == 2

    asyncio.run(whole())


@pytest.mark.parametrize("length", [0, 1, 32, 64, 65, 200])
def test_signatures_are_hmac_sha256(length: int) -> None:
    key = bytes(range(length))
    token = base64.urlsafe_b64decode(Signer([Secret(1, key)]).sign(EVENT) + "===")
    assert token[2:18] == hmac.digest(key, token[18:], "sha256")[:16]
