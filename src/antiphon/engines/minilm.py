"""The process that makes a GGUF of a BERT model for embeddings, as sentence-transformers keeps one.

Run as `python -m antiphon.engines.minilm ARCHIVE OUT`. The archive is a zip with `config.json`, `tokenizer.json` and
`model.safetensors`, which has been checked by its sha256 before. Matrices become q8_0, all else stays 32-bit floats:
the vectors differ from those of the original in the third decimal (local-engine 6). What cannot be read ends the
process with the reason as the last line of its error output.
"""

from __future__ import annotations

import importlib
import json
import struct
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["main"]

NAME: Final = "all-MiniLM-L6-v2"
_PREFIX: Final = "##"
_SPECIAL: Final = {"unknown": "[UNK]", "separator": "[SEP]", "class": "[CLS]", "padding": "[PAD]", "mask": "[MASK]"}
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_TYPES: Final = {"F32": "<f4", "F16": "<f2"}
_MOST_HEADER: Final = 2**20
_Q8_0: Final = 7

_OUTER: Final = {
    "token_embd.weight": "embeddings.word_embeddings.weight",
    "token_types.weight": "embeddings.token_type_embeddings.weight",
    "position_embd.weight": "embeddings.position_embeddings.weight",
    "token_embd_norm.weight": "embeddings.LayerNorm.weight",
    "token_embd_norm.bias": "embeddings.LayerNorm.bias",
}
_BLOCK: Final = {
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}
_WHOLE: Final = frozenset({"token_types.weight", "position_embd.weight"})
"""Matrices that llama.cpp adds to others, and reads as floats only."""


def main() -> None:
    """Convert the archive that the command line names."""
    archive, out = Path(sys.argv[1]), Path(sys.argv[2])
    with zipfile.ZipFile(archive) as files:
        config: dict[str, Any] = json.loads(files.read("config.json"))
        tokenizer: dict[str, Any] = json.loads(files.read("tokenizer.json"))
        tensors = _Tensors(files.read("model.safetensors"))
    gguf: Any = importlib.import_module("gguf")
    writer: Any = gguf.GGUFWriter(str(out), "bert")
    _describe(writer, config, gguf.PoolingType.MEAN)
    _add_vocabulary(writer, tokenizer["model"]["vocab"])
    for name, theirs in _OUTER.items():
        _add(writer, gguf, name, tensors.read(theirs))
    for layer in range(config["num_hidden_layers"]):
        for name, theirs in _BLOCK.items():
            for part in ("weight", "bias"):
                tensor = tensors.read(f"encoder.layer.{layer}.{theirs}.{part}")
                _add(writer, gguf, f"blk.{layer}.{name}.{part}", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class _Tensors:
    """The tensors of a file in the form of safetensors."""

    def __init__(self, data: bytes) -> None:
        (size,) = struct.unpack_from("<Q", data)
        if size > _MOST_HEADER:
            raise ValueError("the header of the tensors is too long")
        self._header: dict[str, Any] = json.loads(data[8 : 8 + size])
        self._data = memoryview(data)[8 + size :]
        self._numpy: Any = importlib.import_module("numpy")

    def read(self, name: str) -> Any:
        """A tensor as 32-bit floats."""
        entry = self._header[name]
        start, end = entry["data_offsets"]
        values = self._numpy.frombuffer(self._data[start:end], _TYPES[entry["dtype"]])
        return values.reshape(entry["shape"]).astype("<f4")


def _describe(writer: Any, config: Mapping[str, Any], pooling: object) -> None:
    writer.add_name(NAME)
    writer.add_license("apache-2.0")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    writer.add_file_type(_Q8_0)


def _add_vocabulary(writer: Any, vocabulary: Mapping[str, int]) -> None:
    """The tokens by their numbers. One that begins a word has a mark in front, and one that goes on with it none."""
    tokens: list[str] = []
    kinds: list[int] = []
    for token in sorted(vocabulary, key=vocabulary.__getitem__):
        if token.startswith("[") and token.endswith("]"):
            tokens.append(token)
            kinds.append(_UNKNOWN if token == _SPECIAL["unknown"] else _CONTROL)
        else:
            tokens.append(token.removeprefix(_PREFIX) if token.startswith(_PREFIX) else f"\u2581{token}")
            kinds.append(_NORMAL)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_type_count(2)
    number = {role: vocabulary[token] for role, token in _SPECIAL.items()}
    writer.add_unk_token_id(number["unknown"])
    writer.add_pad_token_id(number["padding"])
    writer.add_mask_token_id(number["mask"])
    writer.add_bos_token_id(number["class"])
    writer.add_eos_token_id(number["separator"])
    writer.add_uint32("tokenizer.ggml.cls_token_id", number["class"])
    # The format's own spelling.
    writer.add_uint32("tokenizer.ggml.seperator_token_id", number["separator"])


def _add(writer: Any, gguf: Any, name: str, tensor: Any) -> None:
    if tensor.ndim == 2 and name not in _WHOLE:
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
    else:
        writer.add_tensor(name, tensor)


if __name__ == "__main__":
    main()
