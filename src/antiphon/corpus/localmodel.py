"""The embedding model of this machine that documents are read by: the one of the catalogue, or one that is served.

The catalogue's is fetched where it is not here, and its child starts when it is first needed, once, whatever model is
served; its supervisor restarts it, and it is stopped when nobody has needed it for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from antiphon.corpus.embedding import PiecedEmbedder
from antiphon.engines.base import EventHook
from antiphon.engines.catalog import EMBEDDING_MODEL, locate, pull
from antiphon.engines.embedding import Embedder
from antiphon.engines.packages import index_in_use
from antiphon.errors import AntiphonError, APIError, ConfigurationError, EngineUnavailableError
from antiphon.settings import Settings

__all__ = ["OwnEmbedder", "ServedEmbedder", "catalogue_model"]

IDLE_SECONDS: Final = 15 * 60.0
"""After so long without use the child is stopped."""

RETRY_SECONDS: Final = 60.0
"""After a start that failed none is tried for so long."""

_LETTERS_A_TOKEN: Final = 2.5
"""Characters that a token has at least in most texts: what has fewer is cut again."""

_LEAST_LETTERS: Final = 128
_MOST_LETTERS: Final = 8_192


class ServedEmbedder(PiecedEmbedder):
    """Reads by an embedding model that is served here; `find` gives the one that has the name now.

    `find` raises APIError where there is none.
    """

    def __init__(self, name: str, find: Callable[[], Embedder]) -> None:
        self.name = name
        self._find = find

    def letters(self) -> int:
        """See `PiecedEmbedder.letters`."""
        return _letters(self._found())

    async def ask(self, texts: Sequence[str]) -> Sequence[bytes]:
        """See `PiecedEmbedder.ask`."""
        model = self._found()
        with model.gate.place():
            return (await model.embed(list(texts))).vectors

    async def close(self) -> None:
        """The model is not ours to close."""

    def _found(self) -> Embedder:
        try:
            return self._find()
        except APIError as error:
            raise EngineUnavailableError(error.message) from None


class OwnEmbedder(PiecedEmbedder):
    """Reads by a model of its own, which `make` gives: not started, and of which the path is known by then.

    `on_event` is told of a start that failed. Seconds: after which a model that is not used is stopped, and for which
    no other start is tried after one that failed.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Awaitable[Embedder]],
        *,
        on_event: EventHook | None = None,
        idle_seconds: float = IDLE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.name = name
        self._make = make
        self._on_event = on_event
        self._idle_seconds = idle_seconds
        self._retry_seconds = retry_seconds
        self._model: Embedder | None = None
        self._starting: asyncio.Task[Embedder] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._failed: tuple[float, str] | None = None
        self._users = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def running(self) -> bool:
        """Whether the model has been started, and not been stopped."""
        return self._model is not None

    def letters(self) -> int:
        """See `PiecedEmbedder.letters`."""
        return _LEAST_LETTERS if self._model is None else _letters(self._model)

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """See `TextEmbedder.embed`; the first call starts the model, and others wait for the same start."""
        self._users += 1
        self._keep()
        try:
            await self._started()
            return await super().embed(texts)
        finally:
            self._users -= 1
            self._keep()

    async def ask(self, texts: Sequence[str]) -> Sequence[bytes]:
        """See `PiecedEmbedder.ask`."""
        return (await (await self._started()).embed(list(texts))).vectors

    async def close(self) -> None:
        """Stop the model for good."""
        self._closed = True
        self._keep()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._stopping is not None:
            await asyncio.wait({self._stopping})
        model, self._model = self._model, None
        if model is not None:
            await model.close()

    async def _started(self) -> Embedder:
        if self._closed:
            raise EngineUnavailableError("The server stops.")
        if self._model is not None:
            return self._model
        loop = asyncio.get_running_loop()
        if self._failed is not None and loop.time() < self._failed[0]:
            raise EngineUnavailableError(self._failed[1])
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(_looked_at)
        # Who waits may leave; the start goes on for the others.
        return await asyncio.shield(self._starting)

    async def _start(self) -> Embedder:
        try:
            if self._stopping is not None:
                await self._stopping
            model = await self._make()
            await model.start()
        except AntiphonError as error:
            self._failed = (asyncio.get_running_loop().time() + self._retry_seconds, str(error))
            if self._on_event is not None:
                self._on_event(self.name, "load_failed", {"reason": str(error)})
            raise EngineUnavailableError(str(error)) from None
        else:
            self._model, self._failed = model, None
            return model
        finally:
            self._starting = None

    def _keep(self) -> None:
        """Stop the model once it has not been used for a while, counted from now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._users and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._stop)

    def _stop(self) -> None:
        model, self._model = self._model, None
        if model is not None:
            self._stopping = asyncio.create_task(model.close())


def _looked_at(task: asyncio.Task[Any]) -> None:
    """Take note of a start that failed after all who waited for it have left; it was told already."""
    if not task.cancelled():
        task.exception()


def _letters(model: Embedder) -> int:
    return max(_LEAST_LETTERS, min(_MOST_LETTERS, int(model.context_length * _LETTERS_A_TOKEN)))


def _untold(received: int, total: int) -> None:
    """Nobody watches the progress."""


def catalogue_model(
    settings: Settings, on_event: EventHook | None = None, name: str = EMBEDDING_MODEL
) -> Callable[[], Awaitable[Embedder]]:
    """What makes the catalogue's embedding model, and fetches it where it is not here."""

    async def make() -> Embedder:
        try:
            from antiphon.engines.llamacpp import LlamaCppEmbedder
        except ImportError:
            raise ConfigurationError("llama.cpp is not installed: pip install 'antiphon[local]'") from None
        path = locate(settings.data_path, name)
        if path is None:
            if on_event is not None:
                on_event(name, "fetching", {})
            index = await asyncio.to_thread(index_in_use, settings.index_url)
            path = await asyncio.to_thread(pull, name, settings.data_path, index, _untold)
        return LlamaCppEmbedder(path, settings, name=name, on_event=on_event)

    return make
