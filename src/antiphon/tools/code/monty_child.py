"""The process that one box of Monty is: cells over its standard input, what they gave over its output.

Monty runs code in a process of its own already. It is spoken to from here and not from the server, since a value that
comes out of it is made anew in Python: what is small inside can be large outside. The messages are those of `inside`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any, Final

from pydantic_monty import CollectStreams, Monty, MontyCrashedError, MontyError, MontySession

__all__ = ["main"]

ADDRESSES: Final = 6 * 1024 * 1024 * 1024
MOST_PRINTED: Final = 1024 * 1024
MOST_RESULT: Final = 32 * 1024
RECURSION: Final = 500


def main() -> None:
    """Take the limits, then answer until the input ends."""
    inwards, outwards = sys.stdin.buffer, sys.stdout.buffer
    limits = json.loads(inwards.readline())
    _bound()
    with Monty(min_processes=1, max_processes=1) as pool:
        checked_out = pool.checkout(
            limits={
                "max_feed_duration_secs": limits["seconds"],
                "max_memory": limits["memory"],
                "max_recursion_depth": RECURSION,
                "max_total_sleep_secs": limits["seconds"],
            }
        )
        with checked_out as session:
            while line := inwards.readline():
                asked = json.loads(line)
                said = _run(session, asked["code"], limits["most_output"]) if asked["op"] == "run" else {}
                outwards.write(json.dumps(said).encode() + b"\n")
                outwards.flush()


def _run(session: MontySession, code: str, most: int) -> dict[str, Any]:
    printed = CollectStreams(max_bytes=MOST_PRINTED)
    said: dict[str, Any] = {}
    try:
        value = session.feed_run(code, print_callback=printed)
    except MontyCrashedError:
        # Nothing is left of the variables; whoever asked finds that out by the end of this process.
        raise
    except MontyError as error:
        said["error"] = _told(error)
        said["timed_out"] = isinstance(error.exception(), TimeoutError)
    else:
        said["result"] = None if value is None else _cut(repr(value), MOST_RESULT)
    for stream in ("stdout", "stderr"):
        said[stream] = _cut("".join(text for name, text in printed.output if name == stream), most)
    return said


def _told(error: MontyError) -> str:
    display = getattr(error, "display", None)
    return _cut(str(error) if display is None else display(), MOST_RESULT)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    end = most // 4
    left_out = len(text) - most
    return f"{text[: most - end]}\n[... {left_out} characters are left out here ...]\n{text[-end:]}"


def _bound() -> None:
    """Bound what this process itself may take; not every system can."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
