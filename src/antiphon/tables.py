"""The tables of the configuration file: a model each, with its replicas and limits, and webhooks.

What a table may hold is here; whether it can be used is said by whoever makes something of it.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

__all__ = ["LimitsConfig", "ModelConfig", "RayConfig", "ReplicaConfig", "WebhookConfig"]

_Count = Annotated[int, Meta(ge=0)]
_Positive = Annotated[int, Meta(ge=1)]


class LimitsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The `limits` of a model.

    `max_output_tokens` is the most that a request may ask for, and what it gets by itself. At most `max_concurrent`
    requests are generated at the same time, and `max_queue` more may wait; without it, 64. `context_length` bounds the
    tokens of prompt and answer together.
    """

    max_output_tokens: _Positive | None = None
    max_concurrent: _Positive | None = None
    max_queue: _Count | None = None
    context_length: _Positive | None = None


class ReplicaConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One of the `replicas` of a model that runs elsewhere: what is set here stands before what its table says."""

    base_url: str
    api_key_env: str | None = None
    api_key_file: str | None = None
    upstream_model: str | None = None
    idle_timeout: float | None = None


class RayConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What a node of a Ray cluster must have for one engine, by Ray's names; an engine has a thread for each CPU."""

    num_cpus: Annotated[float, Meta(gt=0)] = 1.0
    num_gpus: Annotated[float, Meta(ge=0)] = 0.0
    resources: dict[str, Annotated[float, Meta(gt=0)]] = {}


class ModelConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A `[[models]]` table of the configuration file: `path` (as for `--model`) and its names.

    An `embedding` model turns texts into vectors and generates nothing. `chat_template_kwargs` are variables for its
    chat template, and `chat_template_file` holds another one. `tool_dialect` names the form in which it writes calls.
    `mmproj` is the GGUF file of the projector through which it reads images or audio.

    `defaults` are fields of a request, used where a request does not set them, and `limits` hold for every request.

    `engine` is `llamacpp`, `scripted`, `chat`, `responses` or `ray`; by default `path` and `base_url` say which. A
    model of the engines `chat` and `responses` runs elsewhere: `base_url` is where, up to its `/v1`, `upstream_model`
    its name there, and `profile` what kind of server that is. Its key is in the environment (`api_key_env`) or in a
    file, never here. `context_length` is asked of it where it is not set; `idle_timeout` are the seconds of silence
    that end an answer. `media` are the kinds that it reads (image, audio), and `thinking` says whether it may stand in
    the text: `tagged`, `primed` or `none`. `replicas` stand in the place of `base_url` where several servers run the
    same model: a URL each, or a table.

    The engine `ray` runs the GGUF file of `path` on nodes of a Ray cluster. There `replicas` is the number of engines
    that run it, and `ray` says what each of them needs of its node.
    """

    path: str = ""
    name: str | None = None
    aliases: tuple[str, ...] = ()
    embedding: bool = False
    chat_template_kwargs: dict[str, Any] = {}
    chat_template_file: str | None = None
    tool_dialect: str | None = None
    mmproj: str | None = None
    engine: str | None = None
    base_url: str | None = None
    upstream_model: str | None = None
    profile: str = "generic"
    api_key_env: str | None = None
    api_key_file: str | None = None
    context_length: int | None = None
    idle_timeout: float = 120.0
    media: tuple[str, ...] = ()
    thinking: str = "tagged"
    defaults: dict[str, Any] = {}
    limits: LimitsConfig = LimitsConfig()
    replicas: int | tuple[str | ReplicaConfig, ...] = ()
    ray: RayConfig = RayConfig()

    @property
    def servers(self) -> tuple[str | ReplicaConfig, ...]:
        """The servers that `replicas` names; none where it is a number of engines of a cluster."""
        return self.replicas if isinstance(self.replicas, tuple) else ()


class WebhookConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A `[[webhooks]]` table of the configuration file: where to, the secret that signs, and which events.

    `events` are among response.completed, response.failed, response.incomplete and response.cancelled; none means all.
    """

    url: str
    secret: str
    events: tuple[str, ...] = ()
