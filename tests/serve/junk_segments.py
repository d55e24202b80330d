"""Requests made-up segments with the key of a public page, which anyone can read in the page's source.

    python -m tests.serve.junk_segments --segments 150

Starts a service on a file with an administrator's key and a page key (serve and ingest), takes all places with made-up
segments, and prints which segment a real visitor's list is drawn for: at once, and after a restart.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from bothworlds.serve.http.auth import create_key
from bothworlds.serve.stores import open_store

from .kill_service import ServiceProcess
from .load_clients import piece_of

ITEMS = ["a", "b", "c", "d"]


class Shop:
    """A service with keys, and a page key that is public."""

    def __init__(self, place: str, folder: Path, **settings: Any) -> None:
        # Both before the service starts: a key that is made later reaches the other workers within a second or two.
        with closing(open_store(place)) as store:
            self._admin = create_key(store, ["admin"], "", 0)
            self.page_key = create_key(store, ["serve", "ingest"], "", 0)
        self.service = ServiceProcess(place, folder)
        assert self.as_admin("PUT", "/v1/surfaces/home", {"slots": 2, "items": ITEMS, **settings})[0] == 201

    def as_admin(self, method: str, path: str, body: Any = None) -> tuple[int, Any, str]:
        return self.service.call(method, path, body, Authorization=f"Bearer {self._admin}")

    def rank(self, request_id: str, segment: str) -> tuple[int, Any]:
        """Return status and response of a rank request."""
        body = {"request_id": request_id, "segment": segment}
        authorization = f"Bearer {self.page_key}"
        return self.service.call("POST", "/v1/surfaces/home/rank", body, Authorization=authorization)[:2]

    def visit(self, request_id: str, segment: str, clicks: list[int]) -> Any:
        """Rank a page and send its final feedback; return the page."""
        status, page = self.rank(request_id, segment)
        assert status == 200, page
        self.feedback([piece_of(page, clicks, True)])
        return page

    def feedback(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        body, authorization = {"events": events}, f"Bearer {self.page_key}"
        results: list[dict[str, Any]] = self.service.call("POST", "/v1/feedback", body, Authorization=authorization)[1][
            "results"
        ]
        return results

    def until_served(self, name: str, segment: str) -> None:
        """Rank until a segment has a place, which each worker notices at its next refresh."""
        deadline = time.monotonic() + 60.0
        for k in itertools.count():
            if self.rank(f"{name}-{k}", segment)[1]["segment"] == segment:
                return
            assert time.monotonic() < deadline, f"segment {segment!r} has no place"

    def flood(self, segments: int, name: str = "junk") -> list[Any]:
        """Request made-up segments and send feedback for each; return statuses and responses."""
        responses = []
        for k in range(segments):
            status, page = self.rank(f"{name}-{k}", f"{name}-{k}")
            if status == 200:
                self.feedback([piece_of(page, [], True)])
            responses.append((status, page))
        return responses

    def restart(self) -> None:
        assert self.service.stop() == 0
        assert self.service.process.stdout is not None
        self.service.process.stdout.close()
        self.service.start()


def main() -> None:
    parser = argparse.ArgumentParser(description="made-up segments from a public page")
    parser.add_argument("--segments", type=int, default=150)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(str(Path(folder) / "shop.db"), Path(folder))
        try:
            shop.flood(options.segments)
            print("a real visitor gets", shop.rank("r1", "mobile"))
            shop.restart()
            print("after a restart", shop.rank("r2", "mobile"))
            print("after a reset", shop.as_admin("POST", "/v1/surfaces/home/reset"), shop.rank("r3", "mobile"))
        finally:
            shop.service.end()


if __name__ == "__main__":
    main()
