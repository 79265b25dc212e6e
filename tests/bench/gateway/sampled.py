"""Runs a module as a program, and samples what it is at: `python -m tests.bench.gateway.sampled FILE MODULE ARGS...`.

After SIGUSR1 the program's own clock of CPU time ticks every millisecond, and each tick counts the functions that are
on the stack; after SIGUSR2 it ticks no more, and the counts are in FILE. A C function counts for who called it.
"""

from __future__ import annotations

import json
import runpy
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

_TICK = 0.001
_DEPTH = 60
_counts: Counter[tuple[tuple[str, str], ...]] = Counter()


def _sample(_: int, frame: FrameType | None) -> None:
    stack: list[tuple[str, str]] = []
    while frame is not None and len(stack) < _DEPTH:
        stack.append((frame.f_code.co_filename, frame.f_code.co_qualname))
        frame = frame.f_back
    _counts[tuple(stack)] += 1


def _begin(*_: Any) -> None:
    _counts.clear()
    signal.setitimer(signal.ITIMER_PROF, _TICK, _TICK)


def _end(file: str) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    partial = Path(f"{file}.part")
    partial.write_text(json.dumps([[stack, count] for stack, count in _counts.items()]))
    partial.replace(file)


if __name__ == "__main__":
    _file, _module = sys.argv[1:3]
    sys.argv = [_module, *sys.argv[3:]]
    signal.signal(signal.SIGPROF, _sample)
    signal.signal(signal.SIGUSR1, _begin)
    signal.signal(signal.SIGUSR2, lambda *_: _end(_file))
    runpy.run_module(_module, run_name="__main__", alter_sys=True)
