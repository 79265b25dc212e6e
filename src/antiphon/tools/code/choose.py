"""Which sandbox there is: by the setting, and by what works on this machine. Looked for once, when first needed."""

from __future__ import annotations

import asyncio

from antiphon.errors import ConfigurationError
from antiphon.settings import Settings
from antiphon.tools.code.sandbox import Backend, NoSandboxError

__all__ = ["SANDBOXES", "Sandboxes", "choose"]

SANDBOXES = ("auto", "bwrap", "monty", "none")


class Sandboxes:
    """The sandbox of one server."""

    def __init__(self, settings: Settings) -> None:
        if settings.sandbox not in SANDBOXES:
            raise ConfigurationError(f"sandbox: {settings.sandbox!r} is none of {', '.join(SANDBOXES)}.")
        self._settings = settings
        self._looking = asyncio.Lock()
        self._found: Backend | NoSandboxError | None = None

    async def backend(self) -> Backend:
        """What runs code here.

        Raises:
            NoSandboxError: nothing does; the message says why.
        """
        async with self._looking:
            if self._found is None:
                try:
                    self._found = await choose(self._settings)
                except NoSandboxError as error:
                    self._found = error
        if isinstance(self._found, NoSandboxError):
            raise NoSandboxError(str(self._found))
        return self._found

    async def close(self) -> None:
        """Let go of it."""
        if isinstance(self._found, Backend):
            await self._found.close()


async def choose(settings: Settings) -> Backend:
    """The sandbox that the settings ask for.

    Raises:
        NoSandboxError: there is none.
    """
    from antiphon.tools.code.bubblewrap import find_bubblewrap
    from antiphon.tools.code.monty import find_monty

    if settings.sandbox == "none":
        raise NoSandboxError("Running code is turned off on this server (sandbox = none).")
    reasons: list[str] = []
    if settings.sandbox in ("auto", "bwrap"):
        try:
            return await find_bubblewrap(settings.sandbox_python)
        except NoSandboxError as error:
            reasons.append(str(error))
    if settings.sandbox in ("auto", "monty"):
        try:
            found = find_monty()
        except NoSandboxError as error:
            reasons.append(str(error))
        else:
            # What a better sandbox would take.
            found.advice = "; ".join(reasons)
            return found
    raise NoSandboxError(f"There is no sandbox on this server to run code in: {'; '.join(reasons)}.")
