"""How a server logs: for people or for machines, and never with what users wrote."""

from __future__ import annotations

import logging
import sys

import structlog

from antiphon.settings import Settings

__all__ = ["configure_logging"]


def configure_logging(settings: Settings) -> None:
    """Log to standard output from now on, as the settings say; once in a process."""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    logging.basicConfig(level=max(level, logging.WARNING), format="%(levelname)s %(message)s")
    # Plain tracebacks in both formats: one that shows locals shows keys and what users wrote.
    renderer = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stdout.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    processors: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if settings.log_format == "json":
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(),
        cache_logger_on_first_use=True,
    )
