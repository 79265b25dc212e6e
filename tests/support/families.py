"""The families of models that tests know: a chat template of our own writing in the shape of each, and its tokens.

A tiny model with such a template and such tokens writes noise; what it writes under a grammar is the grammar's work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support import tiny_gguf
from support.tiny_gguf import CONTROL, USER_DEFINED

__all__ = ["FAMILIES", "Family", "model_of"]

_TEMPLATES = Path(__file__).parent / "templates"
_CHATML = {"<|endoftext|>": CONTROL, "<|im_start|>": CONTROL, "<|im_end|>": CONTROL}


_MISTRAL = dict.fromkeys(
    (
        *("<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[ARGS]"),
        *("[CALL_ID]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    ),
    CONTROL,
)
_LLAMA3 = dict.fromkeys(
    ("<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"), CONTROL
)
_LLAMA4 = dict.fromkeys(
    ("<|begin_of_text|>", "<|eot|>", "<|header_start|>", "<|header_end|>", "<|python_start|>", "<|python_end|>"),
    CONTROL,
)
_LFM2_TOKENS = ("<|tool_list_start|>", "<|tool_list_end|>", "<|tool_call_start|>", "<|tool_call_end|>")
_LFM2 = _CHATML | dict.fromkeys((*_LFM2_TOKENS, "<|tool_response_start|>", "<|tool_response_end|>"), CONTROL)
_KIMI_CALLS = (
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
    *("<|tool_call_argument_begin|>", "<|tool_call_end|>"),
)
_KIMI = dict.fromkeys(
    ("[BOS]", "<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>", *_KIMI_CALLS), CONTROL
)
_DEEPSEEK = dict.fromkeys(("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"), CONTROL) | dict.fromkeys(
    (
        *("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
        *("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁output▁begin｜>"),
        *("<｜tool▁output▁end｜>", "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
    ),
    USER_DEFINED,
)


def _kinds(kind: int, *texts: str) -> dict[str, int]:
    return dict.fromkeys(texts, kind)


@dataclass(frozen=True)
class Family:
    """One family. `dialect` is what its template is known as, `end` the token that ends a turn."""

    dialect: str
    template: str
    specials: Mapping[str, int] = field(
        default_factory=lambda: _CHATML | _kinds(USER_DEFINED, "<tool_call>", "</tool_call>", "<think>", "</think>")
    )
    end: str = "<|im_end|>"

    def text(self) -> str:
        """The chat template."""
        return (_TEMPLATES / self.template).read_text(encoding="utf-8")


_GLM = _kinds(
    CONTROL, "<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"
) | _kinds(USER_DEFINED, "<think>", "</think>")
_GLM_TAGS = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")

_HARMONY = _kinds(
    CONTROL,
    *("<|startoftext|>", "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>"),
    "<|return|>",
)
_GEMMA = _kinds(
    CONTROL,
    *("<bos>", "<|turn>", "<turn|>", "<|tool>", "<tool|>", "<|tool_response>", "<tool_response|>", "<|think|>"),
    *("<|tool_call>", "<tool_call|>", "<|channel>", "<channel|>", '<|"|>'),
)
_FUNCTION_GEMMA = _kinds(
    CONTROL, "<bos>", "<start_of_turn>", "<end_of_turn>", "<start_function_declaration>", "<end_function_declaration>"
) | _kinds(
    USER_DEFINED,
    *("<start_function_call>", "<end_function_call>", "<escape>"),
    *("<start_function_response>", "<end_function_response>"),
)

FAMILIES: Mapping[str, Family] = {
    "gemma3": Family(
        "gemma3", "gemma3.jinja", _kinds(CONTROL, "<bos>", "<start_of_turn>", "<end_of_turn>"), end="<end_of_turn>"
    ),
    "gemma4": Family("gemma4", "gemma4.jinja", _GEMMA, end="<turn|>"),
    "functiongemma": Family("gemma4", "functiongemma.jinja", _FUNCTION_GEMMA, end="<end_of_turn>"),
    "harmony": Family("harmony", "harmony.jinja", _HARMONY, end="<|return|>"),
    "glm": Family("glm", "glm.jinja", _GLM | _kinds(USER_DEFINED, *_GLM_TAGS), end="<|user|>"),
    "glm_control": Family("glm", "glm.jinja", _GLM | _kinds(CONTROL, *_GLM_TAGS), end="<|user|>"),
    "deepseek": Family("deepseek", "deepseek.jinja", _DEEPSEEK, "<｜end▁of▁sentence｜>"),
    "deepseek_r1": Family("deepseek", "deepseek_r1.jinja", _DEEPSEEK, "<｜end▁of▁sentence｜>"),
    "deepseek_control": Family(
        "deepseek", "deepseek.jinja", dict.fromkeys(_DEEPSEEK, CONTROL), "<｜end▁of▁sentence｜>"
    ),
    "generic": Family("generic", "generic.jinja"),
    "hermes": Family("hermes", "hermes.jinja"),
    "kimi": Family("kimi", "kimi.jinja", _KIMI),
    "kimi_by_id": Family("kimi", "kimi_by_id.jinja", _KIMI),
    "lfm2": Family("pythonic", "lfm2.jinja", _LFM2),
    "llama3": Family("llama3", "llama3.jinja", _LLAMA3, "<|eot_id|>"),
    "llama4": Family("llama3", "llama4.jinja", _LLAMA4, "<|eot|>"),
    "mistral": Family("mistral", "mistral.jinja", _MISTRAL, "</s>"),
    "mistral_ids": Family("mistral", "mistral_ids.jinja", _MISTRAL, "</s>"),
    "mistral_array": Family("mistral", "mistral_array.jinja", _MISTRAL, "</s>"),
    "olmo3": Family("pythonic", "olmo3.jinja", _CHATML),
    "pythonic": Family("pythonic", "pythonic.jinja", _LLAMA4, "<|eot|>"),
    "qwen3_coder": Family("qwen3_coder", "qwen3_coder.jinja"),
}


def model_of(family: Family, directory: Path) -> Path:
    """A tiny model of this family."""
    return tiny_gguf.build(directory, template=family.text(), specials=family.specials, end=family.end)
