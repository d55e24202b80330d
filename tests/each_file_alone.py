"""Run every test file alone, in a process of its own with empty caches: ``python -m tests.each_file_alone``.

A whole run hides what a file needs from files before it, such as compiled kernels. Arguments are files or folders.
A run that was interrupted continues where it was, unless a source has changed since.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECORD = ROOT / ".pytest_cache" / "each_file_alone.txt"
GOOD = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def files_in(places: Iterable[Path]) -> list[Path]:
    """Return these files, and the test files in these folders."""
    return sorted({file for place in places for file in ([place] if place.is_file() else place.rglob("test_*.py"))})


def state_of_sources() -> str:
    """Return a hash of everything that can change a result."""
    digest = hashlib.sha256()
    for folder in ("src", "tests", "benchmarks", "examples", "pyproject.toml"):
        place = ROOT / folder
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            digest.update(f"{file.relative_to(ROOT)} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def passed_before(record: Path, state: str) -> set[str]:
    """Return the files that have passed with these sources; begin a new record if there is none."""
    lines = record.read_text().splitlines() if record.exists() else []
    if lines[:1] == [state]:
        return set(lines[1:])
    record.parent.mkdir(exist_ok=True)
    record.write_text(f"{state}\n")
    return set()


def run_alone(file: Path, options: Sequence[str] = ()) -> tuple[bool, float, str]:
    """Run one file with empty caches; return whether it passed, the seconds it took, and what it printed."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="alone-") as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={folder}/pytest", *options, str(file)]
        environment = os.environ | {"NUMBA_CACHE_DIR": f"{folder}/kernels"}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    return done.returncode in GOOD, time.monotonic() - start, done.stdout


def main(arguments: Sequence[str] | None = None, record: Path = RECORD) -> int:
    """Run the files that have not passed yet; return 1 if any fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.each_file_alone", description=__doc__)
    parser.add_argument("places", nargs="*", type=Path, default=[ROOT / "tests"], help="files or folders")
    parser.add_argument("--jobs", type=int, default=1, help="how many files run at the same time")
    parser.add_argument("--again", action="store_true", help="run files that have passed before too")
    chosen = parser.parse_args(arguments)

    if chosen.again:
        record.unlink(missing_ok=True)
    before = passed_before(record, state_of_sources())
    files = {str(os.path.relpath(file, ROOT)): file.absolute() for file in files_in(chosen.places)}
    left = [name for name in files if name not in before]
    print(f"{len(files)} files, {len(files) - len(left)} have passed before", flush=True)
    failed = []
    with ThreadPoolExecutor(chosen.jobs) as pool:
        runs = {pool.submit(run_alone, files[name]): name for name in left}
        for count, run in enumerate(as_completed(runs), 1):
            name, (passed, seconds, output) = runs[run], run.result()
            print(f"{count}/{len(left)} {'passed' if passed else 'FAILED'} {name} ({seconds:.0f} s)", flush=True)
            if passed:
                with record.open("a") as lines:
                    lines.write(f"{name}\n")
            else:
                failed.append(name)
                print(output, flush=True)
    print(f"{len(failed)} of {len(files)} files fail alone", *failed, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
