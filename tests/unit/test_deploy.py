"""The files of deploy/: what they name is there, and what they promise of times, users and paths agrees."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement

from antiphon.engines.registry import build_registry
from antiphon.http.app import OPEN_PATHS
from antiphon.http.server import FLUSH_SECONDS, KEEP_ALIVE_SECONDS
from antiphon.http.telemetry import Telemetry
from antiphon.settings import FIELDS, Settings, load_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "antiphon"
COMPOSE = DEPLOY / "compose"
GUIDE = ROOT / "docs" / "guide" / "cluster.md"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))

VARIABLES = {name for field in FIELDS for name in field.environment}
DEFAULTS = Settings()
SPARE_SECONDS = 10
"""What a stop may take beside the drain: the last answers, the engines and the store."""

METRIC = re.compile(r"\b(antiphon:\w+|http_request\w+)")
LOCKED = re.compile(r"^([\w.-]+==[^ ;\\]+)(.*?)\\?$")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def server_variables(text: str) -> set[str]:
    """The settings of the server that a text sets; ANTIPHON_IMAGE is Compose's own."""
    return set(re.findall(r"\bANTIPHON_[A-Z_]+", text)) - {"ANTIPHON_IMAGE"}


@cache
def series() -> set[str]:
    """The names of all time series that /metrics can have."""
    telemetry = Telemetry()
    telemetry.count_missed_rings(lambda: 0)
    found: set[str] = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", telemetry.exposition().decode(), re.MULTILINE):
        found |= {name + end for end in ("_bucket", "_count", "_sum")} if kind == "histogram" else {name}
    return found


def expressions(node: Any) -> Iterator[str]:
    """Every PromQL expression under a node, and the queries of a dashboard's variables."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("expr", "definition") and isinstance(value, str):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


@pytest.mark.requirement("cluster:monitoring")
def test_dashboards_and_alarms_ask_for_what_metrics_has() -> None:
    dashboard = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
    asked = {name for text in expressions(dashboard) for name in METRIC.findall(text)}
    alarms = {
        name for text in expressions(read(DEPLOY / "monitoring" / "alerts.yaml")) for name in METRIC.findall(text)
    }
    assert asked <= series()
    assert alarms <= series()
    queue, failed, commit = (
        "antiphon:background_waiting_seconds",
        "antiphon:request_success_total",
        "store_commit_seconds",
    )
    assert {queue, failed, f"antiphon:{commit}_bucket"} <= alarms & asked


@pytest.mark.requirement("cluster:compose")
def test_the_compose_file_names_what_is_there_and_gives_servers_time_to_stop() -> None:
    compose = read(COMPOSE / "compose.yaml")
    server = compose["services"]["antiphon"]
    assert server["deploy"]["replicas"] == 2
    assert server["read_only"]
    assert server["cap_drop"] == ["ALL"]
    assert "ports" not in server
    assert (COMPOSE / server["build"]["context"]).resolve() == ROOT
    assert (ROOT / server["build"]["dockerfile"]).is_file()
    drain = int(server["environment"]["ANTIPHON_DRAIN_TIMEOUT"])
    assert int(server["stop_grace_period"].removesuffix("s")) >= drain + SPARE_SECONDS
    assert server_variables((COMPOSE / "compose.yaml").read_text(encoding="utf-8")) <= VARIABLES
    for config in compose["configs"].values():
        assert (COMPOSE / config["file"]).is_file()
    served = load_settings(config=COMPOSE / "antiphon.toml", environment={}).models
    assert [model.base_url for model in served] == ["http://vllm:8000/v1"]
    assert {name for name, service in compose["services"].items() if "profiles" in service} == {"vllm"}


@pytest.mark.requirement("cluster:image")
def test_the_image_runs_as_nobody_and_asks_after_itself() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")
    last = text.rpartition("\nFROM ")[2]
    assert "\nUSER 10001:10001\n" in last
    assert "/health" in last
    assert last.count("--require-hashes") == 0
    assert text.count("pip install --require-hashes") == 2
    assert server_variables(text) <= VARIABLES
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for name in source.split():
            assert (ROOT / name).exists(), name


@pytest.mark.requirement("cluster:image")
def test_the_image_has_what_is_locked_and_no_tool_of_the_tests() -> None:
    whole = locked(ROOT / "requirements.lock")
    image = locked(DEPLOY / "docker" / "requirements.lock")
    tools = locked(DEPLOY / "docker" / "build.lock")
    assert image.items() <= whole.items()
    assert tools.items() <= whole.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    names = {name.partition("==")[0] for name in image}
    for wanted in [*project["project"]["dependencies"], *(name for extra in EXTRAS for name in extras[extra])]:
        name = Requirement(wanted).name
        assert name == "antiphon" or name in names
    assert not {"pytest", "ruff", "hatchling", "openai"} & names
    assert project["build-system"]["requires"] == [name for name in tools if name.startswith("hatchling")]


EXTRAS = ("server", "local", "postgres", "documents")


def locked(path: Path) -> dict[str, set[str]]:
    """The pinned packages of a lock file with their hashes."""
    found: dict[str, set[str]] = {}
    hashes: set[str] = set()
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := LOCKED.match(line):
            hashes = found.setdefault(match[1], set())
        elif "--hash=" in line:
            hashes.add(line.strip(" \\").removeprefix("--hash="))
    return found


def directives(path: Path) -> dict[str, list[str]]:
    """The directives of a unit, each with its values in order."""
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.requirement("cluster:systemd")
@pytest.mark.parametrize("path", UNITS, ids=[path.stem for path in UNITS])
def test_a_unit_waits_for_the_server_to_start_and_to_stop(path: Path) -> None:
    unit = directives(path)
    environment = dict(text.split("=", 1) for text in unit["Environment"])
    assert SPARE_SECONDS > FLUSH_SECONDS
    assert unit["Type"] == ["notify"]
    assert unit["KillMode"] == ["mixed"]
    assert int(unit["TimeoutStartSec"][0]) > DEFAULTS.load_timeout
    assert int(unit["TimeoutStopSec"][0]) >= int(environment["ANTIPHON_DRAIN_TIMEOUT"]) + SPARE_SECONDS
    assert {name for name in environment if name.startswith("ANTIPHON_")} <= VARIABLES
    state = unit["StateDirectory"][0]
    assert environment["ANTIPHON_DATA_DIR"] == f"/var/lib/{state}"
    assert unit["DynamicUser"] == unit["NoNewPrivileges"] == ["yes"]
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["CapabilityBoundingSet"] == [""]


@pytest.mark.requirement("cluster:systemd")
def test_the_two_units_are_one_but_for_names() -> None:
    one, many = (directives(DEPLOY / "systemd" / f"{name}.service") for name in ("antiphon", "antiphon@"))
    named = {"Description", "ExecStart", "Environment", "StateDirectory", "PartOf", "WantedBy"}
    assert {name: value for name, value in one.items() if name not in named} == {
        name: value for name, value in many.items() if name not in named
    }


@pytest.mark.requirement("cluster:helm")
def test_the_values_of_the_chart_are_what_its_schema_says() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    values = read(CHART / "values.yaml")
    jsonschema.validate(values, schema, jsonschema.Draft7Validator)
    assert set(schema["properties"]) - {"global"} == set(values)
    used = set(re.findall(r"\.Values\.(\w+)", "".join(path.read_text() for path in (CHART / "templates").iterdir())))
    assert used == set(values)


@pytest.mark.requirement("cluster:helm")
def test_the_chart_asks_what_the_server_answers_without_a_key(tmp_path: Path) -> None:
    text = (CHART / "templates" / "deployment.yaml").read_text(encoding="utf-8")
    probes = dict(re.findall(r"^ +(\w+)Probe:\n +httpGet:\n +path: (\S+)$", text, re.MULTILINE))
    assert probes == {"startup": "/health", "liveness": "/health", "readiness": "/ready"}
    assert set(probes.values()) <= OPEN_PATHS
    assert server_variables(text) <= VARIABLES
    spare = re.search(
        r"terminationGracePeriodSeconds: .*preStopSeconds\) \(int \.Values\.drainTimeout\) (\d+) }}", text
    )
    assert spare is not None
    assert int(spare[1]) >= SPARE_SECONDS
    config = tmp_path / "antiphon.toml"
    config.write_text(read(CHART / "values.yaml")["config"], encoding="utf-8")
    assert load_settings(config=config, environment={}).models[0].profile == "vllm"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert read(CHART / "Chart.yaml")["appVersion"] == project["version"]


@pytest.mark.requirement("cluster:proxy")
@pytest.mark.parametrize("replicas", ["nginx/replicas.conf", "compose/replicas.conf"])
def test_the_proxy_lets_streams_pass_and_closes_idle_connections_first(replicas: str) -> None:
    server = (DEPLOY / "nginx" / "antiphon.conf").read_text(encoding="utf-8")
    upstream = (DEPLOY / replicas).read_text(encoding="utf-8")
    assert "proxy_buffering off;" in server
    assert "proxy_set_header Upgrade $http_upgrade;" in server
    assert seconds("proxy_read_timeout", server) > max(DEFAULTS.keep_alive_seconds, DEFAULTS.load_timeout)
    assert seconds("keepalive_timeout", upstream) < KEEP_ALIVE_SECONDS
    size = re.search(r"client_max_body_size (\d+)m;", server)
    assert size is not None
    assert int(size[1]) * 1024 * 1024 > max(DEFAULTS.max_body_bytes, DEFAULTS.max_file_bytes)


def seconds(name: str, text: str) -> int:
    found = re.search(rf"^ *{name} (\d+)s;$", text, re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.mark.requirement("cluster:guide")
def test_the_server_takes_every_table_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARE_KEY", "k")
    blocks = re.findall(r"^```toml\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    config = tmp_path / "antiphon.toml"
    for block in blocks:
        config.write_text(block, encoding="utf-8")
        registry = build_registry(load_settings(config=config, environment={}))
        assert registry.names()[0] == "qwen"


@pytest.mark.requirement("cluster:guide")
def test_the_files_that_the_guide_names_are_there() -> None:
    named = set(re.findall(r"`(deploy/[^`*\s]+)`", GUIDE.read_text(encoding="utf-8")))
    assert len(named) >= 6
    assert [name for name in named if not (ROOT / name).exists()] == []
