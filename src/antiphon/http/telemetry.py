"""Metrics for Prometheus, named in the style of vLLM's, so that dashboards need only another prefix (operations C2).

Labels never hold an id or a key. Times are seconds of the monotonic clock.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog
from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from antiphon.engines.base import Engine
from antiphon.errors import UnavailableError
from antiphon.http.meters import Meter, Meters, Times
from antiphon.protocol.response import Usage
from antiphon.runtime.observer import Observer

__all__ = ["PrefixCounts", "Telemetry"]

_log = structlog.get_logger("antiphon")
_TROUBLE = frozenset(
    {"died", "restarted", "restart_failed", "load_failed", "context_reduced", "grammars_not_obeyed", "unreachable"}
)
_NEWS = frozenset({"added", "removed", "fetching"})
_LOST_WEBHOOKS = frozenset({"refused", "unknown", "expired"})
AGAIN_SECONDS = 10.0
"""After so long a fault that lasts is told again."""

_RUNNING = "antiphon:num_requests_running"
_ENDED = "antiphon:request_success"
_PROMPT = "antiphon:prompt_tokens"
_CACHED = "antiphon:prompt_tokens_cached"
_GENERATED = "antiphon:generation_tokens"
_PREPARED = "antiphon:prompt_preparation_seconds"
_FIRST = "antiphon:time_to_first_token_seconds"
_WHOLE = "antiphon:e2e_request_latency_seconds"
_COMMIT = "antiphon:store_commit_seconds"
_TOOLS = "antiphon:tool_runs"
_TOOL_TIME = "antiphon:tool_run_seconds"
_INGESTING = "antiphon:ingestion_files_running"
_INGESTED = "antiphon:ingestion_files"
_INGESTION_TIME = "antiphon:ingestion_file_seconds"
_SEARCHES = "antiphon:document_searches"
_SEARCH_TIME = "antiphon:document_search_seconds"
_HTTP = "http_requests"
_HTTP_TIME = "http_request_duration_seconds"

_LATENCY = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class _ModelMetrics(Struct):
    """The metrics of one model: a look-up by label costs more than the counting itself."""

    running: Meter
    prompt: Meter
    cached: Meter
    generated: Meter
    prepared: Times
    first: Times
    whole: Times


class _MissedRings(Collector):
    """What a store counts by itself; nothing where it has no doorbell."""

    def __init__(self) -> None:
        self.missed: Callable[[], int] | None = None

    def collect(self) -> Iterable[Metric]:
        if self.missed is not None:
            text = "Rings to other servers that did not get through; these look by themselves after a while."
            yield CounterMetricFamily("antiphon:store_missed_rings", text, value=self.missed())


class _Models(Collector):
    """What is asked of the models when the metrics are."""

    def __init__(self) -> None:
        self.engines: Callable[[], Sequence[Engine]] = tuple

    def collect(self) -> Iterable[Metric]:
        ready = GaugeMetricFamily("antiphon:model_ready", "Whether a model can generate now.", labels=["model_name"])
        text = "Requests that wait because a model generates as many as its limit allows."
        waiting = GaugeMetricFamily("antiphon:num_requests_waiting", text, labels=["model_name"])
        names = ["model_name", "replica"]
        text = "Whether a replica of a model can be asked, by its number."
        replica_ready = GaugeMetricFamily("antiphon:replica_ready", text, labels=names)
        text = "Turns that a replica of a model generates, by its number."
        replica_running = GaugeMetricFamily("antiphon:replica_requests_running", text, labels=names)
        for engine in self.engines():
            for number, replica in enumerate(engine.replicas):
                replica_ready.add_metric([engine.name, str(number)], replica.ready)
                replica_running.add_metric([engine.name, str(number)], replica.running)
            ready.add_metric([engine.name], engine.ready)
            waiting.add_metric([engine.name], engine.gate.waiting)
        return (ready, waiting, replica_ready, replica_running)


class PrefixCounts(Struct):
    """Prompts of one model: how many, how many of them began like an earlier one, and their tokens."""

    prompts: int = 0
    hits: int = 0
    tokens: int = 0
    reused: int = 0


class Telemetry(Observer):
    """The metrics of one server, in a registry of their own."""

    content_type = "text/plain; version=1.0.0; charset=utf-8"

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels = ["model_name"]

        def counter(name: str, text: str, names: list[str]) -> Counter:
            return Counter(f"antiphon:{name}", text, names, registry=self._registry)

        self._meters = meters = Meters(_LATENCY)
        self._registry.register(meters)
        self.prefixes: defaultdict[str, PrefixCounts] = defaultdict(PrefixCounts)
        self._due: dict[str, float] = {}
        self._models: dict[str, _ModelMetrics] = {}
        self._requests: dict[tuple[str, str, int], tuple[Meter, Times]] = {}
        meters.gauge(_RUNNING, "Responses being generated.", labels)
        meters.counter(_ENDED, "Responses that ended, by status and reason.", [*labels, "finished_reason"])
        meters.counter(_PROMPT, "Input tokens.", labels)
        meters.counter(_CACHED, "Input tokens that came from the prefix cache.", labels)
        meters.counter(_GENERATED, "Output tokens.", labels)
        meters.histogram(_PREPARED, "Rendering and counting of a prompt.", labels)
        meters.histogram(_FIRST, "From the request to its first delta.", labels)
        meters.histogram(_WHOLE, "From the start of a response to its end.", labels)
        self._background_running = Gauge(
            "antiphon:background_running", "Background responses being generated.", registry=self._registry
        )
        self._background_waiting = Gauge(
            "antiphon:background_waiting", "Background responses that wait for a worker.", registry=self._registry
        )
        self._waiting_since: float | None = None
        Gauge(
            "antiphon:background_waiting_seconds",
            "How long the first of the background responses that wait for a worker has waited.",
            registry=self._registry,
        ).set_function(self._waited)
        self._websockets = Gauge("antiphon:num_websockets_open", "WebSocket connections.", registry=self._registry)
        meters.histogram(_COMMIT, "From handing a write over to its being durable.", [])
        self._commit = meters.times(_COMMIT)
        self._shown_models = _Models()
        self._registry.register(self._shown_models)
        self._missed_rings = _MissedRings()
        self._registry.register(self._missed_rings)
        self._engine_events = counter("engine_events", "What happened to engines.", [*labels, "event"])
        self._webhooks = counter("webhook_attempts", "Attempts to deliver webhooks, by how they ended.", ["outcome"])
        meters.counter(_TOOLS, "Runs of hosted tools, by how they ended.", ["tool", "status"])
        meters.histogram(_TOOL_TIME, "Runs of hosted tools.", ["tool"])
        meters.gauge(_INGESTING, "Files being read into vector stores.", [])
        meters.counter(_INGESTED, "Files that were read into vector stores, by how that ended.", ["outcome"])
        meters.histogram(_INGESTION_TIME, "Reading of a file into a vector store.", [])
        meters.counter(_SEARCHES, "Searches in documents, by how they ended.", ["outcome"])
        meters.histogram(_SEARCH_TIME, "Searches in documents.", [])
        meters.counter(_HTTP, "HTTP requests.", ["handler", "method", "status"])
        meters.histogram(_HTTP_TIME, "HTTP requests, to the end of the answer.", ["handler", "method"])

    def engine_event(self, model: str, event: str, fields: Mapping[str, Any]) -> None:
        """Count what happened to an engine, and log what an operator should know of."""
        self._engine_events.labels(model, event).inc()
        if event in _TROUBLE:
            _log.warning(f"engine {event}", model=model, **fields)
        elif event in _NEWS:
            _log.info(f"model {event}", model=model)

    def response_started(self, model: str) -> None:
        """Count it in."""
        self._model(model).running.value += 1

    def prompt_prepared(self, model: str, seconds: float) -> None:
        """Record the time that rendering and counting took."""
        self._model(model).prepared.observe(seconds)

    def first_token(self, model: str, seconds: float) -> None:
        """Record the time to the first token."""
        self._model(model).first.observe(seconds)

    def response_ended(self, model: str, status: str, reason: str | None, usage: Usage | None, seconds: float) -> None:
        """Count it out, with its tokens."""
        of_model = self._model(model)
        of_model.running.value -= 1
        self._meters.meter(_ENDED, model, reason or status).value += 1
        of_model.whole.observe(seconds)
        if usage is not None:
            of_model.prompt.value += usage.input_tokens
            cached = usage.input_tokens_details.cached_tokens
            of_model.cached.value += cached
            prefixes = self.prefixes[model]
            prefixes.prompts += 1
            prefixes.hits += cached > 0
            prefixes.tokens += usage.input_tokens
            prefixes.reused += cached
            of_model.generated.value += usage.output_tokens

    def store_commit(self, seconds: float) -> None:
        """Record how long a write took."""
        self._commit.observe(seconds)

    def background(self, running: int, waiting: int, since: float | None) -> None:
        """Show the queue of background responses."""
        self._background_running.set(running)
        self._background_waiting.set(waiting)
        self._waiting_since = since

    def _waited(self) -> float:
        return 0.0 if self._waiting_since is None else time.monotonic() - self._waiting_since

    def websockets(self, count: int) -> None:
        """Show how many WebSocket connections are open."""
        self._websockets.set(count)

    def count_missed_rings(self, missed: Callable[[], int]) -> None:
        """Show how many rings of the store's doorbell did not get through, by asking for their number."""
        self._missed_rings.missed = missed

    def show_models(self, engines: Callable[[], Sequence[Engine]]) -> None:
        """Show the models that can generate, by asking for them."""
        self._shown_models.engines = engines

    def webhook_attempt(self, outcome: str) -> None:
        """Count an attempt, and log what the retries will not mend."""
        self._webhooks.labels(outcome).inc()
        if outcome in _LOST_WEBHOOKS:
            _log.warning(f"webhook {outcome}")

    def tool_ended(self, kind: str, status: str, seconds: float) -> None:
        """Count a run of a hosted tool, and how long it took."""
        self._meters.meter(_TOOLS, kind, status).value += 1
        self._meters.times(_TOOL_TIME, kind).observe(seconds)

    def ingesting(self, running: int) -> None:
        """Show how many files are being read into vector stores."""
        self._meters.meter(_INGESTING).value = running

    def file_ingested(self, outcome: str, seconds: float) -> None:
        """Count a file that was read into a vector store, and how long it took."""
        self._meters.meter(_INGESTED, outcome).value += 1
        self._meters.times(_INGESTION_TIME).observe(seconds)

    def searched(self, outcome: str, seconds: float) -> None:
        """Count a search in documents, and how long it took."""
        self._meters.meter(_SEARCHES, outcome).value += 1
        self._meters.times(_SEARCH_TIME).observe(seconds)

    def fault(self, message: str, error: BaseException) -> None:
        """Log a fault with its traceback, which no client sees.

        A store that cannot be used now needs none, and is tried again and again: that is told once in a while.
        """
        if isinstance(error, UnavailableError):
            now = time.monotonic()
            if now >= self._due.get(message, now):
                self._due[message] = now + AGAIN_SECONDS
                _log.error(f"{message}: {error.message}")
            return
        _log.error(message, exc_info=(type(error), error, error.__traceback__))

    def http_request(self, handler: str, method: str, status: int, seconds: float) -> None:
        """Count one HTTP request; `handler` is the route, never the path."""
        key = (handler, method, status // 100)
        found = self._requests.get(key)
        if found is None:
            counted = self._meters.meter(_HTTP, handler, method, f"{key[2]}xx")
            found = self._requests[key] = counted, self._meters.times(_HTTP_TIME, handler, method)
        found[0].value += 1
        found[1].observe(seconds)

    def exposition(self) -> bytes:
        """The metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def _model(self, name: str) -> _ModelMetrics:
        found = self._models.get(name)
        if found is None:
            meters = self._meters
            found = self._models[name] = _ModelMetrics(
                running=meters.meter(_RUNNING, name),
                prompt=meters.meter(_PROMPT, name),
                cached=meters.meter(_CACHED, name),
                generated=meters.meter(_GENERATED, name),
                prepared=meters.times(_PREPARED, name),
                first=meters.times(_FIRST, name),
                whole=meters.times(_WHOLE, name),
            )
        return found
