"""A tiny random Llama in the form that vLLM loads: a tokenizer, a chat template and half a million numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tests.support.tiny_gguf import HERMES, TEXT, VOCABULARY
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

__all__ = ["CONTEXT", "write"]

CONTEXT = 2048
END, START = "<|im_end|>", "<|endoftext|>"
LAYERS, WIDTH, HIDDEN, HEADS = 2, 128, 256, 2


def write(folder: Path) -> Path:
    """The folder, with the files of the model in it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": END,
                "bos_token": START,
                "pad_token": START,
                "model_max_length": CONTEXT,
                "chat_template": HERMES,
            }
        ),
        encoding="utf-8",
    )
    (folder / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "vocab_size": size,
                "hidden_size": WIDTH,
                "intermediate_size": HIDDEN,
                "num_hidden_layers": LAYERS,
                "num_attention_heads": HEADS,
                "num_key_value_heads": HEADS,
                "head_dim": WIDTH // HEADS,
                "max_position_embeddings": CONTEXT,
                "hidden_act": "silu",
                "rms_norm_eps": 1e-6,
                "rope_theta": 10000.0,
                "tie_word_embeddings": False,
                "eos_token_id": tokenizer.token_to_id(END),
                "bos_token_id": tokenizer.token_to_id(START),
                "torch_dtype": "float32",
            }
        ),
        encoding="utf-8",
    )
    _safetensors(folder / "model.safetensors", _tensors(size))
    return folder


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in (START, "<|im_start|>", END)])
    tokenizer.add_tokens([AddedToken(text) for text in ("<tool_call>", "</tool_call>")])
    return tokenizer


def _tensors(size: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.02).astype(np.float32)

    found = {
        "model.embed_tokens.weight": weights(size, WIDTH),
        "lm_head.weight": weights(size, WIDTH),
        "model.norm.weight": np.ones(WIDTH, np.float32),
    }
    for layer in range(LAYERS):
        block = f"model.layers.{layer}."
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            found[f"{block}self_attn.{name}.weight"] = weights(WIDTH, WIDTH)
        for name in ("gate_proj", "up_proj"):
            found[f"{block}mlp.{name}.weight"] = weights(HIDDEN, WIDTH)
        found[f"{block}mlp.down_proj.weight"] = weights(WIDTH, HIDDEN)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{block}{name}.weight"] = np.ones(WIDTH, np.float32)
    return found


def _safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """The format of safetensors: the length of a JSON head, the head, and the numbers."""
    head: dict[str, object] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, tensor in tensors.items():
        head[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [place, place + tensor.nbytes]}
        place += tensor.nbytes
    text = json.dumps(head).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.tobytes())
