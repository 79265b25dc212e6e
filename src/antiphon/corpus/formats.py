"""Which format a file is in, by its name and its first bytes; only the standard library is imported here."""

from __future__ import annotations

from typing import Final

__all__ = ["ARCHIVED", "TEXTS", "format_of", "known", "suffix_of"]

_MARKDOWN: Final = frozenset({".md", ".markdown", ".mdx", ".mkd", ".mdown", ".qmd", ".rmd"})
_HTML: Final = frozenset({".html", ".htm", ".xhtml"})
_CSV: Final = frozenset({".csv", ".tsv"})
_LINES: Final = frozenset({".jsonl", ".ndjson"})
_JSON: Final = frozenset({".json", ".geojson", ".jsonld", ".ipynb", ".webmanifest"})
_CODE_SUFFIXES: Final = (
    ".ada .adb .ads .asm .awk .bash .bat .bicep .c .cc .cfg .cjs .clj .cljs .cmake .cob .coffee .cpp .cr .cs .css .cu "
    ".cxx .d .dart .el .elm .erl .ex .exs .f .f90 .fish .for .fs .fsx .gd .glsl .go .gql .gradle .graphql .groovy .h "
    ".hcl .hh .hpp .hs .hxx .idl .ini .java .jl .js .jsx .kt .kts .less .lisp .lua .m .mjs .mk .ml .mli .mm .nim .nix "
    ".pas .php .pl .pm .proto .ps1 .py .pyi .pyx .r .rb .rkt .rs .s .sass .scala .scm .scss .sh .sol .sql .sv .svelte "
    ".swift .tcl .tf .thrift .toml .ts .tsx .v .vala .vb .vhd .vhdl .vim .vue .wgsl .xml .xsd .xsl .yaml .yml .zig .zsh"
)
_PLAIN_SUFFIXES: Final = ".txt .text .rst .adoc .asciidoc .org .log .tex .textile .srt .vtt .po .diff .patch .bib"
_CODE: Final = frozenset(_CODE_SUFFIXES.split())
_PLAIN: Final = frozenset(_PLAIN_SUFFIXES.split())
_NAMES: Final = frozenset(
    {"makefile", "dockerfile", "containerfile", "jenkinsfile", "rakefile", "gemfile", "procfile", "vagrantfile"}
)
_TEXT_NAMES: Final = frozenset({"readme", "license", "licence", "copying", "authors", "changelog", "notice", "news"})

ARCHIVED: Final = frozenset({".pdf", ".docx", ".xlsx", ".pptx"})
"""Suffixes of the documents that are no text, and need the extra `documents`."""

TEXTS: Final = _MARKDOWN | _HTML | _CSV | _LINES | _JSON | _CODE | _PLAIN
"""Suffixes of files that are text."""


def suffix_of(name: str) -> str:
    """The last suffix of a file's name, in lower case, with its dot; empty where there is none."""
    base = name.rsplit("/", 1)[-1]
    stem, dot, suffix = base.rpartition(".")
    return f".{suffix.lower()}" if dot and stem else ""


def format_of(name: str, head: bytes) -> str:
    """The format of a file that is text: markdown, html, csv, jsonl, json, code or text; or pdf, or archive."""
    if head.startswith(b"%PDF-"):
        return "pdf"
    if head.startswith(b"PK\x03\x04"):
        return "archive"
    suffix = suffix_of(name)
    start = head[:256].decode("utf-8", "ignore").lstrip("\ufeff \t\r\n").lower()
    if suffix in _HTML or start.startswith(("<!doctype html", "<html")):
        return "html"
    for form, suffixes in (("markdown", _MARKDOWN), ("csv", _CSV), ("jsonl", _LINES), ("json", _JSON), ("code", _CODE)):
        if suffix in suffixes:
            return form
    return "code" if name.rsplit("/", 1)[-1].lower() in _NAMES else "text"


def known(name: str) -> bool:
    """Whether a file of that name is likely to be read: a document, or text."""
    base = name.rsplit("/", 1)[-1].lower()
    return suffix_of(name) in TEXTS | ARCHIVED or base in _NAMES | _TEXT_NAMES
