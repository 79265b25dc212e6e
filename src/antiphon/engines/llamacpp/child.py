"""The child process: llama.cpp's server inside a process of its own, on a Unix socket only.

Run as `python -m antiphon.engines.llamacpp.child`. The first line of its standard input is the configuration, one JSON
object (`ChildConfig` of `process` writes it). It prints `ready` on a line when the model is loaded and ends when its
standard input ends, which is when its parent closes the pipe or dies. It imports the standard library and xllamacpp
only, so that it starts fast and shares no state with the server.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
from typing import Any

__all__ = ["main"]

READY = "ready"
"""The line that says that the model is loaded and the socket answers."""

LOAD_FAILED = 3
"""Exit status when the model cannot be loaded; the reason is on standard error."""

LOG_SECONDS = 0.5
"""How long llama.cpp may take to write down why a model does not load."""


def main() -> int:
    """Serve until standard input ends; the result is the exit status."""
    config: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    # A plain exit would run destructors of native threads that may be in the middle of a batch.
    threading.Thread(target=_exit_with_parent, args=(config["socket"],), daemon=True).start()

    if config.get("media_marker"):
        os.environ["LLAMA_MEDIA_MARKER"] = config["media_marker"]
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params: Any = xllamacpp.CommonParams()
    _configure(params, config)
    if config.get("embedding"):
        _configure_embedding(params, config, xllamacpp)
    if config.get("memory"):
        # Each thread has a stack, and machines with many processors have many threads.
        params.n_threads_http = 2
        _limit(config["memory"], config["cpu_seconds"])
    try:
        server: Any = xllamacpp.Server(params)
    except Exception as error:  # noqa: BLE001 - native code raises what it likes; the parent reads the text
        sys.stderr.write(f"load failed: {error}\n")
        sys.stderr.flush()
        return LOAD_FAILED
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    threading.Event().wait()
    del server
    return 0


def _exit_with_parent(socket: str) -> None:
    # Raw reads: a buffered reader would hold a lock that interpreter shutdown waits for.
    while os.read(0, 4096):
        pass
    # A parent that was killed could not remove its directory.
    with contextlib.suppress(OSError):
        os.unlink(socket)  # noqa: PTH108 - pathlib costs more to import than it saves here
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(socket))  # noqa: PTH106, PTH120
    os._exit(0)


def _limit(memory: int, cpu_seconds: float) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    # The signal of this timer ends the process.
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)


def _configure(params: Any, config: dict[str, Any]) -> None:
    params.model.path = config["model"]
    params.hostnames = [config["socket"]]
    params.ui = False
    params.n_ctx = config["context_length"]
    params.n_parallel = config["slots"]
    params.kv_unified = True
    # A cancelled request is noticed between two batches, so their size bounds how long a slot stays taken.
    params.n_batch = params.n_ubatch = config["batch_size"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = config["threads"]
    if config.get("mmproj"):
        params.mmproj.path = config["mmproj"]
        params.mmproj_use_gpu = config["gpu_layers"] != 0
    if config["gpu_layers"] is not None:
        params.n_gpu_layers = config["gpu_layers"]
    if config["chat_template"]:
        params.chat_template = config["chat_template"]
    # Prompts of idle slots are kept in main memory; llama.cpp's own limit of 8 GiB is more than small machines have.
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    params.cache_ram_mib = min(2048, memory // 8)
    params.endpoint_slots = params.endpoint_props = True
    params.prefill_assistant = False
    params.warmup = False
    # Its output parsers are never used here, and building one can fail on a template that renders well.
    params.force_pure_content_parser = True
    params.verbosity = 1


def _configure_embedding(params: Any, config: dict[str, Any], xllamacpp: Any) -> None:
    params.embedding = True
    if config["pooling"]:
        params.pooling_type = getattr(xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{config['pooling'].upper()}")


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    if status == LOAD_FAILED:
        # llama.cpp writes its log in a thread of its own and offers no way to wait for it; the reason is in there.
        time.sleep(LOG_SECONDS)
    os._exit(status)
