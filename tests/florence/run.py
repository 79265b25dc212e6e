"""A real server over a tiny model: every task, what is refused, a client that leaves and a child that dies."""

from __future__ import annotations

import base64
import io
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import torch
import transformers
from PIL import Image

from antiphon.engines.florence.coordinates import TASKS, FlorenceTask, parse_answer
from antiphon.protocol.sse import SSEParser
from florence.tiny import IMAGE_TOKENS, POSITIONS, build
from support.server import RunningServer, running_server, wait_until

__all__ = ["run"]

WIDTH, HEIGHT = 300, 200
MOST_PIXELS = 1_000_000
SEED, SEEDS = 5, 100
TOKENS = 60
"""Tokens of an answer that is compared with the library's own."""

ARRAYS = {
    "text": (),
    "bboxes": ("bboxes", "labels"),
    "quad_boxes": ("quad_boxes", "labels"),
    "polygons": ("polygons", "labels"),
    "bboxes_or_polygons": ("bboxes", "bboxes_labels", "polygons", "polygons_labels"),
}
"""The arrays of each kind of result."""

CHOICES = 8
"""Answers to a request that takes long enough to be left, or killed, in the middle."""

WORKING_TICKS = 10
"""Ticks of processor time that say that a child works."""


class Run:
    """The checks over one server; each prints a line."""

    def __init__(self, server: RunningServer, model: Path) -> None:
        self._server = server
        self._model = model
        self._name = model.name
        self._client = httpx2.Client(base_url=server.base_url, timeout=120)
        self.broken: list[str] = []
        """What does not hold."""

    def check(self, title: str, work: Callable[[], str]) -> None:
        """Do one check and print what it found."""
        began = time.monotonic()
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is the result of the check
            found = f"BROKEN: {type(error).__name__} {error}"[:500]
            self.broken.append(title)
        print(f"{title}: {found} ({time.monotonic() - began:.2f} s)", flush=True)

    def task(self, task: str, known: FlorenceTask) -> str:
        """One task: its result, whole and streamed, and as a response."""
        asked = self._asked(f"{task} the car" if known.takes_input else task, temperature=1, seed=SEED)
        answer = self._post("/chat/completions", asked)
        message = answer["choices"][0]["message"]
        result, text = message["florence2_result"], message["content"]
        expect((result["task"], result["kind"]), (task, known.kind))
        expect(set(result), {"task", "kind", *ARRAYS[known.kind]})
        places = _places(result)
        expect([place for place in places if not (0 <= place[0] < WIDTH and 0 <= place[1] < HEIGHT)], [])
        expect(answer["usage"]["prompt_tokens"] > IMAGE_TOKENS, True)
        expect(answer["usage"]["completion_tokens"] > 0, True)
        streamed = self._client.post("/chat/completions", json={**asked, "stream": True})
        expect(b"florence2_result" in streamed.content, False)
        chunks = [json.loads(frame.data) for frame in SSEParser().feed(streamed.content)[:-1]]
        expect("".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks), text)
        expect(self._response(asked)["output"][0]["content"][0]["text"], text)
        return f"{known.kind}, {len(places)} places, {answer['usage']['completion_tokens']} tokens"

    def transformers(self) -> str:
        """Each task about each of two images has the answer that the library's own steps lead to."""
        processor = transformers.Florence2Processor.from_pretrained(self._model)
        model = transformers.Florence2ForConditionalGeneration.from_pretrained(self._model).eval()
        torch.set_num_threads(1)
        # Else the last token of a cut answer is taken for its end.
        model.generation_config.forced_eos_token_id = None
        answers: set[str] = set()
        for task, known in TASKS.items():
            for image in (Image.new("RGB", (WIDTH, HEIGHT), "red"), Image.radial_gradient("L").resize((WIDTH, HEIGHT))):
                text = f"{task} a car" if known.takes_input else task
                inputs = processor(text=text, images=image.convert("RGB"), return_tensors="pt")
                with torch.inference_mode():
                    drawn = model.generate(**inputs, max_new_tokens=TOKENS)[0]
                written = processor.tokenizer.decode(drawn, skip_special_tokens=False)
                result, content = parse_answer(task, written, WIDTH, HEIGHT)
                answer = self._post("/chat/completions", self._asked(text, picture(image), max_tokens=TOKENS))
                message = answer["choices"][0]["message"]
                expect(answer["usage"]["prompt_tokens"], inputs["input_ids"].shape[1])
                expect(message["florence2_result"], msgspec.to_builtins(result), task)
                expect(message["content"], content, task)
                answers.add(written)
        return f"{2 * len(TASKS)} answers the same, {len(answers)} different ones among them"

    def beams(self) -> str:
        """Without a temperature the same comes each time; a limit cuts it."""
        asked = self._asked("<OD>")
        first, second = (self._post("/chat/completions", asked)["choices"][0] for _ in range(2))
        expect(first["message"], second["message"])
        cut = self._post("/chat/completions", {**asked, "max_tokens": 7})
        expect((cut["choices"][0]["finish_reason"], cut["usage"]["completion_tokens"]), ("length", 7))
        return "the same twice, cut at 7 tokens"

    def end(self) -> str:
        """An answer that the model ends by itself is not cut; a random model does so now and then."""
        for seed in range(SEEDS):
            answer = self._post("/chat/completions", self._asked("<CAPTION>", temperature=1, seed=seed))
            tokens = answer["usage"]["completion_tokens"]
            expect(answer["choices"][0]["finish_reason"] == "length", tokens == POSITIONS - 1, f"{tokens} tokens")
            if tokens < POSITIONS - 1:
                return f"{tokens} tokens with seed {seed}"
        raise AssertionError("no answer has ended")

    def turned(self) -> str:
        """The places in an image that is looked at sideways are those of what is seen."""
        image = Image.new("RGB", (WIDTH, 100), "red")
        exif = image.getexif()
        exif[0x0112] = 6
        asked = self._asked("<REGION_PROPOSAL>", picture(image, "JPEG", exif=exif), temperature=1, seed=SEED)
        places = _places(self._post("/chat/completions", asked)["choices"][0]["message"]["florence2_result"])
        expect((max(x for x, _ in places) < 100, max(y for _, y in places) > 100), (True, True))
        return f"{len(places)} places in 100 by {WIDTH} pixels"

    def refusals(self) -> str:
        """What is refused, by the field."""
        large = picture(Image.new("RGB", (MOST_PIXELS // 1000 + 1, 1000)))
        found: list[str] = []
        for body in (
            self._asked("What is it?"),
            self._asked("<OD>", large),
            self._asked("<CAPTION_TO_PHRASE_GROUNDING> </s>"),
            self._asked("<CAPTION_TO_PHRASE_GROUNDING> " + "a" * 300),
            self._asked("<OD>", stop="a"),
        ):
            answer = self._client.post("/chat/completions", json=body)
            expect(answer.status_code, 400)
            found.append(answer.json()["error"]["param"])
        return ", ".join(found)

    def leaving(self) -> str:
        """A client that leaves is not worked for any more."""
        child = _child(self._server.process.pid)
        with self._client.stream("POST", "/chat/completions", json=self._asked("<OD>", n=CHOICES, stream=True)) as left:
            expect(left.status_code, 200)
            wait_until(_works(child), 30)
        before = _ticks(child)
        self._post("/chat/completions", self._asked("<CAPTION>", max_tokens=1))
        return f"{_ticks(child) - before} ticks until the next answer"

    def dying(self) -> str:
        """A task whose child is killed fails; the next one is answered by another child."""
        child = _child(self._server.process.pid)
        works = _works(child)
        answers: list[httpx2.Response] = []
        asked = self._asked("<OD>", n=CHOICES)
        asking = threading.Thread(
            target=lambda: answers.append(self._client.post("/chat/completions", json=asked)), daemon=True
        )
        asking.start()
        wait_until(works, 30)
        os.kill(child, 9)
        asking.join(60)
        expect([answer.status_code for answer in answers], [500])
        expect(answers[0].json()["error"]["type"], "server_error")
        began = time.monotonic()
        self._post("/chat/completions", self._asked("<CAPTION>", max_tokens=1))
        expect(_child(self._server.process.pid) != child, True)
        return f"failed with a 500; the next answer came after {time.monotonic() - began:.1f} s"

    def apart(self) -> str:
        """The server's own process holds no torch, its child does."""
        expect(_holds_torch(self._server.process.pid), False)
        expect(_holds_torch(_child(self._server.process.pid)), True)
        memory = (_megabytes(self._server.process.pid), _megabytes(_child(self._server.process.pid)))
        return f"only the child holds it; at most {memory[0]} MB in the server and {memory[1]} MB in the child"

    def orphaned(self) -> str:
        """A server that is killed leaves no child."""
        child = _child(self._server.process.pid)
        self._server.process.kill()
        wait_until(lambda: not _lives(child), 30)
        return "its child is gone"

    def _asked(self, text: str, url: str | None = None, **more: Any) -> dict[str, Any]:
        image = {"type": "image_url", "image_url": {"url": url or picture(Image.new("RGB", (WIDTH, HEIGHT), "red"))}}
        content = [image, {"type": "text", "text": text}]
        return {"model": self._name, "messages": [{"role": "user", "content": content}], **more}

    def _response(self, asked: dict[str, Any]) -> dict[str, Any]:
        image, text = asked["messages"][0]["content"]
        content = [
            {"type": "input_image", "image_url": image["image_url"]["url"]},
            {"type": "input_text", "text": text["text"]},
        ]
        body = {name: value for name, value in asked.items() if name != "messages"}
        return self._post("/responses", {**body, "input": [{"role": "user", "content": content}]})

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._client.post(path, json=body)
        expect(answer.status_code, 200, answer.text)
        return answer.json()


def run(folder: Path) -> list[str]:
    """Do every check on a model that is made in the folder; what is broken."""
    began = time.monotonic()
    model = build(folder / "tiny-florence-2")
    print(f"model made: {sum(file.stat().st_size for file in model.iterdir()):,} bytes", flush=True)
    arguments = ["--model", str(model), "--store", "memory", "--threads", "1", "--max-image-pixels", str(MOST_PIXELS)]
    with running_server(arguments) as server:
        print(f"server started after {time.monotonic() - began:.1f} s", flush=True)
        checks = Run(server, model)
        for task, known in TASKS.items():
            checks.check(task, lambda task=task, known=known: checks.task(task, known))
        checks.check("transformers itself", checks.transformers)
        checks.check("beams", checks.beams)
        checks.check("the model's own end", checks.end)
        checks.check("a turned image", checks.turned)
        checks.check("refusals", checks.refusals)
        checks.check("torch", checks.apart)
        checks.check("a client that leaves", checks.leaving)
        checks.check("a child that dies", checks.dying)
        checks.check("a server that is killed", checks.orphaned)
        return checks.broken


def picture(image: Image.Image, form: str = "PNG", **options: Any) -> str:
    """The data URI of an image."""
    out = io.BytesIO()
    image.save(out, form, **options)
    return f"data:image/{form.lower()};base64,{base64.b64encode(out.getvalue()).decode()}"


def expect(found: object, wanted: object, note: str = "") -> None:
    """Fail where something is not what it should be."""
    if found != wanted:
        raise AssertionError(f"{found!r} instead of {wanted!r} {note}")


def _places(result: dict[str, Any]) -> list[tuple[int, int]]:
    """Every x and y of a result."""
    runs = [*result.get("bboxes", ()), *result.get("quad_boxes", ())]
    runs += [outline for thing in result.get("polygons", ()) for outline in thing]
    return [(x, y) for run in runs for x, y in zip(run[::2], run[1::2], strict=True)]


def _child(server: int) -> int:
    """The process of the model."""
    for line in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(line.read_text().rpartition(")")[2].split()[1])
            if parent == server and b"florence.child" in (line.parent / "cmdline").read_bytes():
                return int(line.parent.name)
        except OSError:
            continue
    raise LookupError("the server has no such child")


def _ticks(process: int) -> int:
    """The processor time of a process."""
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)


def _works(process: int) -> Callable[[], bool]:
    """Whether the process has worked since now."""
    before = _ticks(process)
    return lambda: _ticks(process) > before + WORKING_TICKS


def _megabytes(process: int) -> int:
    """The most memory that a process has held."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def _lives(process: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _holds_torch(process: int) -> bool:
    return "libtorch" in Path(f"/proc/{process}/maps").read_text()
