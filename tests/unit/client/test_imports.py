"""What the codec of the driver needs: no library but msgspec."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
before = set(sys.modules)
import antiphon.client.decode, antiphon.client.encode, antiphon.client.stream
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded - set(sys.stdlib_module_names)))
"""


@pytest.mark.requirement("driver:light")
def test_the_codec_loads_nothing_but_msgspec() -> None:
    reply = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    of_msgspec = {"msgspec", "typing_extensions"}
    assert set(reply.stdout.split()) - of_msgspec == {"antiphon"}
