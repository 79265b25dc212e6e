"""Of a folder, documents are taken, and what is left out is told with the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from antiphon.cli.folder import Candidate, NotTakenError, Skipped, candidates, read_document

requirement = pytest.mark.requirement


@requirement("ingest:command:folder")
def test_a_folder_is_walked_without_what_is_hidden_linked_or_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "docs"
    for name in (
        "a.md",
        "b/c.txt",
        ".hidden.md",
        ".git/config",
        "node_modules/x.js",
        "b/__pycache__/d.pyc",
        "e.md~",
        "f.swp",
    ):
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")
    (docs / "g.md").symlink_to("/etc/hostname")
    (docs / "h").symlink_to("/etc")
    (docs / "up.md").symlink_to("a.md")
    odd = Path(os.fsdecode(os.fsencode(docs) + b"/\xff"))
    odd.mkdir()
    (odd / "i.md").write_text("text")
    found = list(candidates([docs]))
    assert [each.name for each in found if isinstance(each, Candidate)] == ["docs/a.md", "docs/b/c.txt"]
    assert {(each.name, each.reason) for each in found if isinstance(each, Skipped)} == {
        ("docs/e.md~", "a temporary file"),
        ("docs/f.swp", "a temporary file"),
        ("docs/g.md", "a link"),
        ("docs/h", "a link"),
        ("docs/up.md", "a link"),
        ("docs/?/i.md", "a name that cannot be kept"),
    }
    # A folder goes by its own name however it is named, and a file by the path that leads to it from here.
    monkeypatch.chdir(docs)
    assert next(iter(candidates([Path()]))).name == "docs/a.md"
    assert [each.name for each in candidates([Path("b/c.txt"), Path("../docs/a.md"), docs / "a.md"])] == [
        "b/c.txt",
        "a.md",
        "a.md",
    ]


@requirement("ingest:command:folder")
@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.md", b"x" * 11, "larger than 10 bytes"),
        ("a.md", b" \n", "empty"),
        ("a.bin", b"\x7fELF\0", "neither text nor"),
        ("a.txt", b"a\0b", "neither text nor"),
        ("a.unknown", b"\xff\xff", "neither text nor"),
        ("a.png", b"\x89PNG\r\n", "neither text nor"),
    ],
)
def test_what_is_no_document_is_not_read(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(NotTakenError, match=reason):
        read_document(Candidate(path, name), 10)


@requirement("ingest:command:folder")
def test_text_of_any_name_and_documents_are_read_and_no_link_is_followed(tmp_path: Path) -> None:
    for name, data in (("a.unknown", "ä" * 5), ("b.pdf", "%PDF"), ("LICENSE", "free"), ("c.txt", "\ufeffx")):
        path = tmp_path / name
        path.write_bytes(data.encode("utf-16" if name == "c.txt" else "utf-8"))
        assert read_document(Candidate(path, name), 10) == path.read_bytes()
    # The letter at the end of what is looked at may be cut.
    path = tmp_path / "d.txt"
    path.write_text("a" + "ä" * 8_000)
    assert len(read_document(Candidate(path, "d.txt"), 10**6)) == 16_001
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(path)
    os.mkfifo(pipe)
    for found, reason in ((link, "a link"), (pipe, "no plain file"), (tmp_path / "gone", "no such file")):
        with pytest.raises(NotTakenError, match=reason):
            read_document(Candidate(found, "x.md"), 10)
