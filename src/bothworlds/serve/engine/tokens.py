"""Tokens: the whole decision, signed, so that feedback needs nothing else and a decision that was lost is restored.

A token is the number of a secret, a keyed hash and the event in msgpack, encoded as base64url. Secrets are facts of the
store. A rotation adds a new one; an old one is kept as long as a token signed with it can be used. A process keeps them
in memory, and reads them again when another process may have rotated them.
"""

from __future__ import annotations

import asyncio
import binascii
import hmac
import math
import secrets as random_secrets
import threading
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from operator import attrgetter

import msgspec
import numpy as np

from ..events import Event, Listed
from ..model import DRAW_KEY, Arm
from ..stores import Store
from .store_calls import in_thread

SIGNATURE_BYTES = 16
MAX_WINDOW = 120 * 86400 * 1000  # milliseconds from a decision to the end of its late window
GRACE = 60_000  # milliseconds in which other processes may still sign with a secret that was just retired
SECRETS = "token secrets"  # the name of a fact
MAX_TOKEN_LENGTH = 16_384
LOOKUP_SECONDS = 0.1  # minimum time between two lookups of a secret that a token names
FOLLOW_SECONDS = 5.0  # between two checks whether another process has rotated secrets
NOT_SIGNED = "the token is not signed by this service"
FEW_ABSENT = 24  # of more absent items than 1 in so many, a token has a bitmap


class InvalidToken(ValueError):
    """The token was not issued by this service, or does not fit the feedback."""


class UnknownSecret(InvalidToken):
    """The token names a secret that is not known here; another process may have created it."""


class Secret(msgspec.Struct, frozen=True, array_like=True):
    """A key that signs tokens, its number, and when it was replaced."""

    number: int
    key: bytes
    retired_at: int | None = None


# An event at the time of the decision; then its absent items as a bitmap, where that is shorter than the list.
_FIELDS = (
    "id", "surface_id", "learner_id", "arm", "created_at", "expires_at", "late_until", "n", "visitor",
    "counted", "context", "listed",
)  # fmt: skip
_Signed = tuple[bytes, int, int, Arm, int, int, int, int, bytes | None, bool, dict[str, str], Listed, bytes]
_values = attrgetter(*_FIELDS[:-1])
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Signed).decode
_decode_secrets = msgspec.msgpack.Decoder(list[Secret]).decode


class Signer:
    """Signs tokens with the newest secret, and reads tokens of all stored secrets. Immutable; usable in any thread."""

    def __init__(self, stored: list[Secret]) -> None:
        self._secrets = {secret.number: secret for secret in stored}
        newest = next((secret for secret in stored if secret.retired_at is None), stored[-1])
        self.number, self._key, self._prefix = newest.number, newest.key, newest.number.to_bytes(2, "big")

    def sign(self, event: Event) -> str:
        """Returns the token of an event."""
        listed, absent = event.listed, b""
        if FEW_ABSENT * len(listed.absent) > event.n:
            bits = np.zeros(event.n, np.bool_)
            bits[list(listed.absent)] = True
            listed, absent = msgspec.structs.replace(listed, absent=()), np.packbits(bits).tobytes()
        body = _encode((*_values(event), listed, absent))
        return _text(self._prefix + blake2b(body, digest_size=SIGNATURE_BYTES, key=self._key).digest() + body)

    def read(self, token: str) -> Event:
        """Returns the event of a token; raises InvalidToken."""
        if not isinstance(token, str) or len(token) > MAX_TOKEN_LENGTH:
            raise InvalidToken("the token was not issued by this service")
        try:
            signed = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        except (ValueError, binascii.Error) as error:
            raise InvalidToken("the token is damaged") from error
        if _text(signed) != token:  # decoding ignores foreign characters, and idle bits of the last one
            raise InvalidToken("the token is damaged")
        secret = self._secrets.get(int.from_bytes(signed[:2], "big"))
        if secret is None:
            raise UnknownSecret(NOT_SIGNED)
        signature, body = signed[2 : 2 + SIGNATURE_BYTES], signed[2 + SIGNATURE_BYTES :]
        if not hmac.compare_digest(blake2b(body, digest_size=SIGNATURE_BYTES, key=secret.key).digest(), signature):
            raise InvalidToken(NOT_SIGNED)
        event = _event(body)
        _check(event, secret)
        return event


def _text(signed: bytes) -> str:
    return urlsafe_b64encode(signed).rstrip(b"=").decode()


def _event(body: bytes) -> Event:
    *values, absent = _decode(body)
    event = Event(**dict(zip(_FIELDS, values, strict=True)))
    if absent:
        bits = np.unpackbits(np.frombuffer(absent, np.uint8))
        event.listed = msgspec.structs.replace(event.listed, absent=tuple(np.flatnonzero(bits).tolist()))
    return event


def _check(event: Event, secret: Secret) -> None:
    """Raises InvalidToken for an event that this service never signs, so that a leaked old secret is of limited use."""
    if secret.retired_at is not None and event.created_at > secret.retired_at + GRACE:
        raise InvalidToken("the token is signed with a secret that was retired before the token was created")
    items, p = event.listed.items, event.listed.p
    possible = 0 < len(items) == len(p) and 0 <= min(items) <= max(items) < event.n and all(0.0 < x <= 1.0 for x in p)
    ordered = event.created_at <= event.expires_at <= event.late_until <= event.created_at + MAX_WINDOW
    if not (possible and ordered):
        raise InvalidToken("the token contains an impossible decision")


def open_secrets(store: Store) -> tuple[Signer, bytes]:
    """Returns the signer and the draw key of a store; creates them on first use. Raises StoreError."""
    first = msgspec.msgpack.encode([Secret(1, random_secrets.token_bytes(32))])
    stored = _decode_secrets(store.put(SECRETS, first, only_if_absent=True))
    return Signer(stored), store.put(DRAW_KEY, random_secrets.token_bytes(32), only_if_absent=True)


def rotate_secret(store: Store, now: int, forget: bool = False) -> int:
    """Stores a new secret and returns its number; it is durable when this returns. Raises StoreError.

    Old secrets are deleted once all their tokens are past their late windows; all of them at once with ``forget``.
    """
    open_secrets(store)

    def rotated(before: bytes) -> bytes:
        stored = _decode_secrets(before)
        alive = [s for s in stored if s.retired_at is None or s.retired_at + MAX_WINDOW > now]
        retired = [msgspec.structs.replace(s, retired_at=s.retired_at or now) for s in alive]
        fresh = Secret(stored[-1].number % 65535 + 1, random_secrets.token_bytes(32))
        return msgspec.msgpack.encode([*([] if forget else retired), fresh])

    return _decode_secrets(store.change(SECRETS, rotated))[-1].number


class SecretCache:
    """Signs and reads tokens with the secrets of the store.

    ``load`` must be called first.
    """

    signer: Signer
    draw_key: bytes

    def __init__(self, store: Store) -> None:
        self._store = store
        self._looked_up_at = self.followed_at = -math.inf
        self._lock = threading.Lock()  # secrets are used in the order in which they were read
        self._lookup: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Reads the secrets, or creates them. Blocks; raises StoreError."""
        self.signer, self.draw_key = open_secrets(self._store)

    def reload(self) -> None:
        """Reads the secrets again. Blocks; can be called from any thread. Raises StoreError."""
        with self._lock:
            self.signer, _ = open_secrets(self._store)

    async def read(self, token: str) -> Event:
        """Returns the event of a token; looks for its secret in the store if it is unknown. Raises InvalidToken."""
        try:
            return self.signer.read(token)
        except UnknownSecret:
            await self._look_up()
        return self.signer.read(token)

    async def _look_up(self) -> None:
        """Reads secrets that another process may have created, at most every ``LOOKUP_SECONDS``.

        The rate is limited because anybody can send a token that names an unknown secret. Concurrent callers wait for
        the same lookup, which runs in a thread, so that a slow store does not block the event loop.
        """
        if self._lookup is None or self._lookup.done():
            if time.monotonic() - self._looked_up_at <= LOOKUP_SECONDS:
                return
            self._lookup = asyncio.create_task(in_thread(self.reload))
        await asyncio.shield(self._lookup)
        self._looked_up_at = time.monotonic()

    def follow(self) -> None:
        """Reads the secrets again if ``FOLLOW_SECONDS`` have passed: another process may have rotated them."""
        now = time.monotonic()
        if now - self.followed_at > FOLLOW_SECONDS:
            self.followed_at = now
            self.reload()

    async def rotate(self, now: int, forget: bool) -> int:
        """Stores a new secret, signs with it from now on and returns its number."""
        number = await in_thread(rotate_secret, self._store, now, forget)
        await in_thread(self.reload)
        return number
