"""Chunks: nothing of a document is lost, its order is kept, none is too long, and an overlap is what it says."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from antiphon.corpus.blocks import Block, by_lines, by_sentences, by_words, clean, split, tail, tokens
from antiphon.corpus.chunk_code import by_indent, code_blocks
from antiphon.corpus.chunk_markdown import markdown_blocks
from antiphon.corpus.chunk_rows import csv_blocks, json_blocks, json_line_blocks, sheet_blocks
from antiphon.corpus.chunk_text import page_blocks, text_blocks
from antiphon.corpus.chunking import AUTO, Chunk, Chunking, chunking_of, pack
from antiphon.corpus.formats import format_of, known, suffix_of

requirement = pytest.mark.requirement
SMALL = Chunking(100, 0)


def lines(text: str) -> io.StringIO:
    return io.StringIO(text)


FORMS: dict[str, Callable[[str], Iterator[Block]]] = {
    "text": lambda text: text_blocks(lines(text)),
    "markdown": lambda text: markdown_blocks(lines(text)),
    "code": lambda text: code_blocks(lines(text)),
    "csv": lambda text: csv_blocks(lines(text)),
    "jsonl": lambda text: json_line_blocks(lines(text)),
    "json": json_blocks,
    "pdf": lambda text: page_blocks(text, "page", 1),
}
PARTS = st.sampled_from(
    [
        "\n",
        "\n\n",
        " ",
        "word ",
        "a sentence. ",
        "Is it? ",
        "# Title\n",
        "## Below it ##\n",
        "Set\n===\n",
        "- item\n",
        "  - inner\n",
        "1. first\n",
        "```python\n",
        "```\n",
        "~~~\n",
        "| a | b |\n",
        "|---|---|\n",
        "| 1 | 2 |\n",
        "def f(x):\n",
        "    return x\n",
        "class A {\n",
        "}\n",
        '"quoted, and\nmore"\n',
        "a,b,c\n",
        "\t",
        "x" * 700,
        " " * 900,
        "Καλημέρα κόσμε. ",
        "日本語の文章です。",
        "🎼",
        "\n\n\n\n",
        "1234567890 ",
        '{"a": [1, {"b": "c"}]}',
        "`" * 14 + "\n",
        "word " * 90 + "\n",
        "one line. " * 60,
        "[[",
        "]",
        ",",
        '"k": ',
        "> quoted\n",
        "---\n",
        "a\x0bb\n\n",
        "\x1c",
    ]
)
DOCUMENTS = st.lists(PARTS, max_size=40).map("".join)
CHUNKINGS = st.sampled_from([AUTO, SMALL, Chunking(100, 50), Chunking(130, 17), Chunking(300, 150)])


def own(chunk: Chunk) -> str:
    """What a chunk has of its document that no earlier chunk has."""
    return chunk.text[chunk.repeated : len(chunk.text) - chunk.added]


def squeezed(text: str) -> str:
    return "".join(text.split())


def missing(document: str, chunks: list[Chunk]) -> str:
    """What is left of a document when the chunks are taken out of it in their order; lines of headings may be left."""
    rest: list[str] = []
    left = squeezed(document)
    for chunk in chunks:
        found = left.find(squeezed(own(chunk)))
        assert found >= 0, (chunk, left[:80])
        rest.append(left[:found])
        left = left[found + len(squeezed(own(chunk))) :]
    return "".join([*rest, left])


@requirement("ingest:chunks:whole", "ingest:chunks:sizes")
@pytest.mark.parametrize("form", FORMS)
@given(document=DOCUMENTS, chunking=CHUNKINGS)
@example(document="# A\n# B\n" + "word " * 400, chunking=AUTO)
@example(document="x" * 9_000, chunking=SMALL)
@example(document="| a | b |\n|---|---|\n" + "| word | 2 |\n" * 200, chunking=Chunking(100, 50))
@settings(max_examples=60, deadline=None)
def test_nothing_is_lost_and_nothing_is_too_long(form: str, document: str, chunking: Chunking) -> None:
    blocks = list(FORMS[form](document))
    assert squeezed("".join(block.text for block in blocks)) == squeezed(document)
    chunks = list(pack(blocks, chunking))
    assert all(tokens(chunk.text) <= chunking.size and own(chunk).strip() for chunk in chunks)
    # What is in no chunk's text is a heading, and stands in the path of one.
    headings = [squeezed(block.text) for block in blocks if block.level and block.text]
    paths = squeezed(" ".join(chunk.heading for chunk in chunks))
    left = missing(document, chunks)
    for block in blocks:
        if block.level and left.startswith(squeezed(block.text)) and squeezed(block.title) in paths:
            left = left[len(squeezed(block.text)) :]
    assert left == "", (left, headings, paths)


@requirement("ingest:chunks:overlap")
@given(
    words=st.lists(
        st.sampled_from(["a", "word", "sentences.", "hyphen-ated", "longestwords", "1984"]), min_size=200, max_size=300
    )
)
@settings(max_examples=20, deadline=None)
def test_the_overlap_is_the_longest_end_of_whole_words_that_is_allowed(words: list[str]) -> None:
    chunking = Chunking(100, 30)
    for before, chunk in pairwise(pack(text_blocks([" ".join(words)]), chunking)):
        again = chunk.text[: chunk.repeated].split()
        told = before.text.split()
        count = next(count for count in range(len(told), -1, -1) if tokens(" ".join(told[len(told) - count :])) <= 30)
        assert again == told[len(told) - count :]
        assert count > 0


@requirement("ingest:chunks:overlap")
def test_rows_and_lines_are_said_again_whole_and_a_header_before_them() -> None:
    rows = [f"{number},name {number},city\n" for number in range(100)]
    chunks = list(pack(csv_blocks(["id,name,place\n", *rows]), Chunking(100, 40)))
    for before, chunk in pairwise(chunks):
        header, *again = chunk.text[: chunk.repeated].splitlines(keepends=True)
        assert header == "id,name,place\n"
        assert again
        assert before.text.endswith("".join(again).rstrip())
    again = [own(chunk) for chunk in chunks]
    assert "".join(f"{text.rstrip()}\n" for text in again) == "".join(["id,name,place\n", *rows])
    assert chunks[1].detail["line"] == int(chunks[1].text.splitlines()[1].split(",")[0]) + 2


@requirement("ingest:chunks:markdown")
def test_markdown_is_cut_at_its_headings_which_are_told_as_paths() -> None:
    text = (
        "# Guide\n\nHello.\n\n## Install\n\n" + "Do this first. " * 61 + "\n\n### On Linux\n\nUse apt.\n\n## Use\n\n"
        "```python\nimport x\n\nx.run()\n```\n\nDone.\n"
    )
    chunks = list(pack(markdown_blocks(lines(text)), AUTO))
    assert [(chunk.heading, chunk.text[:16]) for chunk in chunks] == [
        ("Guide", "Hello."),
        ("Guide > Install", "Do this first. D"),
        ("Guide > Install > On Linux", "Use apt."),
        ("Guide > Use", "```python\nimport"),
    ]
    assert chunks[1].detail == {"type": "text", "line": 7, "last_line": 7}
    assert chunks[3].text == "```python\nimport x\n\nx.run()\n```\n\nDone."
    assert chunks[3].detail["line"] == 15


@requirement("ingest:chunks:markdown")
def test_small_sections_of_the_same_parents_share_a_chunk() -> None:
    text = (
        "# Terms\n\n" + "".join(f"## Term {number}\n\nWhat it means.\n\n" for number in range(30)) + "# Else\n\nMore.\n"
    )
    chunks = list(pack(markdown_blocks(lines(text)), AUTO))
    assert all(chunk.heading == "Terms" for chunk in chunks[:-1])
    assert chunks[-1].heading == "Else"
    assert 2 <= len(chunks) <= 6
    assert "## Term 3\n" in chunks[0].text


@requirement("ingest:chunks:markdown")
def test_fences_tables_and_lists_are_kept_together_and_reopened_where_they_are_too_long() -> None:
    code = "".join(f"value_{number} = {number}\n" for number in range(80))
    text = (
        f"Before.\n\n```python\n{code}```\n\nBetween.\n\n| a | b |\n|---|---|\n"
        + "| one | two |\n" * 60
        + "\n- x\n  y\n\n- z\n"
    )
    chunks = list(pack(markdown_blocks(lines(text)), AUTO))
    fenced = [chunk for chunk in chunks if "```python" in chunk.text]
    assert len(fenced) > 1
    assert all(chunk.text.count("```") == 2 for chunk in fenced)
    tables = [chunk for chunk in chunks if "| one | two |" in chunk.text]
    assert len(tables) > 1
    assert all("| a | b |\n|---|---|\n" in chunk.text for chunk in tables)
    kinds = [block.kind for block in markdown_blocks(lines(text))]
    assert kinds == ["text", "code", "text", "table", "list"]


@requirement("ingest:chunks:code")
@pytest.mark.parametrize(
    "source",
    [
        "import a\n\n\n@wraps(f)\ndef one(x):\n    return x\n\n\nclass Two:\n"
        + "\n    def m(self):\n        return 1\n" * 40,
        "package a\n\nfunc one() {\n\treturn\n}\n\ntype Two struct {\n"
        + "\n\t// field\n\tName string\n" * 60
        + "\n}\n",
        "use a;\n\nfn one() -> u8 {\n    1\n}\n\nimpl Two {\n"
        + "\n    fn m(&self) -> u8 {\n        1\n    }\n" * 40
        + "}\n",
        "const a = 1;\n\nfunction one() {\n  return 1;\n}\n\nexport class Two {\n"
        + "\n  m() {\n    return 1;\n  }\n" * 40
        + "}\n",
    ],
)
def test_source_code_is_cut_at_definitions_and_big_ones_at_what_is_in_them(source: str) -> None:
    blocks = list(code_blocks(lines(source)))
    assert len(blocks) == 3
    chunks = list(pack(blocks, AUTO))
    split_lines = source.split("\n")
    for chunk in chunks:
        assert split_lines[chunk.detail["line"] - 1] == chunk.text.split("\n")[0]
        assert split_lines[chunk.detail["last_line"] - 1] == chunk.text.split("\n")[-1]
    assert len(chunks) > 1
    assert all("Two" in chunk.heading for chunk in chunks[1:])


@requirement("ingest:chunks:records")
def test_big_members_of_json_stand_under_their_names_and_records_stay_whole() -> None:
    document = {
        "name": "all",
        "deep": {"members": [{"n": number, "text": "word " * 20} for number in range(30)]},
        "z": 1,
    }
    text = json.dumps(document, indent=1)
    chunks = list(pack(json_blocks(text), AUTO))
    assert {chunk.heading for chunk in chunks} == {"", "deep > members"}
    assert (chunks[0].heading, chunks[-1].heading) == ("", "")
    assert '"z": 1' in chunks[-1].text
    inner = [chunk for chunk in chunks if chunk.heading]
    assert sum(chunk.text.count('"n":') for chunk in inner) == 30
    assert all(chunk.text.lstrip("[ \n").startswith("{") for chunk in inner)
    records = "".join(json.dumps(record) + "\n" for record in document["deep"]["members"])
    cut = list(pack(json_line_blocks(lines(records)), AUTO))
    assert [json.loads(line) for chunk in cut for line in chunk.text.splitlines()] == document["deep"]["members"]
    assert cut[1].detail["line"] == cut[0].detail["last_line"] + 1
    # What claims to be JSON and is none is text; what is too deep for a parser is, too.
    for broken in ('{"a": 1', "[" * 100_000):
        assert squeezed("".join(own(chunk) for chunk in pack(json_blocks(broken), AUTO))) == broken.replace(" ", "")


@requirement("ingest:chunks:pages")
def test_pages_and_sheets_are_told_by_their_numbers() -> None:
    pages = [block for number in (1, 2, 3) for block in page_blocks("A sentence of it. " * 30, "page", number)]
    details = [chunk.detail for chunk in pack(pages, AUTO)]
    assert details[0]["page"] == 1
    assert details[-1]["last_page"] == 3
    assert all(detail["last_page"] - detail["page"] <= 1 for detail in details)
    rows = [(number + 1, f"{number},value\n") for number in range(150)]
    sheets = list(pack(sheet_blocks("Tides", rows), AUTO))
    assert all(chunk.heading == "Tides" and chunk.text.startswith("0,value\n") for chunk in sheets)
    assert sheets[1].detail["row"] == sheets[0].detail["last_row"] + 1


@requirement("ingest:chunks:strategy")
def test_the_strategies_of_openai_are_read_within_its_limits() -> None:
    assert chunking_of(None) == chunking_of({"type": "auto"}) == chunking_of({}) == AUTO
    static = {"max_chunk_size_tokens": 400, "chunk_overlap_tokens": 100}
    assert chunking_of({"type": "static", "static": static}) == Chunking(400, 100)
    assert chunking_of({"type": "static", "static": {}}) == Chunking(800, 400)
    assert chunking_of({"type": "static", "static": {"max_chunk_size_tokens": 200}}) == Chunking(200, 100)
    for wrong in (
        {"type": "else"},
        {"type": "static"},
        {"type": "static", "static": {"max_chunk_size_tokens": 99}},
        {"type": "static", "static": {"max_chunk_size_tokens": 4097}},
        {"type": "static", "static": {"max_chunk_size_tokens": True}},
        {"type": "static", "static": {"max_chunk_size_tokens": 200, "chunk_overlap_tokens": 101}},
        {"type": "static", "static": {"max_chunk_size_tokens": 200, "chunk_overlap_tokens": -1}},
    ):
        with pytest.raises(ValueError, match="must be"):
            chunking_of(wrong)


@requirement("ingest:chunks:sizes")
def test_tokens_count_what_a_tokenizer_would_and_never_less_for_two_parts_than_for_both() -> None:
    assert tokens("") == 0
    assert tokens("Two words.") == 3
    assert tokens("internationalization") == 4
    assert tokens("日本語") == 3
    assert tokens(" " * 160) == 10
    text = "def f(x):\n    return x  # naïve"
    assert all(tokens(text) <= tokens(text[:cut]) + tokens(text[cut:]) for cut in range(len(text)))
    assert clean("a\x00b\ud800c\n\td") == "a b c\n\td"


@requirement("ingest:chunks:whole")
@given(text=DOCUMENTS, most=st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_a_text_that_is_cut_is_its_parts_and_an_end_of_it_is_within_its_bound(text: str, most: int) -> None:
    for splitters in ((), (by_words,), (by_sentences, by_lines, by_words), (by_indent, by_lines)):
        parts = list(split(text, most, splitters))
        assert "".join(parts) == text
        assert all(tokens(part) <= most for part in parts)
    for whole_lines in (True, False):
        end = tail(text, most, whole_lines=whole_lines)
        assert text.endswith(end)
        assert tokens(end) <= most
        before = text[: len(text) - len(end)]
        assert not before or not end or re.search(r"\n\Z" if whole_lines else r"\s\Z", before)


@requirement("ingest:formats")
def test_formats_go_by_names_and_first_bytes() -> None:
    told = [
        ("a/b.MD", b"x", "markdown"), ("a.csv", b"", "csv"), ("a.ndjson", b"", "jsonl"), ("a.json", b"", "json"),
        ("a.rs", b"", "code"), ("Makefile", b"", "code"), ("README", b"", "text"), ("a.unknown", b"", "text"),
        ("a.txt", b"%PDF-1.7", "pdf"), ("a.txt", b"PK\x03\x04", "archive"),
        ("a", b"\xef\xbb\xbf <!DOCTYPE HTML>", "html"), ("a.htm", b"", "html"),
    ]  # fmt: skip
    assert [format_of(name, head) for name, head, _ in told] == [form for _, _, form in told]
    assert [name for name in ("a.pdf", "x/README", "a.md", "a.png", "a", ".py") if known(name)] == [
        "a.pdf",
        "x/README",
        "a.md",
    ]
    assert suffix_of("a/b.c/d") == ""


@requirement("ingest:bounded")
@pytest.mark.parametrize("form", ["csv", "markdown"])
def test_a_header_as_long_as_a_book_is_not_read_again_with_each_row(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = 20_000
    header, row = ",".join(f"h{number}" for number in range(wide)), "1,2\n"
    text = f"{header}\n{row * 500}"
    if form == "markdown":
        text = f"|{'h|' * wide}\n|{'-|' * wide}\n" + "|1|2|\n" * 500
    counted = 0

    def counting(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return tokens(text)

    monkeypatch.setattr("antiphon.corpus.chunking.tokens", counting)
    monkeypatch.setattr("antiphon.corpus.blocks.tokens", counting)
    assert list(pack(FORMS[form](text), AUTO))
    assert counted < 10 * len(text)
