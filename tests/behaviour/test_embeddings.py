"""`/v1/embeddings`, `/tokenize` and `/detokenize`."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import gguf
import msgspec
import numpy as np
import pytest

from antiphon.engines.embedding import Embedded, Embedder
from antiphon.engines.registry import build_registry
from antiphon.errors import ConfigurationError
from antiphon.http.app import create_app
from antiphon.protocol.completions import RawPrompt
from antiphon.runtime.keys import new_key
from antiphon.runtime.limits import KeyRules
from antiphon.settings import ModelConfig, Settings
from support import tiny_bert
from support.asgi import ManualExchange
from support.inprocess import InProcess, inprocess_app
from support.local_engine import until

requirement = pytest.mark.requirement


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny embedding model."""
    return tiny_bert.build(tmp_path_factory.mktemp("bert"))


@pytest.fixture
async def embedding(bert: Path) -> AsyncGenerator[InProcess]:
    """The scripted model, and the embedding model beside it."""
    settings = Settings(
        model=("scripted",), embedding_model=str(bert), threads=1, alias=("text-embedding-3-small=bert",)
    )
    async with inprocess_app(settings=settings) as api:
        yield api


async def embed(api: InProcess, given: Any, **fields: Any) -> dict[str, Any]:
    answer = await api.client.post("/embeddings", json={"model": "bert", "input": given, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(api: InProcess, status: int, **fields: Any) -> dict[str, Any]:
    answer = await api.client.post("/embeddings", json={"model": "bert", "input": "hello", **fields})
    assert answer.status_code == status, answer.text
    assert api.service.admission.running == 0
    return answer.json()["error"]


@requirement("embeddings:answer")
async def test_each_text_has_a_vector_of_length_one_in_its_order(embedding: InProcess):
    answer = await embed(embedding, ["hello", "you there", "hello"])
    assert {name: answer[name] for name in ("object", "model")} == {"object": "list", "model": "bert"}
    assert [(entry["object"], entry["index"]) for entry in answer["data"]] == [("embedding", n) for n in range(3)]
    vectors = np.array([entry["embedding"] for entry in answer["data"]])
    assert vectors.shape == (3, tiny_bert.WIDTH)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.allclose(vectors[0], vectors[2], atol=1e-6)
    assert not np.allclose(vectors[0], vectors[1], atol=1e-3)
    # Letters, and the tokens that begin and end a text.
    assert answer["usage"] == {"prompt_tokens": 24, "total_tokens": 24}
    single = await embed(embedding, "hello", user="someone")
    assert np.allclose(single["data"][0]["embedding"], vectors[0], atol=1e-6)
    assert (await embed(embedding, "hello", model="text-embedding-3-small"))["model"] == "text-embedding-3-small"
    bare = await embedding.client.post("http://127.0.0.1/embeddings", json={"model": "bert", "input": "hello"})
    assert bare.json() == single


@requirement("embeddings:forms")
async def test_vectors_come_as_numbers_or_in_base64(embedding: InProcess):
    numbers = (await embed(embedding, "hello", encoding_format="float"))["data"][0]["embedding"]
    encoded = (await embed(embedding, "hello", encoding_format="base64", dimensions=tiny_bert.WIDTH))["data"][0]
    assert np.allclose(np.frombuffer(base64.b64decode(encoded["embedding"]), "<f4"), numbers, atol=1e-6)


@requirement("embeddings:forms")
async def test_tokens_are_taken_for_texts(embedding: InProcess):
    text = (await embed(embedding, "a"))["data"][0]["embedding"]
    for given in ([2, 5, 3], [[2, 5, 3]]):
        answer = await embed(embedding, given)
        assert np.allclose(answer["data"][0]["embedding"], text, atol=1e-6)
        assert answer["usage"]["prompt_tokens"] == 3


@requirement("embeddings:errors")
@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"input": None}, "input", "missing_required_parameter"),
        ({"input": ""}, "input", "empty_input"),
        ({"input": []}, "input", "empty_input"),
        ({"input": ["a", ""]}, "input[1]", "empty_input"),
        ({"input": ["a", 1]}, "input", "invalid_type"),
        ({"input": [1, [2]]}, "input", "invalid_type"),
        ({"input": [-1]}, "input[0]", "invalid_value"),
        ({"input": [10**6]}, "input", "invalid_value"),
        ({"input": ["a"] * 2049}, "input", "array_above_max_length"),
        ({"input": "a" * 63}, "input", "context_length_exceeded"),
        ({"dimensions": 8}, "dimensions", "unsupported_value"),
        ({"encoding_format": "hex"}, "encoding_format", "invalid_value"),
        ({"model": "scripted"}, "model", "unsupported_value"),
    ],
)
async def test_what_cannot_be_embedded_is_named(
    embedding: InProcess, fields: dict[str, Any], param: str, code: str
) -> None:
    error = await refused(embedding, 400, **fields)
    assert (error["param"], error["code"]) == (param, code)


@requirement("embeddings:models")
async def test_an_embedding_model_is_listed_and_answers_nothing_else(embedding: InProcess):
    listed = [model["id"] for model in (await embedding.client.get("/models")).json()["data"]]
    assert listed == ["scripted", "bert", "text-embedding-3-small"]
    assert (await embedding.client.get("/models/bert")).json()["id"] == "bert"
    for path, body in (
        ("/responses", {"input": "Hi."}),
        ("/chat/completions", {"messages": [{"role": "user", "content": "Hi."}]}),
        ("/completions", {"prompt": "Hi."}),
        ("/tokenize", {"content": "Hi."}),
    ):
        answer = await embedding.client.post(path, json={"model": "bert", **body})
        assert answer.status_code == 400
        assert "/v1/embeddings" in answer.json()["error"]["message"]
    assert (await refused(embedding, 404, model="unknown"))["code"] == "model_not_found"
    assert (await embed(embedding, "hello", model=None))["model"] == "bert"


@requirement("embeddings:models")
async def test_a_server_without_an_embedding_model_says_how_to_get_one(api: InProcess):
    for model in ("scripted", "bert", None):
        error = await refused(api, 400, model=model)
        assert "--embedding-model" in error["message"]


@requirement("embeddings:models")
async def test_embedding_models_are_tables_too_and_the_wildcard_finds_the_first(bert: Path, tmp_path: Path):
    other = tiny_bert.build(tmp_path, name="other")
    settings = Settings(
        models=(
            ModelConfig("scripted", aliases=("*",)),
            ModelConfig(str(bert), name="first", aliases=("small",), embedding=True),
            ModelConfig(str(other), embedding=True),
        ),
        threads=1,
    )
    async with inprocess_app(settings=settings) as api:
        for name in ("first", "small", "other", "text-embedding-ada-002"):
            assert (await embed(api, "hello", model=name))["model"] == name
        assert (await refused(api, 400, model=None))["code"] == "missing_required_parameter"


@requirement("embeddings:models")
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(models=(ModelConfig("a.gguf", embedding=True),)), "No model generates"),
        (Settings(model=("scripted",), embedding_model="a.gguf", default_model="a"), "--default-model a"),
        (Settings(model=("scripted",), embedding_model="scripted.gguf"), "named 'scripted'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Settings, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        build_registry(settings)


@requirement("embeddings:load")
async def test_a_file_that_makes_no_vectors_does_not_start(tiny: Callable[..., Path], tmp_path: Path):
    ranking = tiny_bert.build(tmp_path, pooling=gguf.PoolingType.RANK, name="ranking")
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(ranking.read_bytes()[:5000])
    for path, words in (
        (ranking, "ranks texts"),
        (damaged, "cannot be loaded"),
        (tmp_path / "none.gguf", "no such file"),
    ):
        registry = build_registry(Settings(model=("scripted",), embedding_model=str(path), threads=1))
        with pytest.raises(ConfigurationError, match=words):
            await registry.start()
        await registry.close()


@requirement("embeddings:load")
@pytest.mark.parametrize("kind", ["bert", "llama"])
async def test_a_model_that_does_not_say_how_gets_the_mean_of_its_tokens(
    kind: str, tiny: Callable[..., Path], tmp_path: Path
) -> None:
    path = tiny_bert.build(tmp_path, pooling=None, name="plain") if kind == "bert" else tiny(name="plain")
    async with inprocess_app(settings=Settings(model=("scripted",), embedding_model=str(path), threads=1)) as api:
        answer = await embed(api, ["hello there", "something else"], model="plain")
        vectors = np.array([entry["embedding"] for entry in answer["data"]])
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@requirement("embeddings:restart")
async def test_a_child_that_dies_is_started_anew(embedding: InProcess):
    (embedder,) = embedding.service.registry.embedders
    before = await embed(embedding, "hello")
    child = embedder._supervisor.require()  # type: ignore[attr-defined]
    child.kill("a test")
    await child.wait()
    error = await refused(embedding, 503)
    assert error["code"] == "engine_unavailable"
    await until(lambda: embedder.ready, "the restart")
    assert await embed(embedding, "hello") == before


class Stuck(Embedder):
    """Never answers; tells when it is asked, and when nobody waits any more."""

    name = "stuck"
    ready = True  # type: ignore[assignment]
    dimensions = 1  # type: ignore[assignment]
    context_length = 1  # type: ignore[assignment]
    waiting = 0

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def embed(self, inputs: Sequence[RawPrompt]) -> Embedded:
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1
        raise AssertionError("nothing sets that event")


@requirement("embeddings:leave")
async def test_a_client_that_leaves_is_not_computed_for(api: InProcess):
    embedder = Stuck()
    api.service.registry.embedders.append(embedder)
    api.service.registry._names.listed["stuck"] = embedder
    exchange = ManualExchange(create_app(api.service), {"input": "a"}, "/v1/embeddings")
    await until(lambda: embedder.waiting == 1, "the request arrives")
    assert api.service.admission.running == 1
    exchange.leave()
    assert await exchange.finished() == []
    assert (embedder.waiting, api.service.admission.running) == (0, 0)


@requirement("embeddings:keys")
async def test_a_key_is_held_to_its_limits(embedding: InProcess):
    assert embedding.service.store is not None
    headers: list[dict[str, str]] = []
    for rules in (KeyRules(tokens_per_minute=10), KeyRules(models=("scripted",)), KeyRules(models=("bert",))):
        secret, key = new_key("test", "acme", rules, 1000)
        await embedding.service.store.add_key(key)
        headers.append({"Authorization": f"Bearer {secret}"})
    body = {"model": "bert", "input": ["hello", "hello"]}
    codes: list[list[int]] = [
        [(await embedding.client.post("/embeddings", json=body, headers=one)).status_code for one in headers]
        for _ in range(2)
    ]
    assert codes == [[200, 404, 200], [429, 404, 200]]
    hidden = await embedding.client.post("/embeddings", json=body, headers=headers[1])
    assert hidden.json()["error"]["code"] == "model_not_found"
    other = {"model": "scripted", "input": "a"}
    assert (await embedding.client.post("/embeddings", json=other, headers=headers[2])).status_code == 404
    assert (await embedding.client.post("/embeddings", json=other, headers=headers[1])).status_code == 400
    listed = (await embedding.client.get("/models", headers=headers[2])).json()["data"]
    assert [model["id"] for model in listed] == ["bert", "text-embedding-3-small"]
    assert (await embedding.client.get("/models/scripted", headers=headers[2])).status_code == 404


# Tokens


@requirement("tokens:routes")
async def test_tokens_of_a_text_and_back(tiny: Callable[..., Path]):
    settings = Settings(model=(str(tiny(add_bos=True)), "scripted"), threads=1)
    async with inprocess_app(settings=settings) as api:

        async def post(path: str, **body: Any) -> dict[str, Any]:
            answer = await api.client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        text = "Hi 🙂 <|im_end|>"
        plain = (await post("/tokenize", content=text))["tokens"]
        assert (await post("/detokenize", tokens=plain)) == {"content": text}
        spelled = (await post("/tokenize", content=text, parse_special=False))["tokens"]
        assert len(spelled) > len(plain)
        begun = (await post("http://127.0.0.1/tokenize", content=text, add_special=True, model="tiny"))["tokens"]
        assert begun[1:] == plain
        pieces = (await post("/tokenize", content=text, with_pieces=True))["tokens"]
        assert [entry["id"] for entry in pieces] == plain
        joined = b"".join(
            entry["piece"].encode() if isinstance(entry["piece"], str) else bytes(entry["piece"]) for entry in pieces
        )
        assert joined.decode() == text
        assert any(isinstance(entry["piece"], list) for entry in pieces)
        scripted = await post("/tokenize", content="aé", model="scripted")
        assert scripted == {"tokens": [97, 233]}
        assert await post("/detokenize", **scripted, model="scripted") == {"content": "aé"}
        assert await post("/tokenize", content="") == {"tokens": []}
        for tokens in ([10**6], [2**31 - 1]):
            answer = await api.client.post("/detokenize", json={"tokens": tokens})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tokens")


@requirement("tokens:routes")
@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "content"),
        ("/tokenize", {"content": 7}, 400, "content"),
        ("/tokenize", {"content": "a", "model": "unknown"}, 404, "model"),
        ("/detokenize", {"tokens": "a"}, 400, "tokens"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens[0]"),
        ("/detokenize", {"tokens": [0x110000]}, 400, "tokens"),
    ],
)
async def test_what_is_no_text_and_no_token_is_named(
    api: InProcess, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    answer = await api.client.post(path, json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["param"] == param


@requirement("tokens:routes")
async def test_the_usage_of_bare_text_is_the_number_of_its_tokens(api: InProcess):
    text = "a text of some length"
    tokens = msgspec.json.decode((await api.client.post("/tokenize", json={"content": text})).content)["tokens"]
    answer = await api.client.post("/completions", json={"model": "scripted", "prompt": tokens})
    assert answer.json()["usage"]["prompt_tokens"] == len(tokens)
