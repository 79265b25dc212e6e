"""The folder of a child's socket, and what servers that were killed left behind."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
from pathlib import Path

import pytest

from antiphon.engines.llamacpp.folder import PrivateFolder, remove_stale


@pytest.fixture
def dead() -> int:
    """The id of a process that does not live any more."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def left_behind(parent: Path, process: int, name: str = "abc", mode: int = 0o700) -> Path:
    folder = parent / f"antiphon-{process}-{name}"
    folder.mkdir()
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(folder / "1.sock"))
    bound.close()
    folder.chmod(mode)
    return folder


@pytest.mark.requirement("engine:child:folder")
def test_a_folder_in_use_is_private_and_stays(tmp_path: Path) -> None:
    folder = PrivateFolder(tmp_path)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert folder.path.name.startswith(f"antiphon-{os.getpid()}-")
    remove_stale(tmp_path)
    assert folder.path.is_dir()
    folder.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("engine:child:folder")
def test_what_is_locked_stays_whatever_its_process(tmp_path: Path, dead: int) -> None:
    folder = PrivateFolder(tmp_path)
    other = folder.path.rename(tmp_path / f"antiphon-{dead}-other")
    remove_stale(tmp_path)
    assert other.is_dir()
    folder.close()
    remove_stale(tmp_path)
    assert not other.exists()


@pytest.mark.requirement("engine:child:folder")
def test_a_folder_that_goes_before_it_is_locked_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock
    swept: list[list[Path]] = []

    def sweep_first(descriptor: int, operation: int) -> None:
        if not swept:
            swept.append(list(tmp_path.iterdir()))
            remove_stale(tmp_path)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    folder = PrivateFolder(tmp_path)
    assert [path.exists() for path in swept[0]] == [False]
    assert list(tmp_path.iterdir()) == [folder.path]
    remove_stale(tmp_path)
    assert folder.path.is_dir()
    folder.close()


@pytest.mark.requirement("engine:child:folder")
def test_what_is_stale_goes_and_all_else_stays(tmp_path: Path, dead: int) -> None:
    # A container's server has the same process id each time.
    stale = [left_behind(tmp_path, dead), left_behind(tmp_path, os.getpid())]
    kept = [
        left_behind(tmp_path, os.getppid()),
        left_behind(tmp_path, dead, "open", 0o755),
        left_behind(tmp_path, dead, "full"),
        tmp_path / "antiphon-xyz",
        tmp_path / f"antiphon-{dead}-link",
        tmp_path / f"antiphon-{dead}-file",
    ]
    (kept[2] / "note.txt").write_text("mine")
    kept[3].mkdir(mode=0o700)
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    kept[4].symlink_to(target)
    kept[5].write_text("")
    remove_stale(tmp_path)
    assert [path for path in stale if path.exists()] == []
    assert [path for path in (*kept, target, kept[2] / "note.txt") if not path.exists()] == []
    remove_stale(tmp_path / "nowhere")
