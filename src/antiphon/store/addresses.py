"""Addresses of databases, as settings give them and as people may see them."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

__all__ = ["SCHEMES", "is_database", "location"]

SCHEMES = ("postgresql", "postgres")
"""How the address of a PostgreSQL database begins."""


def is_database(store: str) -> bool:
    """Whether the setting names a PostgreSQL database."""
    return store.partition("://")[0] in SCHEMES


def location(url: str) -> str:
    """An address for people: where the database is, without user, password and options."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or parse_qs(parts.query).get("host", [""])[0]
        port = parts.port or parse_qs(parts.query).get("port", [""])[0]
    except ValueError:
        return "postgresql://"
    # A password that was not quoted may have been taken for something else.
    if "@" in parts.path or parts.fragment or "@" in host:
        return "postgresql://"
    return f"postgresql://{host}{f':{port}' if port else ''}{parts.path}"
