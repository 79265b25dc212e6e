"""Ways out of a sandbox that code might try, each of them tried in a real one: all are stopped (issue 6, Must show 5).

What a cell prints is what it found; a wall that holds shows as an error there. What would hang is ended from outside.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from antiphon.tools.code.box import PipedBox
from antiphon.tools.code.bubblewrap import _ENVIRONMENT
from antiphon.tools.code.sandbox import Box, BoxEndedError, BoxLimits
from support.sandboxes import SMALL, bubblewrap, small_box
from support.server import wait_until

SECONDS = 10.0
LATE = 0.2

CALLS = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
numbers = json.loads({numbers!r})
which = 0 if os.uname().machine == "x86_64" else 1
def error(number, *arguments):
    ctypes.set_errno(0)
    given = libc.syscall(number, *arguments)
    return 0 if given >= 0 else ctypes.get_errno()
"""


def ended(process: psutil.Process) -> bool:
    """Whether a process does nothing any more, though whoever should may not have asked how it ended."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def found(box: Box, code: str) -> object:
    """What a cell gives as JSON in its last expression, a call of `json.dumps`."""
    cell = await box.run("import json, os\n" + textwrap.dedent(code), SECONDS)
    assert cell.error is None, cell.error
    assert cell.result is not None
    return json.loads(ast.literal_eval(cell.result))


@pytest.mark.requirement("code:sandbox:files")
async def test_no_file_of_the_machine_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of the server")
    monkeypatch.setenv("ANTIPHON_API_KEY", "a key of the server")
    paths = [str(secret), "/etc/shadow", "/root", "/home", "/var", "/run", "/srv", "/sys", "/etc/ssh", str(Path.cwd())]
    async with small_box() as box:
        seen = await found(
            box,
            f"""
            json.dumps({{
                "paths": [path for path in {paths!r} if os.path.exists(path)],
                "users": open("/etc/passwd").read(),
                "environment": sorted(os.environ),
                "writable": [
                    folder for folder, _, _ in os.walk("/") if os.access(folder, os.W_OK)
                    and not folder.startswith(("/proc/", "/dev/pts", "/dev/fd"))
                ],
            }})
            """,
        )
    assert seen == {
        "paths": [],
        "users": "sandbox:x:65534:65534:sandbox:/tmp:/bin/sh\n",
        "environment": sorted([*_ENVIRONMENT, "PWD"]),
        "writable": ["/mnt", "/mnt/tmp", "/mnt/data", "/dev/shm"],
    }


@pytest.mark.requirement("code:sandbox:network")
async def test_there_is_no_network_not_even_the_machine_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as hidden:
        hidden.bind("\0antiphon-test-" + str(os.getpid()))
        hidden.listen()
        listener.setblocking(False)
        async with small_box() as box:
            seen = await found(
                box,
                f"""
                import socket
                def tried(kind, where):
                    try:
                        with socket.socket(kind) as one:
                            one.settimeout(2)
                            one.connect(where)
                    except OSError as error:
                        return type(error).__name__
                    return "connected"
                def resolved(name):
                    try:
                        return socket.getaddrinfo(name, 80) and "resolved"
                    except OSError as error:
                        return type(error).__name__
                json.dumps([
                    tried(socket.AF_INET, {listener.getsockname()!r}),
                    tried(socket.AF_INET, ("169.254.169.254", 80)),
                    tried(socket.AF_INET6, ("::1", {listener.getsockname()[1]})),
                    tried(socket.AF_UNIX, {hidden.getsockname()!r}),
                    tried(socket.AF_VSOCK, (2, 1)),
                    tried(socket.AF_NETLINK, (0, 0)),
                    resolved("localhost.example"),
                ])
                """,
            )
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert isinstance(seen, list)
    assert seen[:4] == ["ConnectionRefusedError", "OSError", "ConnectionRefusedError", "ConnectionRefusedError"]
    assert seen[4:] == ["OSError", "OSError", "gaierror"]


@pytest.mark.requirement("code:sandbox:processes")
async def test_a_fork_bomb_is_bounded_and_ended() -> None:
    async with small_box() as box:
        assert isinstance(box, PipedBox)
        bomb = """
        import time
        made = 0
        try:
            while True:
                if os.fork() == 0:
                    while True:
                        time.sleep(100)
                made += 1
        except OSError as error:
            print(type(error).__name__)
        json.dumps(made)
        """
        made = await found(box, bomb)
        assert isinstance(made, int)
        assert made < SMALL.processes
        inside = psutil.Process(box.pid).children(recursive=True)
        assert len(inside) <= SMALL.processes
    wait_until(lambda: all(ended(process) for process in inside), 10)


@pytest.mark.requirement("code:sandbox:memory")
async def test_no_more_memory_is_had_than_is_allowed() -> None:
    async with small_box() as box:
        try:
            cell = await box.run("kept = [bytearray(1 << 20) for _ in range(4096)]", SECONDS)
        except BoxEndedError as error:
            assert "memory" in str(error)
        else:
            assert "MemoryError" in (cell.error or "")


@pytest.mark.requirement("code:sandbox:time")
@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("while True: pass", False),
        ("import time; time.sleep(1000)", False),
        ("import signal; signal.setitimer(signal.ITIMER_REAL, 0)\nwhile True: pass", True),
        (
            "import signal, time\n"
            "for one in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM): signal.signal(one, signal.SIG_IGN)\n"
            "while True: time.sleep(1000)",
            True,
        ),
        ("import os; os.kill(os.getpid(), 19)", True),
    ],
    ids=["busy", "sleeping", "without its alarm", "ignoring signals", "stopped by itself"],
)
async def test_a_cell_ends_in_its_time_whether_it_wants_to_or_not(
    code: str, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with small_box() as box:
        await box.run("kept = 7", SECONDS)
        if ended:
            monkeypatch.setattr("antiphon.tools.code.box._GRACE", LATE)
        began = time.monotonic()
        if ended:
            with pytest.raises(BoxEndedError, match="in its time"):
                await box.run(code, LATE)
            assert not box.alive
        else:
            cell = await box.run(code, LATE)
            assert cell.timed_out
            assert (await box.run("kept", SECONDS)).result == "7"
        assert time.monotonic() - began < SECONDS


@pytest.mark.requirement("code:sandbox:proc")
async def test_proc_shows_only_the_box_and_changes_nothing() -> None:
    async with small_box() as box:
        seen = await found(
            box,
            """
            def tried(path, mode):
                try:
                    with open(path, mode) as file:
                        return len(file.read(10)) if mode == "rb" else file.write(b"1") and "written"
                except OSError as error:
                    return type(error).__name__
            json.dumps({
                "pids": [int(name) for name in os.listdir("/proc") if name.isdigit()],
                "read": [tried("/proc/" + name, "rb") for name in ("kcore", "keys", "kallsyms", "1/mem", "1/environ")],
                "write": [
                    tried(path, "wb") for path in (
                        "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/user/max_user_namespaces",
                        "/proc/1/oom_score_adj", "/proc/self/uid_map",
                    )
                ],
                "root": sorted(os.listdir("/proc/1/root")) == sorted(os.listdir("/")),
            })
            """,
        )
    assert isinstance(seen, dict)
    assert max(seen["pids"]) < 10
    assert set(seen["read"][:3]) <= {0, "FileNotFoundError", "PermissionError"}
    assert "written" not in seen["write"][:3] + seen["write"][4:]


@pytest.mark.requirement("code:sandbox:links")
async def test_links_lead_nowhere_when_files_are_read_back(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of the server")
    async with small_box() as box:
        code = f"""
        os.symlink({str(secret)!r}, "/mnt/data/to-a-file")
        os.symlink("/", "/mnt/data/to-a-folder")
        os.symlink("/mnt/data/loop", "/mnt/data/loop")
        os.mkfifo("/mnt/data/pipe")
        open("/mnt/data/plain", "w").write("plain")
        """
        cell = await box.run("import os\n" + textwrap.dedent(code), SECONDS)
        assert [file.path for file in cell.files] == ["plain"]
        assert await box.read("to-a-file", 100) is None
        assert await box.read(f"to-a-folder{secret}", 100) is None
        assert await box.read(f"../../../..{secret}", 100) is None
        assert await box.read("loop", 100) is None
        assert await box.read("pipe", 100) is None
        assert await box.read("plain", 100) == b"plain"
        assert await box.read("plain", 2) is None


@pytest.mark.requirement("code:sandbox:calls")
async def test_calls_that_attack_the_kernel_are_refused() -> None:
    from antiphon.tools.code.seccomp import REFUSED

    backend = await bubblewrap()
    assert "system calls filtered" in backend.finding
    tried = CALLS.format(numbers=json.dumps(REFUSED)) + textwrap.dedent(
        """
        new_user, exit_signal = 0x10000000, 17
        json.dumps({
            "refused": {name: error(pair[which], 0, 0, 0, 0, 0) for name, pair in numbers.items() if pair[which]},
            "attach": error(numbers["ptrace"][which], 16, 1, 0, 0),
            "clone": error((56, 220)[which], new_user | exit_signal, 0, 0, 0, 0),
            "clone3": error(435, 0, 0),
            "newer": error(463, 0, 0),
            "type into a terminal": error((16, 29)[which], 0, 0x5412, 0),
        })
        """
    )
    async with small_box() as box:
        seen = await found(box, tried)
    assert isinstance(seen, dict)
    assert set(seen.pop("refused").values()) == {1}
    assert seen == {"attach": 1, "clone": 1, "clone3": 38, "newer": 38, "type into a terminal": 1}


@pytest.mark.requirement("code:sandbox:rights")
async def test_there_are_no_rights_to_be_had() -> None:
    async with small_box() as box:
        ran = await box.shell(
            "unshare -U true; unshare -r id; mount -t tmpfs x /mnt/data; su -c id; chroot / id", 5, 4000
        )
        status = await found(
            box, "json.dumps(dict(line.split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line))"
        )
    assert "uid=0" not in ran.stdout
    assert isinstance(status, dict)
    assert {status[f"Cap{kind}"].strip() for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"


@pytest.mark.requirement("code:sandbox:disk")
async def test_the_folder_is_as_large_as_it_may_be_and_no_larger() -> None:
    async with small_box() as box:
        cell = await box.run(
            "with open('large', 'wb', buffering=0) as file:\n    while file.write(bytes(1 << 20)): pass", SECONDS
        )
        assert "No space left" in (cell.error or "") or "File too large" in (cell.error or "")
        assert sum(file.size for file in cell.files) <= SMALL.disk
        assert not await box.put("more", bytes(SMALL.disk))
        assert (await box.run("import os; os.remove('large')", SECONDS)).error is None


@pytest.mark.requirement("code:output:bounded")
async def test_any_amount_of_output_costs_little_and_says_where_it_was_cut() -> None:
    code = "import os\nfor _ in range(1024): os.write(1, bytes([65]) * (1 << 20))\nos.write(2, b'the end')"
    before = psutil.Process().memory_info().rss
    async with small_box() as box:
        cell = await box.run(code, 30)
        ran = await box.shell("head -c 100000000 /dev/zero; echo end", 20, 1000)
    assert cell.error is None
    assert len(cell.stdout) < 70_000
    assert f"[... {(1 << 30) - 64 * 1024} bytes are left out here ...]" in cell.stdout
    assert cell.stderr == "the end"
    assert ran.stdout.endswith("end\n")
    assert len(ran.stdout) < 1100
    assert psutil.Process().memory_info().rss - before < 50_000_000


@pytest.mark.requirement("code:interpreter:odd")
async def test_code_that_does_odd_things_to_its_own_process_is_answered_all_the_same() -> None:
    async with small_box() as box:
        for code, result in (
            ("import os\nif os.fork() == 0: 'the child'\n7", "7"),
            ("import sys; sys.stdout.close(); sys.stderr = None\n8", "8"),
            ("os.close(0); os.close(1); os.close(2)\n9", "9"),
            ("import builtins\nprint('seen')\n10", "10"),
            ("import threading\ndef flood():\n  while True: print('x' * 1000)\n11", "11"),
            ("threading.Thread(target=flood, daemon=True).start(); 12", "12"),
            ("import shutil; shutil.rmtree('/mnt/data'); 13", "13"),
            ("os.symlink('/usr/bin', '/mnt/data'); 14", "14"),
            ("exit(3)", None),
            ("type('Odd', (), {'__repr__': lambda self: '\\ud800'})()", "\\ud800"),
            ("type('Odd', (), {'__repr__': lambda self: 1 / 0})()", None),
            ("15", "15"),
        ):
            cell = await box.run(code, SECONDS)
            assert cell.result == result, (code, cell.error)
            assert cell.files == []
        assert box.alive


@pytest.mark.requirement("code:sandbox:idle")
async def test_what_a_cell_leaves_running_takes_no_time_when_nobody_asks() -> None:
    async with small_box() as box:
        assert isinstance(box, PipedBox)
        await box.run("import subprocess; left = subprocess.Popen(['sh', '-c', 'while :; do :; done'])", SECONDS)
        processes = psutil.Process(box.pid).children(recursive=True)
        wait_until(lambda: all(process.status() == psutil.STATUS_STOPPED for process in processes), 5)
        assert len(processes) >= 3
        assert (await box.run("left.poll() is None", SECONDS)).result == "True"


@pytest.mark.requirement("code:sandbox:parent")
async def test_a_box_dies_with_its_server_however_that_dies() -> None:
    await bubblewrap()
    code = """
    import asyncio, sys
    from antiphon.tools.code.bubblewrap import find_bubblewrap
    from antiphon.tools.code.sandbox import BoxLimits
    async def main():
        boxes = [await (await find_bubblewrap()).start(BoxLimits(1 << 28, 1 << 20)) for _ in range(2)]
        print(*(box.pid for box in boxes), flush=True)
        await boxes[1].run("while True: pass", 1000)
    asyncio.run(main())
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        outer = [psutil.Process(int(pid)) for pid in server.stdout.readline().split()]
        processes = [one for box in outer for one in (box, *box.children(recursive=True))]
        assert len(processes) >= 6
        server.send_signal(signal.SIGKILL)
    wait_until(lambda: all(ended(process) for process in processes), 10)


@pytest.mark.requirement("code:sandbox:unprivileged")
async def test_the_walls_are_the_same_for_a_server_that_is_not_root() -> None:
    await bubblewrap()
    code = """
    import asyncio, concurrent.futures.thread, json, os
    from antiphon.tools.code import box as outside, bubblewrap
    from antiphon.tools.code.sandbox import BoxEndedError, BoxLimits
    bubblewrap._inside()
    outside._GRACE = 0.1
    if os.geteuid() == 0:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    async def main():
        found = await bubblewrap.find_bubblewrap()
        box = await found.start(BoxLimits(256 << 20, 8 << 20, 24))
        said = {"finding": found.finding}
        cell = await box.run("try:\\n    kept = bytearray(1 << 30)\\nexcept MemoryError: print('no memory')", 10)
        said["memory"] = cell.stdout
        bomb = "import os\\ntry:\\n    while os.fork(): pass\\n    os.pause()\\nexcept OSError: print('no processes')"
        cell = await box.run(bomb.replace("os.pause", "__import__('signal').pause"), 10)
        said["processes"] = cell.stdout
        cell = await box.run("import ctypes; ctypes.CDLL(None, use_errno=True).ptrace(16, 1, 0, 0)", 10)
        said["ptrace"] = cell.result
        try:
            await box.run("import os; os.kill(os.getpid(), 19)", 0.2)
        except BoxEndedError as error:
            said["late"] = str(error)
        await box.close()
        print(json.dumps(said))
    asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, timeout=60, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert "the user of the server" in said["finding"]
    assert said["memory"] == "no memory\n"
    assert said["processes"] == "no processes\n"
    assert said["ptrace"] == "-1"
    assert "in its time" in said["late"]


@pytest.mark.requirement("code:sandbox:lies")
@pytest.mark.parametrize(
    "lie",
    [
        b'{"size": 1000000000000}\n',
        b'{"files": 7}\n',
        b"not json\n",
        b"x" * (5 << 20),
        b'{"size": -1}\n',
        b"[" * 100_000 + b"\n",
    ],
    ids=["a size", "a type", "no JSON", "a long line", "a negative size", "depth"],
)
async def test_a_box_that_lies_is_ended(lie: bytes) -> None:
    async with small_box(BoxLimits(256 << 20, 1 << 20)) as box:
        # The pipe is under another number than 1; the code finds it as anybody could.
        code = f"""
        import gc, io
        pipe = next(one for one in gc.get_objects() if isinstance(one, io.BufferedWriter) and one.fileno() > 2)
        pipe.write({lie!r})
        pipe.flush()
        """
        with pytest.raises(BoxEndedError, match="broke off"):
            await box.run(textwrap.dedent(code), SECONDS)
        assert not box.alive
