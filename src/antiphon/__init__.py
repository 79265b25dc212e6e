"""Antiphon: a self-hosted server for the OpenAI Responses API, over any model."""

__version__ = "0.1.0"
