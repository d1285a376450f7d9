"""What contrib has for several machines: manifests by the schemas of Kubernetes, units by systemd's check."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from documents import ROOT
from millstream._run.arguments import parse
from millstream._run.hosts import own_number, read_hosts

CONTRIB = ROOT / "contrib"
UNITS = ("millstream-flow.service", "millstream-flow@.service")
VERSIONS = ("1.28", "1.33")


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((CONTRIB / "kubernetes" / "flow.yaml").read_text()))


def named(kind: str) -> dict[str, Any]:
    [found] = [one for one in manifests() if one["kind"] == kind]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_follow_the_schemas(version: str) -> None:
    for manifest in manifests():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_misspelt_field_is_found() -> None:
    manifest = named("StatefulSet")
    manifest["spec"]["replica"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


def test_the_parts_of_the_manifest_fit_each_other() -> None:
    service = named("Service")
    pods = named("StatefulSet")
    spec = pods["spec"]
    template = spec["template"]
    assert spec["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    labels = template["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    [container] = template["spec"]["containers"]
    volumes = {one["name"] for one in template["spec"]["volumes"]}
    volumes |= {one["metadata"]["name"] for one in spec["volumeClaimTemplates"]}
    assert {one["name"] for one in container["volumeMounts"]} <= volumes
    # The arguments are those of the program, and name each pod.
    arguments = [
        argument for argument in container["args"] if not argument.startswith(("--process=", "--hosts="))
    ]
    [hosts] = [argument.split("=")[1] for argument in container["args"] if argument.startswith("--hosts=")]
    options = parse(["flow.py", *arguments, "--process=0", f"--hosts={hosts_list(pods, service)}"])
    assert options.processes == spec["replicas"]
    pod = f"{pods['metadata']['name']}-2"
    assert own_number("auto", pod) == 2
    assert read_hosts(hosts, options.processes, pod) == hosts_list(pods, service).split(",")
    assert container["readinessProbe"]["exec"]["command"][-1] == options.ready_file
    assert service["spec"]["ports"][0]["port"] == container["ports"][0]["containerPort"]


def hosts_list(pods: dict[str, Any], service: dict[str, Any]) -> str:
    """The addresses of the pods, as the DNS of Kubernetes names them."""
    pod = pods["metadata"]["name"]
    name = service["metadata"]["name"]
    port = service["spec"]["ports"][0]["port"]
    return ",".join(f"{pod}-{number}.{name}:{port}" for number in range(pods["spec"]["replicas"]))


def program_of(unit: str) -> str:
    [line] = re.findall(r"^ExecStart=(.*)$", (CONTRIB / "systemd" / unit).read_text(), re.MULTILINE)
    return str(line)


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_the_units(unit: str, tmp_path: Path) -> None:
    text = (CONTRIB / "systemd" / unit).read_text()
    copy = tmp_path / unit
    copy.write_text(text.replace(program_of(unit).split()[0], "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    copy.write_text(copy.read_text().replace("Restart=on-failure", "Restart=sometimes"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60)
    assert "Failed to parse service restart specifier" in done.stderr


@pytest.mark.parametrize("unit", UNITS)
def test_the_units_start_the_program_as_it_is(unit: str, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("a:7700\nb:7700\n")
    words = shlex.split(program_of(unit))
    assert words[1] == "run"
    given = [word.replace("%i", "1").replace("%d", "/credentials") for word in words[2:]]
    options = parse([str(hosts) if word == "/etc/millstream/hosts" else word for word in given])
    assert options.state == "/var/lib/millstream-flow"
    text = (CONTRIB / "systemd" / unit).read_text()
    assert "Restart=on-failure" in text and "RestartPreventExitStatus=1 2\n" in text


def test_the_container_file_starts_the_program() -> None:
    text = (CONTRIB / "container" / "Containerfile").read_text()
    steps = [line.split()[0] for line in text.splitlines() if line and line[0].isupper()]
    assert steps[0] == "FROM" and set(steps) <= {
        "FROM",
        "ARG",
        "RUN",
        "COPY",
        "VOLUME",
        "USER",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    }
    parts = {
        line.split()[0]: yaml.safe_load(line.partition(" ")[2])
        for line in text.splitlines()
        if line[:3] in ("ENT", "CMD")
    }
    assert parts["ENTRYPOINT"][:2] == ["millstream", "run"]
    assert parse([*parts["ENTRYPOINT"][2:], *parts["CMD"]]).state == "/state"
