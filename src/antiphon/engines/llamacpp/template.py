"""What is handed to the model's chat template: messages, tools and variables. Pure.

Rules M13 to M15: the effort as template variables, past reasoning as `reasoning_content`, and whether it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from antiphon.machine.reasoning import CLOSE_MARKER, OPEN_MARKER

__all__ = [
    "MARKER_PAIRS",
    "MOST_CANDIDATES",
    "complaint",
    "reads_only_reasoning",
    "special_candidates",
    "template_variables",
    "thinking_markers",
    "with_reasoning_content",
]

_OFF = frozenset({"none", "off", "disabled", "false", "0"})
_LEVELS = ("reasoning_effort", "reasoning_strength")
_REASONING = re.compile(
    r"""(?P<before>\.\s*|\[\s*(?P<q>['"])|\.get\(\s*(?P<g>['"]))reasoning(?P<after>(?(q)(?P=q)\s*\]|(?(g)(?P=g)|(?![\w(]))))"""
)
MARKER_PAIRS: tuple[tuple[str, str], ...] = (
    (OPEN_MARKER, CLOSE_MARKER),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|channel>thought", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<thought>", "</thought>"),
)
"""The markers of thinking that are known, the usual ones first; the last three are of Command A, Apertus and EXAONE."""

MOST_CANDIDATES = 512
"""No template has as many special tokens; each costs two calls at the start."""

_SPECIAL = re.compile(r"<[|\uff5c][^<>\s]{1,64}?[|\uff5c]>|<\|?[a-z_]{1,32}\|?>|</[a-z_]{1,32}>|\[/?[A-Z_]{2,32}\]")


def template_variables(
    template: str, effort: str | None, explicit: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The variables of the template: the request's own, else from the effort (M13), else those of the settings.

    Where a template reads `thinking`, as those of DeepSeek, Kimi and Granite do, it is told so by that name too. Past
    thinking is kept where nothing says otherwise (`preserve_thinking`, M15): the prefix cache is always on here.
    """
    variables: dict[str, Any] = {"preserve_thinking": True, **(defaults or {})}
    if effort is not None:
        level = effort.strip()
        thinking = level.lower() not in _OFF
        variables["enable_thinking"] = thinking
        if _reads(template, "thinking"):
            variables["thinking"] = thinking
        for name in _LEVELS:
            variables.pop(name, None)
        if thinking:
            strength = _reads(template, "reasoning_strength") and not _reads(template, "reasoning_effort")
            variables["reasoning_strength" if strength else "reasoning_effort"] = level
    variables.update(explicit)
    return variables


def _reads(template: str, identifier: str) -> bool:
    """Whether that variable is read, and not only a field of something by that name."""
    return re.search(rf"(?<![\w.'\"]){identifier}(?![\w'\"])", template) is not None


def thinking_markers(template: str) -> tuple[str, str]:
    """The markers that the template puts around thinking; the usual ones where it names none."""
    for pair in MARKER_PAIRS:
        if pair[1] in template:
            return pair
    return MARKER_PAIRS[0]


def reads_only_reasoning(template: str) -> bool:
    """Whether the template reads past thinking as `reasoning`, a name that `/apply-template` drops (M14)."""
    return "reasoning_content" not in template and _REASONING.search(template) is not None


def with_reasoning_content(template: str) -> str:
    """The template with that name replaced by `reasoning_content`."""
    return _REASONING.sub(lambda match: f"{match['before']}reasoning_content{match['after']}", template)


def complaint(message: str) -> str:
    """The template's own words out of llama.cpp's report of where it raised them."""
    found = message.rsplit("\nError: ", 1)[-1].strip()
    return found.removeprefix("Jinja Exception:").strip() or "the chat template failed"


def special_candidates(template: str) -> list[str]:
    """Texts in the template that look like special tokens, each once; a template that is made to have very many of
    them does not hold the start: those beyond the first `MOST_CANDIDATES` are left out.
    """
    found = dict.fromkeys(match.group() for match in _SPECIAL.finditer(template))
    return list(found)[:MOST_CANDIDATES]
