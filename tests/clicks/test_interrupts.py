"""Ctrl+C ends the commands that work on click logs, without a traceback and without half-written files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import bothworlds
from bothworlds.clicks import evaluate, generate
from bothworlds.clicks.offpolicy import policy_training
from bothworlds.clicks.reading import database
from bothworlds.clicks.reading.database import Database, interrupts, run
from tests.clicks.evaluation_logs import as_log, logging_policy
from tests.clicks.evaluation_logs import pages as draw_pages
from tests.commands import WITH_INTERRUPTS

UNIFORM = logging_policy(3, 2)
ENDLESS = "SELECT sum(range) FROM range(10_000_000_000_000)"


@pytest.fixture(scope="module")
def large_log(tmp_path_factory):
    return generate(tmp_path_factory.mktemp("log") / "log.csv", "yandex/stochastic", 200_000)


def test_a_query_that_duckdb_calls_interrupted_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt), interrupts():
        raise RuntimeError("Query interrupted")
    with pytest.raises(RuntimeError, match="something else"), interrupts():
        raise RuntimeError("something else")


def test_an_interrupt_that_was_swallowed_ends_the_query_that_runs(monkeypatch):
    @contextmanager
    def interrupted(*_):
        def report(amount):
            raise KeyboardInterrupt

        yield report

    monkeypatch.setattr(database, "progress_bar", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(Database().connection, ENDLESS, "counting", True)


def reports(monkeypatch, module):
    """What a module reports, by the title of the bar, as a dictionary that is filled."""
    seen = {}

    @contextmanager
    def progress_bar(title, total, show=None):
        yield seen.setdefault(title, []).append

    monkeypatch.setattr(module, "progress_bar", progress_bar)
    return seen


@pytest.mark.slow
def test_a_policy_learns_and_decides_a_little_at_a_time(monkeypatch, rng):
    log = as_log(*draw_pages(rng, UNIFORM, np.full((3, 2), 0.5), 1000), UNIFORM.marginals)
    some = evaluate(log, bothworlds.policy("ftrl-pbm"), draws=1000)
    monkeypatch.setattr(policy_training, "BATCH", 70)
    again = evaluate(log, bothworlds.policy("ftrl-pbm"), draws=1000)
    assert again.estimate("dr").value == some.estimate("dr").value


@pytest.mark.slow
def test_every_long_query_of_an_evaluation_reports_its_progress(monkeypatch, rng):
    seen = reports(monkeypatch, database)
    log = as_log(*draw_pages(rng, UNIFORM, np.full((3, 2), 0.5), 50), UNIFORM.marginals)
    evaluate(log, ["a", "b"], progress=True)
    assert list(seen) == ["reading rows", "checking pages", "counting pages"]


@pytest.mark.parametrize("name", ["log.csv", "log.parquet", "log.ndjson"])
def test_an_interrupted_log_is_not_written(tmp_path, monkeypatch, name):
    @contextmanager
    def interrupted(*_):
        def report(amount):
            raise KeyboardInterrupt

        yield report

    monkeypatch.setattr("bothworlds.clicks.generator.progress_bar", interrupted)
    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / name, "paper/stochastic", 100)
    assert not list(tmp_path.iterdir())


def test_a_figure_that_is_interrupted_leaves_the_one_before(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    from bothworlds.arena.figures import drawing

    (tmp_path / "f.svg").write_text("before")

    def interrupted(figure, file, **_):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt), drawing(tmp_path / "f.svg"):
        pass
    assert (tmp_path / "f.svg").read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1


def interrupt_at(words, *command, folder):
    """Run a command on a terminal, press Ctrl+C once it shows these words: its exit status and all it showed."""
    ours, theirs = os.openpty()
    arguments = [sys.executable, "-c", WITH_INTERRUPTS, *map(str, command)]
    environment = {**os.environ, "COLUMNS": "100", "TMPDIR": str(folder)}
    with subprocess.Popen(arguments, stderr=theirs, stdout=subprocess.PIPE, env=environment) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the end of a terminal
            while block := os.read(ours, 1 << 16):
                shown += block
                if words in shown:
                    process.send_signal(signal.SIGINT)
                    words = b"\0"
        os.close(ours)
    return process.returncode, shown.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(b"reading rows", marks=pytest.mark.nightly),
        b"counting pages",
        pytest.param(b"training", marks=pytest.mark.nightly),
    ],
)
def test_ctrl_c_ends_an_evaluation_in_one_line(large_log, tmp_path, words):
    slow = "pb-mhb:sweeps=30"  # learns for much longer than an interrupt takes to arrive
    command = ("evaluate", large_log, "--ranking", "3,0,7,1,2", "--policy", slow, "--out", tmp_path / "out.json")
    status, shown = interrupt_at(words, *command, folder=tmp_path)
    assert status == 130
    assert "Traceback" not in shown
    assert not list(tmp_path.iterdir())  # neither results nor what DuckDB put aside


@pytest.mark.slow
def test_ctrl_c_ends_fit_and_generate(large_log, tmp_path):
    commands = {b"reading rows": ("fit", large_log, "--out", tmp_path / "model.json")}
    commands[b"writing"] = ("generate", tmp_path / "log.csv", "--pages", "3000000")
    for words, command in commands.items():
        status, shown = interrupt_at(words, *command, folder=tmp_path)
        assert status == 130
        assert "Traceback" not in shown
        assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.nightly  # starts a Ray cluster of its own
def test_ctrl_c_ends_counting_on_ray_and_its_workers_leave_nothing(large_log):
    pytest.importorskip("ray")
    with TemporaryDirectory(dir="/tmp") as short:  # Ray keeps sockets there, whose names must be short
        status, shown = interrupt_at(b"counting on Ray", "fit", large_log, "--engine", "ray", folder=short)
        assert status == 130
        assert "Traceback" not in shown
        assert not list(Path(short).glob("bothworlds-*"))
