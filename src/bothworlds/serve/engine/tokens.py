"""Tokens: all that feedback needs to know of a decision, signed, so that it holds even if the decision was lost.

A token is the secret's number, a truncated HMAC-SHA256 and the event in msgpack, in base64url. Secrets are kept in the
store; a new one takes over when they are rotated, and old ones stay as long as any token they signed can be of use.
"""

from __future__ import annotations

import binascii
import hmac
import secrets as random_secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec

from ..model import ALL_ELIGIBLE, Arm, Eligibility, Event, pinned_mask
from ..stores.base import Store, StoreError

__all__ = ["LONGEST_WINDOW", "Forged", "Signer", "open_secrets", "rotate_secret"]

SIGNATURE = 16
LONGEST_WINDOW = 120 * 86400 * 1000  # milliseconds from a decision to the end of its late window, at most
GRACE = 60_000  # milliseconds for which other processes may sign with a secret that has just been retired
ATTEMPTS = 20  # at a rotation while others rotate
SECRETS, DRAW_KEY = "token secrets", "draw key"
LONGEST_TOKEN = 16_384


class Forged(ValueError):
    """Not a token of ours."""


class Secret(msgspec.Struct, frozen=True, array_like=True):
    """A key that signs, its number, and when another took its place."""

    number: int
    key: bytes
    retired_at: int | None = None


class Body(msgspec.Struct, frozen=True, array_like=True):
    """An event as it is when it is decided."""

    id: bytes
    surface_id: int
    segment: str
    policy_id: str
    created_at: int
    expires_at: int
    late_until: int
    items: tuple[int, ...]
    p: tuple[float, ...]
    learn: int
    arm: Arm
    pinned: int | None = None
    eligibility: Eligibility = ALL_ELIGIBLE


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Body).decode
_decode_secrets = msgspec.msgpack.Decoder(list[Secret]).decode


class Signer:
    """Makes tokens with the newest secret and reads those of all that are kept."""

    def __init__(self, kept: list[Secret]) -> None:
        self._secrets = {secret.number: secret for secret in kept}
        self.numbers = frozenset(self._secrets)
        newest = next((secret for secret in kept if secret.retired_at is None), kept[-1])
        self.number, self._key = newest.number, newest.key
        self._prefix = self.number.to_bytes(2, "big")

    def knows(self, token: str) -> bool:
        """Whether the secret that a token names is kept; another process may have made it meanwhile."""
        try:
            return int.from_bytes(urlsafe_b64decode(token[:4])[:2], "big") in self._secrets
        except (ValueError, binascii.Error):
            return True

    def sign(self, event: Event) -> str:
        """The token of an event."""
        body = _encode(
            (
                event.id,
                event.surface_id,
                event.segment,
                event.policy_id,
                event.created_at,
                event.expires_at,
                event.late_until,
                event.items,
                event.p,
                event.learn,
                event.arm,
                event.pinned,
                event.eligibility,
            )
        )
        signed = self._prefix + _signature(self._key, body) + body
        return urlsafe_b64encode(signed).rstrip(b"=").decode()

    def read(self, token: str) -> Event:
        """The event of a token, or Forged."""
        if not isinstance(token, str) or len(token) > LONGEST_TOKEN:
            raise Forged("the token is none of this service")
        try:
            signed = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        except (ValueError, binascii.Error) as error:
            raise Forged("the token is damaged") from error
        secret, body = self._secrets.get(int.from_bytes(signed[:2], "big")), signed[2 + SIGNATURE :]
        if secret is None or not hmac.compare_digest(_signature(secret.key, body), signed[2 : 2 + SIGNATURE]):
            raise Forged("the token is not signed by this service")
        fields = _decode(body)
        _check(fields, secret)
        told = {name: getattr(fields, name) for name in Body.__struct_fields__}
        pinned = pinned_mask(fields.pinned, fields.arm, len(fields.items), fields.learn)
        return Event(**{**told, "pinned": pinned})


def _signature(key: bytes, body: bytes) -> bytes:
    """HMAC-SHA256 from hashes that have taken in the key already: a fifth of the time of setting them up anew."""
    inner, outer = (started.copy() for started in _started(key))
    inner.update(body)
    outer.update(inner.digest())
    return outer.digest()[:SIGNATURE]


@lru_cache(maxsize=64)
def _started(key: bytes) -> tuple[Any, Any]:
    block = (key if len(key) <= 64 else sha256(key).digest()).ljust(64, b"\0")
    return sha256(bytes(byte ^ 0x36 for byte in block)), sha256(bytes(byte ^ 0x5C for byte in block))


def _check(told: Body, secret: Secret) -> None:
    """Refuse what this service would never sign: whoever has got hold of an old secret cannot use it for ever."""
    if secret.retired_at is not None and told.created_at > secret.retired_at + GRACE:
        raise Forged("the token is signed with a secret that was retired before it was made")
    possible = 0 < len(told.items) == len(told.p) and min(told.items) >= 0 and all(0.0 < p <= 1.0 for p in told.p)
    ordered = told.created_at <= told.expires_at <= told.late_until <= told.created_at + LONGEST_WINDOW
    if not (ordered and possible):
        raise Forged("the token tells of a decision that cannot be")


def open_secrets(store: Store) -> tuple[Signer, bytes]:
    """The signer and the key of draws of a store; made on first use."""
    first = msgspec.msgpack.encode([Secret(1, random_secrets.token_bytes(32))])
    kept = _decode_secrets(store.put(SECRETS, first, only_if_absent=True))
    return Signer(kept), store.put(DRAW_KEY, random_secrets.token_bytes(32), only_if_absent=True)


def rotate_secret(store: Store, now: int, forget: bool = False) -> int:
    """Sign with a new secret from now on; drop old ones whose tokens are all past their late windows, or all of them.

    If two rotate at once, one follows the other: no two secrets have the same number.
    """
    open_secrets(store)
    for _ in range(ATTEMPTS):
        before = store.get(SECRETS) or b""
        number, after = _rotated(_decode_secrets(before), now, forget)
        if store.put(SECRETS, after, expected=before) == after:
            return number
    raise StoreError("others rotate secrets all the time: try again")


def _rotated(kept: list[Secret], now: int, forget: bool) -> tuple[int, bytes]:
    alive = [s for s in kept if s.retired_at is None or s.retired_at + LONGEST_WINDOW > now]
    retired = [msgspec.structs.replace(s, retired_at=s.retired_at or now) for s in alive]
    fresh = Secret(kept[-1].number % 65535 + 1, random_secrets.token_bytes(32))
    return fresh.number, msgspec.msgpack.encode([*([] if forget else retired), fresh])
