"""`code_interpreter`: the model writes Python, the server runs it in a container (hosted-tools A1, A2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from antiphon.errors import APIError, InvalidRequestError
from antiphon.protocol.tools import FunctionTool
from antiphon.tools.base import HostedCall, HostedTool, Outcome, Session, fault
from antiphon.tools.code.containers import Containers
from antiphon.tools.code.entries import Place
from antiphon.tools.code.running import Done
from antiphon.tools.code.sandbox import WORK_FOLDER, Cell

__all__ = ["AROUND_SECONDS", "CodeInterpreter", "files_made"]

AROUND_SECONDS: Final = 120.0
"""What may pass before and after the code itself: a place, a start, and files in and out."""

MOST_CODE: Final = 200_000
_MOST_NAMED: Final = 30


class CodeInterpreter(HostedTool):
    """The tool of one response; `cannot` is what the sandbox cannot do."""

    item_type = "code_interpreter_call"
    repeatable = False

    def __init__(self, declared: Mapping[str, Any], containers: Containers, place: Place, cannot: str) -> None:
        self.declared = declared
        self.seconds = containers.seconds + AROUND_SECONDS
        self._containers = containers
        self._place = place
        self.function = FunctionTool(
            name="code_interpreter",
            description=" ".join(_description(cannot, containers.seconds, place.files())),
            parameters={
                "type": "object",
                "properties": {"code": {"type": "string", "description": "Python code."}},
                "required": ["code"],
                "additionalProperties": False,
            },
        )

    def item(self, call: HostedCall) -> dict[str, Any]:
        """The item of a call, with its code."""
        return {"type": self.item_type, "code": _code(call), "container_id": self._place.id, "outputs": []}

    async def run(self, call: HostedCall, session: Session) -> Outcome:
        """Run the code as one cell of the container.

        Raises:
            APIError: there is no code, no container, or no sandbox; or it ended over the code.
        """
        code = _code(call)
        if not code.strip() or len(code) > MOST_CODE:
            raise InvalidRequestError(f"'code' has to be a string of 1 to {MOST_CODE} characters.")
        container = await self._place.container()
        done = await self._containers.run(container, code)
        logs = _logs(done.cell)
        outputs: list[dict[str, Any]] = [{"type": "logs", "logs": logs}] if logs else []
        for image in done.images:
            url = f"/v1/containers/{container.id}/files/{image.id}/content"
            outputs.append({"type": "image", "url": url})
        told = "\n".join(_told(done, logs, call.characters))
        fields: dict[str, Any] = {"status": "completed", "outputs": outputs, "_told": told, "_files": files_made(done)}
        if done.cell.timed_out:
            late = InvalidRequestError(
                f"The code was ended after {self._containers.seconds:g} seconds.", code="timeout"
            )
            fields |= {"status": "failed", "error": fault(late)}
        return Outcome(fields)

    def failed(self, call: HostedCall, error: APIError) -> Outcome:
        """The outcome of a call that was not run, or not to its end."""
        outputs = [{"type": "logs", "logs": error.message}]
        return Outcome({"status": "failed", "outputs": outputs, "error": fault(error)})


def files_made(done: Done) -> list[dict[str, str]]:
    """The files that something made, as they are cited."""
    return [{"file_id": file.id, "filename": file.name, "path": file.place} for file in done.made]


def _description(cannot: str, seconds: float, files: Sequence[str]) -> Iterator[str]:
    yield "Run Python code. Variables are kept from call to call. What is printed and the last expression come back."
    yield f"A call may take {seconds:g} seconds."
    if cannot:
        yield cannot
    else:
        yield "There is no network."
    if "no files" not in cannot:
        yield f"Files are in {WORK_FOLDER}; give the user one that you wrote by a link to sandbox:{WORK_FOLDER}/NAME."
    if files:
        yield f"There now: {', '.join(files[:_MOST_NAMED])}."


def _code(call: HostedCall) -> str:
    given = (call.arguments or {}).get("code")
    return given if isinstance(given, str) else ""


def _logs(cell: Cell) -> str:
    """What the code printed, what its last expression gives, and the error that ended it."""
    said = (cell.stdout, cell.result, cell.stderr, cell.error)
    return "\n".join(text.rstrip("\n") for text in said if text)


def _told(done: Done, logs: str, most: int) -> Iterator[str]:
    """What the model is told, of at most about so many characters."""
    if done.fresh:
        yield "[The sandbox was started anew: variables of earlier calls are lost, files are there.]"
    if len(logs) > most:
        logs = f"{logs[: most - most // 4]}\n[... cut ...]\n{logs[-(most // 4) :]}"
    yield logs or "[No output]"
    if done.images:
        yield "[The user is shown: " + ", ".join(image.place for image in done.images) + "]"
    if done.made:
        yield "[Files written: " + ", ".join(f"sandbox:{file.place}" for file in done.made[:_MOST_NAMED]) + "]"
    if done.left_out:
        yield "[Not kept, since there are too many or they are too large: " + ", ".join(done.left_out) + "]"
