"""Tiny GGUF models, made when a test needs them: a llama architecture, a byte-level BPE and a chat template.

Without a script the weights are random and the model writes noise, a few thousand tokens a second. With a script it
writes that script, piece by piece, and ends its turn, or begins again where it is endless: each piece is a token of its
own, and the output layer maps each token to the one that follows it. The attention of a scripted model is switched off,
so that nothing else counts.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

__all__ = ["CHATML", "CONTROL", "HERMES", "USER_DEFINED", "build"]

CONTROL, USER_DEFINED = 3, 4
"""Kinds of special tokens: llama.cpp keeps the first out of the text unless they are asked for."""

SPECIALS = {
    "<|endoftext|>": CONTROL,
    "<|im_start|>": CONTROL,
    "<|im_end|>": CONTROL,
    "<tool_call>": USER_DEFINED,
    "</tool_call>": USER_DEFINED,
    "<think>": USER_DEFINED,
    "</think>": USER_DEFINED,
}
VOCABULARY = 640
WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS = 64, 128, 2, 4, 2

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HERMES = (
    "{% if tools %}{{ '<|im_start|>system\nTools: ' + (tools | tojson) + ' Answer with <tool_call></tool_call>"
    "<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}"
    "{% if message.reasoning_content %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}"
    "{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ '<tool_call>\n{\"name\": \"' + call.function.name + '\"'"
    " + ', \"arguments\": ' + (call.function.arguments | tojson) + '}\n</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

TEXT = """
A server keeps the state of every conversation, so that a client may send only what is new. When a model has answered,
the answer is written down before the client is told that it is complete. A reader who comes late gets the same bytes
that the first reader got, because nothing is made twice. The engine reads a prompt in batches and looks between two of
them whether anybody still waits. Tokens that were read before are kept and need not be read again; a long conversation
therefore costs little more than its last question. A tool is a function that the model may ask for: it names the tool
and gives arguments, and the caller runs it and brings the output back. The weather in the capital is mild today, with
light wind from the west and some rain towards the evening. Numbers such as 1, 22, 333 and 4,096 appear as well, and
{"name": "get_weather", "arguments": {"city": "Oslo", "days": [1, 2, 3], "metric": true}} is how a call is written.
Thinking comes first and the answer after it. Die Straße ist naß, el niño duerme, 東京は雨です, and 🙂 is one character.
def answer(question: str) -> str: return question.strip().lower() # a line of code, with indentation below
    for item in items: print(item.id, item.status)
"""


def build(
    directory: Path,
    *,
    template: str | None = CHATML,
    script: Sequence[str | bytes] = (),
    endless: bool = False,
    context_length: int = 8192,
    add_bos: bool = False,
    control: bool = False,
    specials: Mapping[str, int] | None = None,
    end: str = "<|im_end|>",
    start: int | None = None,
    name: str = "tiny",
) -> Path:
    """The path of such a model; one that was made in this directory before is taken as it is.

    `control` makes the markers of thinking and of calls control tokens, which llama.cpp keeps out of the text.
    `specials` are the special tokens, each with its kind, instead of the usual ones; `end` is the one that ends a turn.
    `start` is the token with which prompts end, behind which the script begins; else it is a line break.
    """
    kinds = specials or {text: CONTROL if control else kind for text, kind in SPECIALS.items()}
    pieces = [str(piece) for piece in script]
    parts = json.dumps([template, pieces, endless, context_length, add_bos, list(kinds.items()), end, start])
    folder = directory / hashlib.sha256(parts.encode()).hexdigest()[:16]
    path = folder / f"{name}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, template, script, endless, context_length, add_bos, kinds, end, start)
    return path


@cache
def _bpe() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens and merges of a vocabulary trained on the text above."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = tuple(sorted(model["vocab"], key=model["vocab"].get))
    return tokens, tuple(merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"])


@cache
def _byte_names() -> list[str]:
    """How byte-level BPE spells each byte: printable ones as themselves, the others from 256 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    names = {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return [names[byte] for byte in range(256)]


def _spelled(piece: str | bytes) -> str:
    data = piece.encode() if isinstance(piece, str) else piece
    return "".join(_byte_names()[byte] for byte in data)


def _write(
    path: Path,
    template: str | None,
    script: Sequence[str | bytes],
    endless: bool,
    context_length: int,
    add_bos: bool,
    kinds: Mapping[str, int],
    end: str,
    start: int | None,
) -> None:
    base, merges = _bpe()
    specials = list(kinds)
    first_special = len(base)
    tokens, types = [*base, *specials], [1] * len(base) + list(kinds.values())
    chain = [tokens.index(_spelled("\n")) if start is None else start]
    for place, piece in enumerate(script):
        spelled = str(piece) if piece in kinds else _spelled(piece)
        if spelled not in tokens:
            tokens.append(spelled)
            types.append(1)
        token = tokens.index(spelled)
        if token in chain:
            raise ValueError(f"piece {place} of the script is there twice: {piece!r}")
        chain.append(token)
    last = first_special + specials.index(end)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_context_length(context_length)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(list(merges))
    writer.add_bos_token_id(first_special)
    writer.add_eos_token_id(last)
    writer.add_add_bos_token(add_bos)
    if template is not None:
        writer.add_chat_template(template)
    writer.add_file_type(1)
    _tensors(writer, len(tokens), [*chain, chain[1] if endless else last] if script else [])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(writer: Any, size: int, chain: Sequence[int]) -> None:
    random = np.random.default_rng(0)

    def add(name: str, *shape: int, scale: float) -> None:
        writer.add_tensor(name, (random.standard_normal(shape) * scale).astype(np.float16))

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(WIDTH, np.float32))

    embedding = random.standard_normal((size, WIDTH))
    writer.add_tensor("token_embd.weight", (embedding * 0.5).astype(np.float16))
    output = random.standard_normal((size, WIDTH)) * (0.0 if chain else 0.15)
    for token, following in itertools.pairwise(chain):
        output[following] += embedding[token]
    writer.add_tensor("output.weight", output.astype(np.float16))
    ones("output_norm.weight")
    mixing = 0.0 if chain else 0.15
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        ones(block + "attn_norm.weight")
        ones(block + "ffn_norm.weight")
        add(block + "attn_q.weight", WIDTH, WIDTH, scale=0.15)
        add(block + "attn_k.weight", WIDTH // HEADS * KV_HEADS, WIDTH, scale=0.15)
        add(block + "attn_v.weight", WIDTH // HEADS * KV_HEADS, WIDTH, scale=0.15)
        add(block + "attn_output.weight", WIDTH, WIDTH, scale=mixing)
        add(block + "ffn_gate.weight", HIDDEN, WIDTH, scale=0.15)
        add(block + "ffn_up.weight", HIDDEN, WIDTH, scale=0.15)
        add(block + "ffn_down.weight", WIDTH, HIDDEN, scale=mixing)
