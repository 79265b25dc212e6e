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


FAMILIES: Mapping[str, Family] = {
    "mistral": Family("mistral", "mistral.jinja", _MISTRAL, "</s>"),
    "mistral_ids": Family("mistral", "mistral_ids.jinja", _MISTRAL, "</s>"),
    "mistral_array": Family("mistral", "mistral_array.jinja", _MISTRAL, "</s>"),
    "qwen3_coder": Family("qwen3_coder", "qwen3_coder.jinja"),
}


def model_of(family: Family, directory: Path) -> Path:
    """A tiny model of this family."""
    return tiny_gguf.build(directory, template=family.text(), specials=family.specials, end=family.end)
