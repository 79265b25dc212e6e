"""A private PostgreSQL cluster for tests, made of the binaries that are installed.

One cluster a session, with a database of its own for each test. `initdb` refuses to run as root, so root lends the
cluster to another user. Where there are no binaries the tests skip and say so, unless ANTIPHON_REQUIRE_POSTGRES=1 asks
for them.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import itertools
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from antiphon.store.postgres import PostgresStore
from antiphon.store.rows import StoreLimits

__all__ = ["OWNER", "PASSWORD", "Cluster", "Server", "binaries", "cluster", "database_for", "in_a_thread", "missing"]

Server = Callable[..., Awaitable[PostgresStore]]
"""Opens a store over the database of a test, with a clock and with the limits that are given by name."""

OWNER = "antiphon"
"""The superuser of the cluster. It needs no password over the socket, and `PASSWORD` over TCP."""

PASSWORD = "p@ss/w:rd%?#"

START_SECONDS = 60.0
MOST_DATABASES = 8
"""Databases of folders that are kept at once; the one that was used longest ago goes first."""

_KEEPER = """
import json, subprocess, sys, threading
options, *command = sys.argv[1:]
process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **json.loads(options))

def stop():
    # The end of the input without a word means that whoever started this was killed.
    process.send_signal(int(sys.stdin.readline() or 3))

threading.Thread(target=stop, daemon=True).start()
sys.exit(process.wait())
"""
"""Runs PostgreSQL until it is told the number of a signal, or until the process that runs the tests is gone."""


@functools.cache
def binaries() -> Path | None:
    """The folder of the newest installed `initdb` and `postgres`; None where there are none."""
    folders = [Path(found).resolve().parent for name in ("initdb", "postgres") if (found := shutil.which(name))]
    known = Path("/usr/lib/postgresql")
    versions = [folder for folder in known.glob("*") if folder.name.isdigit()]
    folders += [folder / "bin" for folder in sorted(versions, key=lambda folder: -int(folder.name))]
    needed = ("initdb", "postgres", "psql", "pg_isready")
    return next((folder for folder in folders if all((folder / name).exists() for name in needed)), None)


def missing() -> str | None:
    """Why tests of PostgreSQL cannot run here; None where they can."""
    if binaries() is None:
        return "no PostgreSQL server is installed (initdb is neither in PATH nor in /usr/lib/postgresql)"
    return None


def in_a_thread(job: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """The result of a coroutine, from code that a running event loop has called."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(job())))
    thread.start()
    thread.join()
    assert results, "the job in the thread failed; its traceback is above"
    return results[0]


class Cluster:
    """A cluster of its own in a temporary folder, with fsync on; `folder` also holds its socket."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._user = _other_user()
        # A short path, since that of a socket may have 107 bytes only.
        self.folder = Path(tempfile.mkdtemp(prefix="antiphon-pg-", dir="/tmp"))
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._known = False
        self._template = False
        self._numbers = itertools.count(1)
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._initialize()

    def url(self, database: str, *, user: str = OWNER, password: str | None = None, tcp: bool = False) -> str:
        """The address of a database: over the socket, or over TCP, where a password is asked for."""
        login = user if password is None else f"{user}:{quote(password, safe='')}"
        if tcp:
            return f"postgresql://{login}@127.0.0.1:{self.port}/{database}"
        return f"postgresql://{login}@/{database}?host={self.folder}&port={self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers; another program may have its port for a moment."""
        deadline = time.monotonic() + START_SECONDS
        while not self._starts(deadline):
            if time.monotonic() > deadline:
                raise RuntimeError("PostgreSQL did not start:\n" + (self.folder / "log").read_text())
            if not self._known:
                self.port = _free_port()
            threading.Event().wait(0.1)
        self._known = True

    def _starts(self, deadline: float) -> bool:
        """Start it; False where it ended at once, or does not answer in time."""
        arguments = ["-D", str(self.folder / "data"), "-k", str(self.folder), "-p", str(self.port)]
        settings = {"listen_addresses": "127.0.0.1", "max_connections": "100", "shared_buffers": "32MB"}
        for name, value in settings.items():
            arguments += ["-c", f"{name}={value}"]
        options = json.dumps(self._user)
        with (self.folder / "log").open("ab") as log:
            process = self._process = subprocess.Popen(
                [sys.executable, "-c", _KEEPER, options, str(self._programs / "postgres"), *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        while self._run("pg_isready", "-q", "-h", str(self.folder), "-p", str(self.port), check=False):
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop(signal.SIGQUIT)
                return False
            threading.Event().wait(0.01)
        return True

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends all connections in order, SIGQUIT at once, so that it must recover at its start."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            # One that has ended by itself hears nothing more.
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(b"%d\n" % how)
            process.wait(START_SECONDS)

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it and start it again."""
        self.stop(how)
        self.start()

    def remove(self) -> None:
        """End it and remove its folder."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def execute(self, statement: str, database: str = "postgres") -> str:
        """Run a statement as the superuser; what it printed, without headings."""
        done = subprocess.run(
            [
                str(self._programs / "psql"),
                *("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", str(self.folder), "-p", str(self.port)),
                *("-U", OWNER, "-d", database, "-c", statement),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def create_database(self, *, empty: bool = False) -> str:
        """The name of a new database, with the schema of the store unless it is to be empty."""
        if not empty and not self._template:
            self.execute("CREATE DATABASE antiphon_template")
            in_a_thread(lambda: _migrate(self.url("antiphon_template")))
            self._template = True
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {'template0' if empty else 'antiphon_template'}")
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, whoever is connected to it."""
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def database_of(self, folder: Path) -> str:
        """The database that stands for a folder: the same one for the same folder, made at the first call."""
        key = str(folder)
        if key not in self._kept:
            self._kept[key] = self.create_database()
            while len(self._kept) > MOST_DATABASES:
                self.drop_database(self._kept.popitem(last=False)[1])
        self._kept.move_to_end(key)
        return self._kept[key]

    def _initialize(self) -> None:
        secret = self.folder / "password"
        secret.write_text(PASSWORD + "\n")
        if self._user:
            entry = pwd.getpwnam(self._user["user"])
            for path in (self.folder, secret):
                os.chown(path, entry.pw_uid, entry.pw_gid)
        arguments = ["-D", str(self.folder / "data"), "-U", OWNER, "--encoding=UTF8", "--locale=C", "--no-sync"]
        arguments += ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}"]
        self._run("initdb", *arguments)
        self.start()

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        done = subprocess.run(
            [str(self._programs / program), *arguments], capture_output=True, cwd=self.folder, check=False, **self._user
        )
        assert done.returncode == 0 or not check, done.stderr.decode()
        return done.returncode


def cluster() -> Cluster:
    """The cluster of this session, started at the first call; skips the test where there are no binaries."""
    reason = missing()
    if reason is not None:
        if os.environ.get("ANTIPHON_REQUIRE_POSTGRES") == "1":
            pytest.fail(f"PostgreSQL is required: {reason}")
        pytest.skip(reason)
    return _started()


def database_for(folder: Path) -> str:
    """The address of the database that stands for a folder."""
    running = cluster()
    return running.url(running.database_of(folder))


@functools.cache
def _started() -> Cluster:
    programs = binaries()
    assert programs is not None
    started = Cluster(programs)
    atexit.register(started.remove)
    return started


async def _migrate(url: str) -> None:
    store = PostgresStore(url, StoreLimits())
    await store.open()
    await store.close()


def _other_user() -> dict[str, Any]:
    """What lets a subprocess of root's run as another user; nothing for anyone else."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": name, "group": entry.pw_gid, "extra_groups": []}
    raise RuntimeError("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody'")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
