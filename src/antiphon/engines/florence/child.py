"""The process that holds torch and the model: it may die of an image, and the server does not.

Run as `python -m antiphon.engines.florence.child`. It is spoken to in frames over its standard input and output: four
bytes that say how long it is, then a JSON object. The first frame in is the configuration (`ChildConfig` of `process`),
the first one out says that the model is loaded, or why it is not. Then come `{"id", "count"}`, which is answered at
once, `{"id", "question", "image", …}`, which are worked on one after the other, and `{"cancel"}`, which ends one
of those between two tokens. It ends when its standard input does, which is when its parent closes the pipe or dies. It
imports the standard library, torch, transformers and Pillow only; nothing is fetched, and no code of a model's folder
is run.
"""

from __future__ import annotations

import base64
import binascii
import copy
import importlib
import io
import json
import os
import queue
import resource
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import IO, Any, Final

__all__ = ["main"]

LOAD_FAILED: Final = 3
"""Exit status when the model cannot be loaded."""

MOST_FRAME: Final = 2**26
"""Bytes of a frame: an image of the most bytes that one may have, in base64, and its question."""

MOST_OUTPUT: Final = 1024
"""Tokens of an answer where the request names no limit, which is what the model was trained to at most."""

LEAST_TEMPERATURE: Final = 0.01
"""Below it numbers overflow, and nothing but the likeliest token is drawn anyway."""

_PREFIX: Final = 4
_MOST_FAULT: Final = 300
_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")


class _FaultError(Exception):
    """What is not done; its argument is the code."""


class _Job:
    """A task, and whether nobody waits for it any more."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.cancelled = threading.Event()


class _Pipe:
    """The frames out: whole ones, whichever thread they come from."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lock = threading.Lock()

    def write(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        with self._lock:
            self._file.write(len(data).to_bytes(_PREFIX, "big") + data)
            self._file.flush()


def main() -> int:
    """Serve until standard input ends; the result is the exit status."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a library prints must not stand between two frames.
    out = _Pipe(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    config = _read()
    if config is None:
        return 0
    try:
        model = _Model(config)
    except Exception as error:  # noqa: BLE001 - the libraries raise anything; the operator reads the text
        out.write({"fault": _short(error)})
        return LOAD_FAILED
    out.write({"ready": model.about()})
    jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
    waiting: dict[int, _Job] = {}
    threading.Thread(target=_work, args=(model, jobs, waiting, out), daemon=True).start()
    while (frame := _read()) is not None:
        if "cancel" in frame:
            job = waiting.get(frame["cancel"])
            if job is not None:
                job.cancelled.set()
        elif "count" in frame:
            out.write({"id": frame["id"], **_tried(partial(model.count, frame["count"]))})
        else:
            job = waiting[frame["id"]] = _Job(frame)
            jobs.put(job)
    return 0


def _read() -> dict[str, Any] | None:
    """The next frame, or None where they have ended."""
    source = sys.stdin.buffer
    prefix = source.read(_PREFIX)
    length = int.from_bytes(prefix, "big")
    if len(prefix) < _PREFIX or length > MOST_FRAME:
        return None
    data = source.read(length)
    return json.loads(data) if len(data) == length else None


def _work(model: _Model, jobs: queue.SimpleQueue[_Job], waiting: dict[int, _Job], out: _Pipe) -> None:
    while True:
        job = jobs.get()
        answer = _tried(partial(model.answer, job))
        identity: int = job.asked["id"]
        waiting.pop(identity, None)
        out.write({"id": identity, **answer})


def _tried(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except _FaultError as fault:
        return {"fault": fault.args[0]}
    except (MemoryError, RecursionError):
        return {"fault": "too_much"}
    except Exception as error:  # noqa: BLE001 - as above; these words go to the log of the server only
        sys.stderr.write(f"a task failed: {_short(error)}\n")
        sys.stderr.flush()
        return {"fault": "failed"}


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:_MOST_FAULT]


class _Model:
    """The model of a folder."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._most_pixels: int = config["max_pixels"]
        self._torch: Any = importlib.import_module("torch")
        self._pillow: Any = importlib.import_module("PIL.Image")
        self._pillow.MAX_IMAGE_PIXELS = None
        self._turned: Any = importlib.import_module("PIL.ImageOps").exif_transpose
        transformers: Any = importlib.import_module("transformers")
        transformers.logging.disable_progress_bar()
        self._torch.set_num_threads(config["threads"])
        own: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        processor: Any = transformers.Florence2Processor.from_pretrained(config["folder"], **own)
        # Weights in any other form are pickles.
        model, loading = transformers.Florence2ForConditionalGeneration.from_pretrained(
            config["folder"], **own, use_safetensors=True, output_loading_info=True, dtype=self._torch.float32
        )
        missing = sorted(loading["missing_keys"])
        if missing:
            raise ValueError(
                f"the folder lacks {len(missing)} of the model's weights, such as {missing[0]}; it must have the form "
                "that the transformers library writes"
            )
        cuda = config["gpu"] and self._torch.cuda.is_available()
        # An end that is forced at the limit would look like the model's own.
        model.generation_config.forced_eos_token_id = None
        self._device: str = "cuda" if cuda else "cpu"
        self._model: Any = model.eval().to(self._device)
        self._processor: Any = processor
        self._tokenizer: Any = processor.tokenizer
        text = model.config.text_config
        self._positions: int = text.max_position_embeddings
        self._end: int = self._tokenizer.eos_token_id
        first, pad = self._tokenizer.bos_token_id, self._tokenizer.pad_token_id
        self._control = {processor.image_token_id, first, self._end, pad}

    def about(self) -> dict[str, Any]:
        """What the server needs to know of it."""
        rules: Any = self._processor.post_processor_config
        grounding: dict[str, Any] = rules.get("phrase_grounding", {}) if rules else {}
        return {
            "context_length": self._positions,
            "banned": list(grounding.get("banned_grounding_tokens", ())),
            "device": self._device,
        }

    def count(self, question: str) -> dict[str, Any]:
        """How many tokens the prompt of a question has; raises what `tokens` does."""
        return {"tokens": len(self.tokens(question))}

    def tokens(self, question: str) -> list[int]:
        """The prompt of a question: the places of the image, then its text.

        Raises:
            _FaultError: the text spells a token that stands for something else than text.
        """
        places: int = self._processor.num_image_tokens
        text = f"{self._processor.image_token * places}{self._tokenizer.bos_token}{question}{self._tokenizer.eos_token}"
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        if sum(token in self._control for token in tokens) != places + 2:
            raise _FaultError("control")
        return tokens

    def answer(self, job: _Job) -> dict[str, Any]:
        """What the model generates about an image.

        Raises:
            _FaultError: the image cannot be read, or nobody waits for the answer any more.
        """
        asked, torch = job.asked, self._torch
        if job.cancelled.is_set():
            raise _FaultError("cancelled")
        image = self._opened(asked["image"])
        pixels = self._processor.image_processor(images=image, return_tensors="pt")["pixel_values"]
        tokens = torch.tensor([self.tokens(asked["question"])])

        def stops(ids: Any, _scores: Any, **_: Any) -> Any:
            return torch.full((ids.shape[0],), job.cancelled.is_set(), dtype=torch.bool, device=ids.device)

        seed: int | None = asked.get("seed")
        if seed is None or seed < 0:
            torch.seed()
        else:
            torch.manual_seed(seed)
        with torch.inference_mode():
            drawn = self._model.generate(
                input_ids=tokens.to(self._device),
                attention_mask=torch.ones_like(tokens).to(self._device),
                pixel_values=pixels.to(self._device),
                generation_config=self._drawing(asked),
                stopping_criteria=[stops],
            )[0].tolist()
        if job.cancelled.is_set():
            raise _FaultError("cancelled")
        # The first one only begins the answer; what fills it up comes after its end.
        drawn = drawn[1:]
        ended = self._end in drawn
        drawn = drawn[: drawn.index(self._end) + 1] if ended else drawn
        text: str = self._tokenizer.decode(drawn, skip_special_tokens=False)
        return {"text": text, "width": image.width, "height": image.height, "tokens": len(drawn), "cut": not ended}

    def _drawing(self, asked: dict[str, Any]) -> Any:
        """How the answer is drawn: as the folder says, but for what the request says."""
        config: Any = copy.deepcopy(self._model.generation_config)
        most = min(MOST_OUTPUT, self._positions - 1)
        config.max_new_tokens = most if asked.get("most") is None else min(asked["most"], most)
        config.max_length = None
        temperature = asked.get("temperature")
        if temperature is not None:
            config.do_sample = temperature > 0
        if temperature:
            config.num_beams = 1
            config.early_stopping = False
            config.temperature = max(temperature, LEAST_TEMPERATURE)
            # What is not named must not be the library's own default.
            config.top_k = max(0, asked.get("top_k") or 0)
            config.top_p = 1.0 if asked.get("top_p") is None else asked["top_p"]
            config.min_p = asked.get("min_p")
        if asked.get("repetition_penalty") is not None:
            config.repetition_penalty = asked["repetition_penalty"]
        return config

    def _opened(self, data: str) -> Any:
        """The image as it is looked at, in colours; its size is known before it is decoded."""
        try:
            image: Any = self._pillow.open(io.BytesIO(base64.b64decode(data)), formats=_FORMATS)
            if image.width * image.height > self._most_pixels:
                raise _FaultError("too_large")
            return self._upright(image).convert("RGB")
        except (OSError, SyntaxError, ValueError, binascii.Error):
            raise _FaultError("unreadable") from None

    def _upright(self, image: Any) -> Any:
        try:
            return self._turned(image)
        except Exception:  # noqa: BLE001 - what is wrong with its metadata raises anything; the image is whole
            return image


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # A plain exit would wait for native threads in the middle of a task.
    os._exit(status)
