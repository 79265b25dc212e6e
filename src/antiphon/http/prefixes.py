"""The routes `/v1/cache/stats` and `/v1/cache/reset`: what prompts have in common with earlier ones (M48)."""

from __future__ import annotations

from antiphon.errors import PermissionDeniedError
from antiphon.http.auth import TENANT
from antiphon.http.exchange import Exchange
from antiphon.http.telemetry import PrefixCounts, Telemetry
from antiphon.runtime.service import Service

__all__ = ["PrefixRoutes"]


class PrefixRoutes:
    """Handlers over one service; the counts are those of the telemetry."""

    def __init__(self, service: Service, telemetry: Telemetry) -> None:
        self._service = service
        self._telemetry = telemetry

    async def stats(self, exchange: Exchange) -> None:
        """`GET /cache/stats`: for each model, how often and how much of a prompt was there from an earlier one.

        The fields are the same where no model keeps anything; `enabled` is false then.
        """
        counts = self._telemetry.prefixes
        models = [
            {"id": engine.name, "enabled": engine.keeps_prefixes, **_counted([counts[engine.name]])}
            for engine in self._service.registry.engines
        ]
        enabled = any(model["enabled"] for model in models)
        whole = _counted([counts[engine.name] for engine in self._service.registry.engines])
        await exchange.reply_json({"object": "cache.stats", "enabled": enabled, **whole, "models": models})

    async def reset(self, exchange: Exchange) -> None:
        """`POST /cache/reset`: every model forgets the prompts that it has read, and the counts begin anew.

        Raises:
            PermissionDeniedError: a tenant asks; what is kept is everybody's.
        """
        if exchange.scope.tenant != TENANT:
            raise PermissionDeniedError("Only the server's operator may empty its cache.", code="operator_only")
        models = [
            {"id": engine.name, "reset": await engine.forget_prefixes()} for engine in self._service.registry.engines
        ]
        self._telemetry.prefixes.clear()
        enabled = any(model["reset"] for model in models)
        await exchange.reply_json({"object": "cache.reset", "enabled": enabled, "models": models})


def _counted(counts: list[PrefixCounts]) -> dict[str, int]:
    prompts, hits = sum(each.prompts for each in counts), sum(each.hits for each in counts)
    return {
        "hits": hits,
        "misses": prompts - hits,
        "prompt_tokens": sum(each.tokens for each in counts),
        "prefix_tokens_reused": sum(each.reused for each in counts),
    }
