"""What runs inside a box: it takes cells, commands and files over its standard input, and answers on its output.

This module is given to the Python of the box as text, so it imports nothing but the standard library, and nothing
imports it. It serves the code that it runs, not the server: that code is in the same process and can make it say
anything. What holds it are the walls around the process. A message is a line of JSON, and where it says `size`, so many
bytes follow it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import os
import resource
import selectors
import signal
import stat
import subprocess
import sys
import threading
import time
import traceback
from typing import Any, BinaryIO, cast

__all__ = ["serve"]

FOLDER = "/mnt/data"
MOST_FILES = 1_000
MOST_DEPTH = 16
MOST_RESULT = 32 * 1024
PIECE = 64 * 1024
PATIENCE = 0.5
DRAINED = 1024 * 1024


class OutOfTimeError(BaseException):
    """The time of a cell is over. Not an `Exception`: code that catches those does not go on for it."""


class Kept:
    """The beginning and the end of an output, as much as is shown of it, and how much there was."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.head = bytearray()
        self.tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take what came."""
        self.total += len(data)
        end = self.most // 4
        room = self.most - end - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        del self.tail[: max(0, len(self.tail) - end)]

    def text(self) -> str:
        """What is shown, with a note where something was left out."""
        if self.total <= len(self.head) + len(self.tail):
            return (self.head + self.tail).decode("utf-8", "replace")
        left_out = self.total - len(self.head) - len(self.tail)
        note = f"\n[... {left_out} bytes are left out here ...]\n"
        return self.head.decode("utf-8", "replace") + note + self.tail.decode("utf-8", "replace")


class Outputs(threading.Thread):
    """Takes what is written to the standard outputs, by this process and those that it starts."""

    def __init__(self, most: int) -> None:
        super().__init__(daemon=True)
        self.most = most
        self.lock = threading.Lock()
        self.pipes = [os.pipe(), os.pipe()]
        self.kept = [Kept(most), Kept(most)]
        self.streams: list[io.TextIOWrapper] = []
        self.old: list[io.TextIOWrapper] = []
        for out, _ in self.pipes:
            os.set_blocking(out, False)

    def place(self) -> None:
        """Make them the standard outputs, whatever became of those."""
        for number, (_, into) in enumerate(self.pipes, 1):
            os.dup2(into, number)
            # One in use is never dropped: a thread of the code may be writing to it, and would crash the process.
            if not self.streams[number - 1 : number] or self.streams[number - 1].closed:
                self.old += self.streams[number - 1 : number]
                self.streams[number - 1 : number] = [self.stream(number)]
        sys.stdout, sys.stderr = self.streams

    def stream(self, number: int) -> io.TextIOWrapper:
        """A text stream over a standard output."""
        raw = io.FileIO(number, "w", closefd=False)
        return io.TextIOWrapper(raw, "utf-8", errors="backslashreplace", write_through=True)

    def run(self) -> None:
        """Read for as long as the process lives."""
        chosen = selectors.DefaultSelector()
        for number, (out, _) in enumerate(self.pipes):
            chosen.register(out, selectors.EVENT_READ, number)
        while True:
            for key, _ in chosen.select():
                self.take(key.data, PIECE)

    def take(self, number: int, most: int) -> None:
        """Take what is in a pipe now, about so much of it at the most."""
        with self.lock:
            while most > 0:
                try:
                    data = os.read(self.pipes[number][0], PIECE)
                except BlockingIOError:
                    return
                self.kept[number].add(data)
                most -= len(data)

    def since(self) -> list[str]:
        """What was written since this was asked last."""
        for number in (0, 1):
            self.take(number, DRAINED)
        with self.lock:
            done, self.kept = self.kept, [Kept(self.most), Kept(self.most)]
        return [kept.text() for kept in done]


class Cells:
    """The cells of a container: they share their variables."""

    def __init__(self, outputs: Outputs) -> None:
        self.outputs = outputs
        self.names: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
        self.count = 0
        self.armed = False

    def run(self, code: str, seconds: float) -> dict[str, Any]:
        """Run one, and say what became of it."""
        self.count += 1
        self.outputs.since()
        self.outputs.place()
        said: dict[str, Any] = {"result": None, "error": None, "timed_out": False, "images": []}
        own = os.getpid()
        try:
            try:
                signal.signal(signal.SIGALRM, self.interrupt)
                self.armed = True
                signal.setitimer(signal.ITIMER_REAL, seconds, PATIENCE)
                self.execute(code, said)
            finally:
                self.armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except OutOfTimeError as error:
            said["timed_out"], said["error"] = True, told(error)
        except BaseException as error:  # noqa: BLE001 - whatever the code raises is what became of it
            said["error"] = told(error)
        if os.getpid() != own:
            # The code forked, and this is the other one.
            os._exit(0)
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        said["stdout"], said["stderr"] = self.outputs.since()
        return said

    def interrupt(self, *_: object) -> None:
        """The alarm went off."""
        if self.armed:
            raise OutOfTimeError("The time for a cell is over.")

    def execute(self, code: str, said: dict[str, Any]) -> None:
        """Run the statements, and show what the last expression gives."""
        name = f"<cell {self.count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), self.names)  # noqa: S102 - this is what the box is for
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), self.names)  # noqa: S307 - the same
            self.names["_"] = value
            if value is not None:
                self.show(value, said)
        self.figures(said)

    def show(self, value: Any, said: dict[str, Any]) -> None:
        """Show a value: as a picture where it is one, else as it prints."""
        picture = getattr(cast(Any, type(value)), "_repr_png_", None)
        data = picture(value) if picture is not None else None
        if isinstance(data, bytes):
            path = free_name()
            with open(path, "wb") as file:  # noqa: PTH123 - few modules start fast
                file.write(data)
            said["images"].append(path)
            return
        text = plain(repr(value))
        said["result"] = text if len(text) <= MOST_RESULT else f"{text[:MOST_RESULT]}... (cut)"

    def figures(self, said: dict[str, Any]) -> None:
        """Write the figures of matplotlib that were drawn, where it is used."""
        if "matplotlib.pyplot" not in sys.modules:
            return
        plots: Any = sys.modules["matplotlib.pyplot"]
        for number in plots.get_fignums():
            path = free_name()
            plots.figure(number).savefig(path)
            plots.close(number)
            said["images"].append(path)


def told(error: BaseException) -> str:
    """A traceback of the code's own lines."""
    try:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == told.__code__.co_filename:
            trace = trace.tb_next
        text = "".join(traceback.format_exception(type(error), error, trace, limit=-20))
    except BaseException:  # noqa: BLE001 - an error may fail even in saying what it is
        text = type(error).__name__
    text = plain(text)
    return text if len(text) <= MOST_RESULT else f"{text[: MOST_RESULT // 2]}\n...\n{text[-MOST_RESULT // 2 :]}"


def plain(text: str) -> str:
    """The text without what no UTF-8 can say."""
    return text.encode("utf-8", "backslashreplace").decode()


def free_name() -> str:
    """A path for a picture that is not taken."""
    number = 1
    while os.path.lexists(path := f"{FOLDER}/figure-{number}.png"):
        number += 1
    return path


def shell(command: str, seconds: float, most: int) -> dict[str, Any]:
    """Run a command; what it leaves running does not hold it up."""
    pipes = [os.pipe(), os.pipe()]
    child = subprocess.Popen(  # noqa: S602 - this is what the box is for
        command,
        shell=True,
        cwd=FOLDER,
        stdin=subprocess.DEVNULL,
        stdout=pipes[0][1],
        stderr=pipes[1][1],
        start_new_session=True,
    )
    kept = {out: Kept(most) for out, _ in pipes}
    chosen = selectors.DefaultSelector()
    for out, into in pipes:
        os.close(into)
        os.set_blocking(out, False)
        chosen.register(out, selectors.EVENT_READ)
    end = time.monotonic() + seconds
    timed_out = False
    while child.poll() is None and not timed_out:
        for key, _ in chosen.select(0.005):
            if not take(key.fd, kept[key.fd], PIECE):
                chosen.unregister(key.fd)
        timed_out = time.monotonic() >= end
    if timed_out:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    chosen.close()
    for out, found in kept.items():
        take(out, found, DRAINED)
        os.close(out)
    said, wrong = (found.text() for found in kept.values())
    return {"stdout": said, "stderr": wrong, "exit_code": None if timed_out else child.returncode}


def take(pipe: int, kept: Kept, most: int) -> bool:
    """Take what is in a pipe now; False at its end."""
    while most > 0:
        try:
            data = os.read(pipe, PIECE)
        except BlockingIOError:
            return True
        if not data:
            return False
        kept.add(data)
        most -= len(data)
    return True


def listing() -> list[list[Any]]:
    """The files of the work folder: path below it, size, and what changes when the file does."""
    found: list[list[Any]] = []
    waiting = [] if os.path.islink(FOLDER) else [("", 0)]  # noqa: PTH114 - few modules start fast
    while waiting and len(found) < MOST_FILES:
        folder, depth = waiting.pop()
        try:
            entries = sorted(os.scandir(f"{FOLDER}/{folder}"), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.name == "__pycache__":
                continue
            path = folder + entry.name
            if path != plain(path):
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    if depth < MOST_DEPTH:
                        waiting.append((f"{path}/", depth + 1))
                elif entry.is_file(follow_symlinks=False):
                    about = entry.stat(follow_symlinks=False)
                    found.append([path, about.st_size, f"{about.st_ino}.{about.st_mtime_ns}.{about.st_size}"])
            except OSError:
                # What still runs may have removed it.
                continue
    return found[:MOST_FILES]


def put(path: str, data: bytes) -> bool:
    """Write a file; False where that cannot be done."""
    whole = f"{FOLDER}/{path}"
    try:
        os.makedirs(os.path.dirname(whole), exist_ok=True)  # noqa: PTH103, PTH120 - few modules start fast
        with open(whole, "wb") as file:  # noqa: PTH123
            file.write(data)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(whole)  # noqa: PTH108
        return False
    return True


def read(path: str, most: int) -> bytes | None:
    """A file, if it is one and not too large."""
    try:
        number = os.open(f"{FOLDER}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(number, "rb") as file:
            data = file.read(most + 1) if stat.S_ISREG(os.fstat(number).st_mode) else None
    except OSError:
        return None
    return data if data is not None and len(data) <= most else None


def answer(cells: Cells, asked: dict[str, Any], inwards: BinaryIO) -> tuple[dict[str, Any], bytes]:
    """Do what is asked."""
    what = asked["op"]
    if what == "run":
        said = cells.run(asked["code"], asked["seconds"])
        return {**said, "files": listing()}, b""
    if what == "shell":
        return shell(asked["command"], asked["seconds"], asked["most"]), b""
    if what == "put":
        return {"ok": put(asked["path"], inwards.read(asked["size"]))}, b""
    if what == "read":
        data = read(asked["path"], asked["most"])
        return {"ok": data is not None, "size": len(data or b"")}, data or b""
    if what == "remove":
        with contextlib.suppress(OSError):
            os.unlink(f"{FOLDER}/{asked['path']}")  # noqa: PTH108
    return {"files": listing()}, b""


def bound(limits: dict[str, int]) -> None:
    """Lower the limits of this process for good."""
    for name, value in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (lowest, lowest))


def serve() -> None:
    """Take the limits, then answer until the input ends."""
    os.closerange(3, 256)
    inwards, outwards = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    limits = json.loads(inwards.readline())
    bound(limits["rlimits"])
    os.nice(limits["nice"])
    outputs = Outputs(limits["most_output"])
    outputs.place()
    outputs.start()
    sys.path.insert(0, FOLDER)
    cells = Cells(outputs)
    while line := inwards.readline():
        said, data = answer(cells, json.loads(line), inwards)
        outwards.write(json.dumps(said).encode() + b"\n" + data)
        outwards.flush()


if __name__ == "__main__":
    serve()
