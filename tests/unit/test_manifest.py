"""The manifest and the tests keep each other honest, and so do the pages that are made from it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import requirements
from requirements import REQUIREMENTS
from support import reference

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
FORM = re.compile(r"[a-z][a-z0-9-]*(:[A-Za-z0-9][A-Za-z0-9_.-]*){1,2}")
KNOWN = {item.id for item in REQUIREMENTS}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def parsed() -> dict[str, ast.Module]:
    return {str(path.relative_to(TESTS)): ast.parse(path.read_text()) for path in sorted(TESTS.rglob("test_*.py"))}


def named_ids(node: ast.AST) -> Iterator[str]:
    """The ids in every `pytest.mark.requirement(…)` or `requirement(…)` under a node."""
    for call in ast.walk(node):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
        if name != "requirement":
            continue
        for argument in call.args:
            assert isinstance(argument, ast.Constant), f"line {call.lineno}: an id is to be written out"
            assert isinstance(argument.value, str)
            yield argument.value


def collected(module: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Each test with the ids that it, its class or its module names."""
    shared = {
        found
        for node in module.body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)
        for found in named_ids(node)
    }
    yield from _collected_in(module.body, shared)


def _collected_in(body: list[ast.stmt], shared: set[str]) -> Iterator[tuple[str, set[str]]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            own = {found for decorator in node.decorator_list for found in named_ids(decorator)}
            yield from _collected_in(node.body, shared | own)
        elif isinstance(node, Function) and node.name.startswith("test_"):
            own = {found for decorator in node.decorator_list for found in named_ids(decorator)}
            yield node.name, shared | own


@pytest.mark.requirement("project:manifest")
def test_ids_are_unique_and_well_formed() -> None:
    assert [found for found, count in Counter(item.id for item in REQUIREMENTS).items() if count > 1] == []
    assert [item.id for item in REQUIREMENTS if not FORM.fullmatch(item.id)] == []


@pytest.mark.requirement("project:manifest")
def test_every_behaviour_is_a_sentence_with_a_source() -> None:
    for item in REQUIREMENTS:
        assert item.source, item.id
        assert item.behavior.endswith("."), item.id
        assert item.deferred != "", item.id
        assert item.divergence != "", item.id


@pytest.mark.requirement("project:manifest")
def test_every_tuple_of_the_manifest_is_part_of_the_whole() -> None:
    gathered = sorted(item.id for group in reference.areas().values() for item in group)
    assert gathered == sorted(item.id for item in REQUIREMENTS)
    assert set(reference.HEADINGS) <= set(vars(requirements))


@pytest.mark.requirement("project:manifest")
def test_every_behaviour_that_is_built_has_a_test() -> None:
    tested = {found for module in parsed().values() for _, ids in collected(module) for found in ids}
    assert sorted(item.id for item in REQUIREMENTS if item.deferred is None and item.id not in tested) == []


@pytest.mark.requirement("project:manifest")
@pytest.mark.parametrize("rule", range(1, 51))
def test_every_rule_of_the_local_model_is_a_behaviour_that_is_built(rule: int) -> None:
    assert [item.id for item in REQUIREMENTS if item.deferred is None and re.search(rf"\bM{rule}\b", item.source)]


@pytest.mark.requirement("project:manifest")
@pytest.mark.parametrize("rule", range(1, 30))
def test_every_rule_of_hosted_search_is_a_behaviour_that_is_built_or_deferred(rule: int) -> None:
    assert [item.id for item in REQUIREMENTS if rule in hosted_rules(item.source)]


def hosted_rules(source: str) -> set[int]:
    """The rules of hosted search in a source, in which semicolons part the pages."""
    pages = [page.strip() for page in source.split(";")]
    return {
        int(number) for page in pages if page.startswith("hosted-search") for number in re.findall(r"\bB(\d+)\b", page)
    }


@pytest.mark.requirement("project:manifest")
@pytest.mark.parametrize("file", parsed())
def test_every_test_names_behaviours_of_the_manifest(file: str) -> None:
    module = parsed()[file]
    assert [name for name, ids in collected(module) if not ids] == []
    assert sorted(set(named_ids(module)) - KNOWN) == []


@pytest.mark.requirement("project:reference")
@pytest.mark.parametrize(
    "path", ["docs/reference/supported.md", "docs/reference/settings.md", "docs/structure.md", "README.md"]
)
def test_generated_pages_are_what_the_generator_makes(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == reference.generated()[Path(path)], "run `make docs`"
