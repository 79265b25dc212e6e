"""What the operator says of a model in its table: where it is, and what holds for every request to it."""

from __future__ import annotations

import pytest

from antiphon.settings import ModelConfig, Settings
from support.inprocess import inprocess_app
from support.upstream import KEY, fake_upstream


@pytest.mark.requirement("registry:azure")
async def test_a_deployment_of_azure_is_asked_with_its_version_and_its_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AZURE_KEY", KEY)
    async with fake_upstream() as fake:
        url = fake.url.removesuffix("/v1") + "/openai/deployments/d?api-version=2024-10-21"
        config = ModelConfig(name="scripted", base_url=url, profile="azure", api_key_env="AZURE_KEY")
        async with inprocess_app(settings=Settings(models=(config,))) as app:
            assert (await app.create("Hi"))["output_text"] == "Hello"
        (asked,) = fake.asked
    assert asked.path == "/openai/deployments/d/chat/completions?api-version=2024-10-21"
    assert asked.headers["api-key"] == KEY
    assert "authorization" not in asked.headers
