"""Tokens: everything that feedback needs to know of a decision, signed, so that a lost decision can be restored.

A token is the number of the secret, a truncated HMAC-SHA256 and the event in msgpack, encoded as base64url. The secrets
are facts of the store. A rotation adds a new secret; an old one is kept as long as a token signed with it can be used.
"""

from __future__ import annotations

import binascii
import hmac
import secrets as random_secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from ..eligibility_format import PackedEligibility, pack, unpack
from ..model import DRAW_KEY, Arm, Event, EventPrediction, pinned_mask
from ..stores.base import Store, StoreError

__all__ = ["MAX_WINDOW", "InvalidToken", "Signer", "open_secrets", "rotate_secret"]

SIGNATURE_BYTES = 16
MAX_WINDOW = 120 * 86400 * 1000  # milliseconds from a decision to the end of its late window
GRACE = 60_000  # milliseconds in which other processes may still sign with a secret that was just retired
ATTEMPTS = 20  # at a rotation while other processes rotate
SECRETS = "token secrets"  # the name of a fact
MAX_TOKEN_LENGTH = 16_384


class InvalidToken(ValueError):
    """The token was not issued by this service, or does not fit the feedback."""


class Secret(msgspec.Struct, frozen=True, array_like=True):
    """A key that signs tokens, its number, and when it was replaced."""

    number: int
    key: bytes
    retired_at: int | None = None


class TokenBody(msgspec.Struct, frozen=True, array_like=True):
    """An event at the time of the decision."""

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
    eligibility: PackedEligibility = PackedEligibility()
    mixture: tuple[float, ...] = ()
    visitor: bytes | None = None
    learner: int = 0
    prediction: EventPrediction | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TokenBody).decode
_decode_secrets = msgspec.msgpack.Decoder(list[Secret]).decode


class Signer:
    """Signs tokens with the newest secret, and reads tokens of all stored secrets. Immutable; usable in any thread."""

    def __init__(self, stored: list[Secret]) -> None:
        self._secrets = {secret.number: secret for secret in stored}
        # Copying a keyed HMAC takes two thirds of the time of hmac.digest, which hashes the key again for each token.
        self._hmacs = {secret.number: hmac.new(secret.key, digestmod="sha256") for secret in stored}
        self.numbers = frozenset(self._secrets)
        self.number = next((secret for secret in stored if secret.retired_at is None), stored[-1]).number
        self._prefix = self.number.to_bytes(2, "big")

    def knows(self, token: str) -> bool:
        """Returns False if a token names a secret that is not known here; another process may have created it."""
        try:
            return int.from_bytes(urlsafe_b64decode(token[:4])[:2], "big") in self._secrets
        except (ValueError, binascii.Error):
            return True

    def sign(self, event: Event) -> str:
        """Returns the token of an event."""
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
                pack(event.eligibility),
                event.mixture,
                event.visitor,
                event.learner,
                event.prediction,
            )
        )
        signed = self._prefix + self._signature(self.number, body) + body
        return _text(signed)

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
        number, body = int.from_bytes(signed[:2], "big"), signed[2 + SIGNATURE_BYTES :]
        secret = self._secrets.get(number)
        signature = signed[2 : 2 + SIGNATURE_BYTES]
        if secret is None or not hmac.compare_digest(self._signature(number, body), signature):
            raise InvalidToken("the token is not signed by this service")
        fields = _decode(body)
        _check(fields, secret)
        pinned = pinned_mask(fields.pinned, fields.arm, len(fields.items), fields.learn)
        eligibility = unpack(fields.eligibility)
        return Event(**{**msgspec.structs.asdict(fields), "pinned": pinned, "eligibility": eligibility})

    def _signature(self, number: int, body: bytes) -> bytes:
        keyed = self._hmacs[number].copy()
        keyed.update(body)
        return keyed.digest()[:SIGNATURE_BYTES]


def _text(signed: bytes) -> str:
    return urlsafe_b64encode(signed).rstrip(b"=").decode()


def _check(body: TokenBody, secret: Secret) -> None:
    """Raises InvalidToken for a body that this service never signs, so that a leaked old secret is of limited use."""
    if secret.retired_at is not None and body.created_at > secret.retired_at + GRACE:
        raise InvalidToken("the token is signed with a secret that was retired before the token was created")
    possible = 0 < len(body.items) == len(body.p) and min(body.items) >= 0 and all(0.0 < p <= 1.0 for p in body.p)
    if body.prediction is not None:
        possible &= len(body.prediction.used) == len(body.prediction.expected) == len(body.items)
    ordered = body.created_at <= body.expires_at <= body.late_until <= body.created_at + MAX_WINDOW
    if not (ordered and possible):
        raise InvalidToken("the token contains an impossible decision")


def open_secrets(store: Store) -> tuple[Signer, bytes]:
    """Returns the signer and the draw key of a store; creates them on first use. Raises StoreError."""
    first = msgspec.msgpack.encode([Secret(1, random_secrets.token_bytes(32))])
    stored = _decode_secrets(store.put(SECRETS, first, only_if_absent=True))
    return Signer(stored), store.put(DRAW_KEY, random_secrets.token_bytes(32), only_if_absent=True)


def rotate_secret(store: Store, now: int, forget: bool = False) -> int:
    """Stores a new secret and returns its number; it is durable when this returns. Raises StoreError.

    Old secrets are deleted once all their tokens are past their late windows; all of them at once with ``forget``.
    Concurrent rotations follow each other: no two secrets have the same number.
    """
    open_secrets(store)
    for _ in range(ATTEMPTS):
        before = store.get(SECRETS) or b""
        number, after = _rotated(_decode_secrets(before), now, forget)
        if store.put(SECRETS, after, expected=before) == after:
            return number
    raise StoreError("other processes are rotating secrets all the time: retry")


def _rotated(stored: list[Secret], now: int, forget: bool) -> tuple[int, bytes]:
    alive = [s for s in stored if s.retired_at is None or s.retired_at + MAX_WINDOW > now]
    retired = [msgspec.structs.replace(s, retired_at=s.retired_at or now) for s in alive]
    fresh = Secret(stored[-1].number % 65535 + 1, random_secrets.token_bytes(32))
    return fresh.number, msgspec.msgpack.encode([*([] if forget else retired), fresh])
