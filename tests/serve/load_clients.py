"""Client threads that put a real service under load, retry until answered, and record what was acknowledged."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from http.client import HTTPConnection, HTTPException
from typing import Any

from bothworlds.serve.events import Event

SLOTS, ITEMS = 3, [f"item-{k}" for k in range(8)]
SURFACE = {
    "slots": SLOTS,
    "items": [{"name": name, "labels": {"kind": f"kind {k % 3}"}} for k, name in enumerate(ITEMS)],
    "labels": {"device": ["phone", "desktop"], "country": None},
    "item_labels": {"kind": None},
    "holdout": 0.1,
    "arms": [{"name": "new", "policy": "context-ts", "share": 0.3}],
}
ACKNOWLEDGED = {"accepted", "duplicate", "settled", "late_applied"}
NOT_NOW = (429, 503)


class ClientRecord:
    """The pages that clients were shown, the clicks they have sent, and the clicks that were acknowledged."""

    def __init__(self) -> None:
        self.shown: dict[str, dict[str, Any]] = {}
        self.sent: Counter[str] = Counter()  # mask of clicks
        self.acknowledged: Counter[str] = Counter()  # mask of clicks
        self.final: set[str] = set()
        self.problems: list[str] = []
        self.count = 0  # of acknowledgements
        self._lock = threading.Lock()

    def sending(self, pieces: Iterable[dict[str, Any]]) -> None:
        with self._lock:
            for piece in pieces:
                self.sent[piece["event_id"]] |= _mask(piece["clicks"])

    def answered(self, pieces: Iterable[dict[str, Any]], results: Iterable[dict[str, Any]]) -> None:
        with self._lock:
            for piece, result in zip(pieces, results, strict=True):
                if result["event_id"] != piece["event_id"] or result["status"] not in ACKNOWLEDGED:
                    self.problems.append(f"{piece['event_id']} was answered with {result}")
                self.acknowledged[piece["event_id"]] |= _mask(piece["clicks"])
                self.final |= {piece["event_id"]} if piece["final"] else set()
                self.count += 1

    def promised(self) -> dict[str, tuple[int, bool]]:
        """Return what has been acknowledged so far: for every event its clicks, and whether it is final."""
        with self._lock:
            return {name: (clicks, name in self.final) for name, clicks in self.acknowledged.items()}

    def broken(self, name: str, promise: tuple[int, bool], event: Event | None) -> str:
        """Return how a stored event contradicts what was acknowledged; empty if it does not."""
        clicks, final = promise
        stored = 0 if event is None else event.clicks | event.late
        if event is None or clicks & ~stored or (final and not event.final and event.number is None):
            return f"{name} lost: {promise} was acknowledged, and there is {event}"
        return f"{name} made up: {stored}" if stored & ~self.sent[name] else ""

    def open_pages(self) -> list[dict[str, Any]]:
        """Return feedback that settles every open event."""
        return [piece_of(page, [], True) for name, page in self.shown.items() if name not in self.final]


def _mask(clicks: Iterable[int]) -> int:
    return sum(1 << slot for slot in clicks)


def piece_of(page: dict[str, Any], clicks: list[int], final: bool) -> dict[str, Any]:
    return {"event_id": page["event_id"], "token": page["token"], "clicks": clicks, "final": final}


class Visitor(threading.Thread):
    """Requests pages and sends clicks until ``stop`` is called; a request without an answer is retried."""

    def __init__(self, number: int, seed: int, where: Callable[[], tuple[str, int]], record: ClientRecord) -> None:
        super().__init__(daemon=True)
        self._who, self._where, self._record = f"{seed}-{number}", where, record
        self._chance = random.Random(self._who)
        self._connection: HTTPConnection | None = None
        self._enough, self._given_up = threading.Event(), False
        self._arms: dict[str, str] = {}  # of visitors

    def run(self) -> None:
        visit = 0
        try:
            while not self._enough.is_set():
                self._visit(visit)
                visit += 1
        except Exception as error:
            self._record.problems.append(f"a visitor gave up: {error!r}")

    def stop(self, *, at_once: bool = False) -> None:
        """End the thread after the visit under way; with ``at_once``, retry nothing any more."""
        self._given_up = at_once
        self._enough.set()
        if self.is_alive():
            self.join()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _visit(self, visit: int) -> None:
        chance, pages = (
            self._chance,
            [
                self.rank(f"{self._who}-{visit}-{k}", f"{self._who}-{visit % 20}")
                for k in range(self._chance.randint(1, 4))
            ],
        )
        clicked = {page["event_id"]: [slot for slot in range(SLOTS) if chance.random() < 0.3] for page in pages}
        if chance.random() < 0.3:
            self.feedback([piece_of(page, clicked[page["event_id"]][:1], False) for page in pages])
        if chance.random() < 0.8:  # others leave their pages open
            self.feedback([piece_of(page, clicked[page["event_id"]], True) for page in pages])
            if chance.random() < 0.3:  # once more, and late
                self.feedback([piece_of(page, [chance.randrange(SLOTS)], False) for page in pages])
            if chance.random() < 0.3:
                self._request_again(f"{self._who}-{visit}-0", pages[0])

    def rank(self, request_id: str, visitor: str) -> dict[str, Any]:
        context = {"device": self._chance.choice(["phone", "desktop"]), "country": f"c{self._chance.randrange(9)}"}
        body = {"request_id": request_id, "visitor": visitor, "context": context}
        page: dict[str, Any] = self.call("POST", "/v1/surfaces/home/rank", body)
        self._record.shown[page["event_id"]] = page
        if self._arms.setdefault(visitor, page["arm"]) != page["arm"]:
            self._record.problems.append(f"visitor {visitor} was moved to arm {page['arm']}")
        return page

    def feedback(self, pieces: list[dict[str, Any]]) -> None:
        self._record.sending(pieces)
        self._record.answered(pieces, self.call("POST", "/v1/feedback", {"events": pieces})["results"])

    def _request_again(self, request_id: str, page: dict[str, Any]) -> None:
        again = self.call("POST", "/v1/surfaces/home/rank", {"request_id": request_id})
        if [slot["item"] for slot in again["slots"]] != [slot["item"] for slot in page["slots"]]:
            self._record.problems.append(f"{request_id} was shown another list by the repeated request")

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request, and retry it until it is answered."""
        while not self._given_up:
            try:
                status, answer = self._once(method, path, body)
            except (OSError, HTTPException):
                self._hang_up()
                time.sleep(0.05)
                continue
            if status < 300:
                return json.loads(answer or b"null")
            if status not in NOT_NOW:
                raise AssertionError(f"{method} {path} was answered with {status}: {answer!r}")
            time.sleep(0.05)
        raise AssertionError("stopped before there was an answer")

    def _once(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = HTTPConnection(*self._where(), timeout=20)
        sent = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, sent, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, answer.read()
