"""Documents and images are read in a process apart, within limits that are checked before anything is opened."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest

from antiphon.child_process import ChildProcess
from antiphon.corpus.documents import DocumentReader
from antiphon.errors import InvalidRequestError
from support.papers import WORD, archive, docx_file, pdf_file, png_claiming, pptx_file, xlsx_file

docx: Any = pytest.importorskip("mammoth")
openpyxl: Any = pytest.importorskip("openpyxl")
pptx: Any = pytest.importorskip("pptx")
pillow: Any = pytest.importorskip("PIL.Image")

PIXELS = 50_000_000
CHARACTERS = 100_000


def image(form: str, size: tuple[int, int] = (8, 6)) -> bytes:
    out = io.BytesIO()
    pillow.new("RGB", size, "red").save(out, form)
    return out.getvalue()


@pytest.mark.requirement("corpus:documents")
@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.docx", docx_file(), "The walrus speaks."),
        ("a.xlsx", xlsx_file(), "## Tides\n\nhigh,4.5"),
        ("a.pptx", pptx_file(), "Antiphon in one slide"),
        ("a.pdf", pdf_file(), "Vespers at six."),
        ("a.html", b"<h1>Psalm</h1><script>alert(1)</script>", "# Psalm"),
        ("a.py", "print('ä')".encode(), "print('ä')"),
        ("a.csv", b"a,b\n1,2\n", "a,b\n1,2\n"),
        ("a.txt", "\ufeffà bientôt".encode("utf-16"), "à bientôt"),
    ],
)
async def test_documents_are_read(name: str, data: bytes, told: str) -> None:
    text = await DocumentReader().text(data, name, CHARACTERS, "ours")
    assert told in text
    assert "alert" not in text


@pytest.mark.requirement("corpus:documents:limits")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (docx_file(**{"word/media/a.bin": bytes(4_000_000)}), "file_too_large"),
        (docx_file(**{f"word/media/{number}": b"" for number in range(2_000)}), "file_too_large"),
        (archive({"word/document.xml": b'<!DOCTYPE a [<!ENTITY b "c">]>' + WORD.encode()}), "file_too_large"),
        (archive({"inner.docx": docx_file()}), "unsupported_file"),
        (b"PK\x03\x04 and no more", "file_parse_error"),
        (b"%PDF-1.4 and no more", "file_parse_error"),
        (b"a\0b", "unsupported_file"),
        (b" \n", "empty_file"),
        (b"a" * (CHARACTERS + 1), "file_too_large"),
    ],
    ids=["ratio", "entries", "entities", "nested", "cut-zip", "cut-pdf", "binary", "blank", "long"],
)
async def test_what_is_no_document_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await DocumentReader().text(data, "a", CHARACTERS, "ours")
    assert refused.value.code == code
    assert "0x" not in refused.value.message


@pytest.mark.requirement("corpus:images")
@pytest.mark.parametrize("form", ["png", "jpeg", "gif", "webp"])
async def test_images_are_known_by_their_content(form: str) -> None:
    assert await DocumentReader().image(image(form), PIXELS, "ours") == form


@pytest.mark.requirement("corpus:images:limits")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (png_claiming(30_000, 30_000), "image_too_large"),
        (image("bmp"), "unsupported_image_media_type"),
        (b"<svg/>", "unsupported_image_media_type"),
        (image("png", (64, 64))[:60], "image_parse_error"),
    ],
    ids=["pixels", "bmp", "svg", "cut"],
)
async def test_images_that_cannot_be_read_are_refused(data: bytes, code: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await DocumentReader().image(data, PIXELS, "ours")
    assert refused.value.code == code
    assert "0x" not in refused.value.message


@pytest.mark.requirement("corpus:fair")
async def test_a_tenant_whose_files_never_end_does_not_keep_another_from_reading(monkeypatch: pytest.MonkeyPatch):
    started: list[ChildProcess] = []
    start = ChildProcess.start

    async def hang(self: ChildProcess, job: bytes, most: int) -> bytes:
        del job, most
        await self._process.wait()
        return b""

    async def began(module: str) -> ChildProcess:
        process = await start(module)
        started.append(process)
        return process

    reader, real = DocumentReader(), ChildProcess.ask_all
    monkeypatch.setattr(ChildProcess, "start", began)
    monkeypatch.setattr(ChildProcess, "ask_all", hang)
    slow = [asyncio.create_task(reader.text(b"slow", "a.txt", 10, "slow")) for _ in range(6)]
    while len(started) < 2:
        await asyncio.sleep(0.01)
    monkeypatch.setattr(ChildProcess, "ask_all", real)
    assert await reader.text(b"Hi.", "a.txt", 10, "quick") == "Hi."
    assert len(started) == 3
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    assert await reader.text(b"Hi.", "a.txt", 10, "slow") == "Hi."
