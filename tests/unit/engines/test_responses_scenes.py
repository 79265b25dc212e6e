"""Streams in every order of hosted tools become the items that they end with, of ours (hosted-tools A2)."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest

from antiphon.engines.responses.decoder import Reading, ResponsesDecoder
from antiphon.machine.assembler import Assembler
from antiphon.machine.log import EventLog
from antiphon.machine.restore import fold_frames
from antiphon.protocol.response import Response
from antiphon.protocol.sse import ServerSentEvent
from support.hosted_streams import SCENES, Scene

OURS = ("id", "call_id", "status", "upstream_id")
ENDED = {name: scene for name, scene in SCENES.items() if scene.status in ("completed", "incomplete")}


def essence(item: Any) -> Any:
    """What an item says, without its ids and what is empty, texts in one part each."""
    body = cast("dict[str, Any]", item)
    kind = body.get("type", "message")
    if kind == "message":
        parts = body["content"]
        texts = ["".join(part.get(name, "") for part in parts) for name in ("text", "refusal")]
        cited = [annotation for part in parts for annotation in part.get("annotations") or ()]
        return (kind, *texts, cited, body.get("phase"))
    if kind == "reasoning":
        content = "".join(part["text"] for part in body.get("content") or ())
        return kind, [part["text"] for part in body["summary"]], content, body.get("encrypted_content")
    if kind in ("function_call", "custom_tool_call"):
        return kind, body["name"], body.get("arguments") or body.get("input") or "{}"
    return {name: value for name, value in body.items() if name not in OURS}


def silent(said: Any) -> bool:
    """Whether a message, or a thought, says nothing."""
    return said in (("message", "", "", [], None), ("reasoning", [], "", None))


def told(scene: Scene, events: list[dict[str, Any]]) -> Response:
    """The response here that the events become."""
    log = EventLog(Response(id="resp_ours", created_at=1, model="m"))
    log.open()
    assembler = Assembler(log)
    decoder = ResponsesDecoder(Reading(5, sealed=True))
    for event in events:
        assembler.feed(decoder.feed(ServerSentEvent("message", json.dumps(event))))
        if decoder.done:
            break
    assembler.finish(2)
    folded = fold_frames(log.frames)
    assert msgspec.to_builtins(folded.output) == msgspec.to_builtins(log.response.output)
    return folded


@pytest.mark.requirement("responses-upstream:hosted", "responses-upstream:text")
@pytest.mark.parametrize("name", ENDED)
def test_every_order_of_events_gives_the_items_that_it_ends_with(name: str):
    scene = ENDED[name]
    response = told(scene, list(scene.events()))
    items = msgspec.to_builtins(response.output)
    # A message that says nothing is none, and a thought that says nothing and is not sealed neither.
    wanted = [each for each in map(essence, scene.items) if not silent(each)]
    assert [each for each in map(essence, items) if not silent(each)] == wanted
    assert response.status == scene.status
    whole = told(scene, [{"object": "response", **scene.body()}])
    assert [*map(essence, msgspec.to_builtins(whole.output))] == [*map(essence, items)]
