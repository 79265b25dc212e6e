"""`shell` in a container of the server: commands that the model writes, and what each gave (hosted-tools A1, A2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from antiphon.errors import APIError, InvalidRequestError
from antiphon.protocol.tools import FunctionTool
from antiphon.tools.base import HostedCall, HostedTool, Outcome, Session, fault
from antiphon.tools.code.containers import Containers
from antiphon.tools.code.entries import Place
from antiphon.tools.code.interpreter import AROUND_SECONDS, files_made
from antiphon.tools.code.sandbox import MOST_OUTPUT, WORK_FOLDER, Ran

__all__ = ["HostedShell"]

MOST_COMMANDS: Final = 8
MOST_COMMAND: Final = 32_000
_LEAST_OUTPUT: Final = 256


class HostedShell(HostedTool):
    """The tool of one response."""

    item_type = "shell_call"
    repeatable = False

    def __init__(self, declared: Mapping[str, Any], containers: Containers, place: Place, cannot: str) -> None:
        self.declared = declared
        self.seconds = MOST_COMMANDS * containers.seconds + AROUND_SECONDS
        self._containers = containers
        self._place = place
        self.function = FunctionTool(
            name="shell",
            description=(
                f"Run commands of a shell in a container, one after another, in the folder {WORK_FOLDER}. "
                f"Each may take {containers.seconds:g} seconds. {cannot}"
            ).strip(),
            parameters={
                "type": "object",
                "properties": {
                    "commands": {
                        "type": "array",
                        "items": {"type": "string"},
                        "minItems": 1,
                        "maxItems": MOST_COMMANDS,
                    },
                    "timeout_ms": {"type": "integer", "description": "The longest that each may take."},
                    "max_output_length": {"type": "integer", "description": "The most of each output to give back."},
                },
                "required": ["commands"],
            },
        )

    def item(self, call: HostedCall) -> dict[str, Any]:
        """The item of a call, with its commands."""
        said = call.arguments or {}
        return {
            "type": self.item_type,
            "call_id": call.call_id,
            "action": {
                "commands": _commands(said),
                "timeout_ms": _number(said, "timeout_ms"),
                "max_output_length": _number(said, "max_output_length"),
            },
            "environment": {"type": "container_reference", "container_id": self._place.id},
        }

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        """Run the commands.

        Raises:
            APIError: there are none, or no container, or no sandbox with a shell; or it ended over one of them.
        """
        said = call.arguments or {}
        commands = _commands(said)
        if not 1 <= len(commands) <= MOST_COMMANDS or any(len(command) > MOST_COMMAND for command in commands):
            raise InvalidRequestError(
                f"'commands' has to be a list of 1 to {MOST_COMMANDS} strings of at most {MOST_COMMAND} characters."
            )
        milliseconds = _number(said, "timeout_ms")
        seconds = self._containers.seconds if milliseconds is None else max(1, milliseconds) / 1000
        room = max(_LEAST_OUTPUT, call.characters // (2 * len(commands)))
        asked = _number(said, "max_output_length")
        most = min(MOST_OUTPUT, room, MOST_OUTPUT if asked is None else max(1, asked))
        container = await self._place.container()
        ran, done = await self._containers.shell(container, commands, seconds, most)
        output = _output(call, [_shown(one) for one in ran], asked)
        return Outcome({"status": "completed", "_files": files_made(done)}, [output])

    def failed(self, call: HostedCall, error: APIError) -> Outcome:
        """The outcome of a call that was not run, or not to its end; the model is told why by its output."""
        told = {"stdout": "", "stderr": error.message, "outcome": {"type": "exit", "exit_code": 1}}
        output = {**_output(call, [told], None), "status": "incomplete"}
        # There is no status for a call that failed, and an incomplete one is none that a model is told of.
        return Outcome({"status": "completed", "error": fault(error)}, [output])


def _output(call: HostedCall, output: list[dict[str, Any]], most: int | None) -> dict[str, Any]:
    return {
        "type": "shell_call_output",
        "call_id": call.call_id,
        "status": "completed",
        "output": output,
        "max_output_length": most,
    }


def _shown(ran: Ran) -> dict[str, Any]:
    outcome = {"type": "timeout"} if ran.exit_code is None else {"type": "exit", "exit_code": ran.exit_code}
    return {"stdout": ran.stdout, "stderr": ran.stderr, "outcome": outcome}


def _commands(said: Mapping[str, Any]) -> list[str]:
    given: Any = said.get("commands")
    if isinstance(given, str):
        return [given]
    every = cast("list[Any]", given) if isinstance(given, list) else []
    return [command for command in every if isinstance(command, str) and command.strip()]


def _number(said: Mapping[str, Any], name: str) -> int | None:
    given = said.get(name)
    return given if isinstance(given, int) and not isinstance(given, bool) else None
