"""Tiny embedding models, made when a test needs them: a BERT with random weights and a vocabulary of single letters."""

from __future__ import annotations

import string
from pathlib import Path

import gguf
import numpy as np

__all__ = ["CONTEXT", "WIDTH", "build"]

WIDTH, HIDDEN, LAYERS, HEADS = 32, 64, 2, 2
CONTEXT = 64
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = string.ascii_lowercase + string.digits + string.punctuation


def build(
    directory: Path,
    *,
    pooling: gguf.PoolingType | None = gguf.PoolingType.MEAN,
    context_length: int = CONTEXT,
    name: str = "bert",
) -> Path:
    """The path of such a model; its vectors have `WIDTH` numbers. `pooling` None leaves it out of the file."""
    path = directory / f"{name}.gguf"
    writer = gguf.GGUFWriter(str(path), "bert")
    writer.add_name(name)
    writer.add_context_length(context_length)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    # A letter that begins a word, and one that goes on with it.
    tokens = [*SPECIALS, *(f"\u2581{letter}" for letter in LETTERS), *LETTERS]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([2 if token == "[UNK]" else 3 if token in SPECIALS else 1 for token in tokens])
    writer.add_token_type_count(2)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(3)
    writer.add_uint32("tokenizer.ggml.cls_token_id", 2)
    writer.add_uint32("tokenizer.ggml.seperator_token_id", 3)
    writer.add_mask_token_id(4)
    writer.add_file_type(0)
    _tensors(writer, len(tokens), context_length)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(writer: gguf.GGUFWriter, size: int, context_length: int) -> None:
    random = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, (random.standard_normal(shape) * 0.2).astype(np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(WIDTH, np.float32))

    add("token_embd.weight", size, WIDTH)
    add("token_types.weight", 2, WIDTH)
    add("position_embd.weight", context_length, WIDTH)
    norm("token_embd_norm")
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{block}{name}.weight", WIDTH, WIDTH)
            add(f"{block}{name}.bias", WIDTH)
        norm(f"{block}attn_output_norm")
        add(f"{block}ffn_up.weight", HIDDEN, WIDTH)
        add(f"{block}ffn_up.bias", HIDDEN)
        add(f"{block}ffn_down.weight", WIDTH, HIDDEN)
        add(f"{block}ffn_down.bias", WIDTH)
        norm(f"{block}layer_output_norm")
