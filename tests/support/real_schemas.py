"""Schemas of the JSON Schema Test Suite on the default model: what it answers under each of them is valid.

The suite is in the source distribution of jsonschema on the package index and is taken from there when this is run;
nothing of it is kept. Of its files, one after the other, the next schema is taken that a grammar expresses whole, until
there are enough: so each keyword has its part. Schemas with `allOf`, which no strict schema has, are left out. What is
left out, or refused, is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import jsonschema_rs
from msgspec import Struct

from antiphon.engines.catalog import locate
from antiphon.engines.checks.checker import Checker
from antiphon.engines.llamacpp.bindings import Bindings
from antiphon.errors import InvalidRequestError
from antiphon.prompt.dialects import named
from antiphon.prompt.prompt import Prompt
from antiphon.protocol.json import encode
from antiphon.protocol.request import TextFormat
from antiphon.settings import load_settings
from support.server import running_server

__all__ = ["Case", "cases", "chosen", "expressible", "fault", "object_schema"]

PACKAGE = "jsonschema==4.26.0"
SCHEMAS = 50
_DRAFT = "/json/tests/draft2020-12/"
_FORMATS = f"{_DRAFT}optional/format/"
_TOKENS = 400
_SECONDS = 120.0


class Case(Struct, frozen=True):
    """One schema of the suite, which is said to be of an object; `file` is named for its keyword."""

    file: str
    title: str
    schema: dict[str, Any]

    @property
    def name(self) -> str:
        """The file and the title."""
        return f"{self.file}: {self.title}"


def object_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema, as the `value` of an object where it is not one of objects.

    One with references stands as it is, since they lead from its root.
    """
    objects = schema.get("type") == "object" or ("type" not in schema and {"properties", "required"} & schema.keys())
    if objects or b'"$ref"' in encode(schema):
        return dict(schema)
    inner = {key: value for key, value in schema.items() if key != "$schema"}
    return {
        "type": "object",
        "properties": {"value": inner},
        "required": ["value"],
        "additionalProperties": False,
    }


def cases(directory: Path) -> Iterator[Case]:
    """The schemas of the draft and of its formats, file by file; the distribution is fetched into the directory."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    name = PACKAGE.partition("==")[0]
    subprocess.run([*command, "--no-binary", name, "--dest", str(directory), PACKAGE], check=True)
    [archive] = directory.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        for member in sorted(opened.getmembers(), key=lambda member: member.name):
            folder, _, base = member.name.rpartition("/")
            if not base.endswith(".json") or not f"{folder}/".endswith((_DRAFT, _FORMATS)):
                continue
            file = opened.extractfile(member)
            assert file is not None
            for group in json.load(file):
                if isinstance(group["schema"], dict):
                    yield Case(base.removesuffix(".json"), group["description"], object_schema(group["schema"]))


async def expressible(found: Sequence[Case], counted: Counter[str]) -> list[Case]:
    """The cases that a grammar expresses whole; the others are counted as `refused` or `beyond`."""
    checker = Checker()
    bindings = Bindings(checker, named("generic", ""), {})
    whole: list[Case] = []
    try:
        for case in found:
            form = TextFormat(type="json_schema", name="value", schema=case.schema)
            try:
                binding = await bindings.of(Prompt(messages=(), format=form))
            except InvalidRequestError:
                counted["refused"] += 1
                continue
            if binding.loose_format or b'"allOf"' in encode(case.schema):
                counted["beyond"] += 1
            else:
                whole.append(case)
    finally:
        await checker.close()
    return whole


def chosen(found: Sequence[Case], most: int) -> list[Case]:
    """So many of the cases at most: the first of each file, then the second of each, and so on."""
    files: dict[str, list[Case]] = {}
    for case in found:
        files.setdefault(case.file, []).append(case)
    longest = max(map(len, files.values()), default=0)
    turns = [members[place] for place in range(longest) for members in files.values() if place < len(members)]
    return turns[:most]


def fault(case: Case, text: str) -> str:
    """Why a text is no JSON that the schema allows, by either library; "" where it is."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    draft = jsonschema.Draft202012Validator
    wrong = next(draft(case.schema, format_checker=draft.FORMAT_CHECKER).iter_errors(value), None)
    if wrong is not None:
        return wrong.message
    try:
        jsonschema_rs.Draft202012Validator(case.schema, validate_formats=True).validate(value)
    except jsonschema_rs.ValidationError as error:
        return error.message
    return ""


def _asked(client: httpx2.Client, case: Case, number: int) -> str:
    """What is wrong with the answer to one case; "" where nothing is."""
    body: dict[str, Any] = {
        "model": "smollm",
        "input": f"Write JSON for this: {case.title}.",
        "text": {"format": {"type": "json_schema", "name": "value", "schema": case.schema}},
        "temperature": 0.7,
        "seed": number,
        "max_output_tokens": _TOKENS,
    }
    answer = client.post("/responses", json=body)
    if answer.status_code != 200:
        return f"{answer.status_code} {answer.text[:300]}"
    response = answer.json()
    text = "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])
    if response["status"] != "completed":
        return f"{response['status']} {response['incomplete_details'] or response['error']}: {text[:300]}"
    wrong = fault(case, text)
    return f"{wrong[:200]}: {text[:300]}" if wrong else ""


async def _main(schemas: int, only: str, minutes: float) -> int:
    counted: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        found = [case for case in cases(Path(scratch)) if only in case.file]
    whole = await expressible(found, counted)
    print(
        f"{len(found)} schemas: {len(whole)} that a grammar expresses whole, {counted['beyond']} beyond it, "
        f"{counted['refused']} refused with a 400",
        flush=True,
    )
    path = locate(load_settings().data_path)
    if path is None:
        sys.exit("the default model is missing: run `make setup`")
    taken, faults, began = chosen(whole, schemas), 0, time.monotonic()
    arguments = ["--model", str(path), "--alias", f"smollm={path}", "--store", "memory"]
    done = 0
    with running_server(arguments) as server, httpx2.Client(base_url=server.base_url, timeout=_SECONDS) as client:
        for number, case in enumerate(taken):
            if time.monotonic() - began > minutes * 60:
                print(f"FAULT after {minutes:g} minutes {len(taken) - number} schemas were not asked", flush=True)
                break
            done += 1
            try:
                wrong = _asked(client, case, number)
            except httpx2.HTTPError as error:
                wrong = f"{type(error).__name__} {error}"
            if wrong:
                faults += 1
                print(f"FAULT {case.name}: {wrong}", flush=True)
    files = len({case.file for case in taken})
    print(
        f"{done - faults} of {len(taken)} answers valid, of {files} keywords and formats, "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )
    return 0 if taken and done - faults == len(taken) >= (1 if only else schemas) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schemas", type=int, default=SCHEMAS, help="how many schemas are asked for")
    parser.add_argument("--only", default="", help="the files whose names hold this")
    parser.add_argument("--minutes", type=float, default=20, help="after which it fails")
    options = parser.parse_args()
    sys.exit(asyncio.run(_main(options.schemas, options.only, options.minutes)))
