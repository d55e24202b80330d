"""Files for deployment are well-formed, agree with each other and with the code, and hold no secrets."""

from __future__ import annotations

import configparser
import json
import re
from pathlib import Path

import msgspec
import pytest
import yaml

from bothworlds.serve.config import PREFIX, Config, Limits, load_config
from bothworlds.serve.http.operations import OPERATIONS
from tests.commands import command_faults

DEPLOY = Path(__file__).parents[2] / "deploy"
pytestmark = pytest.mark.skipif(not DEPLOY.is_dir(), reason="only the repository has the folder deploy/")


@pytest.fixture
def compose():
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


# Kubernetes

MARGIN_SECONDS = 15  # to write what is queued, after the running requests
VARIABLES = {f"{PREFIX}{field.name.upper()}" for field in msgspec.structs.fields(Config) if field.name != "limits"} | {
    f"{PREFIX}LIMITS_{field.name.upper()}" for field in msgspec.structs.fields(Limits)
}
OPEN_PATHS = {operation.path for operation in OPERATIONS if operation.role is None}


def manifest_text():
    return (DEPLOY / "kubernetes.yaml").read_text()


def resources(text):
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def manifest_faults(text):
    """Return what the manifest names that the code does not have, and where its parts do not agree."""
    found = resources(text)
    deployment, service, budget = (found[kind]["spec"] for kind in ("Deployment", "Service", "PodDisruptionBudget"))
    pod = deployment["template"]
    (container,) = pod["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    faults = command_faults(container["command"]) + variable_faults(variables)
    config = load_config(None, {name: value for name, value in variables.items() if name in VARIABLES})
    options = dict(zip(container["command"], container["command"][1:]))
    port = int(options.get("--port", config.port))
    if [one["containerPort"] for one in container["ports"]] != [port]:
        faults.append("the service listens on another port")
    names = {one["name"] for one in container["ports"]}
    probes = {name: probe["httpGet"] for name, probe in container.items() if name.endswith("Probe")}
    faults += [f"{name}: no such port" for name, probe in probes.items() if probe["port"] not in names | {port}]
    faults += [f"{name}: no such path" for name, probe in probes.items() if probe["path"] not in OPEN_PATHS]
    faults += [f"{one['name']}: no such port" for one in service["ports"] if one["targetPort"] not in names | {port}]
    labels = pod["metadata"]["labels"].items()
    for selector in (deployment["selector"]["matchLabels"], service["selector"], budget["selector"]["matchLabels"]):
        if not selector.items() <= labels:
            faults.append(f"{selector} selects no pod")
    if not budget["minAvailable"] < deployment["replicas"]:
        faults.append("no pod may be evicted")
    sleep = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    if pod["spec"]["terminationGracePeriodSeconds"] < sleep + config.stop_seconds + MARGIN_SECONDS:
        faults.append("a pod is killed while it stops")
    return faults


def variable_faults(variables):
    """Return the variables that the service does not read or cannot use."""
    own = {name: value for name, value in variables.items() if name.startswith(PREFIX)}
    return [f"there is no variable {name}" for name in own if name not in VARIABLES]


def test_the_manifest_names_only_what_exists():
    assert manifest_faults(manifest_text()) == []
    assert set(resources(manifest_text())) == {"Deployment", "Service", "PodDisruptionBudget"}


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ('"serve", "--host"', '"sreve", "--host"', "there is no command sreve"),
        ('"--port", "8080"', '"--prot", "8080"', "there is no option --prot"),
        ('"--port", "8080"', '"--port", "9090"', "listens on another port"),
        ("BOTHWORLDS_STOP_SECONDS", "BOTHWORLDS_STOP_TIME", "there is no variable"),
        ("httpGet: { path: /readyz", "httpGet: { path: /ready", "no such path"),
        ("httpGet: { path: /healthz", "httpGet: { path: /v1/surfaces", "no such path"),
        ("path: /healthz, port: http", "path: /healthz, port: web", "no such port"),
        ("targetPort: http", "targetPort: 9090", "no such port"),
        ("minAvailable: 1", "minAvailable: 2", "no pod may be evicted"),
        ("selector: { app.kubernetes.io/name: bothworlds }", "selector: { app: bothworlds }", "selects no pod"),
        ("terminationGracePeriodSeconds: 45", "terminationGracePeriodSeconds: 10", "is killed while it stops"),
        ('STOP_SECONDS, value: "10"', 'STOP_SECONDS, value: "60"', "is killed while it stops"),
    ],
)
def test_the_check_of_the_manifest_can_fail(right, wrong, fault):
    assert right in manifest_text()
    assert any(fault in found for found in manifest_faults(manifest_text().replace(right, wrong)))


def test_the_pods_are_confined_and_the_first_start_may_compile():
    pod = resources(manifest_text())["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert str(pod["securityContext"]["runAsUser"]) == dict(instructions())["USER"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    cache = next(one["value"] for one in container["env"] if one["name"] == "NUMBA_CACHE_DIR")
    assert any(cache.startswith(f"{mount}/") for mount in mounts)
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    startup = container["startupProbe"]
    allowed = int(re.search(r"--start-period=(\d+)s", dict(instructions())["HEALTHCHECK"])[1])
    assert startup["periodSeconds"] * startup["failureThreshold"] >= allowed


def test_the_store_comes_from_a_secret_that_is_not_in_the_file():
    (container,) = resources(manifest_text())["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "bothworlds"}}]
    created = re.search(r"create secret generic (\S+) --from-literal=(\w+)=", manifest_text())
    assert created.groups() == ("bothworlds", "BOTHWORLDS_STORE")
    assert "BOTHWORLDS_STORE" in VARIABLES
    key = re.search(r'"command": (\[.*?\])', manifest_text())[1]
    assert command_faults(json.loads(key)) == []


# All files


def test_variables_options_ports_and_paths_of_the_other_files_exist(compose):
    said = " ".join(words for kind, words in instructions() if kind == "ENV")
    image = dict(re.findall(r"(\w+)=(\S+)", said))
    service = compose["services"]["service"]
    unit_variables = dict(re.findall(r"^Environment=(\w+)=(.*)$", (DEPLOY / "bothworlds.service").read_text(), re.M))
    assert all(variable_faults(one) == [] for one in (image, service["environment"], unit_variables))
    assert load_config(None, image).port == int(dict(instructions())["EXPOSE"]) == Config().port
    assert [port.rpartition(":")[2] for port in service["ports"]] == [str(Config().port)]
    assert command_faults(service["command"]) == []
    stop = unit()["Service"]["TimeoutStopSec"], service["stop_grace_period"].rstrip("s")
    assert all(int(seconds) >= Config().stop_seconds + MARGIN_SECONDS for seconds in stop)
    assert variable_faults({"BOTHWORLDS_PROT": "1"})
