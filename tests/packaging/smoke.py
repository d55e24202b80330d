"""What a new user does first, with an installed wheel: run by ``make package`` in an empty environment.

    python smoke.py            without extras: import, commands, play, Ranker, and what `demo` says without its extra
    python smoke.py service    with the extra: the demo learns, and ends with status 0

Needs the standard library only, and must not be run in the source tree, so that the wheel is what is imported.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

COMMAND = Path(sys.executable).with_name("bothworlds")


def run(*arguments: str, status: int = 0) -> str:
    """Run the command; return what it printed. Raises SystemExit if it ends with another status."""
    print("$ bothworlds", *arguments, flush=True)
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run([COMMAND, *arguments], text=True, timeout=600, **both)
    expect(done.returncode == status, f"exit status {done.returncode} instead of {status}:\n{done.stdout}")
    return done.stdout


def expect(holds: bool, otherwise: str) -> None:
    """Raise SystemExit with a message unless something holds."""
    if not holds:
        raise SystemExit(otherwise)


def without_extras() -> None:
    """The package, its commands, a game and a Ranker; a command of an extra says how to install it."""
    import bothworlds

    expect("site-packages" in bothworlds.__file__, f"{bothworlds.__file__} is not the installed package")
    expect(Path(bothworlds.__file__).with_name("py.typed").exists(), "the wheel has no py.typed")
    expect(bothworlds.__version__ in run("--version"), "--version prints another version")
    expect("play" in run("--help"), "--help does not list play")
    expect("all-weather" in run("policies"), "policies does not list all-weather")
    expect("all-weather" in run("play", "--rounds", "1000"), "play does not say what it played")
    ranker = bothworlds.Ranker(["news", "sport", "weather"], slots=2, seed=1)
    shown = ranker.rank()
    ranker.feedback(shown.id, clicked=shown.items[:1])
    ranker.save(Path("ranker"))
    expect(bothworlds.Ranker.load(Path("ranker")).rank() == ranker.rank(), "a loaded Ranker ranks otherwise")
    expect("pip install" in run("demo", status=2), "demo without its extra does not say how to install it")


def with_the_service() -> None:
    """The demo starts, learns from simulated visitors and ends by itself."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    run("demo", "--seconds", "12", "--port", port)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with_the_service() if sys.argv[1:] == ["service"] else without_extras()
    print("ok")
