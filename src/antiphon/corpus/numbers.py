"""numpy, loaded when it is first needed, with one thread for each computation.

Its library would take all processors for one product of matrices, and have them wait for each other: beside an engine
that uses them too, that takes twice the processor time and longer. Searches run side by side instead.
"""

from __future__ import annotations

import importlib
import os
from functools import cache
from typing import Any, Final

__all__ = ["numpy"]

_THREADS: Final = "OPENBLAS_NUM_THREADS"


@cache
def numpy() -> Any:
    """The module; who sets the number of its threads in the environment has the last word."""
    if _THREADS in os.environ:
        return importlib.import_module("numpy")
    os.environ[_THREADS] = "1"
    try:
        return importlib.import_module("numpy")
    finally:
        # It is read once. What is started later has an environment as it was.
        del os.environ[_THREADS]
