"""The engine: one GGUF model in a supervised llama.cpp child."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from antiphon.engines.base import Capabilities, Engine, EventHook, PreparedTurn, Sampled, Token
from antiphon.engines.checks.checker import Checker
from antiphon.engines.checks.judge import Judge
from antiphon.engines.llamacpp import template
from antiphon.engines.llamacpp.bindings import Bindings
from antiphon.engines.llamacpp.client import ChildDiedError, ChildError, Client
from antiphon.engines.llamacpp.diagnosis import check_model_file, without_paths
from antiphon.engines.llamacpp.generation import Generation, LlamaTurn, Means
from antiphon.engines.llamacpp.identity import fingerprint
from antiphon.engines.llamacpp.media import check_inline, inline_media, kinds, marked
from antiphon.engines.llamacpp.memory import Header, available_memory, check_context, fitting_context, read_header
from antiphon.engines.llamacpp.pool import TokenPool
from antiphon.engines.llamacpp.probe import Probe
from antiphon.engines.llamacpp.process import Child, ChildConfig, Supervisor
from antiphon.engines.llamacpp.raw import PlainParser, PlainSplitter, check_biases, detokenized, raw_tokens, tokenized
from antiphon.engines.llamacpp.rendering import TooHungryError, held
from antiphon.engines.llamacpp.tokens import TokenCache
from antiphon.engines.llamacpp.trial import try_templates
from antiphon.engines.llamacpp.turn import TurnReader
from antiphon.engines.llamacpp.wire import Props
from antiphon.errors import (
    ConfigurationError,
    ContextOverflowError,
    EngineError,
    EngineUnavailableError,
    InvalidRequestError,
)
from antiphon.machine.deltas import Delta
from antiphon.prompt.chat_messages import chat_messages
from antiphon.prompt.dialects import DIALECTS, Dialect, detect, named
from antiphon.prompt.dialects.base import callable_tools
from antiphon.prompt.grammar import CLOSED, OPEN, OPTIONAL, Thinking, binds_from_start
from antiphon.prompt.instructions import instructed
from antiphon.prompt.lark import Lark
from antiphon.prompt.normalize import arrangements, tool_forms
from antiphon.prompt.prompt import ChatMessage, Prompt, Sampling
from antiphon.prompt.thoughts import drop_past_thinking
from antiphon.protocol.completions import RawPrompt
from antiphon.settings import Settings

__all__ = ["LlamaCppEngine", "LlamaTurn"]

_FORMATS = frozenset({"text", "json_object", "json_schema"})
_TEXT = frozenset({"text"})


class LlamaCppEngine(Engine):
    """Serves the model of a GGUF file.

    `name` is the file's stem unless given. `dialect` names a tool-call dialect; by default the chat template decides.
    `mmproj` is the projector through which it reads images or audio, a GGUF file that belongs to the model's.
    The context is the model's own unless set, or less where memory is short. `on_event` is told of loading, deaths,
    restarts and of a context that is less.
    """

    keeps_prefixes = True

    def __init__(
        self,
        model_path: Path,
        settings: Settings,
        *,
        name: str | None = None,
        dialect: str | None = None,
        chat_template: str = "",
        mmproj: Path | None = None,
        on_event: EventHook | None = None,
    ) -> None:
        if dialect is not None and dialect not in DIALECTS:
            raise ConfigurationError(f"There is no tool-call dialect '{dialect}'; there are {', '.join(DIALECTS)}.")
        self.name = name or model_path.stem
        self._path = model_path
        self._chat_template = chat_template
        self._mmproj = mmproj
        self._settings = settings
        self._on_event = None if on_event is None else partial(on_event, self.name)
        self._dialect_name = dialect
        self._dialect: Dialect = named(dialect or "generic")
        self._props: Props | None = None
        self._client: Client | None = None
        self._retired: set[asyncio.Task[None]] = set()
        self._tokens = TokenCache({}, context=0)
        self._pool = TokenPool(0, settings.slots)
        self._markers = template.MARKER_PAIRS[0]
        self._fingerprint = ""
        self._thinks = False
        self._checker = Checker()
        self._judge = Judge(self._checker)
        self._probe = Probe()
        self._bindings = Bindings(self._checker, self._dialect, {})
        self._supervisor = Supervisor(
            ChildConfig(
                model=str(model_path),
                socket="",
                context_length=settings.context_length or 0,
                slots=settings.slots,
                batch_size=settings.batch_size,
                threads=settings.threads or max(1, (os.cpu_count() or 2) - 1),
                gpu_layers=settings.gpu_layers,
                chat_template=chat_template,
                mmproj="" if mmproj is None else str(mmproj),
                media_marker=f"<__media_{secrets.token_hex(16)}__>",
            ),
            load_timeout=settings.load_timeout,
            on_child=self._greet,
            on_event=self._on_event,
        )

    @property
    def ready(self) -> bool:
        """Whether the child runs with its model loaded."""
        return self._props is not None and self._supervisor.child is not None

    @property
    def restarts(self) -> int:
        """How often the child was started anew after it died."""
        return self._supervisor.restarts

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do; it reads the media that its projector says, and none without one.

        Where llama.cpp obeys no grammars, it enforces nothing.
        """
        obeyed = self._probe.obeyed is not False
        return Capabilities(
            context_length=self._loaded().context_length,
            media=kinds(self._loaded().modalities) if self._mmproj is not None else frozenset(),
            forced_tools=obeyed,
            formats=_FORMATS if obeyed else _TEXT,
            logprobs=True,
        )

    @property
    def fingerprint(self) -> str:
        """A digest of the model file's identity, its chat template and the dialect; empty before the first start."""
        return self._fingerprint

    async def start(self) -> None:
        """Load the model; raises ConfigurationError with the reason when it cannot be."""
        fault = await asyncio.to_thread(check_model_file, self._path)
        if fault is not None:
            raise ConfigurationError(f"The model {self._path} cannot be loaded: {fault}.")
        if self._mmproj is not None and (fault := await asyncio.to_thread(check_model_file, self._mmproj)) is not None:
            raise ConfigurationError(f"The projector {self._mmproj} cannot be loaded: {fault}.")
        try:
            await try_templates(self._path, self._chat_template, patience=self._settings.load_timeout)
            header = await asyncio.to_thread(read_header, self._path)
            check_context(header)
            if self._settings.context_length is None:
                await self._fit_context(header)
            await self._supervisor.start()
            # A life that died over its first grammar is followed by another one.
            await self._supervisor.wait(self._settings.load_timeout)
            self._props = await self._client_now().props()
            if template.reads_only_reasoning(self._props.chat_template):
                # /apply-template drops the name `reasoning`, so the template is given one that it keeps (M14).
                renamed = template.with_reasoning_content(self._props.chat_template)
                self._supervisor.configure(chat_template=renamed)
                await self._supervisor.restart()
                self._props = await self._client_now().props()
            self._markers = template.thinking_markers(self._props.chat_template)
            self._pool = TokenPool(self._props.context_length, self._settings.slots)
            form = (self._props.chat_template, self._props.chat_template_caps)
            self._dialect = named(self._dialect_name, *form) if self._dialect_name else detect(*form)
            own = self._dialect.thought(Lark()) is not None
            self._thinks = own or self._markers[1] in self._props.chat_template
            special = await self._special_tokens(self._props)
            self._tokens = TokenCache(special, context=self._props.context_length)
            obeyed = self._probe.obeyed is not False
            self._bindings = Bindings(self._checker, self._dialect, special, obeyed=obeyed)
            identity = (self._path, self._props.chat_template, self._dialect.name)
            self._fingerprint = await asyncio.to_thread(fingerprint, *identity)
            if self._mmproj is not None:
                self._fingerprint += await asyncio.to_thread(fingerprint, self._mmproj, "", "")
        except ConfigurationError as error:
            await self.close()
            raise ConfigurationError(f"The model {self._path} cannot be loaded: {error}.") from None
        except (ChildError, EngineError, EngineUnavailableError, OSError) as error:
            await self.close()
            raise ConfigurationError(f"The model {self._path} cannot be loaded: {_reason(error)}.") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the child; running generations fail."""
        await self._supervisor.close()
        await self._checker.close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        await asyncio.gather(*self._retired, return_exceptions=True)
        self._props = None

    async def wait_ready(self, seconds: float) -> bool:
        """Whether the child runs, after waiting for its restart."""
        return self._props is not None and await self._supervisor.wait(seconds) is not None

    async def prepare(self, prompt: Prompt) -> LlamaTurn:
        """Render, tokenize and check a prompt; see `Engine.prepare` for what it raises.

        Where the child dies over it, the prompt waits for the next one; a second death is an error, since the prompt
        itself may be what kills it.
        """
        return await self._supervisor.outliving(lambda: self._prepare(prompt))

    async def prepare_text(self, prompt: RawPrompt, sampling: Sampling, max_tokens: int) -> LlamaTurn:
        """Tokenize and check a prompt that no template is put around; see `Engine.prepare_text` for what it raises."""

        async def checked() -> list[int]:
            await check_biases(self._client_now(), sampling)
            return await raw_tokens(self._client_now(), self._loaded(), prompt)

        tokens = await self._supervisor.outliving(checked)
        room = self._loaded().context_length - len(tokens)
        if room < 1:
            raise ContextOverflowError(len(tokens), self._loaded().context_length)
        asked = Prompt(messages=(), sampling=sampling, max_output_tokens=max_tokens)
        return LlamaTurn(
            prompt=asked, input_tokens=len(tokens), tokens=tokens, max_tokens=min(room, max_tokens), raw=True
        )

    async def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[Token]:
        """The tokens of a text; see `Engine.tokenize`."""
        return await self._supervisor.outliving(
            lambda: tokenized(self._client_now(), text, add_special=add_special, parse_special=parse_special)
        )

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens; see `Engine.detokenize`."""
        return await self._supervisor.outliving(lambda: detokenized(self._client_now(), tokens))

    async def _prepare(self, prompt: Prompt) -> LlamaTurn:
        context = self._loaded().context_length
        client = self._client_now()
        binding = await self._bindings.of(prompt)
        await check_biases(client, prompt.sampling)
        try:
            check_inline(prompt.messages)
            rendered, body = await self._render(client, instructed(prompt))
            media = inline_media(body["messages"])
            tokens: list[int] = []
            if not media:
                tokens = await self._tokens.tokenize(
                    rendered, lambda text, whole: client.tokenize(text, add_special=whole)
                )
            count = await self._count(client, rendered, body, media) if media else len(tokens)
        except ChildError as error:
            raise EngineError("The engine refused the prompt.") from error
        room = context - count
        most = room if prompt.max_output_tokens is None else min(room, prompt.max_output_tokens)
        budget = self._settings.reasoning_budget if prompt.thinking_budget is None else prompt.thinking_budget
        thinking = self._thinking(rendered, self._variables(prompt), None if budget < 0 else budget)
        grammar = await self._bindings.whole(binding, thinking, most) if binds_from_start(prompt) else ""
        return LlamaTurn(
            prompt=prompt,
            input_tokens=count,
            tokens=tokens,
            media=media,
            rendered=rendered,
            constrained=bool(grammar),
            max_tokens=most,
            primed=thinking.state == OPEN,
            budget=None if grammar else thinking.budget,
            binding=binding,
            grammar=grammar,
        )

    async def _count(self, client: Client, rendered: str, body: Mapping[str, Any], media: Sequence[str]) -> int:
        marked(rendered, self._loaded().media_marker, media)
        try:
            count = await client.count_tokens(body)
        except ChildError as error:
            # That route answers 500 for data that it cannot decode.
            if error.status != 400 and "image or audio" not in error.message:
                raise
            raise InvalidRequestError("An image or a sound of the input cannot be read.", param="input") from None
        if count >= self._loaded().context_length:
            raise ContextOverflowError(count, self._loaded().context_length)
        return count

    def _variables(self, prompt: Prompt) -> dict[str, Any]:
        """The variables of the template for a prompt."""
        template_text = self._loaded().chat_template
        effort, own, defaults = prompt.reasoning_effort, prompt.template_kwargs, prompt.template_defaults
        return template.template_variables(template_text, effort, own, defaults)

    def _thinking(self, rendered: str, variables: Mapping[str, Any], budget: int | None) -> Thinking:
        """Where the prompt leaves thinking; a model whose template knows none, or that is told not to, begins none."""
        end = rendered.rstrip()
        if end.endswith(self._markers[0]):
            return Thinking(self._markers, OPEN, budget)
        told_not_to = variables.get("enable_thinking") is False
        closed = told_not_to or not self._thinks or end.endswith(self._markers[1])
        return Thinking(self._markers, CLOSED if closed else OPTIONAL, budget)

    async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        """The deltas of one turn; closing the generator frees its slot. Raises EngineError when the child fails."""
        if not isinstance(turn, LlamaTurn):
            raise TypeError("the turn was not prepared by this engine")
        drawn = Generation(turn, self._means(turn.prompt)).deltas()
        if turn.binding is not None and turn.binding.unbound:
            drawn = self._judge.checked(turn.binding.given, drawn)
        async with contextlib.aclosing(drawn) as stream:
            async for deltas in stream:
                yield deltas

    def _means(self, prompt: Prompt) -> Means:
        dialect = self._dialect
        markers = dialect.markers if callable_tools(prompt) else ()
        return Means(
            client=self._client_now,
            supervisor=self._supervisor,
            pool=self._pool,
            judge=self._judge,
            load_timeout=self._settings.load_timeout,
            reader=self._reader,
            closing=lambda again: dialect.closing(self._markers, again=again),
            preserved=[*self._markers, *dialect.always, *markers],
        )

    def _reader(self, turn: LlamaTurn, drawn: Sampled) -> TurnReader:
        return TurnReader(
            PlainSplitter() if turn.raw else self._dialect.splitter(self._markers, primed=turn.primed),
            PlainParser() if turn.raw else self._dialect.parser(turn.prompt),
            input_tokens=turn.input_tokens,
            alternatives=turn.prompt.sampling.top_logprobs,
            one_call=not turn.prompt.parallel_tool_calls,
            budget=turn.budget,
            sampled=drawn,
        )

    async def _fit_context(self, header: Header) -> None:
        size = (await asyncio.to_thread(self._path.stat)).st_size
        fitting = fitting_context(header, size, available_memory())
        if fitting is not None:
            self._supervisor.configure(context_length=fitting)
            if self._on_event is not None:
                self._on_event("context_reduced", {"context_length": fitting})

    async def forget_prefixes(self) -> bool:
        """Start the child anew: what llama.cpp keeps outside its slots goes in no other way."""
        child = self._supervisor.child
        if child is not None:
            self._supervisor.kill_child("its cache was to be emptied")
            await child.wait()
            await self._supervisor.wait(self._settings.load_timeout)
        return True

    async def slots(self) -> list[dict[str, Any]]:
        """llama.cpp's own view of its slots."""
        return await self._client_now().slots()

    async def _render(self, client: Client, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        variables = self._variables(prompt)
        if variables.get("preserve_thinking") is False:
            kept = drop_past_thinking(prompt.messages, *self._markers)
            prompt = msgspec.structs.replace(prompt, messages=kept)
        messages, tools = self._dialect.arrange(prompt)
        first: str | None = None
        child = self._supervisor.child
        pid = 0 if child is None else child.pid
        deadline = asyncio.get_running_loop().time() + self._settings.render_timeout
        for shown, arranged in ((form, rung) for form in tool_forms(tools) for rung in arrangements(messages)):
            try:
                body = _template_body(arranged, shown, variables)
                return await held(client.apply_template(body), pid, deadline), body
            except ChildError as error:
                first = first or template.complaint(error.message)
            except (TimeoutError, TooHungryError) as error:
                fault = f"did not finish within {self._settings.render_timeout:g} seconds"
                if isinstance(error, TooHungryError):
                    fault = "took more memory than it may"
                # llama.cpp cannot abort a running template; only its end frees the thread.
                if child is not None:
                    child.kill(f"its chat template {fault}")
                raise InvalidRequestError(
                    f"The model's chat template {fault}.", param="input", code="template_error"
                ) from None
        raise InvalidRequestError(
            f"The model's chat template refuses this conversation: {first}", param="input", code="template_error"
        )

    async def _special_tokens(self, props: Props) -> dict[str, int]:
        found: dict[str, int] = {}
        client = self._client_now()
        texts = [*template.special_candidates(props.chat_template), props.bos_token, props.eos_token]
        texts += [*self._dialect.always, *self._dialect.markers]
        for text in dict.fromkeys(texts):
            if not text:
                continue
            tokens = await client.tokenize(text, add_special=False)
            if len(tokens) == 1 and await client.tokenize_plain(text) != tokens:
                found[text] = tokens[0]
        return found

    async def _greet(self, child: Child) -> None:
        """A new child is called from now on, once it is known whether it obeys grammars."""
        self._connect(child)
        before = self._probe.obeyed
        try:
            async with asyncio.timeout(self._settings.load_timeout):
                obeyed = await self._probe.ask(self._client_now())
        except ChildDiedError:
            await self._supervisor.ended(child)
            return
        except TimeoutError:
            raise ConfigurationError(
                f"its first answer did not come within {self._settings.load_timeout:g} seconds"
            ) from None
        self._bindings = self._bindings.where(obeyed=obeyed)
        if not obeyed and before is not False and self._on_event is not None:
            refused = "forced calls, JSON formats and grammars of tools"
            self._on_event("grammars_not_obeyed", {"refused": refused})

    def _connect(self, child: Child) -> None:
        old, self._client = self._client, Client(child.config.socket)
        if old is not None:
            task = asyncio.create_task(old.close())
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)

    def _client_now(self) -> Client:
        if self._client is None:
            raise EngineUnavailableError("The engine is not running.")
        return self._client

    def _loaded(self) -> Props:
        if self._props is None:
            raise EngineUnavailableError("The model is being loaded; try again shortly.")
        return self._props


def _reason(error: Exception) -> str:
    if isinstance(error, ChildDiedError):
        return "its process ended"
    if isinstance(error, EngineError | EngineUnavailableError):
        return error.message.rstrip(".")
    if isinstance(error, OSError):
        return f"its process could not be started ({(error.strerror or 'unknown error').lower()})"
    return f"llama.cpp says: {without_paths(str(error))}".rstrip(".")


def _template_body(
    messages: Sequence[ChatMessage], tools: list[dict[str, Any]], variables: dict[str, Any]
) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": chat_messages(messages), "chat_template_kwargs": variables}
    if tools:
        body["tools"] = tools
    return body
