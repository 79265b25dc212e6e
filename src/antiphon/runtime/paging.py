"""Pages of lists that go by item id (responses-api 1.1, 1.2)."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.errors import InvalidRequestError

__all__ = ["page_after"]


def page_after(ids: Sequence[str], *, newest_first: bool, after: str | None, limit: int) -> tuple[list[str], bool]:
    """At most `limit` ids after one of them, in the order asked for, and whether more follow. `ids` are oldest first.

    Raises:
        InvalidRequestError: `after` is not one of them.
    """
    ordered = list(reversed(ids)) if newest_first else list(ids)
    if after is not None:
        if after not in ordered:
            raise InvalidRequestError(
                "Invalid 'after': no item of this list has that id.", param="after", code="invalid_value"
            )
        ordered = ordered[ordered.index(after) + 1 :]
    return ordered[:limit], len(ordered) > limit
