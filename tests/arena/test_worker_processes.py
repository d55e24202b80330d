"""Policies in plain Python play in other processes: beside threads, in scripts, at a prompt, and with equal bits."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import bothworlds
from bothworlds import play
from tests.policies.plain import EpsilonGreedy

WORLD = bothworlds.world("paper/stochastic")


class Fails(EpsilonGreedy):
    def __init__(self, error):
        self.error = error

    def learn(self, state, decision, clicks):
        self.error()


def divide():
    return 1 // 0


def end():
    os._exit(3)


@pytest.mark.parametrize(("error", "words"), [(divide, "division"), (end, "(?i)worker|process")])
def test_failures_of_a_worker_are_raised_here(error, words):
    with pytest.raises(Exception, match=words):
        play(Fails(error), WORLD, 50, replications=2, jobs=2)
    assert play(EpsilonGreedy(), WORLD, 50, replications=2, jobs=2).reward.shape == (
        2,
        50,
    )  # the next game finds new workers


class Locked(EpsilonGreedy):
    def __init__(self):
        self.lock = threading.Lock()


class Elsewhere(EpsilonGreedy):
    """Is pickled by name, and cannot be found by that name in another process."""

    def __reduce__(self):
        return getattr, (sys.modules["only_here"], "player")


@pytest.mark.parametrize("player", [Locked(), Elsewhere()], ids=["cannot be pickled", "cannot be loaded"])
def test_a_policy_that_cannot_be_sent_plays_in_this_process(player, monkeypatch):
    module = type(sys)("only_here")
    module.player = player
    monkeypatch.setitem(sys.modules, "only_here", module)
    one, two = (play(player, WORLD, 50, replications=3, jobs=jobs) for jobs in (1, 2))
    assert np.array_equal(one.reward, two.reward)


def test_nothing_is_forked(monkeypatch):
    """A fork of a process with threads can fail, or wait for ever for a lock that a thread held."""

    def fork():
        raise AssertionError("forked")

    monkeypatch.setattr(os, "fork", fork)
    assert play(EpsilonGreedy(), WORLD, 50, replications=3, jobs=3).reward.shape == (3, 50)


# Two replications that wait for each other: they end only if they play at the same time. Each process
# that plays leaves a file.
SCRIPT = """
    import os, sys, threading, time
    from pathlib import Path
    import numpy as np
    from bothworlds import Decision, play

    print("this script runs")
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    folder = Path(sys.argv[1])

    class Mine:
        def init(self, n_items, n_positions):
            return {"clicks": np.zeros(n_items), "rounds": 0, "m": n_positions}
        def decide(self, state, rng):
            ranking = np.argsort(-state["clicks"] - rng.random(state["clicks"].size))[: state["m"]]
            return Decision(ranking, np.full(state["m"], np.nan))
        def learn(self, state, decision, clicks):
            state["clicks"][decision.ranking] += clicks
            state["rounds"] += 1
            if state["rounds"] == 10 and WAIT:
                (folder / str(os.getpid())).touch()
                while len(list(folder.iterdir())) < 2:
                    time.sleep(0.01)

    WAIT = True
    two = play(Mine(), "paper/stochastic", rounds=30, replications=2, jobs=2)
    WAIT = False
    one = play(Mine(), "paper/stochastic", rounds=30, replications=2, jobs=1)
    print("equal", np.array_equal(one.reward, two.reward), len(list(folder.iterdir())))

"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["script", pytest.param("module", marks=pytest.mark.nightly), "prompt"])
def test_a_policy_of_a_script_without_a_main_guard_plays_beside_threads(how, tmp_path):
    """The script runs once: no worker runs it again. A prompt is an interactive interpreter."""
    pids = tmp_path / "pids"
    pids.mkdir()
    code = textwrap.dedent(SCRIPT)
    (tmp_path / "mine.py").write_text(code)
    command = {"script": ["mine.py"], "module": ["-m", "mine"], "prompt": ["-i", "-q", "-"]}[how]
    ran = subprocess.run(
        [sys.executable, *command, pids],
        input=code.replace("sys.argv[1]", repr(str(pids))) if how == "prompt" else None,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.stdout.split("\n") == ["this script runs", "equal True 2", ""], ran.stderr
