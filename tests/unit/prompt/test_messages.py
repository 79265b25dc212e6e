"""Items become chat messages by the rules M2–M6 and M14–M18, in parts or at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.errors import InvalidRequestError
from antiphon.prompt.additions import NO_CHANGE, Configuration
from antiphon.prompt.assembly import assemble, renamed
from antiphon.prompt.messages import EMPTY, IMAGE_NOTE, MessageBuilder, additions, join
from antiphon.prompt.prompt import ChatMessage, ToolCall
from antiphon.protocol.items import decode_item
from antiphon.protocol.json import encode, loads
from antiphon.protocol.request import TextFormat

IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "high"}
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "high"}}


PREVIEW = "computer_use_preview"


def convert(items, previous=EMPTY):
    builder = MessageBuilder(previous)
    builder.add(decode_item(encode(item)) for item in items)
    return builder.conversation()


def messages(*items, instructions=None):
    return assemble([convert(items)], instructions)


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def call(call_id="c", name="f", arguments="{}", **fields):
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **fields}


def output(value, call_id="c"):
    return {"type": "function_call_output", "call_id": call_id, "output": value}


def thinking(*texts):
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": t} for t in texts]}


@pytest.mark.requirement("subset:M4", "prompt:system:leads")
def test_system_and_developer_text_leads_in_order_wherever_it_stands():
    made = messages(
        user("a"),
        {"role": "developer", "content": "two"},
        {"role": "system", "content": [{"type": "input_text", "text": "three"}]},
        user("b"),
        instructions="one",
    )
    assert made == [
        ChatMessage("system", "one\n\ntwo\n\nthree"),
        ChatMessage("user", "a"),
        ChatMessage("user", "b"),
    ]


@pytest.mark.requirement("subset:M5")
@pytest.mark.parametrize("instructions", [None, ""])
def test_empty_instructions_are_no_message(instructions):
    assert messages(user("a"), instructions=instructions) == [ChatMessage("user", "a")]


@pytest.mark.requirement("subset:M14")
def test_thinking_goes_to_the_next_assistant_turn_joined_by_newlines():
    made = messages(user("q"), thinking("one", "two"), thinking("three"), assistant("a"))
    assert made[1] == ChatMessage("assistant", "a", "one\ntwo\nthree")


@pytest.mark.requirement("subset:M14")
def test_thinking_goes_to_a_call_in_the_normal_flow_of_a_tool():
    made = messages(user("q"), thinking("hm"), call(), output("r"))
    assert made[1] == ChatMessage("assistant", "", "hm", (ToolCall("c", "f", "{}"),))
    assert made[2] == ChatMessage("tool", "r", tool_call_id="c")


@pytest.mark.requirement("subset:M14")
@pytest.mark.parametrize("between", [user("next"), output("r")])
def test_thinking_is_dropped_where_a_user_or_tool_turn_comes_first(between):
    made = messages(user("q"), thinking("leak"), between, assistant("a"))
    assert all(message.reasoning == "" for message in made)


@pytest.mark.requirement("prompt:calls:merge")
def test_text_and_calls_that_follow_each_other_are_one_assistant_message():
    made = messages(user("q"), assistant("let me see"), call("a"), call("b", "g"), output("1", "a"), output("2", "b"))
    assert made[1] == ChatMessage("assistant", "let me see", "", (ToolCall("a", "f", "{}"), ToolCall("b", "g", "{}")))
    assert [message.role for message in made] == ["user", "assistant", "tool", "tool"]


@pytest.mark.requirement("prompt:calls:incomplete")
def test_an_incomplete_call_is_not_replayed():
    made = messages(user("q"), call(status="incomplete"), user("again"))
    assert [message.role for message in made] == ["user", "user"]


@pytest.mark.requirement("prompt:calls:custom")
def test_custom_and_namespaced_calls_are_told_as_function_calls():
    made = messages(
        {"type": "custom_tool_call", "call_id": "c", "name": "sh", "input": 'echo "x"'},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "x"},
        call("d", "go", namespace="ns"),
        output("y", "d"),
    )
    assert made[0].tool_calls == (ToolCall("c", "sh", '{"input":"echo \\"x\\""}'),)
    assert made[2].tool_calls == (ToolCall("d", "ns__go", "{}", made=True),)


@pytest.mark.requirement("prompt:calls:hosted")
def test_calls_and_outputs_of_tools_that_others_ran_are_told_to_the_model():
    made = messages(
        {"type": "mcp_call", "call_id": "c", "name": "n", "arguments": '{"a":1}'},
        {"type": "mcp_call_output", "call_id": "c", "output": [{"a": "b"}]},
        {"type": "mcp_list_tools", "server_label": "s", "tools": []},
    )
    assert made[0].tool_calls == (ToolCall("c", "mcp", '{"a":1}'),)
    assert replace(made[1], items=()) == ChatMessage("tool", '[{"a":"b"}]', tool_call_id="c")
    assert len(made) == 2


@pytest.mark.requirement("tools:client:history")
@pytest.mark.parametrize(
    ("kind", "fields", "name", "arguments"),
    [
        (
            "shell_call",
            {"action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": 9}},
            "shell",
            '{"commands":["ls"],"max_output_length":9}',
        ),
        (
            "apply_patch_call",
            {"operation": {"type": "create_file", "path": "a", "diff": "+x"}},
            "apply_patch",
            '{"type":"create_file","path":"a","diff":"+x"}',
        ),
        (
            "local_shell_call",
            {"action": {"type": "exec", "command": ["ls"], "env": {}, "user": None}},
            "local_shell",
            '{"command":["ls"]}',
        ),
        ("tool_search_call", {"arguments": {"query": "q"}, "execution": "client"}, "tool_search", '{"query":"q"}'),
    ],
)
def test_calls_of_tools_that_a_client_runs_are_told_as_calls_of_the_functions_that_were_shown(
    kind, fields, name, arguments
):
    (made,) = messages({"type": kind, "call_id": "c", "status": "completed", **fields})
    assert made.tool_calls == (ToolCall("c", name, arguments, made=True),)
    assert messages({"type": kind, "call_id": "c", "status": "incomplete", **fields}) == []


@pytest.mark.requirement("tools:client:history")
def test_a_patch_that_was_cut_is_not_told():
    cut = {"type": "apply_patch_call", "call_id": "c", "status": "in_progress", "operation": {"type": "create_file"}}
    assert messages(cut) == []


@pytest.mark.requirement("tools:client:history")
@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        ({"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}, "a"),
        ({"stdout": "", "stderr": "b", "outcome": {"type": "exit", "exit_code": 2}}, "[stderr]\nb\n[exit code 2]"),
        ({"stdout": "a", "stderr": "b", "outcome": {"type": "timeout"}}, "a\n[stderr]\nb\n[timed out]"),
        ("plain", "plain"),
        ({}, ""),
    ],
)
def test_an_output_of_the_shell_is_told_as_text(chunk, said):
    (made,) = messages({"type": "shell_call_output", "call_id": "c", "output": [chunk]})
    assert (made.role, made.content, made.tool_call_id) == ("tool", said, "c")
    (twice,) = messages({"type": "shell_call_output", "call_id": "c", "output": [chunk, {"stdout": "end"}]})
    assert twice.content == f"{said}\nend" if said else "end"


@pytest.mark.requirement("tools:search:history")
def test_a_search_of_the_server_is_told_as_a_call_with_the_output_that_follows_it():
    call = {"type": "tool_search_call", "call_id": None, "execution": "server", "status": "completed"}
    output = {"type": "tool_search_output", "call_id": None, "execution": "server", "status": "completed"}
    tool = {"type": "function", "name": "mail"}
    first, one, two = messages(
        {**call, "arguments": {"query": "mail"}},
        {**call, "arguments": {"query": "none"}},
        {**output, "tools": [tool, {"type": "namespace", "name": "crm", "tools": [tool]}]},
        {**output, "tools": []},
    )
    assert [made.name for made in first.tool_calls] == ["tool_search", "tool_search"]
    assert [one.tool_call_id, two.tool_call_id] == [made.id for made in first.tool_calls]
    assert first.tool_calls[0].id != first.tool_calls[1].id
    assert (one.content, two.content) == ("These tools can be called now: mail, crm__mail", "No tool was found.")


@pytest.mark.requirement("tools:additional", "tools:search:history", "tools:configuration")
def test_tools_and_settings_that_items_add_stand_from_there_on():
    tool, form = {"type": "function", "name": "f"}, {"type": "json_schema", "name": "n", "schema": {}}
    first = convert(
        [
            {"type": "additional_tools", "role": "developer", "tools": [tool]},
            {"type": "configuration_update", "reasoning": {"effort": "low"}, "text": {"format": form}},
            {"type": "configuration_update", "text": {"format": {"type": "text"}}},
        ]
    )
    second = convert(
        [
            {"type": "tool_search_output", "call_id": "c", "tools": [tool]},
            {"type": "configuration_update", "reasoning": {"effort": "high"}, "text": None},
        ]
    )
    added, settings = additions([first, second])
    assert [(each.tool.name, each.loaded) for each in added] == [("f", False), ("f", True)]
    assert settings == Configuration("high", TextFormat("text"))
    assert join([first, second]).settings == settings
    assert join([first, second]).tools == added
    assert first.messages == ()


@pytest.mark.requirement("tools:additional")
def test_what_cannot_be_read_in_a_stored_history_adds_nothing():
    odd = convert(
        [
            {"type": "additional_tools", "tools": [{"type": "function"}]},
            {"type": "tool_search_output", "tools": "x"},
            {"type": "configuration_update", "reasoning": {"effort": 5}},
        ]
    )
    assert (odd.tools, odd.settings) == ((), NO_CHANGE)


@pytest.mark.requirement("prompt:calls:hosted")
@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"type": "local_shell_call_output", "id": "lsh_1", "output": "lo"}, "lo"),
        ({"type": "acme_output", "output": "zz"}, "zz"),
        ({"type": "program_output", "result": "r"}, "r"),
        ({"type": "tool_search_output", "tools": [{"name": "f"}]}, "These tools can be called now: f"),
        ({"type": "apply_patch_call_output", "call_id": "c", "status": "completed"}, "completed"),
        ({"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no"}, "no"),
    ],
)
def test_an_output_of_any_type_is_told_as_the_output_of_a_tool(item, said):
    (made,) = messages(item)
    assert (made.role, made.content) == ("tool", said)


@pytest.mark.requirement("subset:M18")
def test_a_screenshot_counts_as_an_image():
    item = {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "x"}}
    assert convert([item]).media == {"image"}


@pytest.mark.requirement("computer:returned")
def test_a_screenshot_is_shown_to_a_model_and_given_as_it_is_to_an_upstream_that_owns_the_tool():
    call_of = {"type": "computer_call", "call_id": "c", "status": "completed", "pending_safety_checks": []}
    given = {
        "type": "computer_call_output",
        "call_id": "c",
        "output": {"type": "computer_screenshot", "image_url": "x"},
    }
    for fields, name in (({"actions": [{"type": "wait"}]}, "computer"), ({"action": {"type": "wait"}}, PREVIEW)):
        part = convert([user("u"), {**call_of, **fields}, given])
        _, turn, told, seen = assemble([part], None)
        assert turn.tool_calls == (ToolCall("c", name, encode(fields).decode(), made=True),)
        assert (told.role, told.content, seen.role) == ("tool", IMAGE_NOTE, "user")
        assert seen.content == [{"type": "image_url", "image_url": {"url": "x", "detail": "auto"}}]
        native = assemble([part], None, hosted=True)
        assert [message.role for message in native] == ["user", "assistant", "tool"]
        assert [item.type for item in (*native[1].items, *native[2].items)] == ["computer_call", "computer_call_output"]
    assert [message.role for message in assemble([convert([given])], None, hosted=True)] == ["tool"]


@pytest.mark.requirement("prompt:files")
def test_a_file_is_told_whole():
    part = {"type": "input_file", "filename": "f.pdf", "file_url": "https://x/f.pdf"}
    (made,) = messages({"role": "user", "content": [part]})
    assert made.content == [{"type": "file", "file": {"filename": "f.pdf", "file_url": "https://x/f.pdf"}}]
    (told,) = messages(output([{**part, "file_data": "QQ=="}]))
    assert loads(told.content) == {**part, "file_data": "QQ=="}


@pytest.mark.requirement("subset:M17")
def test_images_of_a_tool_output_move_to_a_user_message_that_follows():
    made = messages(
        call(), output([{"type": "input_text", "text": "one"}, IMAGE, {"type": "input_text", "text": "two"}])
    )
    assert made[1:] == [
        ChatMessage("tool", f"one\ntwo\n{IMAGE_NOTE}", tool_call_id="c"),
        ChatMessage("user", [IMAGE_PART]),
    ]


@pytest.mark.requirement("subset:M17")
def test_other_parts_of_a_tool_output_are_kept_as_json_text():
    made = messages(call(), output([{"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}]))
    assert made[1].content == '{"type":"input_audio","input_audio":{"data":"AA==","format":"wav"}}'


@pytest.mark.requirement("subset:M17")
@pytest.mark.parametrize("role", ["assistant", "system", "developer"])
def test_images_on_other_messages_move_to_a_user_message_and_those_on_user_messages_stay(role):
    text = {"type": "input_text", "text": "t"}
    moved = messages({"role": role, "content": [text, IMAGE]}, user("u"))
    assert moved[-2] == ChatMessage("user", [IMAGE_PART])
    stays = messages({"role": "user", "content": [text, IMAGE]})
    assert stays == [ChatMessage("user", [{"type": "text", "text": "t"}, IMAGE_PART])]


@pytest.mark.requirement("subset:M6")
@pytest.mark.parametrize(
    ("items", "substance"),
    [
        ([], False),
        ([user("")], False),
        ([user("  \n")], False),
        ([{"role": "user", "content": [{"type": "input_text", "text": ""}]}], False),
        ([{"role": "user", "content": [IMAGE]}], True),
        ([user("real"), user("")], True),
        ([call()], True),
        ([output("")], True),
        ([thinking("hm")], True),
        ([{"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}], True),
        ([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}], True),
        ([{"type": "web_search_call", "status": "completed"}], True),
        ([{"type": "mcp_call", "name": "x"}], True),
        ([{"type": "compaction_trigger"}], False),
        ([{"role": "system", "content": "s"}], True),
    ],
)
def test_what_counts_as_input(items, substance):
    assert convert(items).substance is substance


@pytest.mark.requirement("subset:M18")
def test_the_kinds_of_media_are_known_before_anything_is_fetched():
    made = convert(
        [
            {"role": "user", "content": [IMAGE, {"type": "input_file", "file_url": "https://x/y.pdf"}]},
            {"role": "user", "content": [{"type": "video_url", "video_url": "https://x/v.mp4"}]},
        ]
    )
    assert made.media == {"image", "file", "video"}


@pytest.mark.requirement("subset:M18")
def test_an_image_without_any_source_is_a_400():
    with pytest.raises(InvalidRequestError):
        convert([{"role": "user", "content": [{"type": "input_image"}]}])


items = st.one_of(
    st.builds(user, st.text(max_size=4)),
    st.builds(assistant, st.text(max_size=4)),
    st.builds(lambda text: {"role": "developer", "content": text}, st.text(max_size=4)),
    st.builds(thinking, st.text(max_size=4)),
    st.builds(call, st.sampled_from(["a", "b"]), status=st.sampled_from(["completed", "incomplete"])),
    st.builds(output, st.just("r") | st.just([IMAGE])),
    st.just({"role": "assistant", "content": [IMAGE]}),
)


@pytest.mark.requirement("law:3:parts")
@given(st.lists(items, max_size=10), st.lists(st.integers(0, 10), max_size=3), st.none() | st.text(max_size=3))
def test_a_history_converted_in_parts_is_the_same_as_at_once(history, cuts, instructions):
    edges = sorted({0, len(history), *(cut for cut in cuts if cut <= len(history))})
    parts = []
    previous = EMPTY
    for begin, end in zip(edges, edges[1:], strict=False):
        previous = convert(history[begin:end], previous)
        parts.append(previous)
    assert assemble(parts, instructions) == assemble([convert(history)], instructions)


@pytest.mark.requirement("tools:namespace:names")
def test_past_calls_have_the_names_that_stand_in_for_theirs():
    made = messages(call("a", "go", namespace="ns"), call("b", "ns__go"), output("x", "a"), output("y", "b"))
    told = renamed(made, {"ns__go": "ns__go_2"})
    assert [each.name for each in told[0].tool_calls] == ["ns__go_2", "ns__go"]
    assert told[1:] == made[1:]
    assert renamed(made, {}) is made


@pytest.mark.requirement("responses-upstream:history")
def test_what_an_upstream_ran_is_told_to_nobody_else():
    listed = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "s", "tools": []}
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    sealed = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "blob"}
    items = [
        user("Hi"),
        listed,
        user("Well?"),
        sealed,
        search,
        assistant("Found"),
        user("More"),
        sealed,
        user("?"),
        listed,
    ]
    parts = [convert(items)]
    told = assemble(parts, None)
    assert [(message.role, message.content) for message in told] == [
        ("user", "Hi"), ("user", "Well?"), ("assistant", "Found"), ("user", "More"), ("user", "?")
    ]  # fmt: skip
    native = list(assemble(parts, None, hosted=True))
    kinds = [[getattr(item, "type", "message") for item in message.items] for message in native]
    assert [message.role for message in native] == [
        "user", "assistant", "user", "assistant", "user", "user", "assistant"
    ]  # fmt: skip
    assert kinds[1] == kinds[6] == ["mcp_list_tools"]
    assert len(kinds[3]) == 3
    assert [*native[3].items][1].body == search
