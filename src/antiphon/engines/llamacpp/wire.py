"""What llama.cpp's server answers, as far as it is read here."""

from __future__ import annotations

from msgspec import Struct, field

__all__ = [
    "Candidate",
    "Chunk",
    "Detokenized",
    "Embeddings",
    "EmbeddingsUsage",
    "ErrorBody",
    "Failure",
    "InputTokens",
    "Progress",
    "Props",
    "Rendered",
    "Timings",
    "TokenPiece",
    "Tokenized",
    "TokenizedPieces",
    "Vector",
]


class ErrorBody(Struct):
    """The object under `error`."""

    message: str = ""
    type: str = ""


class Candidate(Struct):
    """A token with its natural-log probability; of a chosen one also the best alternatives at its place."""

    token: str
    bytes: list[int]
    logprob: float
    top_logprobs: list[Candidate] = field(default_factory=list["Candidate"])


class Progress(Struct):
    """How far the prompt is read: of its tokens, those that were in the cache."""

    cache: int


class Timings(Struct):
    """Token counts of the final chunk: of the prompt's tokens, those reused and those read."""

    cache_n: int = 0
    prompt_n: int = 0


class Chunk(Struct):
    """One event of a streamed `/completion`.

    `tokens_predicted` counts the generated tokens up to this chunk. A token that ends in the middle of a character is
    held back by llama.cpp, so a chunk may stand for more than one token.
    """

    content: str = ""
    tokens: list[int] = field(default_factory=list[int])
    stop: bool = False
    stop_type: str = ""
    stopping_word: str = ""
    tokens_predicted: int = 0
    prompt_progress: Progress | None = None
    completion_probabilities: list[Candidate] | None = None
    timings: Timings | None = None
    error: ErrorBody | None = None


class Rendered(Struct):
    """The answer of `/apply-template`."""

    prompt: str


class InputTokens(Struct):
    """The answer of `/v1/chat/completions/input_tokens`."""

    input_tokens: int


class Detokenized(Struct):
    """The answer of `/detokenize`."""

    content: str


class Tokenized(Struct):
    """The answer of `/tokenize`."""

    tokens: list[int]


class TokenPiece(Struct):
    """A token with its text; its bytes where they are no whole characters."""

    id: int
    piece: str | list[int]


class TokenizedPieces(Struct):
    """The answer of `/tokenize` with pieces."""

    tokens: list[TokenPiece]


class Vector(Struct):
    """A vector: little-endian 32-bit floats in base64. `index` is the place of its input."""

    index: int
    embedding: str


class EmbeddingsUsage(Struct):
    """The tokens that were read."""

    prompt_tokens: int


class Embeddings(Struct):
    """The answer of `/v1/embeddings`."""

    data: list[Vector]
    usage: EmbeddingsUsage


class _Generation(Struct):
    n_ctx: int


class Props(Struct):
    """The answer of `/props`: the slots' context in tokens, the chat template and what it can do, special tokens.

    `modalities` are the media that a projector reads, and `media_marker` is what stands for one in a prompt.
    """

    default_generation_settings: _Generation
    chat_template: str = ""
    chat_template_caps: dict[str, bool] = field(default_factory=dict[str, bool])
    bos_token: str = ""
    eos_token: str = ""
    modalities: dict[str, bool] = field(default_factory=dict[str, bool])
    media_marker: str = ""

    @property
    def context_length(self) -> int:
        """Tokens of one slot's context."""
        return self.default_generation_settings.n_ctx


class Failure(Struct):
    """The body of a refused call."""

    error: ErrorBody = field(default_factory=ErrorBody)
