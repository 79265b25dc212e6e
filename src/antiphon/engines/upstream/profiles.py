"""What each kind of upstream takes and enforces, as data.

`generic` is trusted with nothing: what it is asked to hold to is checked here. A kind is trusted only with what it
enforces whatever the model is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

__all__ = ["AFFINITY", "PROFILES", "ROUTERS", "SAMPLERS", "Profile"]

_COMMON: Final = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "stop", "logit_bias")
_MORE: Final = ("top_k", "min_p")
SAMPLERS: Final = (
    "repeat_penalty",
    "repeat_last_n",
    "typical_p",
    "top_n_sigma",
    "min_keep",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "xtc_probability",
    "xtc_threshold",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "dynatemp_range",
    "dynatemp_exponent",
)
"""The samplers of llama.cpp, which servers of others do not know."""


class Profile(Struct, frozen=True):
    """One kind of upstream.

    `enforces` names what holds without a check: `required` and `named` calls, and the formats `json_object` and
    `json_schema`; `beside_tools` says that a format holds where tools may be called too. `formats` is the field of an
    output format: `response_format`, vLLM's `structured_outputs` or llama-server's `json_schema`. `choices` are the
    forms of `tool_choice` that it reads, beside `auto`. `fields` leads from the names of sampling here to its own; what
    is not in it is not sent. `efforts` are the efforts that `reasoning_effort` takes, None for any. `reasoning` is the
    name under which an assistant message holds past thinking, None where it may hold none. `calls_as_form` says that
    forced calls are asked for as a format, since formats are enforced and calls are not; `forced_strict`, that it holds
    the arguments of a forced call to their schema only where the function says `strict`. `session_headers` are those by
    which it, or a router before it, keeps a history in one place, and `cache_key` says that it takes the field
    `prompt_cache_key` for that; `cache_salt` that its cache is kept apart by a field of that name. `key_header` is the
    header of the key where it is no bearer's. `counts` says how it is asked for the tokens of a prompt: as `responses`
    are, by the `messages` of a chat, or by the text that it has `rendered` of them; None where there is no way.
    `fetches` says that it brings images by their URLs, and asks no place for that which this server would not.
    """

    name: str
    enforces: frozenset[str] = frozenset()
    beside_tools: bool = False
    formats: str = "response_format"
    choices: frozenset[str] = frozenset({"none", "required", "named"})
    fields: Mapping[str, str] = {}
    max_tokens: str = "max_tokens"
    efforts: frozenset[str] | None = frozenset()
    template_kwargs: bool = False
    reasoning: str | None = None
    strict: bool = False
    calls_as_form: bool = False
    forced_strict: bool = False
    tool_names: bool = False
    logprobs: bool = True
    session_headers: Sequence[str] = ()
    cache_key: bool = False
    cache_salt: bool = False
    key_header: str | None = None
    counts: Literal["responses", "messages", "rendered"] | None = None
    fetches: bool = False


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_EFFORTS: Final = frozenset({"low", "medium", "high"})
_FORMATS: Final = frozenset({"json_object", "json_schema"})

ROUTERS: Final = ("x-session-id", "x-smg-routing-key", "x-dynamo-session-id")
"""What routers before several vLLMs or SGLangs, and vLLM itself, read to keep a session in one place."""

AFFINITY: Final = ("x-session-affinity",)
"""What providers of many models read for the same."""

PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile(
            "generic",
            choices=frozenset({"none", "required"}),
            fields=_same(*_COMMON),
            session_headers=AFFINITY,
        ),
        Profile(
            "openai",
            enforces=frozenset({"required", "named"}) | _FORMATS,
            beside_tools=True,
            choices=frozenset({"none", "required", "named", "allowed"}),
            fields=_same(*_COMMON),
            max_tokens="max_completion_tokens",
            efforts=None,
            strict=True,
            cache_key=True,
            counts="responses",
            fetches=True,
        ),
        Profile(
            "azure",
            enforces=frozenset({"required", "named"}) | _FORMATS,
            beside_tools=True,
            choices=frozenset({"none", "required", "named", "allowed"}),
            fields=_same(*_COMMON),
            max_tokens="max_completion_tokens",
            efforts=None,
            strict=True,
            key_header="api-key",
            cache_key=True,
            counts="responses",
            fetches=True,
        ),
        Profile(
            "antiphon",
            enforces=frozenset({"required", "named"}) | _FORMATS,
            beside_tools=True,
            choices=frozenset({"none", "required", "named", "allowed"}),
            fields=_same(*_COMMON, *_MORE, *SAMPLERS),
            max_tokens="max_completion_tokens",
            efforts=None,
            template_kwargs=True,
            reasoning="reasoning_content",
            strict=True,
            tool_names=True,
            cache_key=True,
            counts="responses",
            fetches=True,
        ),
        Profile(
            "vllm",
            enforces=frozenset({"required", "named"}) | _FORMATS,
            formats="structured_outputs",
            fields={**_same(*_COMMON, *_MORE), "repeat_penalty": "repetition_penalty"},
            efforts=_EFFORTS,
            template_kwargs=True,
            reasoning="reasoning_content",
            forced_strict=True,
            tool_names=True,
            session_headers=ROUTERS,
            cache_salt=True,
            counts="messages",
        ),
        Profile(
            "sglang",
            enforces=frozenset({"required", "named"}) | _FORMATS,
            fields={**_same(*_COMMON, *_MORE), "repeat_penalty": "repetition_penalty"},
            efforts=_EFFORTS,
            template_kwargs=True,
            reasoning="reasoning_content",
            tool_names=True,
            session_headers=ROUTERS,
            cache_salt=True,
        ),
        Profile(
            "llama-server",
            enforces=_FORMATS,
            formats="json_schema",
            calls_as_form=True,
            choices=frozenset({"none", "required"}),
            fields=_same(*_COMMON, *_MORE, *SAMPLERS),
            template_kwargs=True,
            reasoning="reasoning_content",
            tool_names=True,
            counts="rendered",
        ),
        Profile(
            "ollama",
            enforces=_FORMATS,
            calls_as_form=True,
            choices=frozenset(),
            fields=_same("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "stop"),
            efforts=_EFFORTS | {"none"},
            reasoning="reasoning",
            logprobs=False,
        ),
    )
}
"""The kinds, by the name under which settings name them."""
