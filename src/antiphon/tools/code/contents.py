"""The contents of a container's files, outside its sandbox: small ones in memory, others in files without a name.

Such a file goes with the process, however it ends, and no name that code has made is ever one on this machine.
"""

from __future__ import annotations

import os
import tempfile
import weakref

__all__ = ["Content"]

_SMALL = 64 * 1024


class Content:
    """Bytes that do not change. It can be read as long as anybody has it."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data if len(data) <= _SMALL else None
        self._descriptor = -1
        if self._data is None:
            with tempfile.TemporaryFile() as file:
                file.write(data)
                file.flush()
                self._descriptor = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._descriptor)

    def piece(self, position: int, most: int) -> bytes:
        """At most so many bytes from a position on."""
        if self._data is not None:
            return self._data[position : position + most]
        return os.pread(self._descriptor, most, position)

    def whole(self) -> bytes:
        """All of it."""
        return self.piece(0, self.size)
