"""A server as `antiphon serve` makes it, that sweeps its store soon after its start and not a minute later."""

from __future__ import annotations

from antiphon.cli.main import main
from antiphon.runtime import upkeep

__all__: list[str] = []

SWEEP_SECONDS = 1.0

if __name__ == "__main__":
    upkeep.SWEEP_SECONDS = SWEEP_SECONDS
    main()
