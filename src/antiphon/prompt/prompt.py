"""What an engine is asked to continue: the chat messages and everything of the request that shapes the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from antiphon.prompt.toolbox import NO_TOOLS, Toolbox
from antiphon.protocol.request import TextFormat
from antiphon.protocol.sampling import Samplers
from antiphon.protocol.tools import CustomTool, FunctionTool

__all__ = [
    "NOTHING_HOSTED",
    "NOWHERE",
    "Affinity",
    "ChatMessage",
    "Hosted",
    "Prompt",
    "ResolvedChoice",
    "Sampling",
    "ToolCall",
]


class ToolCall(Struct, frozen=True):
    """A past call inside an assistant message; `arguments` is JSON text.

    `made` says that the name is made here, of a namespace or for a tool of the client's, or is that of a tool that a
    server ran: another may stand in for it. `origin` is the MCP server that it is of. One from `elsewhere` is not told
    to an upstream that takes the item itself.
    """

    id: str
    name: str
    arguments: str
    made: bool = False
    origin: str = ""
    elsewhere: bool = False


class ChatMessage(Struct, frozen=True):
    """One chat message. `role` is system, user, assistant or tool.

    `content` is text, or a sequence of chat-completions parts where a message holds media. `reasoning` is the
    thinking of an assistant turn (M14). `tool_call_id` ties a tool message to its call, and `name` is the name of the
    tool that was called, which some dialects show. `items` are all that an assistant turn was made of, or the output of
    a tool that an upstream declared, where no chat message says all of it; a user message with such an output shows the
    image in it. `body` is the hosted item that a tool message tells of, where parts of it can be pruned, or where it
    says what is.
    """

    role: str
    content: str | Sequence[Mapping[str, Any]]
    reasoning: str = ""
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str = ""
    name: str = ""
    items: Sequence[Any] = ()
    body: Mapping[str, Any] | None = None

    @property
    def said(self) -> bool:
        """Whether it says anything to a model that is told nothing of its items."""
        return bool(self.content or self.tool_calls or not self.items or self.role == "tool")

    def text(self) -> str:
        """The text of the message, parts joined by newlines."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(str(part["text"]) for part in self.content if part.get("type") == "text")


class Sampling(Struct, frozen=True):
    """How tokens are drawn; None means the engine's default."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_penalty: float | None = None
    seed: int | None = None
    stop: Sequence[str] = ()
    top_logprobs: int | None = None
    samplers: Samplers = Samplers()

    def named(self) -> dict[str, Any]:
        """The fields that are set, by llama.cpp's names, but for log probabilities; the rest is the engine's default.

        Penalties of nothing are not told.
        """
        values: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "repeat_penalty": self.repeat_penalty,
            "presence_penalty": self.presence_penalty or None,
            "frequency_penalty": self.frequency_penalty or None,
            "seed": self.seed,
            "stop": list(self.stop) or None,
        }
        return {name: value for name, value in values.items() if value is not None} | self.samplers.named()


class ResolvedChoice(Struct, frozen=True):
    """The tool choice, resolved against the declared tools.

    `mode` is none, auto or required; `allowed` names the tools that may be called (functions and custom tools, by
    name), in the order of their declaration. `hosted` is the choice for the upstream where only a tool that it runs
    itself can meet it, or may.
    """

    mode: str
    allowed: Sequence[str]
    hosted: Any = None


class Hosted(Struct, frozen=True):
    """What only an upstream with the same API understands: tools that it runs, what of them to include, other fields.

    `summary` is the kind of summary of thinking that it is asked for, and `verbosity` how long it is to answer.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    include: Sequence[str] = ()
    fields: Mapping[str, Any] = {}
    summary: str | None = None
    verbosity: str | None = None


NOTHING_HOSTED: Final = Hosted()
"""Nothing of that."""


class Affinity(Struct, frozen=True):
    """Where the prefix of a prompt may be cached (upstreams.md, section 6).

    `key` is the same for all turns of one history, and for no other history, as far as can be told; empty where the
    turn belongs nowhere. `cache_salt` keeps what engines cache for one tenant from others; empty where there is none.
    `again` is the key that the next turn has if its client sends the history anew instead of naming this one.
    """

    key: str = ""
    cache_salt: str = ""
    again: str = ""


NOWHERE: Final = Affinity()
"""That of a turn of nobody."""


class Prompt(Struct, frozen=True):
    """One turn to generate.

    `tools` are the tools that the model is told of, out of the `toolbox`; `media` the kinds of media in the messages
    (image, audio, video, file). `max_output_tokens` None means as far as the context goes. `template_kwargs` go to the
    chat template, before what follows from the effort, which is before `template_defaults`. `thinking_budget` are the
    tokens that thinking may take, -1 for as many as it likes and None for what the server says. `affinity` says which
    replica of the model it is best sent to. `hosted` is for the upstream that takes it.
    `kept` says that the turn goes on without its client, and may be stored. `edits` are the results of tools that were
    truncated (B14); None where they may not be.
    """

    messages: Sequence[ChatMessage]
    tools: Sequence[FunctionTool | CustomTool] = ()
    toolbox: Toolbox = NO_TOOLS
    choice: ResolvedChoice = ResolvedChoice("auto", ())
    parallel_tool_calls: bool = True
    format: TextFormat | None = None
    sampling: Sampling = Sampling()
    max_output_tokens: int | None = None
    reasoning_effort: str | None = None
    thinking_budget: int | None = None
    template_kwargs: Mapping[str, Any] = {}
    template_defaults: Mapping[str, Any] = {}
    media: frozenset[str] = frozenset()
    affinity: Affinity = NOWHERE
    hosted: Hosted = NOTHING_HOSTED
    kept: bool = False
    edits: Sequence[Mapping[str, Any]] | None = None
