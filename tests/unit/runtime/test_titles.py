"""What a response is called."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.protocol.items import decode_item
from antiphon.protocol.json import encode
from antiphon.runtime.titles import MAX_TITLE, title

LONG = "The quick brown fox jumps over the lazy dog and runs far away from here"


@pytest.mark.requirement("conversations:title")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("What is a search agent?", "What is a search agent?"),
        ("  several \n\t spaces  ", "several spaces"),
        (LONG, "The quick brown fox jumps over the lazy dog and runs far away"),
        ("x" * 64, "x" * 64),
        ("x" * 65, "x" * 64),
        ("x" * 60 + " abc yz", "x" * 60 + " abc"),
        ("bell \x07 and \x1b[31mred", "bell  and [31mred"),
        ("日本語の題名", "日本語の題名"),
        ([{"type": "input_image", "image_url": "data:,"}, {"type": "input_text", "text": "A picture"}], "A picture"),
        ("word " * 1_000_000, ("word " * 13)[:64].rstrip()),
        ("", None),
        ("   ", None),
        ([{"type": "input_image", "image_url": "data:,"}], None),
    ],
)
def test_the_first_words_that_fit(content: Any, expected: str | None) -> None:
    found = title([decode_item(encode({"role": "user", "content": content}))])
    assert found == expected
    assert found is None or len(found) <= MAX_TITLE


@pytest.mark.requirement("conversations:title")
def test_only_a_user_gives_a_title() -> None:
    items = [
        {"role": "developer", "content": "Rules."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": " "},
        {"type": "function_call_output", "call_id": "c", "output": "result"},
        {"role": "user", "content": "The question"},
        {"role": "user", "content": "Another"},
    ]
    assert title([decode_item(encode(item)) for item in items]) == "The question"
    assert title([]) is None
