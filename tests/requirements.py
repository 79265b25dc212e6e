"""The behaviour manifest: what Antiphon does, as data.

Each behaviour has a stable id `<area>:<feature>[:<variant>]`, a source (a section of the Responses API description, a
rule number, an issue) and one sentence. `divergence` says where we knowingly differ from the source and why;
`deferred` says why a behaviour is not built yet, and then it needs no test. Tests carry
`@pytest.mark.requirement("id", …)`; `tests/unit/test_manifest.py` holds both ways. The reference table in
`docs/reference/supported.md` is generated from this file.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["REQUIREMENTS", "Requirement"]


@dataclass(frozen=True)
class Requirement:
    """One behaviour."""

    id: str
    source: str
    behavior: str
    divergence: str | None = None
    deferred: str | None = None


R = Requirement

WIRE: tuple[Requirement, ...] = ()

MACHINE: tuple[Requirement, ...] = ()

PROMPT: tuple[Requirement, ...] = ()

LOCAL_ENGINE: tuple[Requirement, ...] = ()

SCRIPTED_ENGINE: tuple[Requirement, ...] = ()

STORE: tuple[Requirement, ...] = ()

API: tuple[Requirement, ...] = ()

COMMAND_LINE: tuple[Requirement, ...] = ()

PROJECT: tuple[Requirement, ...] = ()

REQUIREMENTS: tuple[Requirement, ...] = (
    *WIRE,
    *MACHINE,
    *PROMPT,
    *LOCAL_ENGINE,
    *SCRIPTED_ENGINE,
    *STORE,
    *API,
    *COMMAND_LINE,
    *PROJECT,
)
