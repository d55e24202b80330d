"""Run the commands of ``deploy/Dockerfile`` without a container engine: ``python -m tests.packaging.image``.

Every instruction is carried out in a temporary folder that stands for the image's root: COPY from what
``.dockerignore`` lets through, RUN and ENV with the image's folders replaced, then a key is created, CMD is started
until HEALTHCHECK succeeds, and STOPSIGNAL ends it. Not checked: the base image, USER and VOLUME.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("/opt/bothworlds", "/source", "/data")
PORT = "8080"  # in ENV and HEALTHCHECK; a free one takes its place
START_SECONDS = 600


def instructions(text: str) -> list[tuple[str, str]]:
    """Return (instruction, words) of a Dockerfile, continued lines joined."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [tuple(line.split(" ", 1)) for line in lines if line and not line.startswith("#")]  # type: ignore[misc]


class Image:
    """A folder that stands for the root of an image, and the environment of its processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root
        self.env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(root)}
        self.env |= {name: os.environ[name] for name in os.environ if name.startswith("PIP_")}
        self.commands: dict[str, str] = {}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])

    def inside(self, words: str) -> str:
        """Replace the image's folders by folders below the root, and its port by a free one."""
        return re.sub("|".join(FOLDERS), lambda found: f"{self.root}{found[0]}", words).replace(PORT, self.port)

    def carry_out(self, kind: str, words: str) -> None:
        """Carry out one instruction."""
        if kind == "WORKDIR":
            self.folder = Path(self.inside(words))
            self.folder.mkdir(parents=True, exist_ok=True)
        elif kind == "COPY" and not words.startswith("--from"):
            allowed = (ROOT / ".dockerignore").read_text().split()
            *sources, target = words.split()
            for source in sources:
                if f"!{source}" not in allowed:
                    raise SystemExit(f".dockerignore leaves out {source}")
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, self.folder / (target if (ROOT / source).is_dir() else "."))  # type: ignore[operator]
        elif kind == "RUN" and not words.startswith("useradd"):
            subprocess.run(["sh", "-ec", self.inside(words)], cwd=self.folder, env=self.env, check=True)
        elif kind == "ENV":
            for name, value in re.findall(r"(\w+)=(\S+)", words):
                self.env[name] = self.inside(value).replace("$PATH", self.env["PATH"])
        else:
            self.commands[kind] = self.inside(words)

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, as `docker run` or the health check would."""
        return subprocess.run(command, cwd=self.folder, env=self.env, text=True, capture_output=True)

    def serve(self) -> None:
        """Create a key, start CMD, wait for HEALTHCHECK, and stop with STOPSIGNAL."""
        key = self.run(["bothworlds", "keys", "create", "--role", "admin"])
        if key.returncode or not key.stdout.strip():
            raise SystemExit(f"no key was created: {key.stdout}{key.stderr}")
        check = json.loads(self.commands["HEALTHCHECK"].split("CMD", 1)[1])
        self.env["BOTHWORLDS_HOST"] = "127.0.0.1"  # a test does not listen on all addresses
        server = subprocess.Popen(json.loads(self.commands["CMD"]), cwd=self.folder, env=self.env)
        try:
            deadline = time.monotonic() + START_SECONDS
            while self.run(check).returncode:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("the service does not become ready")
                time.sleep(0.5)
            server.send_signal(getattr(signal, self.commands["STOPSIGNAL"]))
            if status := server.wait(60):
                raise SystemExit(f"the service ended with status {status}")
        finally:
            server.kill()


def main() -> None:
    """Build and run."""
    with tempfile.TemporaryDirectory() as root:
        image = Image(Path(root))
        for kind, words in instructions((ROOT / "deploy" / "Dockerfile").read_text()):
            image.carry_out(kind, words)
        image.serve()
    print("ok: the commands of deploy/Dockerfile install, start, answer and stop")


if __name__ == "__main__":
    main()
