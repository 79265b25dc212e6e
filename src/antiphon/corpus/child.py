"""The process that reads documents and images: it may die of one, and the server does not.

Run as `python -m antiphon.corpus.child`. Standard input holds one job: a line of JSON, then the bytes of the file.
Standard output gets one line of JSON: `{"text"}` of a document, `{"format"}` of an image, or `{"fault"}`, a code of
`antiphon.corpus.documents`. A document that is to be cut is answered with lines of `{"chunks"}`, and one of `{"end"}`
after them or a fault; one that is text is read and cut piece by piece. What needs more processor time or memory than
there is ends the process, which is its answer. It imports the standard library, the libraries that read documents, and
what cuts them only.
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
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

from antiphon.corpus.blocks import Block, clean
from antiphon.corpus.chunk_code import code_blocks
from antiphon.corpus.chunk_markdown import markdown_blocks
from antiphon.corpus.chunk_rows import csv_blocks, json_blocks, json_line_blocks, sheet_blocks
from antiphon.corpus.chunk_text import page_blocks, text_blocks
from antiphon.corpus.chunking import Chunking, pack
from antiphon.corpus.formats import format_of

__all__ = ["main"]

CPU_SECONDS: Final = 10
"""Processor time that one file may take."""

CPU_SECONDS_CUT: Final = 120
"""Processor time that one may take to be cut into chunks: it may be the largest that can be uploaded."""

MEMORY: Final = 3 * 2**29
"""Bytes of address space that the process may have."""

MOST_ENTRIES: Final = 2_000
MOST_EXPANDED: Final = 200_000_000
MOST_RATIO: Final = 100
"""What an archive may hold (faults B2 15): entries, bytes when expanded, and how many times its own size."""

MOST_BINARY: Final = 256 * 1024 * 1024
"""Bytes of a file that has to be in memory as a whole to be read."""

_HEAD: Final = 1024
_LONGEST_LINE: Final = 1_000_000
_CHUNKS_A_LINE: Final = 32
_CHARACTERS_A_LINE: Final = 200_000
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
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    job: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    seconds = CPU_SECONDS_CUT if job["kind"] == "chunks" else CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        answer = _cut(job, sys.stdin.buffer) if job["kind"] == "chunks" else _done(job, sys.stdin.buffer.read())
    except _FaultError as fault:
        answer = {"fault": fault.args[0]}
    except ModuleNotFoundError:
        answer = {"fault": "missing"}
    except (MemoryError, RecursionError):
        answer = {"fault": "too_much"}
    except Exception:  # noqa: BLE001 - the libraries raise anything, and none of their words may leave (B3 17)
        answer = {"fault": "unreadable"}
    _say(answer)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
    sys.stdout.buffer.flush()


def _cut(job: dict[str, Any], file: IO[bytes]) -> dict[str, Any]:
    """Say the chunks of a file while it comes in."""
    count = size = 0
    held: list[tuple[str, str, dict[str, Any]]] = []
    for chunk in pack(_blocks(file, job["name"], job["most"]), Chunking(job["size"], job["overlap"])):
        held.append(chunk[:3])
        count += 1
        size += len(chunk.text)
        if len(held) == _CHUNKS_A_LINE or size >= _CHARACTERS_A_LINE:
            _say({"chunks": held})
            held, size = [], 0
    if not count:
        raise _FaultError("no_text")
    if held:
        _say({"chunks": held})
    return {"end": count}


def _blocks(file: IO[bytes], name: str, most: int) -> Iterable[Block]:
    head = file.read(_HEAD)
    form = format_of(name, head)
    if form in ("pdf", "archive"):
        data = head + file.read(MOST_BINARY)
        if len(data) > MOST_BINARY:
            raise _FaultError("too_much")
        return _held_to(_pdf_blocks(data) if form == "pdf" else _office_blocks(data), most)
    if head.startswith(b"{\\rtf"):
        raise _FaultError("unsupported")
    lines = _lines(head, file, most)
    if form == "html":
        return _held_to(_markdown_blocks("".join(lines)), most)
    if form == "json":
        return json_blocks("".join(lines))
    blocks = {"markdown": markdown_blocks, "csv": csv_blocks, "jsonl": json_line_blocks, "code": code_blocks}
    return blocks.get(form, text_blocks)(lines)


def _lines(head: bytes, file: IO[bytes], most: int) -> Iterator[str]:
    """The lines of a file of at most so many characters; one that is very long comes in several."""
    encoding = _encoding(head)
    left = most
    try:
        with io.TextIOWrapper(io.BufferedReader(_Joined(head, file)), encoding) as text:
            while line := text.readline(_LONGEST_LINE):
                left -= len(line)
                if left < 0:
                    raise _FaultError("too_long")
                if "\0" in line:
                    raise _FaultError("unsupported")
                yield clean(line)
    except UnicodeDecodeError:
        raise _FaultError("unsupported") from None


class _Joined(io.RawIOBase):
    """A file whose beginning has been read already."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        found = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(found) :]
        buffer[: len(found)] = found
        return len(found)


def _held_to(blocks: Iterable[Block], most: int) -> Iterator[Block]:
    left = most
    for block in blocks:
        left -= len(block.text)
        if left < 0:
            raise _FaultError("too_long")
        yield block


def _pdf_blocks(data: bytes) -> Iterator[Block]:
    for number, text in enumerate(_pages(data), 1):
        yield from page_blocks(f"{clean(text)}\n\n", "page", number)


def _office_blocks(data: bytes) -> Iterator[Block]:
    kind = _checked_archive(data)
    if kind == "docx":
        yield from markdown_blocks(clean("".join(_docx(data))).splitlines(keepends=True), "")
    elif kind == "xlsx":
        for title, rows in _sheets(data):
            yield from sheet_blocks(clean(title), ((number, clean(row)) for number, row in rows))
    else:
        for number, text in enumerate(_slides(data), 1):
            title = f"Slide {number}"
            yield Block(f"## {title}\n", "heading", 2, title, "slide", number, number)
            yield from page_blocks(clean(text), "slide", number)


def _markdown_blocks(html: str) -> Iterator[Block]:
    return markdown_blocks(clean(_markdown(html)).splitlines(keepends=True), "")


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
    try:
        text = data.decode(_encoding(data))
    except UnicodeDecodeError:
        raise _FaultError("unsupported") from None
    if "\0" in text:
        raise _FaultError("unsupported")
    return text


def _encoding(head: bytes) -> str:
    return "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"


def _pdf(data: bytes) -> Iterable[str]:
    return (f"{text}\n\n" for text in _pages(data))


def _pages(data: bytes) -> Iterator[str]:
    pdfium: Any = importlib.import_module("pypdfium2")
    document = pdfium.PdfDocument(data)
    for index in range(len(document)):
        page = document[index]
        text = page.get_textpage()
        yield text.get_text_bounded().replace("\r\n", "\n")
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


def _xlsx(data: bytes) -> Iterator[str]:
    for title, rows in _sheets(data):
        yield f"## {title}\n\n"
        yield from (row for _, row in rows)
        yield "\n"


def _sheets(data: bytes) -> Iterator[tuple[str, Iterator[tuple[int, str]]]]:
    """The sheets of a workbook: their titles, and their rows that are not empty, numbered, as lines of CSV."""
    openpyxl: Any = importlib.import_module("openpyxl")
    book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    for sheet in book.worksheets:
        # What a sheet says of its size is not believed: a cell at its far end would make every row as wide.
        sheet.reset_dimensions()
        yield str(sheet.title), _rows(sheet)


def _rows(sheet: Any) -> Iterator[tuple[int, str]]:
    for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
        if any(value is not None for value in row):
            line = io.StringIO()
            csv.writer(line, lineterminator="\n").writerow(row)
            yield number, line.getvalue()


def _pptx(data: bytes) -> Iterator[str]:
    for number, text in enumerate(_slides(data), 1):
        yield f"## Slide {number}\n\n{text}\n"


def _slides(data: bytes) -> Iterator[str]:
    pptx: Any = importlib.import_module("pptx")
    for slide in pptx.Presentation(io.BytesIO(data)).slides:
        found: list[str] = []
        for shape in slide.shapes:
            if shape.has_text_frame:
                found.append(f"{shape.text_frame.text}\n")
            elif shape.has_table:
                found += (" | ".join(cell.text for cell in row.cells) + "\n" for row in shape.table.rows)
        if slide.has_notes_slide:
            found.append(f"Notes: {slide.notes_slide.notes_text_frame.text}\n")
        yield "".join(found)


def _markdown(html: str) -> str:
    soup: Any = importlib.import_module("bs4").BeautifulSoup(html, "html.parser")
    for tag in soup(["script", "style", "template", "noscript", "img"]):
        tag.decompose()
    converter: Any = importlib.import_module("markdownify").MarkdownConverter(heading_style="ATX")
    return str(converter.convert_soup(soup)).strip() + "\n"


if __name__ == "__main__":
    main()
