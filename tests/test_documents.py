"""The documents say what the code does."""

import ast
import importlib
import json
import re
from pathlib import Path

import click
from click.testing import CliRunner

from app.cli import main
from app.errors import ERROR_FORMAT, status_of
from app.framing import BODY_BYTES
from continuity import limits, wire
from continuity.decisions.beginning import Reason
from continuity.errors import error_from_code

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]+\]\(([^)#:]+)(?:#[^)]*)?\)")
ROW = re.compile(r"^\| `([A-Z_]+)` \| ([\d,]+) \|", re.MULTILINE)


VARIABLE = re.compile(r"\b(?:ATMEM|ATFLOWS)_(?!TEST_)[A-Z_]+[A-Z]\b")
NOUN = re.compile(r"`atmem ([a-z]+)")


def documents():
    return [path for folder in (ROOT, ROOT / "docs", ROOT / "docs" / "adr") for path in sorted(folder.glob("*.md"))]


def test_every_limit_stands_in_the_limits_page_with_its_value():
    page = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    written = {name: int(value.replace(",", "")) for name, value in ROW.findall(page)}

    defined = {name: value for name, value in vars(limits).items() if name.isupper() and name != "SECOND_US"}
    assert written == defined


def test_every_link_between_documents_leads_somewhere():
    dead = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in documents()
        for target in LINK.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]

    assert dead == []


def test_every_decision_record_is_listed_and_has_its_sections():
    folder = ROOT / "docs" / "adr"
    listing = (folder / "README.md").read_text(encoding="utf-8")

    for record in sorted(folder.glob("[0-9]*.md")):
        text = record.read_text(encoding="utf-8")
        assert f"({record.name})" in listing, record.name
        for section in ("Status: ", "## Context", "## Drivers", "## Outcome", "### Good", "### Bad"):
            assert section in text, f"{record.name} lacks {section}"


def test_the_readme_lists_every_environment_variable_and_no_other():
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Environment")[2].partition("\n## ")[0]
    sources = [path for package in ("app", "continuity", "observations") for path in (ROOT / package).rglob("*.py")]

    used = {name for path in sources for name in VARIABLE.findall(path.read_text(encoding="utf-8"))}
    assert set(VARIABLE.findall(section)) == used


def test_every_python_example_of_the_readme_reads_and_imports_what_is_there():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)

    imported = [
        (node.module, alias.name)
        for block in blocks
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert ("continuity.client", "Refused") in imported
    missing = [name for module, name in imported if not hasattr(importlib.import_module(module), name)]
    assert missing == []


def test_the_definition_of_the_readme_is_one_that_the_server_takes():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    written = re.search(r"^upload = (\{.*?^\})", text, re.DOTALL | re.MULTILINE)
    assert written is not None
    operation = ast.literal_eval(written[1])

    made = wire.CreateWorkflow.from_json({"workflow_key": "upload-may-report", "operations": [operation]})

    assert f'"{made.operations[0].tool}": Tool(' in text


def test_every_guide_is_linked_from_the_readme():
    links = LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))

    assert {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} <= set(links)


def test_the_contract_says_what_each_reason_means_and_where_a_csrf_token_comes_from():
    printed = CliRunner().invoke(main, ["openapi"])
    components = json.loads(printed.stdout)["components"]

    about = components["schemas"]["BeginReply"]["properties"]["reason"]["description"]
    assert [reason.value for reason in Reason if f"`{reason.value}`" not in about] == []
    assert "csrf_token" in components["securitySchemes"]["csrf"]["description"]


def test_the_readme_lists_every_command_and_no_other():
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Commands")[2].partition("\n## ")[0]

    assert set(NOUN.findall(section)) == set(main.list_commands(click.Context(main)))


def test_what_the_example_of_a_proxy_answers_by_itself_is_what_the_server_would_say():
    text = (ROOT / "docs/deploy/nginx.conf").read_text(encoding="utf-8")
    answers = {int(status): json.loads(body) for status, body in re.findall(r"return (\d+) '(.+)';", text)}

    assert int(re.findall(r"client_max_body_size +(\d+);", text)[0]) == BODY_BYTES
    assert set(answers) == {413, 429, 503}
    for status, answer in answers.items():
        error = error_from_code(answer["error"]["code"], answer["error"]["message"])
        assert error.code == answer["error"]["code"]
        assert status_of(error) == status
        assert answer["format"] == ERROR_FORMAT
        assert answer["request_id"] == "req_$request_id"
    # A client comes again when it is told when.
    assert text.count("Retry-After") == 2
