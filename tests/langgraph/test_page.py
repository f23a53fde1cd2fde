"""The page about governed tool calls says what the code does."""

from __future__ import annotations

import ast
import importlib
import re

from continuity.integrations.checks import TESTED, Saver
from continuity.integrations.registry import CALLS_MOST
from continuity.stops import NEXT_STEPS
from tests.servers import ROOT

PAGE = (ROOT / "docs" / "langgraph.md").read_text(encoding="utf-8")
SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "continuity" / "integrations").glob("*.py")]
OF_THE_SERVER = {
    "workflow_deleted", "coordinator_open_limit", "coordinator_history_limit", "clock_moved_backwards",
    "capture_not_full",
}  # fmt: skip


def section(title):
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_table_of_codes_holds_every_code_that_is_raised_here_and_no_other():
    written = re.findall(r"^\| `([a-z_]+)` \|", section("Codes"), re.MULTILINE)
    raised = {
        node.args[0].value
        for source in SOURCES
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") in {"Refusal", "RecoveryBlocked"}
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert len(written) == len(set(written))
    assert set(written) == raised | OF_THE_SERVER | {"call_changed"}
    assert set(written) <= NEXT_STEPS.keys()


def test_the_versions_are_those_that_are_admitted():
    rows = re.findall(r"^\| `(lang[a-z]+)` \| ([0-9.]+) \| ([0-9.]+) \|", section("Versions"), re.MULTILINE)
    assert {name: (first, last) for name, first, last in rows} == TESTED


def test_the_checkpointers_are_those_that_are_admitted():
    rows = re.findall(r"^\| `([A-Za-z]+)`.* \| `(a?)invoke` \|", section("Checkpointers"), re.MULTILINE)
    kinds = {kind.value.rpartition(".")[2]: kind.is_async for kind in Saver}
    assert {name: bool(awaited) for name, awaited in rows} == kinds


def test_the_number_of_calls_is_the_one_that_is_admitted():
    assert set(re.findall(r"(\d+) governed calls", PAGE)) == {str(CALLS_MOST)}


def test_every_example_imports_what_is_there():
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    imported = [
        (node.module, alias.name)
        for block in blocks
        for node in ast.walk(compile(block, "page", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert ("continuity.integrations", "GovernedToolsMiddleware") in imported
    assert [name for module, name in imported if not hasattr(importlib.import_module(module), name)] == []
