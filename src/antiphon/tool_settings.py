"""The settings of hosted tools and of the documents behind them: a part of `Settings`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["ToolSettings"]

Doc = Meta


class ToolSettings(Struct, frozen=True, kw_only=True):
    """What is set of hosted tools."""

    max_vector_stores: Annotated[int, Doc(description="Most vector stores of one tenant.", ge=0)] = 1_000
    max_vector_store_files: Annotated[int, Doc(description="Most files in one vector store.", ge=0)] = 10_000
