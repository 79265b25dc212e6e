"""Fixtures of the client proofs: SDK clients whose every exchange is held against the SDK's types at the test's end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx2
import openai
import pytest

from clients.strict import AsyncRecorder, Recorder
from support.fronted import UPSTREAM

KEY = "sk-local"
MODELS = ["scripted", "real"] if UPSTREAM is None else ["scripted"]
"""What is asked; where the scripted model runs behind another server, that alone."""


class Target:
    """A server and one of its models. `tokens` bounds an answer that is free to be long."""

    def __init__(self, base_url: str, model: str, client: openai.OpenAI, recorder: Recorder) -> None:
        self.base_url = base_url
        self.model = model
        self.client = client
        self.recorder = recorder
        self.tokens = 12

    @property
    def responses(self) -> openai.resources.Responses:
        """The SDK's resource."""
        return self.client.responses


def _target(base_url: str, model: str) -> Iterator[Target]:
    recorder = Recorder()
    http = httpx2.Client(transport=recorder, timeout=90)
    with openai.OpenAI(base_url=base_url, api_key=KEY, max_retries=0, http_client=http) as client:
        yield Target(base_url, model, client, recorder)
    recorder.verify()


@pytest.fixture
def scripted(scripted_server: str) -> Iterator[Target]:
    """The SDK on the scripted model."""
    yield from _target(scripted_server, "scripted")


@pytest.fixture
def real(real_server: str) -> Iterator[Target]:
    """The SDK on the default model."""
    yield from _target(real_server, "smollm")


@pytest.fixture(params=MODELS)
def target(request: pytest.FixtureRequest) -> Target:
    """The SDK on the one model and on the other."""
    return request.getfixturevalue(request.param)


@pytest.fixture
async def async_scripted(scripted_server: str) -> AsyncIterator[openai.AsyncOpenAI]:
    """The async client of the scripted model."""
    recorder = AsyncRecorder()
    http = httpx2.AsyncClient(transport=recorder, timeout=90)
    async with openai.AsyncOpenAI(base_url=scripted_server, api_key=KEY, max_retries=0, http_client=http) as client:
        yield client
    recorder.verify()


@pytest.fixture(params=MODELS)
async def async_target(request: pytest.FixtureRequest) -> AsyncIterator[tuple[openai.AsyncOpenAI, str]]:
    """The async client and a model, on the one and on the other."""
    base_url: str = request.getfixturevalue(f"{request.param}_server")
    recorder = AsyncRecorder()
    http = httpx2.AsyncClient(transport=recorder, timeout=90)
    async with openai.AsyncOpenAI(base_url=base_url, api_key=KEY, max_retries=0, http_client=http) as client:
        yield client, "scripted" if request.param == "scripted" else "smollm"
    recorder.verify()
