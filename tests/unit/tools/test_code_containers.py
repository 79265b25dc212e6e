"""Containers and the tools that use them: cells, files in and out, expiry, bounds, whose they are, and what is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Struct

from antiphon.errors import APIError, InvalidRequestError, NotFoundError, ServerBusyError
from antiphon.protocol.containers import CreateContainer, ExpiresAfter, decode_container, safe_path
from antiphon.protocol.ids import is_id, new_id
from antiphon.protocol.request import CreateResponse, decode_create_response
from antiphon.settings import Settings
from antiphon.store.base import Scope
from antiphon.tools.base import HostedCall, HostedTool, Session
from antiphon.tools.code.citations import cited_files
from antiphon.tools.code.containers import Containers
from antiphon.tools.code.contents import Content
from antiphon.tools.code.provider import CodeProvider
from antiphon.tools.code.record import Container, KeptFile, room_for_files
from support.sandboxes import bubblewrap

MINE, OTHERS = Scope("mine"), Scope("others")
SMALL = {"sandbox_memory": 256 * 1024 * 1024, "sandbox_disk": 8 * 1024 * 1024, "sandbox_seconds": 5.0}


class Read(Struct, frozen=True):
    filename: str
    data: bytes


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def read_file(scope: Scope, file_id: str, most: int) -> Read:
    if scope != MINE or file_id != "file-1":
        raise NotFoundError("No such File object.")
    return Read("numbers.csv", b"1,2,3\n")


def containers(clock: Clock | None = None, **settings: Any) -> Containers:
    return Containers(Settings(**{**SMALL, **settings}), read_file, None, clock or Clock())


@pytest.fixture
async def boxed() -> AsyncIterator[Containers]:
    """Containers over bubblewrap."""
    found = await bubblewrap()
    made = containers(max_sandboxes=2)
    made.sandboxes._found = found
    yield made
    await made.close()


def asking(*tools: dict[str, Any]) -> CreateResponse:
    return decode_create_response(json.dumps({"model": "m", "input": "", "tools": tools}).encode())


async def opened(kept: Containers, entry: dict[str, Any], evidence: list[dict[str, Any]] | None = None) -> Any:
    provider = CodeProvider(kept)
    session = Session(MINE, new_id("resp"), asking(entry), evidence or [])
    provider.check([entry], session.request)
    (tool,) = (await provider.open([entry], session)).tools
    return tool, session


def call(**arguments: Any) -> HostedCall:
    return HostedCall("call_1", new_id("ci"), "code_interpreter", json.dumps(arguments), arguments)


async def ran(tool: HostedTool, session: Session, **arguments: Any) -> dict[str, Any]:
    """A call as the loop makes it: the whole item."""
    made = call(**arguments)
    body = {"id": made.item_id, **tool.item(made)}
    try:
        outcome = await tool.run(made, session)
    except APIError as error:
        outcome = tool.failed(made, error)
    body |= outcome.fields
    session.evidence += [body, *outcome.also]
    return {**body, "also": list(outcome.also)}


AUTO = {"type": "code_interpreter", "container": {"type": "auto"}}


@pytest.mark.requirement("code:interpreter:call", "code:interpreter:files", "code:citations")
async def test_code_runs_and_its_files_are_kept_told_and_cited(boxed: Containers) -> None:
    entry = {**AUTO, "container": {"type": "auto", "file_ids": ["file-1"]}}
    tool, session = await opened(boxed, entry)
    assert not tool.repeatable
    assert "no network" in tool.function.description
    body = await ran(
        tool,
        session,
        code="import os\ntotal = sum(map(int, open('numbers.csv').read().split(',')))\nprint('read')\n"
        "open('sum.txt', 'w').write(str(total))\nos.makedirs('sub')\n"
        "open('sub/a b.bin', 'wb').write(bytes(70_000))\ntotal",
    )
    assert body["status"] == "completed"
    assert body["outputs"] == [{"type": "logs", "logs": "read\n6"}]
    assert is_id("cntr", body["container_id"])
    assert body["_told"].splitlines()[:2] == ["read", "6"]
    assert "sandbox:/mnt/data/sum.txt" in body["_told"]
    container = boxed.get(MINE, body["container_id"])
    kept = {file.path: file for file in container.files.values()}
    assert {path: file.source for path, file in kept.items()} == {
        "numbers.csv": "user",
        "sum.txt": "assistant",
        "sub/a b.bin": "assistant",
    }
    assert kept["sum.txt"].content.whole() == b"6"
    assert kept["sub/a b.bin"].content.whole() == bytes(70_000)

    assert cited_files(session.evidence) == {
        f"/mnt/data/{path}": {
            "type": "container_file_citation",
            "container_id": container.id,
            "file_id": kept[path].id,
            "filename": path.rpartition("/")[2],
        }
        for path in ("sum.txt", "sub/a b.bin")
    }

    again = await ran(tool, session, code="os.remove('sub/a b.bin'); open('sum.txt', 'a').write('!'); 1 / 0")
    assert again["status"] == "completed"
    assert "ZeroDivisionError" in again["outputs"][0]["logs"]
    assert {file.path for file in container.files.values()} == {"numbers.csv", "sum.txt"}
    assert container.files[kept["sum.txt"].id].content.whole() == b"6!"
    assert await ran(tool, session, code="") == {
        **(await ran(tool, session, code="")),
        "id": session.evidence[-2]["id"],
    }


@pytest.mark.requirement("code:interpreter:chain")
async def test_a_chain_keeps_its_container_and_a_lost_box_is_said(boxed: Containers) -> None:
    tool, session = await opened(boxed, AUTO)
    first = await ran(tool, session, code="x = 41; open('kept.txt', 'w').write('kept')")
    later, second_session = await opened(boxed, AUTO, session.evidence)
    assert (await ran(later, second_session, code="x + 1"))["outputs"] == [{"type": "logs", "logs": "42"}]
    assert "There now: /mnt/data/kept.txt." in later.function.description
    more = {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file-1"]}}
    given, given_session = await opened(boxed, more, session.evidence)
    for there in (True, False):
        code = "import os; x, sorted(os.listdir()), os.path.exists('numbers.csv') and os.remove('numbers.csv')"
        seen = await ran(given, given_session, code=code)
        assert seen["outputs"][0]["logs"].startswith("(41, ['kept.txt', 'numbers.csv'") == there
    by_id, third = await opened(boxed, {"type": "code_interpreter", "container": first["container_id"]})
    killed = await ran(by_id, third, code="import os; os.kill(os.getpid(), 9)")
    assert killed["status"] == "failed"
    assert killed["error"]["code"] == "sandbox_ended"
    anew = await ran(by_id, third, code="open('kept.txt').read()")
    assert "started anew" in anew["_told"]
    assert anew["outputs"][0]["logs"] == "'kept'"
    assert (await ran(by_id, third, code="x"))["outputs"][0]["logs"].endswith("NameError: name 'x' is not defined")
    slow, fourth = await opened(boxed, AUTO)
    boxed.seconds = 0.2
    late = await ran(slow, fourth, code="print('begun', flush=True)\nwhile True: pass")
    assert (late["status"], late["error"]["code"]) == ("failed", "timeout")
    assert late["outputs"][0]["logs"].startswith("begun")


@pytest.mark.requirement("code:interpreter:call")
async def test_calls_of_one_turn_run_in_their_order_in_one_container(boxed: Containers) -> None:
    tool, session = await opened(boxed, {**AUTO, "container": {"type": "auto", "file_ids": ["file-1"]}})
    codes = ["import os; seen = [1]; seen", "seen.append(2); seen", "seen.append(3); seen, os.listdir()"]
    bodies = await asyncio.gather(*(ran(tool, session, code=code) for code in codes))
    logs = [body["outputs"][0]["logs"] for body in bodies]
    assert logs == ["[1]", "[1, 2]", "([1, 2, 3], ['numbers.csv'])"]
    assert [container.id for container in boxed.list(MINE)] == [bodies[0]["container_id"]]


@pytest.mark.requirement("code:interpreter:images")
async def test_what_a_cell_shows_as_a_picture_is_a_file_and_an_image(boxed: Containers) -> None:
    tool, session = await opened(boxed, AUTO)
    code = "class Drawn:\n    def _repr_png_(self): return b'\\x89PNG'\nDrawn()"
    body = await ran(tool, session, code=code)
    (file,) = boxed.get(MINE, body["container_id"]).files.values()
    assert file.path == "figure-1.png"
    assert body["outputs"] == [
        {"type": "image", "url": f"/v1/containers/{body['container_id']}/files/{file.id}/content"}
    ]
    assert "figure-1.png" in body["_told"]


@pytest.mark.requirement("code:shell:hosted")
async def test_commands_of_a_shell_give_output_and_outcome(boxed: Containers) -> None:
    entry = {"type": "shell", "environment": {"type": "container_auto"}}
    tool, session = await opened(boxed, entry)
    commands = ["echo out; echo wrong >&2; exit 3", "echo 123456789 | tee kept.txt; sleep 1000 &"]
    body = await ran(tool, session, commands=commands, timeout_ms=4000, max_output_length=8)
    assert body["action"] == {"commands": commands, "timeout_ms": 4000, "max_output_length": 8}
    (output,) = body["also"]
    assert output["call_id"] == body["call_id"] == "call_1"
    first, second = output["output"]
    assert first == {"stdout": "out\n", "stderr": "wrong\n", "outcome": {"type": "exit", "exit_code": 3}}
    assert second["outcome"] == {"type": "exit", "exit_code": 0}
    assert "are left out here" in second["stdout"]
    late = await ran(tool, session, commands=["sleep 10"], timeout_ms=100)
    assert late["also"][0]["output"] == [{"stdout": "", "stderr": "", "outcome": {"type": "timeout"}}]
    container = boxed.get(MINE, body["environment"]["container_id"])
    assert [file.path for file in container.files.values()] == ["kept.txt"]
    both = [AUTO, entry]
    request = asking(*both)
    code, shell = (await CodeProvider(boxed).open(both, Session(MINE, "resp_1", request, session.evidence))).tools
    assert code.item(call(code="1"))["container_id"] == container.id
    assert shell.item(call(commands=["id"]))["environment"]["container_id"] == container.id


@pytest.mark.requirement("code:shell:client")
async def test_a_shell_of_the_clients_own_machine_is_left_to_it() -> None:
    kept = containers()
    for entry in ({"type": "shell"}, {"type": "shell", "environment": {"type": "local"}}):
        session = Session(MINE, "resp_1", asking(entry))
        CodeProvider(kept).check([entry], session.request)
        assert (await CodeProvider(kept).open([entry], session)).tools == []


@pytest.mark.requirement("code:interpreter:monty", "code:sandbox:missing")
async def test_monty_runs_code_and_refuses_a_shell_and_nothing_refuses_both() -> None:
    kept = containers(sandbox="monty", sandbox_seconds=0.3)
    try:
        tool, session = await opened(kept, AUTO)
        assert "no files" in tool.function.description
        assert (await ran(tool, session, code="x = 6 * 7\nx"))["outputs"] == [{"type": "logs", "logs": "42"}]
        assert (await ran(tool, session, code="while True: pass"))["error"]["code"] == "timeout"
        assert "started anew" in (await ran(tool, session, code="x"))["_told"]
        shell, session = await opened(kept, {"type": "shell", "environment": {"type": "container_auto"}})
        refused = await ran(shell, session, commands=["id"])
        assert (refused["status"], refused["also"][0]["status"]) == ("completed", "incomplete")
        assert refused["error"]["code"] == "sandbox_unavailable"
        assert (
            refused["also"][0]["output"][0]["stderr"] == "The sandbox of this server runs Python only and has no shell."
        )
    finally:
        await kept.close()
    none = containers(sandbox="none")
    tool, session = await opened(none, AUTO)
    body = await ran(tool, session, code="1")
    assert (body["status"], body["error"]["code"]) == ("failed", "sandbox_unavailable")
    assert "turned off" in body["outputs"][0]["logs"]
    await none.close()


@pytest.mark.requirement("containers:tenancy")
async def test_a_container_of_another_tenant_is_one_that_is_not_there() -> None:
    kept = containers()
    mine = await kept.create(MINE, CreateContainer("mine"))
    file = kept.add_file(mine, "a.txt", b"a")
    for missing in (mine.id, new_id("cntr"), "cntr_1", "../../etc", ""):
        with pytest.raises(NotFoundError, match="not found") as foreign:
            kept.get(OTHERS, missing)
        assert missing[:10] in foreign.value.message
        with pytest.raises(NotFoundError):
            await kept.delete(OTHERS, missing)
    assert kept.list(OTHERS) == []
    assert kept.find(OTHERS, mine.id) is None
    theirs = await kept.create(OTHERS, CreateContainer("theirs"))
    with pytest.raises(NotFoundError):
        kept.file(theirs, file.id)
    with pytest.raises(NotFoundError):
        await kept.add_uploaded(OTHERS, theirs, "file-1")
    # A model's container of another tenant, by its id and by a history that names it.
    session = Session(OTHERS, "resp_1", asking(), [{"container_id": mine.id}])
    (tool,) = (await CodeProvider(kept).open([AUTO], session)).tools
    assert tool.item(call(code="1"))["container_id"] != mine.id
    entry = {"type": "code_interpreter", "container": mine.id}
    (tool,) = (await CodeProvider(kept).open([entry], session)).tools
    assert (await ran(tool, session, code="1"))["error"]["message"].startswith(
        f"Container with id '{mine.id}' not found"
    )
    await kept.close()


@pytest.mark.requirement("containers:expiry")
async def test_a_container_expires_after_its_minutes_without_use() -> None:
    clock = Clock()
    kept = containers(clock)
    short = await kept.create(MINE, CreateContainer("short", ExpiresAfter(1)))
    long = await kept.create(MINE, CreateContainer("long"))
    kept.add_file(short, "a.txt", b"a")
    clock.now += 50
    kept.get_running(MINE, short.id)
    clock.now += 50
    assert short.shown().status == "running"
    assert kept.get(MINE, short.id).shown().status == "running"
    clock.now += 20
    assert kept.get(MINE, short.id).shown().status == "expired"
    assert short.files == {}
    with pytest.raises(NotFoundError, match="has expired"):
        kept.get_running(MINE, short.id)
    assert kept.find(MINE, short.id) is None
    assert long.shown().expires_after.minutes == 20
    clock.now += 24 * 3600 + 60
    await kept.sweep()
    await kept.sweep()
    clock.now += 24 * 3600 + 60
    await kept.sweep()
    assert kept.list(MINE) == []
    await kept.close()


@pytest.mark.requirement("containers:bounds")
async def test_containers_that_are_made_at_once_have_no_more_room_than_one_after_the_other() -> None:
    reading = asyncio.Event()

    class File:
        filename = "a"
        data = bytes(1000)

    async def read(scope: Scope, file_id: str, most: int) -> File:
        await reading.wait()
        return File()

    kept = Containers(Settings(sandbox_disk=1000, max_containers=100), read)
    asked = CreateContainer("one", file_ids=["file-1"])
    making = [asyncio.create_task(kept.create(MINE, asked)) for _ in range(12)]
    await asyncio.sleep(0)
    reading.set()
    made = await asyncio.gather(*making, return_exceptions=True)
    refused = [error for error in made if isinstance(error, InvalidRequestError)]
    assert {error.code for error in refused} == {"container_full"}
    assert sum(container.size for container in kept.list(MINE)) == 8 * 1000
    assert len(refused) == 4
    await kept.close()


@pytest.mark.requirement("containers:bounds")
async def test_containers_and_their_files_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    kept = containers(clock, max_containers=2, sandbox_disk=1000)
    first = await kept.create(MINE, CreateContainer("first"))
    auto = await kept.ensure(MINE, new_id("cntr"), name="auto", file_ids=(), memory_limit="64g")
    assert auto.shown().memory_limit == "256m"
    third = await kept.create(MINE, CreateContainer("third"))
    assert auto.shown().status == "expired"
    with pytest.raises(InvalidRequestError, match="which is the most") as full:
        await kept.create(MINE, CreateContainer("fourth"))
    assert full.value.code == "container_limit_reached"
    await kept.create(OTHERS, CreateContainer("other"))
    await kept.delete(MINE, third.id)
    await kept.create(MINE, CreateContainer("fourth"))

    kept.add_file(first, "a", bytes(600))
    kept.add_file(first, "a", bytes(900))
    with pytest.raises(InvalidRequestError, match="no room for the file"):
        kept.add_file(first, "b", bytes(200))
    monkeypatch.setattr("antiphon.tools.code.containers.MOST_FILES", 2)
    kept.add_file(first, "b", b"")
    full = [Container(str(number), "mine", "", 0, 0.0) for number in range(8)]
    for one in full:
        one.files["x"] = KeptFile("x", "x", 0, "user", Content(bytes(1000)))
    assert room_for_files(Container("a", "mine", "", 0, 0.0), full, 1000) == 0
    assert room_for_files(Container("a", "others", "", 0, 0.0), full, 1000) == 1000
    assert room_for_files(Container("a", "others", "", 0, 0.0), full * 2, 1000) == 0
    with pytest.raises(InvalidRequestError, match="no room for the file"):
        kept.add_file(first, "c", b"")
    monkeypatch.setattr("antiphon.tools.code.containers.MOST_FILE_BYTES", 10)
    with pytest.raises(InvalidRequestError, match="may have 10"):
        kept.add_file(first, "b", bytes(11))
    await kept.close()


@pytest.mark.requirement("containers:sandboxes")
async def test_the_box_that_is_idle_longest_makes_room_and_all_in_use_is_said(
    boxed: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [await boxed.create(MINE, CreateContainer(str(number))) for number in range(3)]
    for number, container in enumerate(made):
        container.last_active_at += number
        await boxed.run(container, f"kept = {number}")
        container.last_active_at += number
    assert [container.box is not None for container in made] == [False, True, True]
    done = await boxed.run(made[0], "'kept' in globals()")
    assert (done.cell.result, done.fresh) == ("False", True)
    monkeypatch.setattr("antiphon.tools.code.running._PLACE_SECONDS", 0.05)
    made[0].waiting = made[2].waiting = 1
    with pytest.raises(ServerBusyError, match="All sandboxes are in use"):
        await boxed.run(made[1], "1")
    monkeypatch.setattr("antiphon.tools.code.running._PLACE_SECONDS", 30)
    waiting = asyncio.ensure_future(boxed.run(made[1], "1"))
    made[2].waiting = 0
    await boxed.run(made[2], "1")
    assert (await waiting).cell.result == "1"
    made[2].waiting = 16
    with pytest.raises(ServerBusyError, match="Too much is waiting"):
        await boxed.run(made[2], "1")


@pytest.mark.requirement("containers:sandboxes")
async def test_what_runs_in_a_container_ends_with_it_also_while_it_starts(boxed: Containers) -> None:
    made = await boxed.create(MINE, CreateContainer("deleted in the middle"))
    await boxed.run(made, "1")
    running = asyncio.ensure_future(boxed.run(made, "while True: pass"))
    while not made.lock.locked():
        await asyncio.sleep(0)
    await boxed.delete(MINE, made.id)
    with pytest.raises(InvalidRequestError, match="The sandbox ended"):
        await running
    assert made.box is None
    begun = await boxed.create(MINE, CreateContainer("deleted at the start"))
    starting = asyncio.ensure_future(boxed.run(begun, "1"))
    while not boxed._running._starting:
        await asyncio.sleep(0)
    await boxed.delete(MINE, begun.id)
    with pytest.raises(InvalidRequestError, match="has expired"):
        await starting
    assert begun.box is None
    left = await boxed.create(MINE, CreateContainer("left"))
    await boxed.run(left, "kept = 1")
    leaving = asyncio.ensure_future(boxed.run(left, "while True: pass"))
    while not left.lock.locked():
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert (await boxed.run(left, "2")).cell.result == "2"


@pytest.mark.requirement("containers:names")
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("plain.txt", "plain.txt"),
        ("../../etc/passwd", "etc/passwd"),
        ("/etc/passwd", "etc/passwd"),
        ("a/./b/../c", "a/b/c"),
        ("..\\..\\windows", "windows"),
        ("a\r\nSet-Cookie: x", "aSet-Cookie: x"),
        ("nul\0byte", "nulbyte"),
        ("\u202egnp.exe", "gnp.exe"),
        ("....", None),
        ("/", None),
        ("", None),
        ("/".join("x" * 20), None),
        ("x" * 3000, "x" * 255),
    ],
)
def test_a_path_of_code_keeps_only_what_is_safe_to_write(given: str, kept: str | None) -> None:
    assert safe_path(given) == kept


@pytest.mark.requirement("containers:names")
async def test_files_whose_names_play_tricks_are_kept_by_safe_ones_or_not_at_all(boxed: Containers) -> None:
    made = await boxed.create(MINE, CreateContainer("tricks"))
    code = """
import os
for name in ("a\\r\\nb", "\\u202etxt.exe", 'quo"te', "back\\\\slash", " spaced ", "same", "sa\\u200bme", "x" * 255):
    open(name, "w").write(name)
open(b"\\xff\\xfe", "wb").write(b"no text")
open(".hidden", "w").write("hidden")
"""
    done = await boxed.run(made, code)
    assert done.cell.error is None
    paths = sorted(file.path for file in made.files.values())
    assert paths == sorted(["ab", "txt.exe", 'quo"te', "back/slash", "spaced", "same", "x" * 255])
    assert done.left_out == ["same"]
    again = await boxed.run(made, "open('ab', 'w').write('changed by its safe name')")
    assert [file.path for file in again.made] == []
    assert again.left_out == ["ab"]


@pytest.mark.requirement("containers:memory", "containers:files:bounded")
async def test_files_that_are_too_many_or_too_large_are_left_out_and_said(
    boxed: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.tools.code.running.MOST_FILES", 3)
    monkeypatch.setattr("antiphon.tools.code.running.MOST_FILE_BYTES", 1000)
    tool, session = await opened(boxed, AUTO)
    body = await ran(
        tool, session, code="for n in range(5): open(f'{n}.txt', 'w').write('x')\nopen('large', 'w').write('x' * 1001)"
    )
    assert len(body["_files"]) == 3
    assert "Not kept" in body["_told"]
    assert "large" in body["_told"]
    ended = await ran(tool, session, code="kept = [bytearray(1 << 20) for _ in range(4096)]")
    assert "MemoryError" in str(ended["outputs"]) or ended["error"]["code"] == "sandbox_ended"


@pytest.mark.requirement("containers:create:checked")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ("{}", "name"),
        ('{"name": ""}', "name"),
        ('{"name": "a", "memory_limit": "2g"}', "memory_limit"),
        ('{"name": "a", "expires_after": {"anchor": "created_at", "minutes": 5}}', "expires_after.anchor"),
        ('{"name": "a", "expires_after": {"minutes": 21}}', "expires_after.minutes"),
        ('{"name": "a", "expires_after": {"minutes": "5"}}', "expires_after.minutes"),
        ('{"name": "a", "network_policy": {"type": "allowlist", "allowed_domains": ["a.example"]}}', "network_policy"),
        ('{"name": "a", "skills": [{}]}', "skills"),
        ('{"name": "a", "file_ids": 7}', "file_ids"),
    ],
)
def test_what_creates_a_container_is_checked(body: str, param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        decode_container(body.encode())
    assert refused.value.param == param


@pytest.mark.requirement("code:interpreter:entry")
@pytest.mark.parametrize(
    ("entry", "param"),
    [
        ({"container": 7}, "tools[0].container"),
        ({"container": {"type": "own"}}, "tools[0].container.type"),
        ({"container": {"type": "auto", "memory_limit": "3g"}}, "tools[0].container.memory_limit"),
        ({"container": {"type": "auto", "file_ids": ["a"] * 51}}, "tools[0].container.file_ids"),
    ],
)
async def test_an_entry_of_the_wrong_shape_is_refused_and_one_that_cannot_be_met_fails(
    entry: dict[str, Any], param: str
) -> None:
    tool = {"type": "code_interpreter", **entry}
    request = asking(tool)
    with pytest.raises(InvalidRequestError) as refused:
        CodeProvider(containers()).check([tool], request)
    assert refused.value.param == param
    kept = containers(sandbox="none")
    network = {**AUTO, "container": {"type": "auto", "network_policy": {"type": "allowlist"}}}
    opened_tool, session = await opened(kept, network)
    assert "no network" in (await ran(opened_tool, session, code="1"))["error"]["message"]
    for container in ("cntr_1", new_id("cntr")):
        missing, session = await opened(kept, {"type": "code_interpreter", "container": container})
        assert "not found" in (await ran(missing, session, code="1"))["error"]["message"]
    lost, session = await opened(kept, {**AUTO, "container": {"type": "auto", "file_ids": ["file-2"]}})
    assert (await ran(lost, session, code="1"))["error"]["message"] == "No such File object."
