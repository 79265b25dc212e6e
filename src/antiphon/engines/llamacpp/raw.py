"""Text and tokens without a chat template: prompts that are gone on from as they are, and the model's tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.engines.base import Token
from antiphon.engines.llamacpp.client import ChildError, Client
from antiphon.engines.llamacpp.wire import Props
from antiphon.errors import EngineError, InvalidRequestError
from antiphon.machine.deltas import ReasoningDelta, TextDelta
from antiphon.prompt.dialects import Piece
from antiphon.prompt.prompt import Sampling
from antiphon.protocol.completions import RawPrompt

__all__ = ["PlainParser", "PlainSplitter", "check_biases", "detokenized", "raw_tokens", "tokenized"]


class PlainSplitter:
    """A splitter for text in which nothing is thinking."""

    thinking = False

    def feed(self, text: str) -> list[ReasoningDelta | TextDelta]:
        """The text."""
        return [TextDelta(text)]

    def finish(self) -> list[ReasoningDelta | TextDelta]:
        """Nothing is held back."""
        return []


class PlainParser:
    """A parser for text in which nothing is a call."""

    in_text = True
    calls = 0

    def feed(self, text: str) -> list[Piece]:
        """The text."""
        return [TextDelta(text)]

    def finish(self) -> list[Piece]:
        """Nothing is held back."""
        return []


async def raw_tokens(client: Client, props: Props, prompt: RawPrompt) -> list[int]:
    """The tokens of a prompt with what the model wants in front; an empty one is what texts begin with (M7).

    Raises:
        InvalidRequestError: a token is not in the vocabulary, or the prompt is empty and the model has no token that a
            text could begin with.
        EngineError: the engine refuses the prompt for another reason.
    """
    if not isinstance(prompt, str):
        await detokenized(client, prompt, "prompt")
        return list(prompt)
    try:
        tokens = await client.tokenize(prompt, add_special=True)
        # Where a model has no token for it, training texts began where others ended.
        for beginning in (props.bos_token, props.eos_token):
            if not tokens and beginning:
                tokens = await client.tokenize(beginning, add_special=False)
    except ChildError as error:
        raise EngineError("The engine refused the prompt.") from error
    if not tokens:
        raise InvalidRequestError(
            "This model cannot begin a text of its own: give a prompt.", param="prompt", code="empty_input"
        )
    return tokens


async def check_biases(client: Client, sampling: Sampling) -> None:
    """Refuse biases of tokens that the model does not have, which llama.cpp would leave out without a word (M29).

    Raises:
        InvalidRequestError: the vocabulary has no such token.
        EngineError: the engine refuses the tokens for another reason.
    """
    biases = sampling.samplers.named().get("logit_bias", ())
    if biases:
        await detokenized(client, [token for token, _ in biases], "logit_bias")


async def tokenized(client: Client, text: str, *, add_special: bool, parse_special: bool) -> list[Token]:
    """The tokens of a text, each with the bytes that it stands for.

    Raises:
        EngineError: the engine refuses the text.
    """
    try:
        found = await client.tokenize_pieces(text, add_special=add_special, parse_special=parse_special)
    except ChildError as error:
        raise EngineError("The engine refused the text.") from error
    return [
        Token(entry.id, entry.piece.encode() if isinstance(entry.piece, str) else bytes(entry.piece)) for entry in found
    ]


async def detokenized(client: Client, tokens: Sequence[int], param: str = "tokens") -> str:
    """The text of tokens, special ones spelled out; `param` is where they came in.

    Raises:
        InvalidRequestError: the model has no such token.
        EngineError: the engine refuses them for another reason.
    """
    try:
        return await client.detokenize(tokens)
    except ChildError as error:
        if "range_check" not in error.message:
            raise EngineError("The engine refused the tokens.") from error
        raise InvalidRequestError(
            f"Invalid '{param}': one of the tokens is not in the model's vocabulary.", param=param, code="invalid_value"
        ) from None
