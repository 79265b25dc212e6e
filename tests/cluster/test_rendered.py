"""What cannot run here, rendered and validated: the chart, the Compose file, units, rules and the files of proxies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.proxies import free_ports, nginx_files

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
GUIDE = ROOT / "docs" / "guide" / "cluster.md"
PYTHON = ROOT / ".venv" / "cluster" / "bin" / "python"


def tool(name: str) -> str:
    """The path of a program that may be missing: then the test is skipped."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command: str, **options: Any) -> str:
    """What a command prints, once it has ended well."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def findings() -> dict[str, Any]:
    """What `render.py` found."""
    done = subprocess.run(
        [PYTHON, ROOT / "tests" / "cluster" / "render.py", GUIDE],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def manifest(findings: dict[str, Any], values: str, kind: str) -> dict[str, Any]:
    (found,) = [one for one in findings["rendered"][values] if one["kind"] == kind]
    return found


@pytest.mark.requirement("cluster:helm")
def test_the_chart_renders_to_manifests_that_kubernetes_takes(findings: dict[str, Any]) -> None:
    assert findings["lint"] == []
    assert findings["invalid"] == []
    usual = {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"}
    assert {one["kind"] for one in findings["rendered"]["default"]} == usual
    asked = {"HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "ServiceMonitor"}
    assert {one["kind"] for one in findings["rendered"]["everything"]} == usual | asked


@pytest.mark.requirement("cluster:helm")
def test_the_chart_refuses_values_that_cannot_work(findings: dict[str, Any]) -> None:
    assert findings["not refused"] == []


@pytest.mark.requirement("cluster:helm")
@pytest.mark.parametrize(("values", "drain"), [("default", 30), ("everything", 600)])
def test_a_pod_is_given_time_for_its_drain_and_nothing_more_than_it_needs(
    findings: dict[str, Any], values: str, drain: int
) -> None:
    pod = manifest(findings, values, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment = {entry["name"]: entry for entry in container["env"]}
    assert environment["ANTIPHON_DRAIN_TIMEOUT"]["value"] == str(drain)
    assert pod["terminationGracePeriodSeconds"] == 5 + drain + 15
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    for secret in ("ANTIPHON_API_KEY", "ANTIPHON_STORE"):
        assert "secretKeyRef" in environment[secret]["valueFrom"]
    config = manifest(findings, values, "ConfigMap")["data"]["antiphon.toml"]
    assert config.startswith("[[models]]\n")


@pytest.mark.requirement("cluster:helm")
def test_all_parts_of_the_chart_mean_the_same_pods(findings: dict[str, Any]) -> None:
    labels = manifest(findings, "everything", "Deployment")["spec"]["template"]["metadata"]["labels"]
    chosen = [
        manifest(findings, "everything", "Deployment")["spec"]["selector"]["matchLabels"],
        manifest(findings, "everything", "Service")["spec"]["selector"],
        manifest(findings, "everything", "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        manifest(findings, "everything", "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in chosen:
        assert selector.items() <= labels.items()
    service = manifest(findings, "everything", "Service")["metadata"]["labels"]
    monitor = manifest(findings, "everything", "ServiceMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service.items()
    assert monitor["endpoints"][0]["authorization"]["credentials"] == {"name": "antiphon", "key": "api-key"}
    target = manifest(findings, "everything", "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert target["name"] == manifest(findings, "everything", "Deployment")["metadata"]["name"]
    assert "replicas" not in manifest(findings, "everything", "Deployment")["spec"]


@pytest.mark.requirement("cluster:compose")
def test_the_compose_file_is_what_the_specification_allows(findings: dict[str, Any]) -> None:
    assert findings["compose"] == []


@pytest.mark.requirement("cluster:monitoring")
def test_every_query_is_promql(findings: dict[str, Any]) -> None:
    assert findings["queries"] == []


@pytest.mark.requirement("cluster:monitoring")
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    promtool = tool("promtool")
    for path in (DEPLOY / "monitoring").glob("*.yaml"):
        shutil.copy(path, tmp_path)
    assert "SUCCESS" in run(promtool, "check", "rules", str(tmp_path / "alerts.yaml"))
    run(promtool, "check", "config", "--syntax-only", str(tmp_path / "prometheus.yaml"))


@pytest.mark.requirement("cluster:systemd")
def test_systemd_takes_the_units_and_finds_little_exposed(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    for path in (DEPLOY / "systemd").iterdir():
        text = path.read_text(encoding="utf-8").replace("/opt/antiphon/bin/antiphon", "/bin/true")
        (tmp_path / path.name.replace("@.", "@8081.")).write_text(text, encoding="utf-8")
    units = sorted(str(path) for path in tmp_path.iterdir())
    assert run(analyze, "verify", "--man=no", *units) == ""
    said = run(analyze, "security", "--offline=true", "--threshold=20", str(tmp_path / "antiphon.service"))
    assert "OK" in said.splitlines()[-1]


@pytest.mark.requirement("cluster:proxy")
@pytest.mark.parametrize("replicas", ["nginx", "compose"])
def test_nginx_takes_its_files(replicas: str, tmp_path: Path) -> None:
    nginx = tool("nginx")
    (port,) = free_ports(1)
    main = nginx_files(DEPLOY / replicas / "replicas.conf", (8081, 8082), port, tmp_path)
    command = [nginx, "-t", "-q", "-p", str(tmp_path), "-c", str(main), "-e", str(tmp_path / "error.log")]
    assert run(*command) == ""
