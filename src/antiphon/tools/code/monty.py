"""Boxes by Monty: an interpreter of a part of Python that has no way to the machine at all (hosted-tools.md A4).

It needs nothing but a package, and runs wherever that does. It has no files, no shell, no network and no packages; what
it cannot do is said to the operator and to the model.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys

from antiphon.child_process import bare_environment
from antiphon.tools.code.box import PipedBox, abandon, open_pipes
from antiphon.tools.code.sandbox import MOST_OUTPUT, Backend, Box, BoxEndedError, BoxLimits, NoSandboxError

__all__ = ["MontySandbox", "find_monty"]

_MODULE = "antiphon.tools.code.monty_child"
_PACKAGE = "pydantic_monty"
_START_SECONDS = 30.0
_MEMORY = 256 * 1024 * 1024
"""The most memory of a box; what comes out of it may be larger in the process that it is in."""


class MontySandbox(Backend):
    """Starts boxes."""

    name = "monty"
    shell = False
    files = False
    cannot = (
        "It is a small Python: no files, no network, no subprocesses, no third-party packages, and of the standard "
        "library only a part (math, re, json, datetime, collections, itertools and some more)."
    )

    def __init__(self, version: str) -> None:
        self.finding = f"pydantic-monty {version}: a part of Python, without files and without a shell"

    async def start(self, limits: BoxLimits) -> Box:
        """Start a box."""
        try:
            process = subprocess.Popen(  # noqa: ASYNC220, S603 - it runs Monty, which runs the code
                [sys.executable, "-P", "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=bare_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise BoxEndedError(f"The sandbox cannot be started: {error.strerror}.") from error
        try:
            box = PipedBox(process, await open_pipes(process), None)
        except BaseException:
            await abandon(process, None)
            raise
        bounds = {"memory": min(limits.memory, _MEMORY), "seconds": limits.seconds, "most_output": MOST_OUTPUT}
        try:
            await box.begin(bounds, _START_SECONDS)
        except BaseException:
            # Also where whoever asked has gone: nobody else knows of it, to wait for its end.
            box.kill("It did not start.")
            await box.close()
            raise
        return box


def find_monty() -> MontySandbox:
    """Monty, where it is installed.

    Raises:
        NoSandboxError: it is not, or cannot be used on this system.
    """
    if os.name != "posix":
        raise NoSandboxError("there is no sandbox on this system")
    if importlib.util.find_spec(_PACKAGE) is None:
        raise NoSandboxError("pydantic-monty is not installed (pip install 'antiphon[sandbox]')")
    return MontySandbox(importlib.metadata.version("pydantic-monty"))
