"""Which sandbox there is, what Monty runs, which system calls pass the filter, and where control groups are made."""

from __future__ import annotations

import errno
import signal
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from antiphon.cli.doctor import doctor
from antiphon.errors import ConfigurationError
from antiphon.settings import Settings
from antiphon.tools.code import bubblewrap, cgroups, choose, monty
from antiphon.tools.code.cgroups import Groups
from antiphon.tools.code.choose import Sandboxes
from antiphon.tools.code.monty import find_monty
from antiphon.tools.code.sandbox import BoxEndedError, BoxLimits, NoSandboxError
from antiphon.tools.code.seccomp import REFUSED, seccomp_program

LIMITS = BoxLimits(memory=64 * 1024 * 1024, disk=1024, seconds=0.5)
ALLOWED, KILLED, EPERM, ENOSYS, EAFNOSUPPORT = 0x7FFF0000, 0x80000000, 0x50001, 0x50026, 0x50061
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


@pytest.mark.requirement("code:monty:cells", "code:monty:bounded")
async def test_monty_runs_cells_that_share_variables_and_are_bounded() -> None:
    box = await find_monty().start(LIMITS)
    try:
        first = await box.run("import sys\nx = 20\nprint('seen')\nprint('wrong', file=sys.stderr)\nx + 1", 5)
        assert (first.stdout, first.stderr, first.result, first.error) == ("seen\n", "wrong\n", "21", None)
        assert (await box.run("x * 2", 5)).result == "40"
        assert "ZeroDivisionError" in ((await box.run("1 / 0", 5)).error or "")
        assert "SyntaxError" in ((await box.run("def f(", 5)).error or "")
        assert "MemoryError" in ((await box.run("y = [0] * 100_000_000", 5)).error or "")
        assert "RecursionError" in ((await box.run("def f(n): return f(n + 1)\nf(0)", 5)).error or "")
        printed = await box.run("for n in range(3000): print('a' * 100)", 5)
        assert "are left out here" in printed.stdout
        assert len(printed.stdout) < 70_000
        late = await box.run("while True: pass", 5)
        assert late.timed_out
        assert "TimeoutError" in (late.error or "")
    finally:
        await box.close()
    with pytest.raises(BoxEndedError):
        await box.run("1", 5)


@pytest.mark.requirement("code:monty:nothing")
async def test_monty_has_no_files_no_network_no_processes_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_API_KEY", "a key of the server")
    box = await find_monty().start(LIMITS)
    try:
        for code in (
            "open('/etc/passwd').read()",
            "from pathlib import Path\nPath('/etc/passwd').read_text()",
            "import os\nos.listdir('/')",
            "import os\nos.environ['ANTIPHON_API_KEY']",
            "import os\nos.getenv('ANTIPHON_API_KEY') + ''",
            "import os\nos.system('id')",
            "import socket",
            "import subprocess",
            "import ctypes",
            "__import__('posix')",
            "().__class__.__base__.__subclasses__()",
        ):
            assert (await box.run(code, 5)).error is not None, code
    finally:
        await box.close()


@pytest.mark.requirement("code:sandbox:setting")
async def test_the_setting_says_which_sandbox_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="none of auto, bwrap"):
        Sandboxes(Settings(sandbox="docker"))
    with pytest.raises(NoSandboxError, match="turned off"):
        await Sandboxes(Settings(sandbox="none")).backend()
    assert (await Sandboxes(Settings(sandbox="monty")).backend()).name == "monty"
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda _: None)
    assert (await Sandboxes(Settings()).backend()).name == "monty"
    with pytest.raises(NoSandboxError, match="apt install bubblewrap"):
        await Sandboxes(Settings(sandbox="bwrap")).backend()
    monkeypatch.setattr(monty.importlib.util, "find_spec", lambda _: None)
    neither = Sandboxes(Settings())
    for _ in range(2):
        with pytest.raises(NoSandboxError, match=r"apt install bubblewrap\); pydantic-monty is not installed \(pip"):
            await neither.backend()


@pytest.mark.requirement("code:sandbox:setting")
async def test_where_bubblewrap_may_make_no_namespaces_it_is_said_and_monty_runs_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    complaint = "bwrap: No permissions to create new namespace"
    version = '[ "$1" = --version ] && { echo bubblewrap 0.8.0; exit; }'
    program.write_text(f"#!/bin/sh\n{version}\necho '{complaint}' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda _: str(program))
    with pytest.raises(NoSandboxError, match=complaint):
        await Sandboxes(Settings(sandbox="bwrap")).backend()
    instead = await Sandboxes(Settings()).backend()
    assert instead.name == "monty"
    assert complaint in instead.advice


@pytest.mark.requirement("code:sandbox:doctor")
def test_doctor_says_which_sandbox_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = CliRunner().invoke(doctor, ["--data-dir", str(tmp_path), "--sandbox", "monty"], prog_name="doctor")
    assert "sandbox       pydantic-monty" in said.output

    async def nothing(_: Settings) -> None:
        raise NoSandboxError("There is nothing.")

    monkeypatch.setattr(choose, "choose", nothing)
    said = CliRunner().invoke(doctor, ["--data-dir", str(tmp_path), "--sandbox", "bwrap"], prog_name="doctor")
    assert "fail  sandbox       There is nothing." in said.output


def verdict(program: bytes, number: int, *arguments: int, architecture: int) -> int:
    """What the kernel would make of a call: an interpreter of the few instructions that are used."""
    given = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<iIQ6Q", number, architecture, 0, *given)
    held, place = 0, 0
    while True:
        code, if_so, if_not, value = struct.unpack_from("<HBBI", program, place * 8)
        place += 1
        if code == 0x06:
            return value
        if code == 0x20:
            (held,) = struct.unpack_from("<I", data, value)
        else:
            true = {0x15: held == value, 0x25: held > value, 0x45: bool(held & value)}[code]
            place += if_so if true else if_not


@pytest.mark.requirement("code:sandbox:calls")
@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_the_filter_says_the_same_on_both_kinds_of_machine(machine: str) -> None:
    which, architecture = MACHINES[machine]
    program = seccomp_program(machine)
    assert program is not None

    def of(number: int, *arguments: int) -> int:
        return verdict(program, number, *arguments, architecture=architecture)

    for name, numbers in REFUSED.items():
        number = numbers[which]
        assert number is None or of(number) == EPERM, name
    clone, socket_, pair, ioctl = ((56, 220), (41, 198), (53, 199), (16, 29))
    assert of(clone[which], 17) == ALLOWED
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert of(clone[which], 17 | flag) == EPERM
    assert of(435) == ENOSYS
    assert of(463) == of(0x40000001) == ENOSYS
    for call in (socket_, pair):
        assert [of(call[which], family) for family in (1, 2, 10)] == [ALLOWED] * 3
        assert {of(call[which], family) for family in (0, 15, 16, 17, 31, 38, 40, 44)} == {EAFNOSUPPORT}
    assert [of(ioctl[which], 0, request) for request in (0x5412, 0x541C, 0x5423, 0x5401)] == [EPERM] * 3 + [ALLOWED]
    for harmless in ((0, 63), (1, 64), (9, 222), (59, 221), (61, 260), (202, 98), (257, 56)):
        assert of(harmless[which]) == ALLOWED
    assert verdict(program, 1, architecture=0x40000003) == KILLED
    assert seccomp_program("riscv64") is None


@pytest.mark.requirement("code:sandbox:groups")
def test_a_group_is_made_where_both_bounds_can_be_set(tmp_path: Path) -> None:
    assert Groups(tmp_path, "0::/\n").version == 0
    assert Groups(tmp_path, "0::/\n").make(LIMITS) is None

    first = tmp_path / "first"
    for controller in ("memory", "pids"):
        (first / controller / "mine").mkdir(parents=True)
        (first / controller / "antiphon-999999999-1").mkdir()
    groups = Groups(first, "4:memory:/mine\n8:pids:/elsewhere\n")
    assert groups.version == 1
    group = groups.make(LIMITS)
    assert group is not None
    (made,) = (first / "memory" / "mine").iterdir()
    assert (made / "memory.limit_in_bytes").read_text() == str(LIMITS.memory)
    assert (first / "pids" / made.name / "pids.max").read_text() == str(LIMITS.processes)
    assert not (first / "pids" / "antiphon-999999999-1").exists()
    assert group.members() == set()
    assert not group.killed_for_memory()
    (made / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert group.killed_for_memory()
    assert not group.remove()


@pytest.mark.requirement("code:sandbox:groups")
def test_a_group_of_version_2_is_made_beside_the_server_where_it_cannot_be_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "service" / "main"
    own.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    written: list[tuple[str, str]] = []

    def kernel(path: Path, value: str) -> None:
        """What the kernel makes of a write: a group with processes hands nothing down, another one does."""
        written.append((str(path.relative_to(tmp_path)), value))
        if path.name == "memory.swap.max":
            raise FileNotFoundError(path)
        if path.name == "cgroup.subtree_control":
            if path.parent == own:
                raise OSError(errno.EBUSY, "busy")
            value = value.replace("+", "")
        path.write_text(value)

    monkeypatch.setattr(cgroups, "_write", kernel)
    groups = Groups(tmp_path, "0::/service/main\n")
    assert groups.version == 2
    group = groups.make(LIMITS)
    assert group is not None
    (made,) = (folder for folder in own.parent.iterdir() if folder.is_dir() and folder != own)
    assert (made / "memory.max").read_text() == str(LIMITS.memory)
    assert (made / "pids.max").read_text() == str(LIMITS.processes)
    assert (made / "memory.oom.group").read_text() == "1"
    group.enter(17)
    assert (made / "cgroup.procs").read_text() == "17"
    (made / "cgroup.procs").write_text("")
    group.signal(signal.SIGKILL)
    assert written[-1] == (str((made / "cgroup.kill").relative_to(tmp_path)), "1")
    (made / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    assert group.killed_for_memory()
