"""The process that reads documents and images: it may die of one, and the server does not.

Run as `python -m antiphon.corpus.child`. Standard input holds one job: a line of JSON, then the bytes of the file.
Standard output gets one line of JSON: `{"text"}` of a document, `{"format"}` of an image, or `{"fault"}`, a code of
`antiphon.corpus.documents`. What needs more processor time or memory than there is ends the process, which is its
answer. It imports the standard library and the libraries that read documents only.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import resource
import signal
import sys
import warnings
import zipfile
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["main"]

CPU_SECONDS: Final = 10
"""Processor time that one file may take."""

MEMORY: Final = 3 * 2**29
"""Bytes of address space that the process may have."""

MOST_ENTRIES: Final = 2_000
MOST_EXPANDED: Final = 200_000_000
MOST_RATIO: Final = 100
"""What an archive may hold (faults B2 15): entries, bytes when expanded, and how many times its own size."""

_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")
_OFFICE: Final = {"word/document.xml": "docx", "xl/workbook.xml": "xlsx", "ppt/presentation.xml": "pptx"}
_ENCRYPTED: Final = 1
_DECLARATIONS: Final = tuple(
    word.encode(encoding) for word in ("<!DOCTYPE", "<!ENTITY") for encoding in ("utf-8", "utf-16-le", "utf-16-be")
)
_HTML: Final = (".html", ".htm", ".xhtml")


class _FaultError(Exception):
    """A file that is not read; its argument is the code."""


def main() -> None:
    """Do the job on standard input."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    job: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    try:
        answer = _done(job, sys.stdin.buffer.read())
    except _FaultError as fault:
        answer = {"fault": fault.args[0]}
    except (MemoryError, RecursionError):
        answer = {"fault": "too_much"}
    except Exception:  # noqa: BLE001 - the libraries raise anything, and none of their words may leave (B3 17)
        answer = {"fault": "unreadable"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _done(job: dict[str, Any], data: bytes) -> dict[str, Any]:
    if job["kind"] == "image":
        return {"format": _image(data, job["most"])}
    text = _text(data, job["name"].lower(), job["most"])
    if not text.strip():
        raise _FaultError("no_text")
    return {"text": text}


def _image(data: bytes, most: int) -> str:
    """The format of an image of at most so many pixels, which its header says before anything is decoded."""
    pillow: Any = importlib.import_module("PIL.Image")
    pillow.MAX_IMAGE_PIXELS = None
    try:
        image = pillow.open(io.BytesIO(data), formats=_FORMATS)
    except OSError:
        raise _FaultError("unsupported") from None
    width, height = image.size
    if width * height > most:
        raise _FaultError("too_large")
    image.load()
    return str(image.format).lower()


def _text(data: bytes, name: str, most: int) -> str:
    if data.startswith(b"%PDF-"):
        return _bounded(_pdf(data), most)
    if data.startswith(b"PK"):
        return _bounded(_office(data), most)
    text = _decoded(data)
    start = text[:256].lstrip().lower()
    if name.endswith(_HTML) or start.startswith(("<!doctype html", "<html")):
        text = _markdown(text)
    return _bounded([text], most)


def _bounded(pieces: Iterable[str], most: int) -> str:
    found: list[str] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise _FaultError("too_long")
        found.append(piece)
    return "".join(found)


def _decoded(data: bytes) -> str:
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        raise _FaultError("unsupported") from None
    if "\0" in text:
        raise _FaultError("unsupported")
    return text


def _pdf(data: bytes) -> Iterable[str]:
    pdfium: Any = importlib.import_module("pypdfium2")
    document = pdfium.PdfDocument(data)
    for index in range(len(document)):
        page = document[index]
        text = page.get_textpage()
        yield text.get_text_bounded().replace("\r\n", "\n") + "\n\n"
        text.close()
        page.close()


def _office(data: bytes) -> Iterable[str]:
    kind = _checked_archive(data)
    if kind == "docx":
        return _docx(data)
    return _xlsx(data) if kind == "xlsx" else _pptx(data)


def _checked_archive(data: bytes) -> str:
    """The kind of an archive that is safe to open; archives in it are never opened."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        # Sizes can lie, but nobody gets more bytes out of an entry than it says that it has.
        expanded = sum(entry.file_size for entry in entries)
        if len(entries) > MOST_ENTRIES or expanded > min(MOST_EXPANDED, MOST_RATIO * len(data)):
            raise _FaultError("archive")
        if any(entry.flag_bits & _ENCRYPTED for entry in entries):
            raise _FaultError("unreadable")
        kinds = [kind for name, kind in _OFFICE.items() if name in archive.NameToInfo]
        if len(kinds) != 1:
            raise _FaultError("unsupported")
        for entry in entries:
            if entry.filename.lower().endswith((".xml", ".rels")):
                content = archive.read(entry)
                # Office documents declare no entities: what does wants them expanded.
                if any(word in content for word in _DECLARATIONS):
                    raise _FaultError("archive")
    return kinds[0]


def _docx(data: bytes) -> Iterable[str]:
    mammoth: Any = importlib.import_module("mammoth")
    without: Any = mammoth.images.img_element(_no_picture)
    yield _markdown(mammoth.convert_to_html(io.BytesIO(data), convert_image=without).value)


def _no_picture(_: object) -> dict[str, str]:
    return {"src": ""}


def _xlsx(data: bytes) -> Iterable[str]:
    openpyxl: Any = importlib.import_module("openpyxl")
    book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    for sheet in book.worksheets:
        yield f"## {sheet.title}\n\n"
        for row in sheet.iter_rows(values_only=True):
            if any(value is not None for value in row):
                line = io.StringIO()
                csv.writer(line, lineterminator="\n").writerow(row)
                yield line.getvalue()
        yield "\n"


def _pptx(data: bytes) -> Iterable[str]:
    pptx: Any = importlib.import_module("pptx")
    for number, slide in enumerate(pptx.Presentation(io.BytesIO(data)).slides, 1):
        yield f"## Slide {number}\n\n"
        for shape in slide.shapes:
            if shape.has_text_frame:
                yield shape.text_frame.text + "\n"
            elif shape.has_table:
                for row in shape.table.rows:
                    yield " | ".join(cell.text for cell in row.cells) + "\n"
        if slide.has_notes_slide:
            yield f"Notes: {slide.notes_slide.notes_text_frame.text}\n"
        yield "\n"


def _markdown(html: str) -> str:
    soup: Any = importlib.import_module("bs4").BeautifulSoup(html, "html.parser")
    for tag in soup(["script", "style", "template", "noscript", "img"]):
        tag.decompose()
    converter: Any = importlib.import_module("markdownify").MarkdownConverter(heading_style="ATX")
    return str(converter.convert_soup(soup)).strip() + "\n"


if __name__ == "__main__":
    main()
