"""Names made-up segments with the key of a public page, as anybody who reads the page's source can.

    python -m tests.serve.junk_segments --segments 150

Starts a service on a file with an administrator's key and a page key (serve and ingest), takes all places with made-up
segments, and prints which segment a real visitor's list is drawn for: at once, and after a restart.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from .kill_service import Serving, command_line
from .visiting import piece_of

ITEMS = ["a", "b", "c", "d"]


class Shop:
    """A service with keys whose page key is known to everybody."""

    def __init__(self, place: str, folder: Path, **settings: Any) -> None:
        self._admin = self._made(place, "admin")
        self.serving = Serving(place, folder)
        self.page_key = self.as_admin("POST", "/v1/keys", {"roles": ["serve", "ingest"]})[1]["key"]
        assert self.as_admin("PUT", "/v1/surfaces/home", {"slots": 2, "items": ITEMS, **settings})[0] == 201

    @staticmethod
    def _made(place: str, role: str) -> str:
        made = command_line("keys", "create", "--role", role, "--store", place, stdout=subprocess.PIPE)
        said, _ = made.communicate()
        assert made.returncode == 0
        return next(word for word in said.split() if word.startswith("bw_"))

    def as_admin(self, method: str, path: str, body: Any = None) -> tuple[int, Any, str]:
        return self.serving.call(method, path, body, Authorization=f"Bearer {self._admin}")

    def rank(self, request_id: str, segment: str) -> tuple[int, Any]:
        """What the page gets for a visitor of a segment."""
        asked = {"request_id": request_id, "segment": segment}
        authorization = f"Bearer {self.page_key}"
        return self.serving.call("POST", "/v1/surfaces/home/rank", asked, Authorization=authorization)[:2]

    def visit(self, request_id: str, segment: str, clicks: list[int]) -> Any:
        """A page with final feedback, which is learned from."""
        status, page = self.rank(request_id, segment)
        assert status == 200, page
        self.feedback([piece_of(page, clicks, True)])
        return page

    def feedback(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        body, authorization = {"events": events}, f"Bearer {self.page_key}"
        results: list[dict[str, Any]] = self.serving.call("POST", "/v1/feedback", body, Authorization=authorization)[1][
            "results"
        ]
        return results

    def flood(self, segments: int, name: str = "junk") -> list[Any]:
        """Name made-up segments, and let the service learn from each of them; the answers."""
        found = []
        for k in range(segments):
            status, page = self.rank(f"{name}-{k}", f"{name}-{k}")
            if status == 200:
                self.feedback([piece_of(page, [], True)])
            found.append((status, page))
        return found

    def restart(self) -> None:
        assert self.serving.stop() == 0
        assert self.serving.process.stdout is not None
        self.serving.process.stdout.close()
        self.serving.start()


def main() -> None:
    parser = argparse.ArgumentParser(description="made-up segments from a public page")
    parser.add_argument("--segments", type=int, default=150)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(str(Path(folder) / "shop.db"), Path(folder))
        try:
            shop.flood(chosen.segments)
            print("a real visitor gets", shop.rank("r1", "mobile"))
            shop.restart()
            print("after a restart", shop.rank("r2", "mobile"))
            print("after a reset", shop.as_admin("POST", "/v1/surfaces/home/reset"), shop.rank("r3", "mobile"))
        finally:
            shop.serving.end()


if __name__ == "__main__":
    main()
