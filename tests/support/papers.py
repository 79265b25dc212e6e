"""Documents to read, made by hand or by the libraries that write them."""

from __future__ import annotations

import importlib
import io
import struct
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

__all__ = ["WORD", "archive", "docx_file", "pdf_file", "png_claiming", "pptx_file", "xlsx_file"]


def png_claiming(width: int, height: int) -> bytes:
    """A valid 1-bit PNG of that size, all black."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(bytes((width // 8 + 1) * height), 1)
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def archive(entries: dict[str, bytes]) -> bytes:
    """An archive with these entries."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as found:
        for name, data in entries.items():
            found.writestr(name, data)
    return out.getvalue()


WORD = '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>{}</w:body></w:document>'


def docx_file(body: str = "<w:p><w:r><w:t>The walrus speaks.</w:t></w:r></w:p>", **more: bytes) -> bytes:
    """A text document, with more entries in its archive."""
    return archive({"word/document.xml": WORD.format(body).encode(), **more})


def xlsx_file(rows: Sequence[Sequence[object]] = (("high", 4.5),)) -> bytes:
    """A workbook of one sheet, Tides."""
    openpyxl: Any = importlib.import_module("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "Tides"
    for row in rows:
        book.active.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def pptx_file() -> bytes:
    """A show of one slide."""
    pptx: Any = importlib.import_module("pptx")
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[5])
    slide.shapes.title.text = "Antiphon in one slide"
    out = io.BytesIO()
    show.save(out)
    return out.getvalue()


def pdf_file(*pages: str) -> bytes:
    """A PDF with a line on each page, written by hand; its table of contents is left for readers to mend."""
    texts = pages or ("Vespers at six.",)
    kids = " ".join(f"{3 + 2 * index} 0 R" for index in range(len(texts)))
    found = [
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n",
        f"2 0 obj<</Type/Pages/Kids[{kids}]/Count {len(texts)}>>endobj\n".encode(),
    ]
    for index, text in enumerate(texts):
        page, content = 3 + 2 * index, 4 + 2 * index
        stream = f"BT /F1 24 Tf 50 100 Td ({text}) Tj ET"
        found.append(
            (
                f"{page} 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 4000 200]/Contents {content} 0 R"
                "/Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>endobj\n"
                f"{content} 0 obj<</Length {len(stream)}>>stream\n{stream}\nendstream endobj\n"
            ).encode()
        )
    return b"".join([*found, b"trailer<</Root 1 0 R>>\n%%EOF"])
