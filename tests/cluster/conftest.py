"""`make cluster` runs these tests, not the gate: they want proxies, and libraries in an environment of their own."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("ANTIPHON_CLUSTER") == "1" else ["test_*.py"]
