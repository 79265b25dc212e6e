"""A tiny Florence-2 model with random weights, its processor and its tokenizer, as the transformers library writes it.

Its tokens are the bytes of a text, the thousand places, and the marks between them.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CLIPImageProcessorPil,
    Florence2Config,
    Florence2ForConditionalGeneration,
    Florence2Processor,
    PreTrainedTokenizerFast,
)

__all__ = ["IMAGE_TOKENS", "POSITIONS", "build"]

SIDE = 64
"""Pixels of each side of the image that the model sees."""

IMAGE_TOKENS = 5
"""Tokens of a prompt that stand for the image: those of a grid of two by two, and one of the whole."""

POSITIONS = 256
"""Tokens of the longest prompt, and of the longest answer but one."""

BEGIN, PAD, END, UNKNOWN = "<s>", "<pad>", "</s>", "<unk>"

STRENGTH = 16
"""How many times larger its weights are than the usual ones, so that what it writes depends on what it is asked."""


def build(folder: Path) -> Path:
    """Write a model into the folder."""
    tokenizer = _tokenizer()
    images = CLIPImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, crop_size={"height": SIDE, "width": SIDE}, do_center_crop=False
    )
    images.image_seq_length = IMAGE_TOKENS
    rules = {"phrase_grounding": {"banned_grounding_tokens": ["it"]}}
    Florence2Processor(image_processor=images, tokenizer=tokenizer, post_processor_config=rules).save_pretrained(folder)
    torch.manual_seed(0)
    model = Florence2ForConditionalGeneration(_config(tokenizer)).eval()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.mul_(STRENGTH)
    # Beams, as the published models have them.
    model.generation_config.num_beams = 3
    model.generation_config.early_stopping = True
    model.save_pretrained(folder)
    return folder


def _tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {token: number for number, token in enumerate((BEGIN, PAD, END, UNKNOWN))}
    for character in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary[character] = len(vocabulary)
    plain = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN,
        extra_special_tokens={"image_token": "<image>"},
    )
    marks = [*(f"<loc_{place}>" for place in range(1000)), "<sep>", "<poly>", "</poly>"]
    tokenizer.add_tokens([AddedToken(mark, special=True) for mark in marks])
    return tokenizer


def _config(tokenizer: PreTrainedTokenizerFast) -> Florence2Config:
    text = {
        "model_type": "bart",
        "vocab_size": len(tokenizer),
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "max_position_embeddings": POSITIONS,
        "bos_token_id": tokenizer.bos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.eos_token_id,
        "forced_eos_token_id": tokenizer.eos_token_id,
    }
    vision = {
        "depths": [1, 1, 1, 1],
        "embed_dim": [8, 16, 16, 16],
        "num_heads": [1, 2, 2, 2],
        "num_groups": [1, 2, 2, 2],
        "window_size": 2,
        "projection_dim": 32,
        "max_temporal_embeddings": 10,
        "max_position_embeddings": 10,
        "patch_size": [7, 3, 3, 3],
    }
    return Florence2Config(
        text_config=text,
        vision_config=vision,
        image_token_id=tokenizer.image_token_id,
        vocab_size=len(tokenizer),
    )
