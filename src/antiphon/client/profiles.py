"""Providers and their models as data: which fields each takes, what its models do, and what its endpoint can.

A profile that fits almost is changed with `msgspec.structs.replace`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from antiphon.client.errors import DriverError

__all__ = [
    "ANTIPHON",
    "AZURE",
    "GENERIC",
    "META",
    "MIXEDBREAD",
    "OPENAI",
    "PROFILES",
    "VLLM",
    "ModelFamily",
    "Profile",
    "Sampling",
    "find_profile",
    "guess_profile",
]

Sampling: TypeAlias = Literal["sent", "dropped", "sent_without_effort"]
"""What becomes of `temperature` and `top_p` (E3): the last sends them where `reasoning.effort` is `none` only."""


FILE_TYPES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf"})
"""Media types of files that endpoints are known to take as bytes (E7)."""


class ModelFamily(Struct, frozen=True, kw_only=True):
    """Models that behave alike; `patterns` are of the shell's kind, over names in lower case.

    `reasoning` models are asked for their encrypted reasoning (E17). `store` is what is sent where the caller says
    nothing (E20). `research` models need a tool that searches (E14). `api` is the API that serves them.
    """

    name: str
    patterns: tuple[str, ...] = ()
    api: Literal["responses", "chat"] = "responses"
    reasoning: bool = False
    sampling: Sampling = "sent"
    store: bool | None = None
    research: bool = False


_UNKNOWN: Final = ModelFamily(name="other")

OPENAI_FAMILIES: Final = (
    ModelFamily(name="deep-research", patterns=("*deep-research*",), reasoning=True, sampling="dropped", research=True),
    ModelFamily(name="chat-only", patterns=("gpt-4o*-audio*", "gpt-audio*", "gpt-4o*-search-preview*"), api="chat"),
    ModelFamily(name="gpt-5-chat", patterns=("gpt-5-chat*",)),
    ModelFamily(
        name="codex", patterns=("codex-*", "*-codex", "*-codex-*"), reasoning=True, sampling="dropped", store=False
    ),
    ModelFamily(name="o-series", patterns=("o[1-9]", "o[1-9]-*"), reasoning=True, sampling="dropped"),
    ModelFamily(name="gpt-6", patterns=("gpt-6", "gpt-6[.-]*"), reasoning=True, sampling="sent_without_effort"),
    ModelFamily(name="gpt-5", patterns=("gpt-5", "gpt-5[.-]*"), reasoning=True, sampling="dropped"),
    ModelFamily(name="gpt-4.1", patterns=("gpt-4.1*",)),
    ModelFamily(name="gpt-4o", patterns=("gpt-4o*", "chatgpt-4o*")),
)
"""OpenAI's models, the first that fits counts; a name that fits none is taken as one that does not reason."""


class Profile(Struct, frozen=True, kw_only=True):
    """What one provider's endpoint takes and can.

    `fields`, where it is set, are the only ones that are sent; `dropped` are those that never are, `renamed` those
    that have another name there, `required` those that are sent where the caller says nothing. A field that is left
    out is warned about. `minimum_output_tokens` is the least `max_output_tokens` (E2); `file_types` are the media types
    of files that may be sent as bytes, None for all (E7); `plain_assistant_text`: what an assistant said goes as a
    string where it is only text, since its parts are not taken; `formats`: it knows `text.format` (E18).

    `encrypted_reasoning`: a reasoning model is asked for it (E17); `replays`: reasoning and compactions of this
    provider's own answers are sent back to it (E21, E22). `chains`: a request goes on from the last
    answer (E19). `resumes`:
    a stream that broke goes on with `starting_after`, where the response runs in the background; `background`: streams
    are asked for in the background, so that they can. `idempotent`: a request in the background that is sent again with
    its `Idempotency-Key` is the same one. `websocket` and `compacts` say which routes there are.
    """

    name: str
    base_url: str | None = None
    key_variables: tuple[str, ...] = ()
    key_header: Literal["authorization", "api-key"] = "authorization"
    families: tuple[ModelFamily, ...] = ()
    other_models: ModelFamily = _UNKNOWN
    fields: frozenset[str] | None = None
    dropped: frozenset[str] = frozenset()
    renamed: tuple[tuple[str, str], ...] = ()
    required: tuple[tuple[str, Any], ...] = ()
    minimum_output_tokens: int = 1
    file_types: frozenset[str] | None = FILE_TYPES
    plain_assistant_text: bool = False
    formats: bool = True
    encrypted_reasoning: bool = False
    replays: bool = False
    chains: bool = True
    resumes: bool = False
    background: bool = False
    idempotent: bool = False
    websocket: bool = False
    compacts: bool = False

    def family(self, model: str | None) -> ModelFamily:
        """The family of a model; what stands before the last slash of its name is its maker, and is not looked at."""
        name = (model or "").lower().rpartition("/")[2]
        for family in self.families:
            if any(fnmatchcase(name, pattern) for pattern in family.patterns):
                return family
        return self.other_models


_NOT_OF_OPENAI: Final = frozenset(
    {
        "cache_salt",
        "chat_template_kwargs",
        "frequency_penalty",
        "logit_bias",
        "min_p",
        "n",
        "presence_penalty",
        "repeat_penalty",
        "repetition_penalty",
        "seed",
        "stop",
        "thinking_budget",
        "top_k",
    }
)
"""Fields that others have and that OpenAI refuses (responses-api 2)."""

OPENAI: Final = Profile(
    name="openai",
    base_url="https://api.openai.com/v1",
    key_variables=("OPENAI_API_KEY",),
    families=OPENAI_FAMILIES,
    dropped=_NOT_OF_OPENAI,
    minimum_output_tokens=16,
    encrypted_reasoning=True,
    replays=True,
    resumes=True,
    websocket=True,
    compacts=True,
)
"""OpenAI. It resumes background streams only, and these begin later, so that it is for the caller to ask for one."""

AZURE: Final = Profile(
    name="azure",
    key_variables=("AZURE_OPENAI_API_KEY",),
    key_header="api-key",
    families=OPENAI_FAMILIES,
    dropped=_NOT_OF_OPENAI,
    minimum_output_tokens=16,
    encrypted_reasoning=True,
    replays=True,
    resumes=True,
    compacts=True,
)
"""Azure OpenAI: its base URL ends in `/openai/v1`; a deployment that is not named for its model needs a family."""

META: Final = Profile(
    name="meta",
    base_url="https://api.meta.ai/v1",
    key_variables=("MODEL_API_KEY",),
    other_models=ModelFamily(name="muse", reasoning=True, store=False),
    encrypted_reasoning=True,
    replays=True,
)
"""Meta's Model API, which keeps nothing unless asked to."""

ANTIPHON: Final = Profile(
    name="antiphon",
    base_url="http://127.0.0.1:8080/v1",
    key_variables=("ANTIPHON_API_KEY",),
    other_models=ModelFamily(name="any", reasoning=True),
    file_types=None,
    encrypted_reasoning=True,
    replays=True,
    resumes=True,
    background=True,
    idempotent=True,
    websocket=True,
    compacts=True,
)
"""This project's own server."""

VLLM: Final = Profile(
    name="vllm",
    base_url="http://127.0.0.1:8000/v1",
    key_variables=("VLLM_API_KEY",),
    families=(ModelFamily(name="gpt-oss", patterns=("gpt-oss*",), reasoning=True),),
    renamed=(("repeat_penalty", "repetition_penalty"),),
    dropped=frozenset({"context_management", "conversation", "prompt_cache_options", "thinking_budget"}),
    plain_assistant_text=True,
    chains=False,
)
"""vLLM as it starts: it keeps no responses, so that every request brings the whole conversation."""

MIXEDBREAD: Final = Profile(
    name="mixedbread",
    base_url="https://api.mixedbread.com/v1",
    key_variables=("MXBAI_API_KEY", "MIXEDBREAD_API_KEY"),
    fields=frozenset(
        {
            "include",
            "input",
            "instructions",
            "max_output_tokens",
            "max_tool_calls",
            "metadata",
            "model",
            "parallel_tool_calls",
            "previous_response_id",
            "store",
            "stream",
            "temperature",
            "tool_choice",
            "tools",
            "top_p",
        }
    ),
    required=(("model", "toast-1"),),
    formats=False,
    minimum_output_tokens=16,
    resumes=True,
)
"""Mixedbread: only the fields that its reference page names."""

GENERIC: Final = Profile(name="generic", chains=False)
"""Any other endpoint: fields go as they are, and nothing is taken for granted.

Many keep no responses, and some say nothing of it: so each request brings the whole conversation. No key of the
environment is sent to who is not known.
"""

PROFILES: Final = {profile.name: profile for profile in (OPENAI, AZURE, META, ANTIPHON, VLLM, MIXEDBREAD, GENERIC)}
"""Every profile by its name."""

_HOSTS: Final = {"api.openai.com": OPENAI, "api.meta.ai": META, "api.mixedbread.com": MIXEDBREAD}
_AZURE_DOMAINS: Final = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")


def find_profile(name: str) -> Profile:
    """The profile of that name.

    Raises:
        DriverError: there is none.
    """
    profile = PROFILES.get(name)
    if profile is None:
        raise DriverError(f"There is no provider '{name}'. There are: {', '.join(PROFILES)}.")
    return profile


def guess_profile(base_url: str | None) -> Profile:
    """The profile of the provider whose host that is; without a URL, OpenAI's."""
    if base_url is None:
        return OPENAI
    host = (urlsplit(base_url).hostname or "").lower()
    if host.endswith(_AZURE_DOMAINS):
        return AZURE
    return _HOSTS.get(host, GENERIC)
