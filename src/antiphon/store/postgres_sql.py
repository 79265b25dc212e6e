"""The SQL of the PostgreSQL store: named statements whose parameters have names, and numbered migrations."""

from __future__ import annotations

import re
from importlib.resources import files

from msgspec import Struct

from antiphon.store.queries import Migration, parse_queries, split_statements

__all__ = ["MIGRATIONS", "QUERIES", "Query", "number_parameters"]

_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")
_COMMENT = re.compile(r"--[^\n]*")


class Query(Struct, frozen=True):
    """A statement with `$1`, `$2`, …, and the names of these parameters in their order."""

    text: str
    names: tuple[str, ...]

    def values(self, parameters: dict[str, object]) -> list[object]:
        """The parameters in their order; there must be neither more nor fewer.

        Raises:
            ValueError: there are others than those that the statement has.
        """
        if len(parameters) != len(self.names):
            raise ValueError(f"parameters {set(parameters) ^ set(self.names)}")
        return [parameters[name] for name in self.names]


def number_parameters(text: str) -> Query:
    """A statement with `:name` parameters as PostgreSQL takes it; `::type` is a cast. Comments are left out."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${names.setdefault(match.group(1), len(names) + 1)}"

    numbered = _PARAMETER.sub(number, _COMMENT.sub("", text))
    return Query(numbered, tuple(names))


_folder = files("antiphon.store") / "sql" / "postgres"


def _load_queries() -> dict[str, Query]:
    texts = [file.read_text("utf-8") for file in _folder.iterdir() if file.name.endswith(".sql")]
    return {name: number_parameters(text) for name, text in parse_queries("\n".join(texts)).items()}


def _load_migrations() -> tuple[Migration, ...]:
    found: list[Migration] = []
    for file in (_folder / "migrations").iterdir():
        if file.name.endswith(".sql"):
            version, _, name = file.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(version), name, split_statements(file.read_text("utf-8"))))
    return tuple(sorted(found, key=lambda migration: migration.version))


QUERIES: dict[str, Query] = _load_queries()
"""The statements of the PostgreSQL store by name."""

MIGRATIONS: tuple[Migration, ...] = _load_migrations()
"""The steps of the PostgreSQL schema, oldest first."""
