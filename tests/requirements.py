"""The behaviour manifest: what Antiphon does, as data.

Each behaviour has a stable id `<area>:<feature>[:<variant>]`, a source (a section of the Responses API description, a
rule number, an issue) and one sentence. `divergence` says where we knowingly differ from the source and why;
`deferred` says why a behaviour is not built yet, and then it needs no test. Tests carry
`@pytest.mark.requirement("id", …)`; `tests/unit/test_manifest.py` holds both ways. The reference table in
`docs/reference/supported.md` is generated from it. The behaviours stand in modules by area beside this one.
"""

from __future__ import annotations

from requirements_api import API, CHAT, DOCUMENTS, FILES, IDEMPOTENCY, MEDIA
from requirements_background import BACKGROUND, RESUME, RUNTIME, WEBHOOKS
from requirements_clients import CLIENTS, LIBRARIES
from requirements_cluster import CLUSTER
from requirements_code import CODE
from requirements_corpora import CORPUS_STORE
from requirements_corpus_tools import CORPUS_TOOLS
from requirements_dialects import CONSTRAINTS, DIALECTS_A, DIALECTS_B
from requirements_driver import ASK, DRIVER_CALLS, DRIVER_DECODE, DRIVER_ENCODE, DRIVER_STREAM, DRIVER_TOOLS
from requirements_engines import FLORENCE, LOCAL_ENGINE, LOCAL_MEDIA, PROBE, SAMPLING, SCRIPTED_ENGINE, TEMPLATES
from requirements_hosted import HOSTED
from requirements_ingest import INGEST
from requirements_loop import LOOP
from requirements_mcp import MCP
from requirements_project import ATTACKS, COMMAND_LINE, KEYS, OUTBOUND, PROJECT
from requirements_prompt import PROMPT, RULES, TOOLS
from requirements_ray import RAY
from requirements_registry import REGISTRY
from requirements_responses_upstream import RESPONSES_UPSTREAMS
from requirements_routing import ROUTING
from requirements_search import SEARCH
from requirements_store import POSTGRESQL, SCALE, SHARED_STORES, SQLITE, STORE
from requirements_talks import COMPACTION, CONVERSATIONS, WEBSOCKET
from requirements_upkeep import UPKEEP
from requirements_upstream import UPSTREAMS
from requirements_vector_stores import VECTOR_STORES
from requirements_wire import MACHINE, WIRE
from support.requirement import Requirement

__all__ = ["REQUIREMENTS", "Requirement"]

REQUIREMENTS: tuple[Requirement, ...] = (
    *WIRE,
    *MACHINE,
    *PROMPT,
    *LOCAL_ENGINE,
    *SCRIPTED_ENGINE,
    *STORE,
    *API,
    *CLIENTS,
    *COMMAND_LINE,
    *PROJECT,
    *RESUME,
    *OUTBOUND,
    *KEYS,
    *SHARED_STORES,
    *WEBHOOKS,
    *WEBSOCKET,
    *COMPACTION,
    *SQLITE,
    *CONVERSATIONS,
    *BACKGROUND,
    *IDEMPOTENCY,
    *SCALE,
    *RUNTIME,
    *POSTGRESQL,
    *DIALECTS_A,
    *CONSTRAINTS,
    *DIALECTS_B,
    *CHAT,
    *TOOLS,
    *FILES,
    *SAMPLING,
    *LOCAL_MEDIA,
    *DOCUMENTS,
    *MEDIA,
    *FLORENCE,
    *ATTACKS,
    *RULES,
    *UPKEEP,
    *INGEST,
    *UPSTREAMS,
    *RESPONSES_UPSTREAMS,
    *DRIVER_ENCODE,
    *DRIVER_DECODE,
    *DRIVER_STREAM,
    *DRIVER_CALLS,
    *DRIVER_TOOLS,
    *ASK,
    *PROBE,
    *TEMPLATES,
    *LIBRARIES,
    *CLUSTER,
    *CODE,
    *RAY,
    *REGISTRY,
    *CORPUS_STORE,
    *ROUTING,
    *HOSTED,
    *LOOP,
    *MCP,
    *SEARCH,
    *CORPUS_TOOLS,
    *VECTOR_STORES,
)
