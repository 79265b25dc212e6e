"""The guide to the driver says of each provider what its profile says."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.client.profiles import PROFILES, Profile

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "driver.md"


def resumes(profile: Profile) -> str:
    takes = profile.fields is None or "background" in profile.fields
    if not (profile.resumes and takes):
        return "no"
    return "yes" if profile.background else "`background=True`"


def row(profile: Profile) -> str:
    cells = [
        f"`{profile.name}`",
        "yes" if profile.chains else "no",
        "yes" if profile.replays else "no",
        resumes(profile),
        "yes" if profile.websocket else "no",
        "yes" if profile.compacts else "no",
        "a format" if profile.formats else "a call",
        ", ".join(f"`{name}`" for name in profile.key_variables) or "none",
    ]
    return f"| {' | '.join(cells)} |"


@pytest.mark.requirement("driver:guide")
def test_the_table_of_providers_is_that_of_their_profiles() -> None:
    lines = GUIDE.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("| `")] == [row(profile) for profile in PROFILES.values()]
