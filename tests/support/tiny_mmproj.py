"""Tiny projectors of images for the models of `tiny_gguf`: a vision transformer of one block in use, random weights.

llama.cpp's plain kind of projector (LLaVA's, two layers) takes every image at one size, so each image is `TOKENS`
tokens of the prompt.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from support.tiny_gguf import WIDTH

__all__ = ["TOKENS", "build"]

IMAGE, PATCH = 32, 8
TOKENS = (IMAGE // PATCH) ** 2
"""Tokens of one image."""

VISION, HIDDEN, LAYERS, HEADS = 32, 64, 2, 2
"""Sizes of the transformer; LLaVA's kind leaves its last block out."""


def build(directory: Path, *, width: int = WIDTH) -> Path:
    """The path of a projector into embeddings of `width`; one that was made in this directory before is taken as is."""
    path = directory / f"tiny-mmproj-{width}.gguf"
    if path.exists():
        return path
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(str(path), "clip")
    writer.add_name("tiny projector")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_bool("clip.use_gelu", True)
    writer.add_uint32("clip.vision.image_size", IMAGE)
    writer.add_uint32("clip.vision.patch_size", PATCH)
    writer.add_uint32("clip.vision.embedding_length", VISION)
    writer.add_uint32("clip.vision.feed_forward_length", HIDDEN)
    writer.add_uint32("clip.vision.block_count", LAYERS)
    writer.add_uint32("clip.vision.attention.head_count", HEADS)
    writer.add_uint32("clip.vision.projection_dim", width)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])

    def weight(name: str, *shape: int, half: bool = True) -> None:
        values = random.standard_normal(shape) * (1.0 / np.sqrt(shape[-1]))
        writer.add_tensor(name, values.astype(np.float16 if half else np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(VISION, np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(VISION, np.float32))

    def linear(name: str, out: int, into: int) -> None:
        weight(f"{name}.weight", out, into)
        writer.add_tensor(f"{name}.bias", np.zeros(out, np.float32))

    weight("v.patch_embd.weight", VISION, 3, PATCH, PATCH)
    weight("v.position_embd.weight", TOKENS, VISION, half=False)
    norm("v.pre_ln")
    norm("v.post_ln")
    for layer in range(LAYERS):
        block = f"v.blk.{layer}."
        norm(block + "ln1")
        norm(block + "ln2")
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            linear(block + part, VISION, VISION)
        linear(block + "ffn_up", HIDDEN, VISION)
        linear(block + "ffn_down", VISION, HIDDEN)
    linear("mm.0", width, VISION)
    linear("mm.2", width, width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
