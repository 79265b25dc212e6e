"""Files are read and cut in a process apart: every format with what is known of its places, faults with what to do."""

from __future__ import annotations

import asyncio
import importlib
import io
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from antiphon.child_process import ChildProcess
from antiphon.corpus import parsing
from antiphon.corpus.chunking import AUTO, Chunk, Chunking
from antiphon.corpus.parsing import UnreadableFileError, read_chunks
from support.papers import WORD, archive, docx_file, pdf_file, png_claiming, pptx_file, xlsx_file

pytest.importorskip("mammoth")
requirement = pytest.mark.requirement

HEADED = (
    "<w:p><w:pPr><w:pStyle w:val='Heading1'/></w:pPr><w:r><w:t>Walrus</w:t></w:r></w:p>"
    "<w:p><w:r><w:t>It speaks.</w:t></w:r></w:p>"
)
STYLES = (
    b"<w:styles xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'>"
    b"<w:style w:type='paragraph' w:styleId='Heading1'><w:name w:val='heading 1'/></w:style></w:styles>"
)


async def pieces(data: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for begun in range(0, len(data), size):
        yield data[begun : begun + size]


async def read(name: str, data: bytes, chunking: Chunking = AUTO, **more: Any) -> list[Chunk]:
    return [chunk async for some in read_chunks(pieces(data), name, chunking, **more) for chunk in some]


@requirement("ingest:parse")
@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.md", b"# Psalm\n\nSing.\n", [("Psalm", "Sing.", {"type": "text", "line": 3, "last_line": 3})]),
        ("a.html", b"<h1>Psalm</h1><script>alert(1)</script><p>Sing.</p>", [("Psalm", "Sing.", {"type": "text"})]),
        ("a.docx", docx_file(HEADED, **{"word/styles.xml": STYLES}), [("Walrus", "It speaks.", {"type": "text"})]),
        (
            "a.xlsx",
            xlsx_file([("tide", "m"), (), ("high", 4.5)]),
            [("Tides", "tide,m\nhigh,4.5", {"type": "rows", "row": 1, "last_row": 3})],
        ),
        ("a.pptx", pptx_file(), [("Slide 1", "Antiphon in one slide", {"type": "text", "slide": 1, "last_slide": 1})]),
        (
            "a.pdf",
            pdf_file("Lauds.", "Vespers."),
            [("", "Lauds.\n\nVespers.", {"type": "text", "page": 1, "last_page": 2})],
        ),
        ("a.py", "print('ä')\r\n".encode(), [("", "print('ä')", {"type": "code", "line": 1, "last_line": 1})]),
        ("a.csv", b"a,b\n1,2\n", [("", "a,b\n1,2", {"type": "rows", "line": 1, "last_line": 2})]),
        ("a.json", b'{"a": 1}', [("", '{"a": 1}', {"type": "record", "line": 1, "last_line": 1})]),
        ("a.jsonl", b'{"a": 1}\n{}\n', [("", '{"a": 1}\n{}', {"type": "record", "line": 1, "last_line": 2})]),
        (
            "a.txt",
            "à bientôt\x01".encode("utf-16"),
            [("", "à bientôt", {"type": "text", "line": 1, "last_line": 1})],
        ),
    ],
)
async def test_every_format_is_cut_with_its_structure(
    name: str, data: bytes, told: Sequence[tuple[str, str, Any]]
) -> None:
    assert [(chunk.heading, chunk.text, chunk.detail) for chunk in await read(name, data)] == told


@requirement("ingest:parse:faults")
@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("a.docx", docx_file(**{"word/media/a.bin": bytes(4_000_000)}), "invalid_file"),
        ("a.docx", docx_file(**{f"word/media/{number}": b"" for number in range(2_000)}), "invalid_file"),
        ("a.docx", archive({"word/document.xml": b'<!DOCTYPE a [<!ENTITY b "c">]>' + WORD.encode()}), "invalid_file"),
        ("a.zip", archive({"inner.docx": docx_file()}), "unsupported_file"),
        ("a.docx", b"PK\x03\x04 and no more", "invalid_file"),
        ("a.pdf", b"%PDF-1.4 and no more", "invalid_file"),
        ("a.pdf", pdf_file(""), "invalid_file"),
        ("a.png", png_claiming(30_000, 30_000), "unsupported_file"),
        ("a.txt", b"text " * 1_000 + b"\0", "unsupported_file"),
        ("a.txt", b"text " * 1_000 + b"\xff\xfe", "unsupported_file"),
        ("a.rtf", b"{\\rtf1 text}", "unsupported_file"),
        ("a.txt", b" \n", "invalid_file"),
        ("a.md", b"word " * 3_000, "invalid_file"),
        ("a.html", b"<p>" + b"word " * 3_000, "invalid_file"),
    ],
    ids=range(14),
)
async def test_what_cannot_be_read_says_what_to_do_and_nothing_of_the_server(name: str, data: bytes, code: str) -> None:
    with pytest.raises(UnreadableFileError) as refused:
        await read(name, data, most=10_000)
    assert refused.value.code == code
    assert refused.value.message.endswith(".")
    assert not re.search(r"0x|/|Error|Traceback", refused.value.message)


@requirement("ingest:parse:faults")
async def test_a_file_that_takes_its_process_down_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[ChildProcess] = []
    start = ChildProcess.start

    async def killed(module: str, *, longest_line: int = 0) -> ChildProcess:
        started.append(await start(module, longest_line=longest_line))
        started[0]._process.kill()
        return started[0]

    monkeypatch.setattr(ChildProcess, "start", killed)
    with pytest.raises(UnreadableFileError, match="more time or memory"):
        await read("a.txt", b"text")
    assert started[0].ended


@requirement("ingest:parse:faults")
async def test_one_that_says_nothing_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_WALL_SECONDS", 0.3)

    async def never() -> AsyncIterator[bytes]:
        yield b"text"
        await asyncio.Event().wait()

    with pytest.raises(UnreadableFileError, match="more time or memory"):
        await anext(read_chunks(never(), "a.txt", AUTO))


@requirement("ingest:parse:pieces")
async def test_a_big_text_is_cut_while_it_comes_in_and_no_faster_than_its_chunks_are_taken() -> None:
    fed = 0
    line = b"A sentence of nine words that says not much. " * 20 + b"\n\n"

    async def endless() -> AsyncIterator[bytes]:
        nonlocal fed
        while True:
            fed += 1
            yield line * 70

    chunks = read_chunks(endless(), "a.txt", AUTO)
    first = await anext(chunks)
    assert len(first) == 32
    await anext(chunks)
    # The pipes are full, and what was not taken is not made.
    assert fed < 400
    await chunks.aclose()
    before = fed
    await asyncio.sleep(0)
    assert fed == before


@requirement("ingest:parse:pieces")
async def test_what_cannot_be_brought_is_no_fault_of_the_file() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"text"
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await anext(read_chunks(broken(), "a.txt", AUTO))


@requirement("ingest:parse:pieces")
async def test_a_process_that_is_started_when_nobody_waits_any_more_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    start = ChildProcess.start
    begun, go_on = asyncio.Event(), asyncio.Event()
    started: list[ChildProcess] = []

    async def slow(module: str, *, longest_line: int = 0) -> ChildProcess:
        begun.set()
        await go_on.wait()
        started.append(await start(module, longest_line=longest_line))
        return started[0]

    monkeypatch.setattr(ChildProcess, "start", slow)
    reading = asyncio.create_task(read("a.txt", b"text"))
    await begun.wait()
    reading.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert started[0].ended


@requirement("ingest:bounded")
async def test_a_cell_at_the_far_end_of_a_sheet_makes_no_other_row_as_wide() -> None:
    openpyxl: Any = importlib.import_module("openpyxl")
    book = openpyxl.Workbook()
    book.active.cell(1, 1, "near")
    book.active.cell(100_000, 16_384, "far")
    out = io.BytesIO()
    book.save(out)
    # As wide, they would be 1,638,400,000 cells, for which no time is given.
    chunks = await read("a.xlsx", out.getvalue())
    assert chunks[0].text.startswith("near")
    assert chunks[-1].text.endswith("far")
    assert chunks[-1].detail["last_row"] == 100_000
