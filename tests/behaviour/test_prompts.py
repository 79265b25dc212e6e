"""Prompt templates of the store in requests: instructions come from them, for the tenant whose they are."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.prompt.templates import Template, encode_template
from antiphon.protocol.ids import new_id
from antiphon.settings import Settings
from antiphon.store.base import RunningResponse, Scope, StoredPrompt
from support.inprocess import InProcess, inprocess_app
from support.unsteady import OURS, UnsteadyStore, eventually, served

requirement = pytest.mark.requirement

DEFAULT = Scope("default")
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}


async def kept(api: InProcess, *texts: str, scope: Scope = DEFAULT) -> str:
    """The id of a new prompt with these versions."""
    assert api.service.store is not None
    identity = new_id("pmpt")
    for version, text in enumerate(texts, 1):
        body = encode_template(Template(text))
        await api.service.store.add_prompt(scope, StoredPrompt(identity, version, 1000, body))
    return identity


@requirement("api:prompts")
async def test_the_instructions_of_a_request_come_from_its_template(api: InProcess):
    name = await kept(api, "Speak {{language}}.", "Speak {{language}} to {{who}}.")
    asked = {"id": name, "variables": {"language": "Norwegian", "who": "me", "more": "x"}}
    answer = await api.create("!ECHO", prompt=asked)
    assert answer["output_text"].startswith("<|im_start|>system\nSpeak Norwegian to me.<|im_end|>")
    assert answer["prompt"] == {**asked, "version": "2"}
    assert answer["instructions"] == "Speak Norwegian to me."
    first = await api.create("!ECHO", prompt={**asked, "version": "1"})
    assert "Speak Norwegian.<" in first["output_text"]
    assert first["prompt"]["version"] == "1"
    assert (await api.client.get(f"/responses/{first['id']}")).json() == first


@requirement("api:prompts")
async def test_a_prompt_without_variables_needs_none(api: InProcess):
    name = await kept(api, "Be kind.")
    answer = await api.create("hi", prompt={"id": name, "variables": None, "version": None})
    assert (answer["instructions"], answer["prompt"]) == ("Be kind.", {"id": name, "version": "1", "variables": None})
    assert "prompt" not in await api.create("hi")


@requirement("api:prompts")
async def test_images_and_files_stand_where_their_variables_stood(api: InProcess):
    name = await kept(api, "Look at {{picture}} closely.")
    answer = await api.create("!ECHO", prompt={"id": name, "variables": {"picture": IMAGE}})
    assert answer["instructions"][0]["role"] == "developer"
    assert [part["type"] for part in answer["instructions"][0]["content"]] == [
        "input_text",
        "input_image",
        "input_text",
    ]
    assert "data:image/png;base64,AA==" in answer["output_text"]
    assert "Look at " in answer["output_text"]


@requirement("prompts:own-instructions")
async def test_instructions_of_the_request_stand_in_place_of_the_templates(api: InProcess):
    name = await kept(api, "From {{nowhere}}.")
    answer = await api.create("!ECHO", prompt={"id": name}, instructions="My own.")
    assert answer["instructions"] == "My own."
    assert answer["prompt"]["id"] == name
    assert "nowhere" not in answer["output_text"]


@requirement("prompts:chain")
async def test_a_template_is_of_one_response_and_not_of_those_that_follow_it(api: InProcess):
    name = await kept(api, "Be brief.")
    first = await api.create("hi", prompt={"id": name})
    told = await api.echo("again", previous_response_id=first["id"])
    assert "Be brief." not in told
    counted = await api.client.post("/responses/input_tokens", json={"model": "scripted", "input": "hi"})
    assert first["usage"]["input_tokens"] > counted.json()["input_tokens"]


@requirement("prompts:not-found")
@pytest.mark.parametrize("identity", ["pmpt_1", "x", "pmpt_" + "0" * 44, "a\x00b"])
async def test_an_unknown_prompt_is_a_404(api: InProcess, identity: str):
    error = await api.refused(404, "hi", prompt={"id": identity})
    assert (error["code"], error["param"]) == ("prompt_not_found", "prompt.id")


@requirement("prompts:not-found")
async def test_an_unknown_version_and_another_tenants_prompt_are_a_404_too(api: InProcess):
    name = await kept(api, "a")
    assert (await api.refused(404, "hi", prompt={"id": name, "version": "2"}))["code"] == "prompt_not_found"
    theirs = await kept(api, "a", scope=Scope("acme"))
    error = await api.refused(404, "hi", prompt={"id": theirs})
    assert error["message"] == f"Prompt with id '{theirs}' not found."


@requirement("prompts:malformed")
@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ({}, "prompt.id"),
        ({"id": 5}, "prompt.id"),
        ({"id": "x", "version": 1}, "prompt.version"),
        ({"id": "x", "version": "one"}, "prompt.version"),
        ({"id": "x", "version": "0"}, "prompt.version"),
        ({"id": "x", "version": "9" * 30}, "prompt.version"),
        ({"id": "x", "variables": ["a"]}, "prompt.variables"),
    ],
)
async def test_a_malformed_prompt_is_a_400_that_names_its_place(api: InProcess, prompt: Any, param: str):
    assert (await api.refused(400, "hi", prompt=prompt))["param"] == param


@requirement("prompts:malformed")
async def test_a_missing_variable_is_a_400_that_names_it(api: InProcess):
    name = await kept(api, "In {{city}}.")
    error = await api.refused(400, "hi", prompt={"id": name})
    assert (error["code"], error["param"]) == ("missing_prompt_variable", "prompt.variables.city")


@requirement("prompts:not-found")
async def test_without_a_store_there_are_no_prompts():
    async with inprocess_app(settings=Settings(responses_store_max_entries=0), store="memory") as api:
        error = await api.refused(404, "hi", prompt={"id": new_id("pmpt")})
        assert error["code"] == "prompt_not_found"


@requirement("prompts:resume")
@pytest.mark.parametrize("variables", [{"city": "Oslo"}, {"city": IMAGE}], ids=["text", "image"])
async def test_a_background_response_goes_on_with_the_instructions_that_it_began_with(variables: dict[str, Any]):
    store = UnsteadyStore(shared=True)
    settings = Settings(drain_timeout=0, lease_seconds=60)
    async with served(store, settings) as paused, served(store, settings) as other:
        name = await kept(paused, "In {{city}}.")
        begun = await paused.create("!SLOW 5\n!ECHO", background=True, prompt={"id": name, "variables": variables})

        async def told() -> Any:
            return [run for run in paused.service._runs.values() if run.journal and run.journal.durable > 5]

        (run,) = await eventually(told)
        # Neither a later version nor the end of the prompt changes what was begun.
        await store.add_prompt(OURS, StoredPrompt(name, 2, 1000, encode_template(Template("Elsewhere."))))
        await store.delete_prompt(OURS, name)
        assert other.service._takeover is not None
        await other.service._takeover.take(RunningResponse(OURS, begun["id"], "dead", run.fence))

        async def ended() -> Any:
            found = (await other.client.get(f"/responses/{begun['id']}")).json()
            return found if found["status"] not in ("queued", "in_progress") else None

        answer = await eventually(ended)
        assert (answer["status"], answer["error"]) == ("completed", None)
        assert answer["instructions"] == begun["instructions"]
        assert "In " in answer["output_text"]
