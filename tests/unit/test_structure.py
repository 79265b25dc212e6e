"""Rules that the source keeps: its map, its sizes, its words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "antiphon"
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
RUNS_TEXT = "tools/code/inside.py"
"""What no process of the server imports: it is given to the Python of a sandbox, where code of a model is to run."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def modules() -> list[str]:
    return sorted(str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py"))


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((SOURCE / module).read_text())


@pytest.mark.requirement("project:structure")
def test_the_map_has_one_line_for_each_module_and_no_other() -> None:
    text = (ROOT / "docs" / "structure.md").read_text()
    lines = re.findall(r"^- `([\w/]+\.py)` — \S.*$", text, re.MULTILINE)
    assert sorted(lines) == modules()


@pytest.mark.requirement("project:size")
@pytest.mark.parametrize("module", modules())
def test_no_file_and_no_function_is_too_long(module: str) -> None:
    assert len((SOURCE / module).read_text().splitlines()) <= MAX_FILE_LINES
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{module}: {node.name} has {length} lines"


def public(body: list[ast.stmt]) -> Iterator[Definition]:
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body)


def overrides(node: Definition) -> bool:
    names = {decorator.id for decorator in node.decorator_list if isinstance(decorator, ast.Name)}
    return bool(names & {"override", "overload"})


@pytest.mark.requirement("project:docstrings")
@pytest.mark.parametrize("module", modules())
def test_every_public_name_says_what_it_is(module: str) -> None:
    assert ast.get_docstring(tree(module)), f"{module} says nothing of itself"
    silent = [node.name for node in public(tree(module).body) if not ast.get_docstring(node) and not overrides(node)]
    assert silent == []


@pytest.mark.requirement("project:pickle")
@pytest.mark.parametrize("module", modules())
def test_nothing_reads_or_writes_pickles(module: str) -> None:
    forbidden = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            assert not forbidden & {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] not in forbidden


@pytest.mark.requirement("project:templates")
@pytest.mark.parametrize("module", modules())
def test_nothing_renders_templates_or_runs_text(module: str) -> None:
    if module == RUNS_TEXT:
        importing = [name for name in modules() if "code.inside" in (SOURCE / name).read_text()]
        assert importing == []
        return
    rendering = {"jinja2", "mako", "chameleon", "code", "codeop"}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            assert not rendering & {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] not in rendering
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"eval", "exec", "compile", "__import__"}
