"""Forced calls and formats on the default model: each kind as often as is asked for, all to be valid."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import openai

from antiphon.engines.catalog import locate
from antiphon.settings import load_settings
from support.forced import named_call, object_of, required_call
from support.server import running_server

__all__ = ["KINDS", "held"]

KINDS: dict[str, Callable[[openai.OpenAI, str, int], object]] = {
    "required": required_call,
    "named": named_call,
    "json_schema": object_of,
}


def held(client: openai.OpenAI, model: str, kind: str, calls: int) -> int:
    """How many of so many answers of one kind are what was asked for; what is wrong with the others is printed."""
    good = 0
    for number in range(calls):
        try:
            KINDS[kind](client, model, number)
            good += 1
        except Exception as error:  # noqa: BLE001 - whatever goes wrong with an answer is its result
            print(f"{kind} {number}: {type(error).__name__} {error}"[:500], flush=True)
    return good


def _main(calls: int) -> int:
    path = locate(load_settings().data_path)
    if path is None:
        sys.exit("the default model is missing: run `make setup`")
    bad = 0
    arguments = ["--model", str(path), "--alias", f"smollm={path}", "--store", "memory"]
    with running_server(arguments) as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=300)
        for kind in KINDS:
            began = time.monotonic()
            good = held(client, "smollm", kind, calls)
            bad += calls - good
            print(f"{kind}: {good} of {calls} valid, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if bad or not calls else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20, help="answers of each kind")
    sys.exit(_main(parser.parse_args().calls))
