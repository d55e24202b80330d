"""Files for deployment are well-formed, agree with each other, and hold no secrets."""

from __future__ import annotations

import configparser
import json
import re
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
pytestmark = pytest.mark.skipif(not DEPLOY.is_dir(), reason="only the repository has the folder deploy/")


@pytest.fixture
def compose():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def instructions():
    """The instructions of the Dockerfile, lines that go on put together."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    return [line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]


def unit():
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string((DEPLOY / "bothworlds.service").read_text())
    return parser


def test_the_image_does_not_run_as_root_and_has_a_health_check():
    said = dict(instructions())
    assert said["USER"] != "root"
    assert "/readyz" in said["HEALTHCHECK"]
    assert json.loads(said["CMD"]) == ["bothworlds", "serve"]
    assert all(kind in {"FROM", "WORKDIR", "COPY", "RUN", "LABEL", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK",
                        "STOPSIGNAL", "CMD"} for kind, _ in instructions())  # fmt: skip


def test_files_that_the_image_copies_exist_and_are_not_ignored():
    let_through = (DEPLOY.parent / ".dockerignore").read_text().split()
    for kind, said in instructions():
        if kind == "COPY" and "--from" not in said:
            for name in said.split()[:-1]:
                assert (DEPLOY.parent / name).exists()
                assert f"!{name}" in let_through


def test_the_health_check_is_a_program_that_compiles():
    said = dict(instructions())["HEALTHCHECK"]
    program = json.loads(said.split("CMD", 1)[1])
    compile(program[2], "health check", "exec")


def test_no_secret_is_in_the_files(compose):
    for path in DEPLOY.iterdir():
        if path.is_file():
            assert not re.search(
                r"(?i)(password|secret|token)\s*[:=]\s*['\"]?[\w-]{6,}['\"]?\s*$", path.read_text(), re.M
            )
    assert all(set(secret) == {"file"} for secret in compose["secrets"].values())


def test_the_compose_file_is_closed_by_default(compose):
    service, database = compose["services"]["service"], compose["services"]["database"]
    assert "ports" not in database
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["depends_on"]["database"]["condition"] == "service_healthy"
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    named = {volume.split(":")[0] for part in compose["services"].values() for volume in part.get("volumes", [])}
    assert named == set(compose["volumes"])


def test_the_unit_is_hardened_but_allows_compilation():
    service = unit()["Service"]
    assert service["ExecStart"].endswith("bothworlds serve")
    assert service["DynamicUser"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert "MemoryDenyWriteExecute" not in service
