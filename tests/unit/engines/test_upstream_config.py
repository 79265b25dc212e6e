"""Tables of upstreams: what can be used, and what is refused at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.engines.registry import build_registry
from antiphon.engines.upstream.config import upstream_target
from antiphon.engines.upstream.engine import UNKNOWN_CONTEXT, ChatEngine
from antiphon.errors import ConfigurationError
from antiphon.settings import ModelConfig, Settings

TABLE: dict[str, Any] = {"name": "far", "base_url": "http://127.0.0.1:9/v1"}


def built(**fields: Any) -> Any:
    """The registry of one such table."""
    return build_registry(Settings(models=(ModelConfig(**fields),)))


@pytest.mark.requirement("upstream:settings")
def test_a_table_with_a_url_is_a_model_by_its_names():
    registry = built(**TABLE, aliases=("gpt-5",), media=("image",), chat_template_kwargs={"a": 1})
    name, engine = registry.resolve("gpt-5")
    assert isinstance(engine, ChatEngine)
    assert (name, engine.name, registry.names()) == ("gpt-5", "far", ["far", "gpt-5"])
    assert engine.capabilities.context_length == UNKNOWN_CONTEXT
    assert engine.capabilities.media == {"image"}
    assert engine.template_defaults == {"a": 1}
    assert not engine.ready
    assert built(upstream_model="org/m", base_url="https://llm.example").names() == ["org/m"]


@pytest.mark.requirement("registry:azure")
@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("api-version=2025-04-01-preview&a=%20b/c?d", "api-version=2025-04-01-preview&a=%20b/c?d"),
        ("a=é b", "a=%C3%A9%20b"),
        ("a=b\r\nhost: other", "a=b%0D%0Ahost:%20other"),
    ],
)
def test_a_query_is_one_in_the_line_of_a_request(query: str, told: str):
    config = ModelConfig(name="far", base_url=f"https://host/v1?{query}")
    assert upstream_target(config, "far").query == told


@pytest.mark.requirement("upstream:settings")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"base_url": "http://127.0.0.1:9/v1"}, "needs 'name'"),
        ({"name": "m"}, "needs 'path'"),
        ({"name": "m", "engine": "chat"}, "base_url"),
        ({**TABLE, "base_url": "ftp://x/v1"}, "base_url"),
        ({**TABLE, "base_url": "http://user:secret@host/v1"}, "base_url"),
        ({**TABLE, "base_url": "http://host/v1?key=secret"}, "does not belong"),
        ({**TABLE, "base_url": "http://host/v1#part"}, "base_url"),
        ({**TABLE, "base_url": "http://host:99999/v1"}, "base_url"),
        ({**TABLE, "profile": "acme"}, "there are generic, openai"),
        ({**TABLE, "thinking": "loud"}, "thinking"),
        ({**TABLE, "media": ("smell",)}, "media"),
        ({**TABLE, "idle_timeout": 0}, "more than 0"),
        ({**TABLE, "context_length": 0}, "more than 0"),
        ({**TABLE, "path": "m.gguf"}, "runs elsewhere"),
        ({**TABLE, "engine": "llamacpp"}, "needs 'path'"),
        ({"path": "scripted", "base_url": "http://h/v1", "engine": "scripted"}, "belongs to models that run elsewhere"),
        ({"path": "m.gguf", "engine": "scripted"}, "the path 'scripted'"),
        ({"path": "m.gguf", "engine": "other"}, "not 'other'"),
        ({**TABLE, "api_key_env": "NO_SUCH_VARIABLE"}, "holds no key"),
        ({**TABLE, "api_key_env": "A", "api_key_file": "b"}, "one of"),
        ({**TABLE, "api_key_file": "/nowhere/key"}, "cannot be read"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(fields: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    with pytest.raises(ConfigurationError, match=words) as caught:
        built(**fields)
    assert "secret" not in str(caught.value)


@pytest.mark.requirement("upstream:settings", "upstream:key")
@pytest.mark.parametrize(("content", "usable"), [("the-key\n", True), ("", False), ("two\nlines", False), ("é", False)])
def test_a_key_comes_from_a_file(tmp_path: Path, content: str, usable: bool):
    file = tmp_path / "key"
    file.write_text(content, encoding="utf-8")
    if usable:
        assert built(**TABLE, api_key_file=str(file)).names() == ["far"]
        return
    with pytest.raises(ConfigurationError, match="holds no key"):
        built(**TABLE, api_key_file=str(file))
