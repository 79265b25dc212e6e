"""Why a model did not load and how a process ended, in plain words, from its status and what it wrote."""

from __future__ import annotations

import re
import signal
from pathlib import Path

__all__ = ["check_model_file", "explain_death", "explain_failure", "without_paths"]

_MAGIC = b"GGUF"
_PATH = re.compile(r"(?:/[^\s'\"]+)+")

_REASONS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"not within the file bounds|corrupted or incomplete|failed to read|unexpectedly reached end", re.I),
        "the file is truncated or damaged; download it again",
    ),
    (re.compile(r"invalid magic", re.I), "it is not a GGUF file"),
    (re.compile(r"unknown model architecture: '?([\w.-]+)", re.I), "this llama.cpp does not know its architecture"),
    (re.compile(r"unsupported (?:gguf )?version|bad GGUF version", re.I), "its GGUF version is not supported"),
    (
        re.compile(r"chat template parsing error[\s\S]*bad_alloc", re.I),
        "its chat template takes more memory than there is for it",
    ),
    (
        re.compile(r"chat template parsing error|failed to initialize chat template", re.I),
        "its chat template cannot be parsed",
    ),
    (
        re.compile(
            r"out of memory|bad_alloc|cannot allocate|failed to allocate|unable to allocate|alloc.*failed", re.I
        ),
        "there is not enough memory; take a smaller model or set a smaller context length",
    ),
    (re.compile(r"No module named '?xllamacpp", re.I), "xllamacpp is not installed: pip install 'antiphon[local]'"),
    (
        re.compile(r"missing tensor|tensor '[^']+' (?:not found|has wrong shape)|key not found in model", re.I),
        "the file lacks a part of the model, or is not a text-generating model",
    ),
    (re.compile(r"couldn't bind", re.I), "its socket could not be opened in the temporary directory"),
)


def check_model_file(path: Path) -> str | None:
    """What is plainly wrong with a model file before it is loaded, or None."""
    try:
        if path.is_dir():
            return "it is a directory"
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError:
        return "there is no such file"
    except OSError as error:
        return f"it cannot be read ({(error.strerror or 'unknown error').lower()})"
    if not magic:
        return "the file is empty"
    return None if magic == _MAGIC else "it is not a GGUF file"


def explain_failure(stderr: str, exit_status: int | None, *, out_of_memory: bool = False) -> str:
    """Why a model did not load; `exit_status` is as asyncio gives it, negative for a signal.

    `out_of_memory` tells that the system has killed a process for want of memory meanwhile.
    """
    for pattern, reason in _REASONS:
        if pattern.search(stderr):
            return reason
    if exit_status == -signal.SIGKILL and out_of_memory:
        return "its process was killed because memory ran out; take a smaller model or set a smaller context length"
    if exit_status == -signal.SIGILL:
        return "this processor lacks instructions that the engine was built for"
    if exit_status is not None and exit_status < 0:
        return f"its process was {_signalled(-exit_status)}"
    line = _last_error(stderr)
    return f"llama.cpp says: {line}" if line else "its process ended without a reason"


def explain_death(
    stderr: str, exit_status: int | None, *, stopped: str | None = None, out_of_memory: bool = False
) -> str:
    """How a process that had loaded ended, with the last line that it wrote.

    `stopped` is why we killed it ourselves, if we did; `out_of_memory` as for `explain_failure`.
    """
    if stopped is not None:
        return f"stopped by the server: {stopped}"
    if exit_status is None:
        return "unknown"
    if exit_status >= 0:
        end = f"ended with exit status {exit_status}"
    elif exit_status == -signal.SIGKILL and out_of_memory:
        end = f"{_signalled(signal.SIGKILL)}, because memory ran out"
    else:
        end = _signalled(-exit_status)
    last = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "")
    return f"{end}; its last line: {without_paths(last)}" if last else end


def without_paths(text: str) -> str:
    """The first line of a text, with paths left out."""
    return _PATH.sub("…", text.strip().partition("\n")[0])[:200]


def _signalled(number: int) -> str:
    try:
        return f"killed by signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"killed by signal {number}"


def _last_error(stderr: str) -> str:
    found = ""
    for line in stderr.splitlines():
        match = re.match(r"\s*[\d.]+ E (.*)", line)
        if match and "exiting due to" not in line:
            found = match.group(1)
    return without_paths(found)
