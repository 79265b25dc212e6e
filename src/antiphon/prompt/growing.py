"""Sequences that share memory, so that a history is not copied for each turn that is added to it.

A copy touches every message of a conversation, which for the turns of a long one costs more than all else but rendering
(issue 3, Must show 8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Generic, TypeVar, cast, overload

__all__ = ["Chained", "Growing", "grown"]

T_co = TypeVar("T_co", covariant=True)


class _Told(Sequence[T_co]):
    """A sequence that is equal to a list, a tuple or another of its kind with the same elements."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list | tuple | _Told):
            return list(self) == list(cast("Sequence[object]", other))
        return NotImplemented

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"


class Growing(_Told[T_co], Generic[T_co]):
    """The first so many elements of a list that others may have grown further; it never changes itself.

    Adding to the one that ends where the list ends is in place; adding to another copies.
    """

    __slots__ = ("_elements", "_length")

    def __init__(self, elements: Iterable[T_co] = ()) -> None:
        self._elements = list(elements)
        self._length = len(self._elements)

    @property
    def shared(self) -> list[T_co]:
        """The list that it is the beginning of, to be read only."""
        return self._elements

    def grown(self, *more: Iterable[T_co]) -> Growing[T_co]:
        """These elements and more after them."""
        elements = self._elements
        if len(elements) != self._length:
            elements = elements[: self._length]
        for added in more:
            elements.extend(added)
        grown = Growing[T_co]()
        grown._elements = elements
        grown._length = len(elements)
        return grown

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T_co]:
        return islice(self._elements, self._length)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> list[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | list[T_co]:
        if isinstance(index, slice):
            return [self._elements[place] for place in range(*index.indices(self._length))]
        return self._elements[range(self._length)[index]]


class Chained(_Told[T_co], Generic[T_co]):
    """Several sequences, read as one."""

    __slots__ = ("_length", "_parts")

    def __init__(self, parts: Iterable[Sequence[T_co]]) -> None:
        self._parts = [part for part in parts if part]
        self._length = sum(map(len, self._parts))

    @property
    def parts(self) -> Sequence[Sequence[T_co]]:
        """The sequences, without the empty ones."""
        return self._parts

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T_co]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> list[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | list[T_co]:
        if isinstance(index, slice):
            return list(self)[index]
        place = range(self._length)[index] - self._length
        # Most often it is one of the last that is asked for.
        for part in reversed(self._parts):
            if place >= -len(part):
                return part[place]
            place += len(part)
        raise IndexError(index)


def grown(first: Sequence[T_co], *more: Iterable[T_co]) -> Growing[T_co]:
    """A sequence and more after it, in place where that can be."""
    return (first if isinstance(first, Growing) else Growing(first)).grown(*more)
