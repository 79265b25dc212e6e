"""`python -m tests.vllm`: two real vLLM servers behind ours, a line a finding; the exit code is 1 where one fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import openai
from tests.support.proxies import free_ports
from tests.support.server import running_server
from tests.vllm.model import CONTEXT, write

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide" / "cluster.md"
VLLM = ROOT / ".venv" / "vllm" / "bin" / "vllm"
START_SECONDS = 900.0
CHAINS, TURNS, CALLS = 12, 4, 20

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}, "ok": {"type": "boolean"}},
    "required": ["n", "ok"],
    "additionalProperties": False,
}
TOOLS: Any = [{"type": "function", "name": name, "parameters": SCHEMA} for name in ("f", "g")]

# What makes it run on a processor, and fit into a small machine; the model is noise, which no parser finds thinking in.
SETTINGS = {"dtype": "float32", "enforce-eager": "true", "block-size": 32, "max-num-seqs": 8, "max-model-len": CONTEXT}
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


class Server:
    """One vLLM, with the file of settings that the guide shows."""

    def __init__(self, model: Path, port: int, folder: Path) -> None:
        shown = re.search(r"^```yaml\n(served-model-name:.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        assert shown is not None
        own = {"host": "127.0.0.1", "port": port, **SETTINGS}
        lines = [line for line in shown[1].splitlines() if not line.startswith("reasoning-parser")]
        config = folder / f"vllm-{port}.yaml"
        config.write_text("\n".join([*lines, *(f"{name}: {value}" for name, value in own.items())]), encoding="utf-8")
        self.url = f"http://127.0.0.1:{port}/v1"
        self.log = folder / f"vllm-{port}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [VLLM, "serve", str(model), "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **ENVIRONMENT},
                start_new_session=True,
            )

    def wait(self) -> None:
        """Until it answers."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                if httpx2.get(self.url.replace("/v1", "/health"), timeout=5, trust_env=False).status_code == 200:
                    return
            except httpx2.HTTPError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("vLLM did not start:\n" + self.log.read_text("utf-8", "replace")[-4000:])
            time.sleep(1)

    def kill(self) -> None:
        """`kill -9` to it and to the processes that it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def client() -> Iterator[tuple[openai.OpenAI, list[Server]]]:
    """A client of a server with two vLLMs behind it, by the guide's table."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        model = write(folder / "model")
        servers = [Server(model, port, folder) for port in free_ports(2)]
        for server in servers:
            stack.callback(server.kill)
        for server in servers:
            server.wait()
        urls = ", ".join(f'"{server.url}"' for server in servers)
        config = folder / "antiphon.toml"
        config.write_text(f'[[models]]\nname = "qwen"\nprofile = "vllm"\nreplicas = [{urls}]\n', encoding="utf-8")
        with running_server(["--config", str(config), "--store", "memory"]) as ours:
            yield openai.OpenAI(base_url=ours.base_url, api_key="none", max_retries=0, timeout=120), servers


def ask(api: openai.OpenAI, said: str, **fields: Any) -> Any:
    """One response."""
    return api.responses.create(model="qwen", input=said, **fields)


def chains(api: openai.OpenAI, servers: list[Server]) -> str:
    """Turns find the prefix of their chain in the cache of the server that they come to."""
    last = [
        ask(api, f"{n}. " + "Tell of the weather and of the wind. " * 12, max_output_tokens=8) for n in range(CHAINS)
    ]
    found = 0
    for turn in range(TURNS):
        for number, before in enumerate(last):
            now = ask(api, f"And in {turn} days?", previous_response_id=before.id, max_output_tokens=8)
            found += now.usage.input_tokens_details.cached_tokens > 0.5 * now.usage.input_tokens
            last[number] = now
    shares = [asked(server) for server in servers]
    assert found >= 0.95 * CHAINS * TURNS, found
    assert min(shares) > 0, shares
    return f"{found} of {CHAINS * TURNS} turns on their prefix, prompt tokens a server: {shares}"


def asked(server: Server) -> int:
    """The prompt tokens that a vLLM has been given."""
    text = httpx2.get(server.url.replace("/v1", "/metrics"), trust_env=False).text
    return int(
        sum(float(found) for found in re.findall(r"^vllm:prompt_tokens_total\{[^}]*\} (\S+)$", text, re.MULTILINE))
    )


def calls(api: openai.OpenAI, _servers: list[Server]) -> str:
    """Forced calls are there and hold to their schema, whatever the model would say."""
    made = 0
    for number in range(CALLS):
        choice: Any = "required" if number % 2 else {"type": "function", "name": "g"}
        response = ask(api, f"Call {number}", tools=TOOLS, tool_choice=choice, max_output_tokens=1200)
        found = [item for item in response.output if item.type == "function_call"]
        for call in found:
            if call.status == "completed":
                jsonschema.validate(json.loads(call.arguments), SCHEMA)
        assert found, response
        assert number % 2 or [call.name for call in found] == ["g"], response
        made += len(found)
    return f"{made} calls in {CALLS} answers, all valid"


def formats(api: openai.OpenAI, _servers: list[Server]) -> str:
    """Answers in a format hold to its schema."""
    form: Any = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}}
    complete = 0
    for number in range(CALLS):
        response = ask(api, f"Say {number}", text=form, max_output_tokens=600)
        if response.status == "completed":
            jsonschema.validate(json.loads(response.output_text), SCHEMA)
            complete += 1
    assert complete >= 0.8 * CALLS, complete
    return f"{complete} of {CALLS} complete, all of them valid"


def streams(api: openai.OpenAI, _servers: list[Server]) -> str:
    """A stream ends with the object that is stored."""
    *_, last = ask(api, "Count", max_output_tokens=32, stream=True)
    assert last.response.output_text == api.responses.retrieve(last.response.id).output_text
    return f"{last.response.usage.output_tokens} tokens"


def texts(api: openai.OpenAI, _servers: list[Server]) -> str:
    """A text goes on whole and streamed, from text and from tokens, with log probabilities."""
    asked: Any = {"model": "qwen", "prompt": "Once upon a time", "max_tokens": 6, "temperature": 0}
    whole: Any = api.completions.create(**asked, logprobs=2)
    text, used = whole.choices[0].text, whole.usage
    assert len(whole.choices[0].logprobs.tokens) == used.completion_tokens == 6, whole
    streamed = "".join(chunk.choices[0].text for chunk in api.completions.create(**asked, stream=True))
    assert streamed == text != "", streamed
    tokens: Any = api.completions.create(model="qwen", prompt=[5, 6, 7], max_tokens=2)
    assert tokens.usage.prompt_tokens == 3, tokens
    return f"{used.completion_tokens} tokens after {used.prompt_tokens}"


def counts(api: openai.OpenAI, _servers: list[Server]) -> str:
    """The tokens of a prompt that are counted before are those that are read."""
    found: list[int] = []
    for tools in ([], TOOLS):
        asked: Any = {"model": "qwen", "input": "How are you? 😀", "instructions": "Be brief.", "tools": tools}
        counted = api.responses.input_tokens.count(**asked).input_tokens
        made: Any = api.responses.create(**asked, max_output_tokens=1)
        assert counted == made.usage.input_tokens, (counted, made)
        found.append(counted)
    return f"{found} tokens without and with tools"


def loss(api: openai.OpenAI, servers: list[Server]) -> str:
    """Chains go on when one of the servers is killed."""
    last = [ask(api, f"Begin {number}", max_output_tokens=8) for number in range(CHAINS)]
    servers[0].kill()
    for _ in range(TURNS):
        last = [ask(api, "Go on", previous_response_id=before.id, max_output_tokens=8) for before in last]
        assert {response.status for response in last} <= {"completed", "incomplete"}, last
    return f"{CHAINS * TURNS} turns after it, none failed"


def main() -> int:
    """Print what was found; 1 where something does not hold."""
    failed = 0
    findings: list[Callable[[openai.OpenAI, list[Server]], str]] = [
        streams,
        chains,
        calls,
        formats,
        texts,
        counts,
        loss,
    ]
    with client() as (api, servers):
        for finding in findings:
            try:
                print(f"ok    {finding.__name__:8} {finding(api, servers)}", flush=True)
            except (AssertionError, openai.APIError, jsonschema.ValidationError) as error:
                failed += 1
                print(f"FAIL  {finding.__name__:8} {str(error)[:1000]}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
