"""Embeddings by llama.cpp: a child of its own, since one child either generates or embeds (local-engine 6).

An input is read as a whole, in one batch, so the batch is as long as the context that is taken: the model's own, or
`MAX_CONTEXT` where that is longer. A model that does not say how the vectors of its tokens become one gets their mean.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from antiphon.engines.base import EventHook
from antiphon.engines.embedding import Embedded, Embedder
from antiphon.engines.llamacpp.client import ChildError
from antiphon.engines.llamacpp.current import CurrentClient
from antiphon.engines.llamacpp.diagnosis import check_model_file
from antiphon.engines.llamacpp.memory import Header, available_memory, fitting_context, read_header
from antiphon.engines.llamacpp.process import ChildConfig, Supervisor
from antiphon.engines.llamacpp.trial import try_templates
from antiphon.errors import ConfigurationError, EngineError, EngineUnavailableError, InvalidRequestError
from antiphon.protocol.completions import RawPrompt
from antiphon.settings import Settings

__all__ = ["LlamaCppEmbedder"]

MAX_CONTEXT: Final = 8192
"""Tokens: what is computed for a batch takes memory with every token of it."""

_SHORTEST: Final = 512
_FLOAT_BYTES: Final = 4
_NO_POOLING, _RANKING = 0, 4
_TOO_LARGE = re.compile(r"input \((\d+) tokens\) is too large")


class LlamaCppEmbedder(Embedder):
    """Serves the embedding model of a GGUF file; `name` is the file's stem unless given."""

    def __init__(
        self, model_path: Path, settings: Settings, *, name: str | None = None, on_event: EventHook | None = None
    ) -> None:
        self.name = name or model_path.stem
        self._path = model_path
        self._dimensions = 0
        self._context_length = _SHORTEST
        self._slots = settings.slots
        self._load_timeout = settings.load_timeout
        self._client = CurrentClient()
        self._supervisor = Supervisor(
            ChildConfig(
                model=str(model_path),
                socket="",
                context_length=0,
                slots=settings.slots,
                batch_size=_SHORTEST,
                threads=settings.threads or max(1, (os.cpu_count() or 2) - 1),
                gpu_layers=settings.gpu_layers,
                chat_template="",
                embedding=True,
            ),
            load_timeout=settings.load_timeout,
            on_child=self._client.connect,
            on_event=None if on_event is None else partial(on_event, self.name),
        )

    @property
    def ready(self) -> bool:
        """Whether the child runs with its model loaded."""
        return bool(self._dimensions) and self._supervisor.child is not None

    @property
    def dimensions(self) -> int:
        """Numbers in a vector."""
        return self._dimensions

    @property
    def context_length(self) -> int:
        """The longest input, in tokens."""
        return self._context_length

    @property
    def restarts(self) -> int:
        """How often the child was started anew after it died."""
        return self._supervisor.restarts

    async def start(self) -> None:
        """Load the model; raises ConfigurationError with the reason when it cannot be, or makes no vectors."""
        try:
            await try_templates(self._path, patience=self._load_timeout)
            self._configure(*await asyncio.to_thread(_header, self._path))
            await self._supervisor.start()
            first = await self._client.now().embeddings([[0]])
            self._dimensions = len(_vector(first.data[0].embedding)) // _FLOAT_BYTES
        except (ConfigurationError, ChildError, EngineError, EngineUnavailableError, OSError) as error:
            await self.close()
            reason = str(error) if isinstance(error, ConfigurationError) else "it makes no vectors"
            raise ConfigurationError(
                f"The embedding model {self._path} cannot be loaded: {reason.rstrip('.')}."
            ) from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the child."""
        self._dimensions = 0
        await self._supervisor.close()
        await self._client.close()

    async def embed(self, inputs: Sequence[RawPrompt]) -> Embedded:
        """The vectors of inputs; see `Embedder.embed` for what it raises."""
        try:
            answer = await self._supervisor.outliving(lambda: self._client.now().embeddings(inputs))
        except ChildError as error:
            raise self._refusal(error) from None
        ordered = sorted(answer.data, key=lambda entry: entry.index)
        if [entry.index for entry in ordered] != list(range(len(inputs))):
            raise EngineError("The engine sent invalid data.")
        return Embedded([_vector(entry.embedding) for entry in ordered], answer.usage.prompt_tokens)

    def _configure(self, header: Header, file_bytes: int) -> None:
        kind = header.get("general.architecture")
        own, pooling = header.get(f"{kind}.context_length"), header.get(f"{kind}.pooling_type", _NO_POOLING)
        if pooling == _RANKING:
            raise ConfigurationError("it ranks texts and makes no vectors")
        context = min(MAX_CONTEXT, own) if isinstance(own, int) and own > 0 else _SHORTEST
        # An encoder has no cache, so that several inputs at once take no more memory.
        slots = self._slots if header.get(f"{kind}.attention.causal") == 0 else 1
        if slots == 1:
            context = min(context, fitting_context(header, file_bytes, available_memory()) or context)
        self._context_length = context
        self._supervisor.configure(
            context_length=context * slots,
            slots=slots,
            batch_size=context,
            pooling="mean" if pooling == _NO_POOLING else "",
        )

    def _refusal(self, error: ChildError) -> InvalidRequestError | EngineError:
        too_large = _TOO_LARGE.search(error.message)
        if too_large is not None:
            return InvalidRequestError(
                f"This model reads inputs of at most {self._context_length} tokens. However, one of yours has "
                f"{too_large.group(1)} tokens.",
                param="input",
                code="context_length_exceeded",
            )
        if "invalid tokens" in error.message:
            return InvalidRequestError(
                "Invalid 'input': one of the tokens is not in the model's vocabulary.",
                param="input",
                code="invalid_value",
            )
        if "cannot be empty" in error.message:
            return InvalidRequestError("Invalid 'input': one of the texts is empty.", param="input", code="empty_input")
        return EngineError("The engine refused the input.")


def _header(path: Path) -> tuple[Header, int]:
    """The header of the file, and its size."""
    fault = check_model_file(path)
    if fault is not None:
        raise ConfigurationError(fault)
    return read_header(path), path.stat().st_size


def _vector(encoded: str) -> bytes:
    try:
        vector = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise EngineError("The engine sent invalid data.") from None
    if not vector or len(vector) % _FLOAT_BYTES:
        raise EngineError("The engine sent invalid data.")
    return vector
