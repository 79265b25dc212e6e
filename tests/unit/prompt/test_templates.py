"""Prompt templates: variables are replaced once, and nothing else is read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InvalidRequestError
from antiphon.prompt.templates import Template, decode_template, encode_template, names_of, rendered
from antiphon.protocol.items import Message, encode_item
from antiphon.protocol.json import loads

IMAGE = {"type": "input_image", "image_url": "https://x/y.png", "detail": "high"}
FILE = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,YQ=="}


@pytest.mark.requirement("prompts:variables")
@pytest.mark.parametrize(
    ("text", "variables", "said"),
    [
        ("Be kind.", {}, "Be kind."),
        ("In {{city}}.", {"city": "Oslo"}, "In Oslo."),
        ("{{ a }}{{a}}{{\tb}}", {"a": "1", "b": "2", "c": "3"}, "112"),
        ("{{a}}", {"a": "{{b}}", "b": "x"}, "{{b}}"),
        ("{{a}}", {"a": {"type": "input_text", "text": "{{b}}"}}, "{{b}}"),
        ("{{a}}", {"a": ""}, ""),
        ("{ {a} } {{}} {{1a}} {{a b}} {{a", {}, "{ {a} } {{}} {{1a}} {{a b}} {{a"),
        ("{% if x %}{{ x.y }}{{ x|f }}", {}, "{% if x %}{{ x.y }}{{ x|f }}"),
        ("{{ a }}", {"a": "\\1 \\g<0>"}, "\\1 \\g<0>"),
    ],
)
def test_a_name_between_braces_is_replaced_by_its_value_and_nothing_else_is(text, variables, said):
    assert rendered(Template(text), variables) == said


@pytest.mark.requirement("prompts:variables")
def test_images_and_files_are_parts_of_one_message():
    made = rendered(Template("See {{a}}, {{t}} and {{b}}."), {"a": IMAGE, "b": FILE, "t": "this"})
    assert isinstance(made, list)
    (message,) = made
    assert isinstance(message, Message)
    assert message.role == "developer"
    assert loads(encode_item(message))["content"] == [
        {"type": "input_text", "text": "See "},
        {**IMAGE, "file_id": None},
        {"type": "input_text", "text": ", this and "},
        FILE,
        {"type": "input_text", "text": "."},
    ]


@pytest.mark.requirement("prompts:variables")
@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({}, "missing_prompt_variable"),
        ({"a": None}, "missing_prompt_variable"),
        ({"a": 5}, "invalid_value"),
        ({"a": ["x"]}, "invalid_value"),
        ({"a": {"type": "input_audio"}}, "invalid_value"),
        ({"a": {"type": "input_text"}}, "missing_required_parameter"),
    ],
)
def test_a_variable_that_is_missing_or_is_no_value_is_a_400_that_names_it(variables: dict[str, Any], code: str):
    with pytest.raises(InvalidRequestError) as caught:
        rendered(Template("{{a}}"), variables)
    assert caught.value.code == code
    assert (caught.value.param or "").startswith("prompt.variables.a")


@given(st.text(max_size=40), st.text(max_size=20))
@pytest.mark.requirement("prompts:variables")
def test_any_text_is_kept_and_any_value_is_put_in_as_it_is(text, value):
    assert decode_template(encode_template(Template(text, "n"))) == Template(text, "n")
    names = names_of(text)
    assert rendered(Template(text), dict.fromkeys(names, "")) is not None
    assert rendered(Template("<{{v}}>"), {"v": value}) == f"<{value}>"
