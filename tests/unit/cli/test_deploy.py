"""`antiphon deploy ray`: what it writes, and what it refuses to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from antiphon.cli.main import cli
from antiphon.ray_serve import DEPLOYMENT

MODEL = """
[[models]]
name = "tiny"
engine = "ray"
path = "/models/tiny.gguf"
replicas = 2
aliases = ["gpt-5", "*"]
ray = { num_cpus = 2, resources = { "fast disk" = 1, on = 0.5 } }
chat_template_kwargs = { text = "a: b # c \\u00e9", empty = {}, list = [[1, 2], { a = [] }] }
"""
STORE = 'store = "postgresql://antiphon@db/antiphon"\n'


def run(tmp_path: Path, text: str, *arguments: str) -> Result:
    config = tmp_path / "antiphon.toml"
    config.write_text(text)
    return CliRunner().invoke(cli, ["deploy", "ray", "--config", str(config), *arguments])


@pytest.mark.requirement("ray:deploy")
def test_the_settings_of_the_file_are_those_of_every_replica(tmp_path: Path) -> None:
    out = tmp_path / "serve.yaml"
    head = f'host = "0.0.0.0"\nport = 9000\ndrain_timeout = 20.0\n{STORE}'
    done = run(tmp_path, head + MODEL, "--min-replicas", "3", "--max-replicas", "6", "--cpus", "2", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert f"serve deploy {out}" in done.stderr
    body: dict[str, Any] = yaml.safe_load(out.read_text())
    assert body["http_options"] == {"host": "0.0.0.0", "port": 9000, "keep_alive_timeout_s": 75}
    (application,) = body["applications"]
    assert application["import_path"] == "antiphon.ray_serve:build"
    model = application["args"]["settings"]["models"][0]
    assert model["ray"] == {"num_cpus": 2, "resources": {"fast disk": 1, "on": 0.5}}
    assert model["chat_template_kwargs"] == {"text": "a: b # c é", "empty": {}, "list": [[1, 2], {"a": []}]}
    assert model["aliases"] == ["gpt-5", "*"]
    (deployment,) = application["deployments"]
    assert deployment["name"] == DEPLOYMENT
    scaling = {"min_replicas": 3, "max_replicas": 6, "target_ongoing_requests": 64}
    assert deployment["autoscaling_config"] == scaling
    assert deployment["graceful_shutdown_timeout_s"] == 50.0
    assert deployment["ray_actor_options"] == {"num_cpus": 2.0}
    assert deployment["max_ongoing_requests"] >= 256


@pytest.mark.requirement("ray:deploy")
def test_without_a_file_it_is_written_to_stdout(tmp_path: Path) -> None:
    done = run(tmp_path, MODEL)
    assert yaml.safe_load(done.stdout)["applications"][0]["args"]["settings"]["models"][0]["name"] == "tiny"


@pytest.mark.requirement("ray:deploy-secrets")
@pytest.mark.parametrize(
    "secret",
    [
        'api_key = ["sk-very-secret"]\n',
        'encryption_key = "sk-very-secret"\n',
        'store = "postgresql://antiphon:sk-very-secret@db/antiphon"\n',
        'store = "postgresql://antiphon@db/antiphon?password=sk-very-secret"\n',
        '[[webhooks]]\nurl = "https://example.com"\nsecret = "whsec_sk-very-secret"\n',
    ],
)
def test_no_secret_is_written(tmp_path: Path, secret: str) -> None:
    text = secret + MODEL
    done = run(tmp_path, text)
    assert done.exit_code == 2
    assert "secret" in done.stderr
    assert "sk-very" not in done.output
    kept = run(tmp_path, text, "--on-nodes")
    assert "sk-very" not in kept.output
    args = yaml.safe_load(kept.stdout)["applications"][0]["args"]
    assert args == {"config": str(tmp_path / "antiphon.toml")}


@pytest.mark.requirement("ray:deploy-secrets")
@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ('store = "sqlite"\n' + MODEL, (), "PostgreSQL"),
        (STORE, (), 'engine = "ray"'),
        (STORE + '[[models]]\npath = "/models/a.gguf"\n', (), 'engine = "ray"'),
        (STORE + MODEL, ("--max-replicas", "1"), "--max-replicas"),
        (STORE + MODEL, ("--out", "/nowhere/at/all.yaml"), "cannot be written"),
        ("unknown = 1\n", (), "unknown key"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, text: str, arguments: tuple[str, ...], message: str) -> None:
    done = run(tmp_path, text, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
