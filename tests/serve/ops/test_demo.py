"""The demo: simulated visitors, and the process of the service."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from bothworlds import worlds
from bothworlds.serve.client.client import Client
from bothworlds.serve.config import load_config
from bothworlds.serve.http.auth import create_key
from bothworlds.serve.ops import demo
from tests.serve.app_server import listening
from tests.serve.recorded_service import RecordedService


@pytest.fixture
def service():
    return RecordedService(())


@pytest.fixture
def client(service):
    with listening(service, started=True) as address, Client(address, timeout=60.0, flush_seconds=3600) as client:
        yield client


def a_free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_the_surface_is_created_once(client, service):
    visitors = demo.Visitors(client, worlds.world("paper/stochastic"))
    visitors.prepare()
    made = service.engine.registry.surface("demo")
    assert [item.name for item in made.items][:2] == ["Oak desk", "Reading lamp"]
    assert (made.settings.slots, len(made.items), made.settings.holdout) == (5, 10, 0.1)
    client.call("PATCH", "/v1/surfaces/demo", {"holdout": 0.2})
    visitors.prepare()
    assert service.engine.registry.surface("demo").settings.holdout == 0.2


def test_a_second_start_continues_the_rounds_of_the_world(client, service):
    visitors = demo.Visitors(client, worlds.world("paper/stochastic"))
    visitors.prepare()
    assert visitors.views == 0
    pages = [client.rank("demo") for _ in range(7)]
    for page in pages:
        client.done(page)
    client.flush()
    arms = [client.call("GET", f"/v1/events/{page.event_id}")["arm"] for page in pages]
    learned = [arm for arm in arms if arm == "learner"]
    eventually(lambda: client.call("GET", "/v1/surfaces/demo/state")["rounds"] == len(learned))
    visitors.prepare()
    assert visitors.views == len(learned) > 0


def eventually(holds):
    end = time.monotonic() + 60.0
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_visitors_click_with_the_probabilities_of_the_world(client, service):
    world = worlds.stochastic([1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    visitors = demo.Visitors(client, world)
    visitors.prepare()
    for _ in range(60):
        visitors.visit()
    client.flush()
    assert len(service.clicks) >= 50
    assert all(final for _, final in service.clicks.values())
    liked = {name for name, row in visitors._row.items() if visitors._world.click_probabilities(0)[row, 0] == 1.0}
    for event, (clicks, _) in service.clicks.items():  # the clicks are certain
        shown = client.call("GET", f"/v1/events/{event}")["slots"]
        assert clicks == {slot["slot"] for slot in shown if slot["item"] in liked}


def test_the_items_of_the_world_are_shuffled(client):
    world = worlds.world("paper/stochastic", gap=0.1)
    shuffled = demo.Visitors(client, world)._world.click_probabilities(0)
    assert sorted(shuffled[:, 0]) == sorted(world.click_probabilities(0)[:, 0])
    assert np.trace(shuffled[:5]) < 0.95 * np.trace(world.click_probabilities(0)[:5])


def test_page_views_are_paced_at_the_rate():
    now, slept = [0.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo.time, "sleep", sleep)
        assert len(list(islice(demo.paced(100, clock=lambda: now[0]), 11))) == 11
    assert sum(slept) == pytest.approx(0.1)


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_that_is_not_positive_is_refused(rate):
    with pytest.raises(ValueError, match="rate must be"):
        next(demo.paced(rate))


@pytest.fixture
def command(monkeypatch):
    root = Path(__file__).parents[3]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root), str(root / "src")]))
    return [sys.executable, "-m", "tests.serve.recorded_service"]


@pytest.mark.slow
def test_the_demo_starts_the_service_sends_visitors_and_starts_again(tmp_path, command):
    said, store = [], tmp_path / "store"
    for k in range(2):
        port = a_free_port()
        demo.run(store=str(store), port=port, rate=500, seconds=0.3, say=said.append, command=command)
        assert f"http://127.0.0.1:{port}/surfaces/demo" in said[-1]
        views = int(said[-1].partition(" page views are stored")[0].rpartition("\n")[2] or 0) if k else 0
    assert views > 0  # the second start has found those of the first


def test_a_demo_whose_clicks_are_lost_fails(tmp_path, command):
    with pytest.raises(ValueError, match=r"the service did not take the feedback on [1-9]"):
        demo.run(
            store=str(tmp_path / "s"), port=a_free_port(), rate=500, seconds=0.3, command=[*command, "--rejecting"]
        )


def test_a_port_in_use_is_refused(client, service, tmp_path, command, monkeypatch):
    monkeypatch.setattr(demo, "_wait_until_free", lambda address: False)
    with pytest.raises(ValueError, match="something already listens at"):
        demo.run(store=str(tmp_path / "s"), port=1, command=command)


def test_a_service_that_does_not_start_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="did not start"):
        demo.run(store=str(tmp_path / "s"), port=a_free_port(), command=[sys.executable, "-c", "raise SystemExit(3)"])


def test_a_store_with_keys_is_refused(service, monkeypatch):
    create_key(service.store, ["admin"], "", 0)
    monkeypatch.setattr(demo, "_service", lambda command, address: nullcontext())  # it runs already
    refusal = "has keys, and the visitors of a demo have none: choose another --store"
    with listening(service, started=True) as address, pytest.raises(ValueError, match=refusal):
        demo.run(store="shop.db", port=int(address.rpartition(":")[2]))


def test_visitors_of_a_demo_need_no_key():
    config = load_config(None, demo.ENVIRONMENT)
    assert config.public_rank
    assert config.public_feedback


@pytest.fixture
def watched(tmp_path):
    """Start a program that stands for ``bothworlds``, as the demo starts the service."""
    started = []

    def start(program):
        module = tmp_path / "bothworlds"
        module.mkdir()
        (module / "__init__.py").write_text("")
        (module / "__main__.py").write_text(program)
        command, pipe = [sys.executable, "-c", demo._SERVE_UNTIL_ORPHANED, "serve"], subprocess.PIPE
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env={"PYTHONPATH": str(tmp_path)})
        started.append(child)
        assert child.stdout.readline() == b"up\n"
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            pipe.close()


def test_the_service_stops_when_the_demo_is_gone(watched):
    child = watched("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    child.stdin.close()
    assert child.wait(60) == -signal.SIGTERM


def test_the_service_of_a_demo_stops_cleanly(watched):
    child = watched(
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "print('up', flush=True)\ntime.sleep(600)\n"
    )
    child.terminate()
    assert child.wait(60) == 0
    assert child.stderr.read() == b""
