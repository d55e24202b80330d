"""A click passes at most fifteen files of the service on its way from the request for a list to the next list."""

from __future__ import annotations

import re
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import bothworlds
from bothworlds.serve.config import Config
from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.http.app import Service
from tests.serve.http.conftest import Client
from tests.serve.running import SURFACE, temporary_store

PACKAGE = Path(bothworlds.__file__).parent
HOUSE = Path(__file__).parents[2] / "docs/house.md"
TYPES = {"serve/events.py", "serve/schemas.py", "serve/model.py"}  # structs, ids and errors
MOST = 15


class Files:
    """The files whose functions are called in any thread that starts inside of ``profiled``, while ``on``."""

    def __init__(self):
        self.on, self.codes = False, set()

    @contextmanager
    def profiled(self):
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _profile(self, frame, event, argument):
        if self.on and event == "call":
            self.codes.add(frame.f_code)

    @property
    def counted(self):
        """The files of serve/, without types and monitoring, and policies/pages.py."""
        paths = {Path(code.co_filename) for code in self.codes}
        names = {path.relative_to(PACKAGE).as_posix() for path in paths if path.is_relative_to(PACKAGE)}
        inside = {name for name in names if name.startswith("serve/") or name == "policies/pages.py"}
        return {name for name in inside - TYPES if not name.startswith("serve/observability/")}


def files_of_a_click():
    """The files that a visitor's page, her click, and the learning from it pass."""
    files, store = Files(), temporary_store()
    with files.profiled():
        engine = Engine(store, refresh_ms=3_600_000)
        client = Client(Service(engine, store, Config(request_log=False)))
        client.run(client.service.start())
        assert client("PUT", "/v1/surfaces/home", json=SURFACE).status_code == 201
        for k in range(2):
            files.on = k == 1  # the first visitor of a surface waits for its lists
            page = client("POST", "/v1/surfaces/home/rank", json={"request_id": f"v{k}"}).json()
            click = {"event_id": page["event_id"], "token": page["token"], "clicks": [1], "final": True}
            response = client("POST", "/v1/feedback", json={"events": [click]}).json()
            assert response["results"][0]["status"] == "accepted"
            client.run(engine.recorder.refresh())
        files.on = False
        rounds = client("GET", "/v1/surfaces/home/state").json()["rounds"]
        client.run(client.service.stop())
        client.close()
    store.close()
    assert rounds == 2  # the click was learned from
    return files.counted


def test_a_click_passes_at_most_fifteen_files_which_the_documentation_draws():
    passed = files_of_a_click()
    assert len(passed) <= MOST, sorted(passed)
    table = HOUSE.read_text().partition("A click passes these files")[2].partition("\n## ")[0]
    drawn = {cell for row in table.splitlines() if row.startswith("| ") for cell in re.findall(r"`(\S+\.py)`", row)}
    assert drawn == passed
