"""Boxes by bubblewrap: namespaces without a network, a read-only system, a bounded folder, no rights (issue 6, 6).

What is inside sees the programs of the machine (`/usr`), an empty `/proc` of its own, and one folder in memory that it
can write to. Its system calls are filtered, its memory and processes are bounded by a control group where one can be
made, and where the server is root it runs as another user all the same. Files go in and out over a pipe, by the program
inside: no path that code has made is ever opened outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct, structs

from antiphon.tools.code.box import PipedBox, abandon, open_pipes
from antiphon.tools.code.cgroups import Group, Groups
from antiphon.tools.code.sandbox import MOST_OUTPUT, WORK_FOLDER, Backend, Box, BoxEndedError, BoxLimits, NoSandboxError
from antiphon.tools.code.seccomp import seccomp_program

__all__ = ["Bubblewrap", "Way", "find_bubblewrap"]

_START_SECONDS = 20.0
_NOBODY = 65534
_NICE = 10
_SHARED_MEMORY = 16 * 1024 * 1024
_ENVIRONMENT = {
    "HOME": "/tmp",  # noqa: S108 - of the box
    "LANG": "C.UTF-8",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "4",  # threads count as processes, and a machine may have more cores than a box may have those
    "OPENBLAS_NUM_THREADS": "4",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TMPDIR": "/tmp",  # noqa: S108 - of the box
}
_PASSWD = b"sandbox:x:65534:65534:sandbox:/tmp:/bin/sh\n"
_OF_ETC = ("alternatives", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "ssl/certs")
_HIDDEN = ("kcore", "keys", "key-users", "kallsyms", "modules", "timer_list", "sched_debug", "slabinfo", "vmallocinfo")
_FIRST_WITH_DISABLE_USERNS = (0, 8, 0)
# It waits for the first line, so that it is in its group before it starts anything; a shell reads no byte beyond that.
_WAIT = 'read -r _ && exec "$@"'


class Way(Struct, frozen=True):
    """How boxes are started here: `program` is bubblewrap, `python` what runs in them, with the `prefixes` it needs.

    `drops` says that they run as `nobody`, since the server is root; `proc` that they have a `/proc` of their own;
    `setuid` that the program is one that takes the rights of root for itself.
    """

    program: str
    version: tuple[int, ...]
    python: str
    prefixes: tuple[str, ...]
    drops: bool
    proc: bool = True
    setuid: bool = False


class Bubblewrap(Backend):
    """Starts boxes."""

    name = "bwrap"
    shell = True
    files = True
    cannot = "It has no network."

    def __init__(self, way: Way, groups: Groups) -> None:
        self.way = way
        self.groups = groups
        version = ".".join(map(str, way.version))
        bounds = f"control groups, version {groups.version}" if groups.version else "no control groups, only rlimits"
        user = "nobody" if way.drops else ("root in a namespace" if os.geteuid() == 0 else "the user of the server")
        calls = (
            f"system calls {'filtered' if seccomp_program() is not None else 'not filtered on this kind of machine'}"
        )
        if not groups.version:
            self.advice = (
                "Let the server make control groups (with systemd: Delegate=yes), which bound a container whole."
            )
        if os.geteuid() == 0 and not way.drops:
            self.advice = f"Have {way.python} where every user may read it, so that code need not run as root."
        self.finding = f"bubblewrap {version} with {way.python}, as {user}; {bounds}; {calls}"

    async def start(self, limits: BoxLimits) -> Box:
        """Start a box."""
        group = self.groups.make(limits)
        try:
            process = self._spawn(limits, group)
        except OSError as error:
            if group is not None:
                group.remove()
            raise BoxEndedError(f"The sandbox cannot be started: {error.strerror}.") from error
        try:
            box = PipedBox(process, await open_pipes(process), group)
        except BaseException:
            await abandon(process, group)
            raise
        try:
            rlimits = _rlimits(limits, bounded=group is not None)
            await box.begin({"rlimits": rlimits, "most_output": MOST_OUTPUT, "nice": _NICE}, _START_SECONDS, b"\n")
        except BaseException:
            # Also where whoever asked has gone: nobody else knows of it, to wait for its end.
            box.kill("It did not start.")
            await box.close()
            raise
        return box

    def _spawn(self, limits: BoxLimits, group: Group | None) -> subprocess.Popen[bytes]:
        """Start the process of a box, in its group.

        Raises:
            OSError: it cannot be started, or not be bounded or ended.
        """
        with contextlib.ExitStack() as opened:
            given = [opened.enter_context(_memory_file(data)) for data in _given()]
            command = [*self._command(limits, given), self.way.python, "-I", "-X", "utf8", "-c", _inside()]
            process = subprocess.Popen(  # noqa: S603 - it is in the sandbox that it starts
                ["/bin/sh", "-c", _WAIT, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_ENVIRONMENT,
                pass_fds=given,
                start_new_session=True,
                user=_NOBODY if self.way.drops else None,
                group=_NOBODY if self.way.drops else None,
                extra_groups=() if self.way.drops else None,
            )
            try:
                os.kill(process.pid, 0)  # whoever cannot send it a signal could not end it either
                if group is not None:
                    group.enter(process.pid)
            except OSError:
                with contextlib.suppress(OSError):
                    process.kill()
                raise
            return process

    def _command(self, limits: BoxLimits, descriptors: list[int]) -> Iterator[str]:
        passwd, *filters = descriptors
        yield from (self.way.program, "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net")
        yield from ("--unshare-uts", "--unshare-cgroup-try", "--uid", str(_NOBODY), "--gid", str(_NOBODY))
        yield from ("--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
        if self.way.version >= _FIRST_WITH_DISABLE_USERNS and not self.way.setuid:
            yield "--disable-userns"  # older ones leave it to the filter of system calls
        yield from _system(self.way.prefixes)
        yield from ("--ro-bind-data", str(passwd), "/etc/passwd")
        if self.way.proc:
            yield from ("--proc", "/proc")
            for name in _HIDDEN:
                if Path("/proc", name).exists():
                    yield from ("--ro-bind", os.devnull, f"/proc/{name}")
        yield from ("--dev", "/dev", "--size", str(_SHARED_MEMORY), "--tmpfs", "/dev/shm")  # noqa: S108 - of the box
        yield from ("--size", str(limits.disk), "--tmpfs", "/mnt", "--dir", WORK_FOLDER, "--dir", "/mnt/tmp")
        yield from ("--symlink", "mnt/tmp", "/tmp", "--remount-ro", "/dev", "--remount-ro", "/")  # noqa: S108
        for number in filters:
            yield from ("--seccomp", str(number))
        yield from ("--chdir", WORK_FOLDER, "--")


async def find_bubblewrap(python: str | None = None) -> Bubblewrap:
    """Bubblewrap, where it is installed and a box of it runs.

    Raises:
        NoSandboxError: it cannot be used.
    """
    program = shutil.which("bwrap")
    if program is None or platform.system() != "Linux":
        raise NoSandboxError("bubblewrap is not installed (apt install bubblewrap)")
    version = await asyncio.to_thread(_version, program)
    chosen = python or _default_python()
    prefixes = await asyncio.to_thread(_prefixes, chosen)
    groups = Groups()
    last = ""
    way = Way(program, version, chosen, prefixes, drops=False, setuid=_is_setuid(program))
    for drops in (True, False) if os.geteuid() == 0 else (False,):
        for proc in (True, False):
            found = Bubblewrap(structs.replace(way, drops=drops, proc=proc), groups)
            try:
                box = await found.start(BoxLimits(256 * 1024 * 1024, 1024 * 1024))
            except BoxEndedError as error:
                last = str(error)
            else:
                await box.close()
                return found
    complaint = await asyncio.to_thread(_complaint, program)
    raise NoSandboxError(f"bubblewrap is installed, but no sandbox of it starts here: {complaint or last}")


def _complaint(program: str) -> str:
    """What bubblewrap itself says of namespaces here; nothing where it has nothing to say against them."""
    command = [program, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "/bin/true"]
    try:
        said = subprocess.run(command, capture_output=True, timeout=10, check=False, text=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stderr.strip().rpartition("\n")[2][:200]


def _is_setuid(program: str) -> bool:
    return bool(Path(program).stat().st_mode & stat.S_ISUID)


def _version(program: str) -> tuple[int, ...]:
    try:
        said = subprocess.run([program, "--version"], capture_output=True, timeout=10, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise NoSandboxError("bubblewrap is installed, but does not run") from error
    return tuple(int(number) for number in re.findall(rb"\d+", said.stdout)[:3])


def _default_python() -> str:
    system = Path("/usr/bin/python3")
    return str(system) if system.exists() else str(Path(sys.base_prefix, "bin", "python3"))


def _prefixes(python: str) -> tuple[str, ...]:
    """The folders that an interpreter needs, beside those of the system."""
    ask = "import sys; print(sys.prefix); print(sys.base_prefix)"
    try:
        said = subprocess.run([python, "-I", "-c", ask], capture_output=True, timeout=20, check=True, text=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise NoSandboxError(f"the Python for the sandbox, {python}, does not run") from error
    return tuple(sorted({path for path in said.stdout.split("\n") if path and not path.startswith("/usr")}))


def _system(prefixes: tuple[str, ...]) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    for name in _OF_ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    for prefix in prefixes:
        yield from ("--ro-bind", prefix, prefix)


def _given() -> list[bytes]:
    """What a box is given as open files: its users, and the filter of its system calls where there is one."""
    program = seccomp_program()
    return [_PASSWD] if program is None else [_PASSWD, program]


@contextlib.contextmanager
def _memory_file(data: bytes) -> Generator[int]:
    descriptor = os.memfd_create("antiphon-sandbox")
    try:
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _rlimits(limits: BoxLimits, *, bounded: bool) -> dict[str, int]:
    """Limits that the process inside sets for itself before it takes any code."""
    found = {
        "RLIMIT_CORE": 0,
        "RLIMIT_FSIZE": limits.disk,
        "RLIMIT_MEMLOCK": 64 * 1024,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_NOFILE": 1024,
        "RLIMIT_SIGPENDING": 1024,
    }
    return found if bounded else {**found, "RLIMIT_AS": limits.memory, "RLIMIT_NPROC": limits.processes}


@cache
def _inside() -> str:
    return Path(__file__).with_name("inside.py").read_text()
