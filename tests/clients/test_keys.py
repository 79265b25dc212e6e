"""Keys of the store as the openai package meets them: its errors, its headers, its retries."""

from __future__ import annotations

import httpx2
import openai
import pytest

from antiphon.errors import RateLimitError
from antiphon.http.app import create_app
from antiphon.runtime.keys import new_key
from antiphon.runtime.limits import KeyRules
from antiphon.store.base import Scope
from support.inprocess import BASE_URL, InProcess, inprocess_app

pytestmark = pytest.mark.requirement("client:openai:keys")


async def client_of(api: InProcess, rules: KeyRules, retries: int = 0) -> openai.AsyncOpenAI:
    secret, key = new_key("sdk", "acme", rules, 1000)
    assert api.service.store is not None
    await api.service.store.add_key(key)
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(create_app(api.service)))
    return openai.AsyncOpenAI(base_url=BASE_URL, api_key=secret, max_retries=retries, http_client=http)


async def test_limits_are_the_packages_own_errors_and_headers() -> None:
    async with inprocess_app() as api, await client_of(api, KeyRules(("scripted",), 1, 5000)) as client:
        raw = await client.responses.with_raw_response.create(model="scripted", input="hi")
        assert raw.headers["x-ratelimit-remaining-requests"] == "0"
        assert raw.headers["x-ratelimit-limit-tokens"] == "5000"
        with pytest.raises(openai.RateLimitError) as refusal:
            await client.responses.create(model="scripted", input="hi", stream=True)
        assert refusal.value.code == "rate_limit_exceeded"
        assert 0 < float(refusal.value.response.headers["retry-after-ms"]) <= 60_000
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.models.retrieve("other")
        assert unknown.value.code == "model_not_found"


async def test_the_package_comes_back_when_it_is_told_to() -> None:
    async with inprocess_app() as api, await client_of(api, KeyRules(None, 300), retries=3) as client:
        await client.models.list()
        assert api.service.store is not None
        (key,) = await api.service.store.keys()
        with pytest.raises(RateLimitError):
            for _ in range(10_000):
                api.service.limits.admit(Scope(key.tenant, key.id))
        raw = await client.responses.with_raw_response.create(model="scripted", input="hi")
        assert raw.retries_taken >= 1
        assert raw.parse().output_text == "Hello from scripted."


async def test_a_revoked_key_is_an_authentication_error() -> None:
    async with inprocess_app() as api, await client_of(api, KeyRules()) as client:
        assert api.service.store is not None
        (key,) = await api.service.store.keys()
        await api.service.store.revoke_key(key.id, 2000)
        with pytest.raises(openai.AuthenticationError) as refusal:
            await client.responses.create(model="scripted", input="hi")
        assert refusal.value.code == "invalid_api_key"
