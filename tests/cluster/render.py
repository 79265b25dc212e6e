"""Renders the chart of deploy/helm with Helm's own library, and validates what comes out and what else lies in deploy/.

It runs in an environment of its own (tests/cluster/requirements.txt), and prints what it found as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python as helm
import kubernetes_validate
import promql_parser
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from jsonschema import Draft7Validator

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "antiphon"
KUBERNETES = ("1.25", "1.37")
"""The oldest version that the chart says it is for, and the newest whose schemas are here."""

EVERYTHING: dict[str, Any] = {
    "autoscaling": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {
        "enabled": True,
        "ingressFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 5432}]}],
    },
    "ingress": {"enabled": True, "hosts": ["a.example"], "tls": [{"secretName": "tls", "hosts": ["a.example"]}]},
    "encryptionKey": {"existingSecret": "antiphon-master"},
    "extraEnv": [{"name": "OPENAI_API_KEY", "valueFrom": {"secretKeyRef": {"name": "upstreams", "key": "openai"}}}],
    "extraVolumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
    "extraVolumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
    "drainTimeout": 600,
    "podLabels": {"team": "a"},
    "podAnnotations": {"b": "c"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "imagePullSecrets": [{"name": "registry"}],
    "service": {"annotations": {"d": "e"}},
    "serviceAccount": {"annotations": {"f": "g"}},
}
ONE = {"replicaCount": 1, "store": {"existingSecret": ""}}
REFUSED: dict[str, dict[str, Any]] = {
    "two without a database": {"store": {"existingSecret": ""}},
    "scaled without a database": {**ONE, "autoscaling": {"enabled": True}},
    "an unknown name": {"replicas": 3},
    "a word for a number": {"drainTimeout": "30s"},
    "no key": {"apiKey": {"existingSecret": ""}},
}
UNKNOWN = {"ServiceMonitor"}
"""Kinds that are not Kubernetes's own: there is no schema of them here."""


def main() -> None:
    """Print the findings."""
    values = {"default": {}, "everything": EVERYTHING, "one": ONE, **_guide()}
    with helm.Chart.load(CHART) as chart:
        rendered = {name: list(_manifests(chart, given)) for name, given in values.items()}
        findings = {
            "helm": helm.helm_sdk_version(),
            "lint": [found["error"] for found in helm.lint(CHART, strict=True)["messages"] if found["severity"] > 1],
            "rendered": rendered,
            "invalid": [
                fault for manifests in (*rendered.values(), _written()) for one in manifests for fault in _faults(one)
            ],
            "not refused": [name for name, given in REFUSED.items() if not _refused(chart, given)],
            "compose": _compose(),
            "queries": list(_queries()),
        }
    json.dump(findings, sys.stdout)


def _written() -> list[dict[str, Any]]:
    """The manifests that the guide shows."""
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block.partition("```")[0]) for block in text.split("```yaml\n")[1:]]
    return [block for block in blocks if "kind" in block]


def _guide() -> dict[str, dict[str, Any]]:
    """The values that the guide shows, by their number; its path is the first argument."""
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in text.split("```yaml\n# values.yaml\n")[1:]]
    return {f"guide {number}": yaml.safe_load(block) for number, block in enumerate(blocks)}


def _manifests(chart: helm.Chart, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, text in chart.render(values, name="test", namespace="prod").items():
        if not name.endswith(".txt"):
            yield from (manifest for manifest in yaml.safe_load_all(text) if manifest)


def _faults(manifest: dict[str, Any]) -> Iterator[str]:
    if manifest["kind"] in UNKNOWN:
        return
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{manifest['kind']}, Kubernetes {version}: {error}"


def _refused(chart: helm.Chart, values: dict[str, Any]) -> bool:
    try:
        chart.render(values, name="test")
    except helm.HelmError:
        return True
    return False


def _compose() -> list[str]:
    """What the Compose specification does not allow in the Compose file."""
    validator = Draft7Validator(get_builtin_schema("vendor.compose-spec"))
    file = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8"))
    return [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(file)]


def _queries() -> Iterator[str]:
    """Expressions of the dashboard and of the alarms that are no PromQL."""
    dashboard = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
    alarms = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    asked += [rule["expr"] for group in alarms["groups"] for rule in group["rules"]]
    for query in asked:
        try:
            promql_parser.parse(query.replace("$__rate_interval", "5m"))
        except ValueError as error:
            yield f"{query}: {error}"


if __name__ == "__main__":
    main()
