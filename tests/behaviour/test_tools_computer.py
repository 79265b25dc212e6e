"""A computer of the client's: its calls go to the client, whose screenshots the model sees."""

from __future__ import annotations

from typing import Any

import pytest

from support.inprocess import InProcess

pytestmark = pytest.mark.requirement("computer:returned")

COMPUTER = {"type": "computer"}
PREVIEW = {"type": "computer_use_preview", "display_width": 800, "display_height": 600, "environment": "browser"}
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


def seen(call_id: str, **fields: Any) -> dict[str, Any]:
    """What a client gives back for a call."""
    shot = {"type": "computer_screenshot", "image_url": PIXEL, **fields}
    return {"type": "computer_call_output", "call_id": call_id, "output": shot}


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        (
            COMPUTER,
            '{"actions":[{"type":"click","x":10,"y":20.4},{"type":"type","text":"hi"}]}',
            {"actions": [{"type": "click", "button": "left", "x": 10, "y": 20}, {"type": "type", "text": "hi"}]},
        ),
        (PREVIEW, '{"action":{"type":"screenshot"}}', {"action": {"type": "screenshot"}}),
    ],
)
async def test_a_call_is_an_item_of_its_own_for_the_client(
    api: InProcess, tool: dict[str, Any], arguments: str, said: dict[str, Any]
):
    events = await api.stream(f"!CALL {tool['type']} {arguments}", tools=[tool])
    (item,) = events[-1]["response"]["output"]
    assert {name: value for name, value in item.items() if name not in ("id", "call_id")} == {
        "type": "computer_call",
        "status": "completed",
        "pending_safety_checks": [],
        **said,
    }
    assert (item["id"][:3], item["call_id"][:5]) == ("cu_", "call_")
    assert [event["type"] for event in events[2:-1]] == ["response.output_item.added", "response.output_item.done"]
    assert events[-1]["response"]["status"] == "completed"


async def test_the_model_sees_the_screenshot_by_chain_and_inline(api: InProcess):
    asked = {"role": "user", "content": '!CALL computer {"actions":[{"type":"screenshot"}]}'}
    first = await api.create([asked], tools=[COMPUTER])
    (item,) = first["output"]
    error = await api.refused(400, "next", previous_response_id=first["id"], tools=[COMPUTER])
    assert error["code"] == "missing_tool_output"
    given = seen(item["call_id"])
    chained = await api.echo([given], previous_response_id=first["id"], tools=[COMPUTER])
    assert chained == await api.echo([asked, item, given], tools=[COMPUTER])
    assert '"name":"computer"' in chained
    assert PIXEL in chained


@pytest.mark.parametrize("kind", ["computer", "computer_use_preview"])
async def test_it_can_be_forced(api: InProcess, kind: str):
    tool = COMPUTER if kind == "computer" else PREVIEW
    answer = await api.create("hi", tools=[tool], tool_choice={"type": kind})
    assert [item["type"] for item in answer["output"]] == ["computer_call"]


@pytest.mark.parametrize(
    "arguments",
    ["{}", '{"actions":[]}', '{"actions":[{"type":"click","x":1}]}', '{"actions":[{"type":"fly"}]}', '{"actions":[1]}'],
)
async def test_what_is_no_action_fails_the_response(api: InProcess, arguments: str):
    answer = await api.create(f"!CALL computer {arguments}", tools=[COMPUTER])
    assert (answer["status"], answer["output"]) == ("failed", [])
    assert "'computer'" in answer["error"]["message"]
