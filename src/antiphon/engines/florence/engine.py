"""The engine of a Florence-2 model: tasks about images, one at a time, in a supervised child process (issue 4)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from antiphon.engines.base import RESTART_PATIENCE, Capabilities, Engine, EventHook, PreparedTurn
from antiphon.engines.florence.coordinates import parse_answer
from antiphon.engines.florence.folder import fingerprint
from antiphon.engines.florence.process import (
    COMMAND,
    About,
    ChildConfig,
    ChildDiedError,
    ChildFaultError,
    Supervisor,
)
from antiphon.engines.florence.question import Question, read_question
from antiphon.errors import (
    ConfigurationError,
    ContextOverflowError,
    EngineError,
    EngineUnavailableError,
    InvalidRequestError,
)
from antiphon.machine.deltas import Delta, Stop, TextDelta, TokenUsage
from antiphon.prompt.prompt import Prompt
from antiphon.settings import Settings

__all__ = ["FlorenceEngine"]

_COUNT_SECONDS: Final = 30.0
"""Seconds that counting the tokens of a question may take."""

_LONGEST_TOKEN: Final = 64
"""Characters that no token is longer than: what is longer by that is not even counted."""


class _Turn(PreparedTurn):
    question: Question = Question("", "", "")


class FlorenceEngine(Engine):
    """Serves the model of a folder that the transformers library has written.

    `name` is the folder's unless given; `command` is the child's program. `on_event` is told of loading, deaths and
    restarts.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        *,
        name: str | None = None,
        on_event: EventHook | None = None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.name = name or folder.resolve().name
        self._folder = folder
        self._settings = settings
        self._fingerprint = ""
        self._about: About | None = None
        self._turns = asyncio.Lock()
        self._supervisor = Supervisor(
            ChildConfig(
                folder=str(folder),
                threads=settings.threads or max(1, (os.cpu_count() or 2) - 1),
                gpu=settings.gpu_layers != 0,
                max_pixels=settings.max_image_pixels,
            ),
            command,
            load_timeout=settings.load_timeout,
            on_event=None if on_event is None else partial(on_event, self.name),
        )

    @property
    def ready(self) -> bool:
        """Whether the child runs with its model loaded."""
        return self._about is not None and self._supervisor.child is not None

    @property
    def restarts(self) -> int:
        """How often the child was started anew after it died."""
        return self._supervisor.restarts

    @property
    def capabilities(self) -> Capabilities:
        """It reads images and answers in text; nothing else is enforced on it."""
        return Capabilities(context_length=self._known().context_length, media=frozenset({"image"}))

    @property
    def fingerprint(self) -> str:
        """A digest of the folder; empty before the first start."""
        return self._fingerprint

    async def start(self) -> None:
        """Load the model; raises ConfigurationError with the reason when it cannot be."""
        try:
            self._fingerprint = await asyncio.to_thread(fingerprint, self._folder)
            self._about = (await self._supervisor.start()).about
        except (ConfigurationError, OSError) as error:
            raise ConfigurationError(f"The model {self._folder} cannot be loaded: {error}.") from None

    async def wait_ready(self, seconds: float) -> bool:
        """Whether the child runs, after waiting for its restart."""
        return self._about is not None and await self._supervisor.wait(seconds) is not None

    async def close(self) -> None:
        """End the child; running tasks fail."""
        await self._supervisor.close()
        self._about = None

    async def prepare(self, prompt: Prompt) -> PreparedTurn:
        """Read the question and count it; see `Engine.prepare` for what it raises."""
        question = read_question(prompt)
        context = self._known().context_length
        if len(question.text) > context * _LONGEST_TOKEN:
            raise ContextOverflowError(len(question.text) // _LONGEST_TOKEN, context, estimated=True)
        count = await self._count(question.text)
        if count > context:
            raise ContextOverflowError(count, context)
        return _Turn(prompt=prompt, input_tokens=count, question=question)

    async def _count(self, text: str) -> int:
        self._supervisor.require()
        for _ in range(2):
            child = await self._supervisor.wait(RESTART_PATIENCE)
            if child is None:
                break
            try:
                return int((await child.ask({"count": text}, _COUNT_SECONDS))["tokens"])
            except ChildFaultError as error:
                raise _refused(error, self._settings.max_image_pixels) from None
            except ChildDiedError:
                await child.wait()
        # Nothing has been generated: the caller can simply try again.
        raise EngineUnavailableError("The engine died and is being restarted; try again.")

    async def generate(self, turn: PreparedTurn) -> AsyncGenerator[Sequence[Delta]]:
        """The answer as a whole, since what is found is known only at its end; see `Engine.generate`.

        A death of the child is not outlived: the image may be what it dies of.
        """
        asked = cast("_Turn", turn)
        async with self._turns:
            child = await self._supervisor.wait(self._settings.load_timeout)
            if child is None:
                raise EngineError("The engine died and could not be started again.")
            try:
                answer = await child.ask(_job(asked), self._settings.vision_timeout)
            except ChildFaultError as error:
                raise _refused(error, self._settings.max_image_pixels) from None
            except ChildDiedError:
                raise EngineError(
                    "The engine died over this task, or took longer than it may; it is being restarted."
                ) from None
        result, text = parse_answer(
            asked.question.task,
            str(answer["text"]),
            int(answer["width"]),
            int(answer["height"]),
            self._known().banned,
        )
        usage = TokenUsage(asked.input_tokens, int(answer["tokens"]))
        yield [TextDelta(text), Stop("length" if answer["cut"] else "stop", usage, result)]

    def _known(self) -> About:
        if self._about is None:
            raise EngineUnavailableError("The model is being loaded; try again shortly.")
        return self._about


def _job(turn: _Turn) -> dict[str, Any]:
    sampling = turn.prompt.sampling
    return {
        "question": turn.question.text,
        "image": turn.question.image,
        "most": turn.prompt.max_output_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repeat_penalty,
        "seed": sampling.seed,
    }


def _refused(error: ChildFaultError, most_pixels: int) -> InvalidRequestError | EngineError:
    """What a fault of the child's means to the caller."""
    if error.code == "control":
        return InvalidRequestError(
            "The text of the task spells a token that stands for an image, or for the beginning or end of a text.",
            param="input",
            code="invalid_value",
        )
    if error.code == "too_large":
        return InvalidRequestError(
            f"The image has more pixels than the {most_pixels} that are allowed.", param="input", code="image_too_large"
        )
    if error.code == "unreadable":
        return InvalidRequestError("The image cannot be read.", param="input", code="image_parse_error")
    if error.code == "too_much":
        return EngineError("The engine has not enough memory for this task.")
    return EngineError("The engine failed over this task.")
