"""Rules of the local model that are of the server as a whole: resumed streams, the list of models, metrics."""

from __future__ import annotations

import pytest

from antiphon.settings import Settings
from support.inprocess import InProcess, inprocess_app, sse_events

requirement = pytest.mark.requirement


@requirement("subset:M42")
async def test_a_stream_is_resumed_behind_any_of_its_events(api: InProcess) -> None:
    live = await api.client.post("/responses", json={"model": "scripted", "input": "!COUNT 9", "stream": True})
    events = sse_events(live.content)
    where = f"/responses/{events[0]['response']['id']}?stream=true"
    for place in range(len(events)):
        resumed = await api.client.get(f"{where}&starting_after={place}")
        assert live.content.endswith(resumed.content)
        assert sse_events(resumed.content) == events[place + 1 :]
    # The names of the source are none here.
    for method, path in (("GET", "/stream?conv_id=a"), ("DELETE", "/stream"), ("POST", "/streams/lookup")):
        assert (await api.client.request(method, path)).status_code == 404


@requirement("subset:M46")
async def test_each_model_that_is_served_is_listed_with_its_aliases() -> None:
    async with inprocess_app(settings=Settings(model=("scripted",), alias=("gpt-5=scripted",))) as api:
        listed = (await api.client.get("/models")).json()
        assert listed["object"] == "list"
        assert [entry["id"] for entry in listed["data"]] == ["scripted", "gpt-5"]
        for entry in listed["data"]:
            assert entry["object"] == "model"
            assert entry["owned_by"] == "antiphon"
            assert isinstance(entry["created"], int)
            assert (await api.client.get(f"/models/{entry['id']}")).json() == entry


@requirement("subset:M47")
async def test_metrics_count_requests_tokens_and_times_by_names_of_ours(api: InProcess) -> None:
    await api.create("!COUNT 3")
    exposed = (await api.client.get("http://127.0.0.1/metrics")).text
    for name in (
        "antiphon:request_success_total",
        "antiphon:prompt_tokens_total",
        "antiphon:prompt_tokens_cached_total",
        "antiphon:generation_tokens_total",
        "antiphon:time_to_first_token_seconds_bucket",
        "antiphon:num_requests_running",
    ):
        assert f"\n{name}{{" in exposed, name
    assert "mlxcel_" not in exposed
