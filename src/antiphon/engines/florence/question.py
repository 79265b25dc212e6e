"""What of a conversation is a question for Florence-2: a task and one image. Pure.

The model was trained on tasks alone, so all that it could not heed is refused, and nothing is left out of the question
without a word. Only turns before the last message are not read: an answer never depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from antiphon.engines.florence.coordinates import TASKS, task_prompt
from antiphon.errors import InvalidRequestError, UnsupportedError
from antiphon.prompt.prompt import ChatMessage, Prompt
from antiphon.protocol.json import quoted

__all__ = ["Question", "read_question"]

_FORM: Final = "a user's message with one image and a text that begins with a task, such as <CAPTION>"


class Question(Struct, frozen=True):
    """A task, what the model is asked for it, and the image in base64."""

    task: str
    text: str
    image: str


def read_question(prompt: Prompt) -> Question:
    """The question of a prompt's last message.

    Raises:
        InvalidRequestError: it has none, or the request asks for what the model cannot do; the message says what.
    """
    _refuse_beyond(prompt)
    messages = prompt.messages
    if any(message.role == "system" and message.text().strip() for message in messages):
        raise UnsupportedError("This model follows no instructions: leave out system messages.", param="input")
    if not messages or messages[-1].role != "user":
        raise InvalidRequestError(f"This model needs, as the last message, {_FORM}.", param="input")
    images, texts = _parts(messages[-1])
    if len(images) != 1:
        found = "has none" if not images else f"has {len(images)}"
        raise InvalidRequestError(
            f"This model reads one image at a time, but the last message {found}. It needs {_FORM}.", param="input"
        )
    if len(texts) != 1:
        found = "has none" if not texts else f"has {len(texts)} texts"
        raise InvalidRequestError(f"This model needs one text with a task, but the message {found}.", param="input")
    known = task_prompt(texts[0])
    if known is None:
        raise InvalidRequestError(
            f"The text '{quoted(texts[0])}' begins with no task of this model. The tasks are: {', '.join(TASKS)}.",
            param="input",
            code="invalid_value",
        )
    task, given = known
    if TASKS[task].takes_input != bool(given):
        need = "needs a text after it" if TASKS[task].takes_input else "takes no text after it"
        raise InvalidRequestError(f"The task {task} {need}.", param="input", code="invalid_value")
    return Question(task, TASKS[task].question.replace("{input}", given), _data(images[0]))


def _refuse_beyond(prompt: Prompt) -> None:
    if prompt.tools:
        raise UnsupportedError("This model calls no tools: leave out 'tools'.", param="tools")
    sampling = prompt.sampling
    beyond = [name for name in ("presence_penalty", "frequency_penalty", "stop") if getattr(sampling, name)]
    beyond += ["top_logprobs"] if sampling.top_logprobs is not None else []
    for field in (*beyond, *sampling.samplers.named()):
        raise UnsupportedError(f"This model does not take '{field}'.", param=field)


def _parts(message: ChatMessage) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The images of a message and its texts that are not blank."""
    content: Sequence[Mapping[str, Any]] = (
        [{"type": "text", "text": message.content}] if isinstance(message.content, str) else message.content
    )
    images = [part for part in content if part.get("type") != "text"]
    texts = [str(part["text"]) for part in content if part.get("type") == "text" and str(part["text"]).strip()]
    return images, texts


def _data(part: Mapping[str, Any]) -> str:
    url = str(part["image_url"]["url"]) if part.get("type") == "image_url" else ""
    head, separator, data = url.partition(";base64,")
    if not separator or not head.startswith("data:image/"):
        raise InvalidRequestError("This model reads images in base64 only.", param="input")
    return data
