"""What may be registered, and what a registration makes of a call."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import BaseModel, Field

from continuity.integrations import RegisteredTool
from continuity.integrations.registry import registry_of
from tests.patience import PATIENCE_S


def execute(*_):
    return {"outcome": "unknown"}


class Letter(BaseModel):
    to: str = Field(min_length=1)


SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string", "minLength": 1}},
    "required": ["to"],
    "additionalProperties": False,
}


def test_a_registration_makes_a_whole_definition():
    tool = RegisteredTool(
        "send", execute, execute, destination="mail.example", capability=["query", "idempotent"], timeout_seconds=5,
        retention_seconds=60, absence_final_after_seconds=3,
    )  # fmt: skip
    assert tool.definition({"to": "a"}) == {
        "name": "send", "tool": "send@mail.example", "arguments": {"to": "a"}, "capability": ["query", "idempotent"],
        "timeout_seconds": 5, "retention_seconds": 60, "absence_final_after_seconds": 3,
    }  # fmt: skip
    assert RegisteredTool("send", execute).definition({})["tool"] == "send"


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("send mail", {}, "name"),
        ("", {}, "name"),
        ("send", {"destination": "a\nb"}, "tool"),
        ("send", {"destination": "x" * 300}, "tool"),
        ("send", {"capability": "sometimes"}, "capability"),
        ("send", {"capability": "query"}, "callback"),
        ("send", {"capability": "idempotent"}, "retention_seconds"),
        ("send", {"timeout_seconds": 91}, "timeout_seconds"),
        ("send", {"absence_final_after_seconds": 5}, "absence_final_after_seconds"),
        ("send", {"arguments": {"type": "no such type"}}, "schema"),
    ],
)
def test_what_could_not_be_recorded_or_kept_is_refused_at_registration(name, options, said):
    with pytest.raises(ValueError, match=said):
        RegisteredTool(name, execute, **options)


def test_a_schema_is_a_mapping_or_a_model():
    with pytest.raises(TypeError, match="JSON Schema"):
        RegisteredTool("send", execute, arguments="to")


@pytest.mark.parametrize("schema", [SCHEMA, Letter])
@pytest.mark.parametrize("arguments", [{}, {"to": ""}, {"to": 5}, {"to": None}])
def test_arguments_that_do_not_fit_are_said_in_words_that_name_the_field(schema, arguments):
    tool = RegisteredTool("send", execute, arguments=schema)
    assert "to" in tool.check(arguments)
    assert tool.check({"to": "a"}) == ""


def test_what_is_said_of_a_huge_fault_is_bounded():
    assert len(RegisteredTool("send", execute, arguments=SCHEMA).check({"to": "a", "x" * 9_000: 1})) <= 2_000


def test_a_schema_is_only_asked_and_changes_nothing():
    class Defaulting(BaseModel):
        to: str = "everybody"

    arguments = {}
    assert RegisteredTool("send", execute, arguments=Defaulting).check(arguments) == ""
    assert arguments == {}


def test_a_tool_without_a_schema_takes_anything():
    assert RegisteredTool("send", execute).check({"any": [1, {"thing": None}]}) == ""


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ValueError, match="'send'"):
        registry_of([RegisteredTool("send", execute), RegisteredTool("send", execute, destination="b")])


HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
"""


def python(code, *hidden):
    program = HIDE.replace("{hidden}", repr(set(hidden) or {"-"})) + code
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def test_the_client_never_imports_langgraph_and_the_package_only_when_it_is_used():
    code = """
import continuity.client, continuity.integrations
print(sorted(name for name in sys.modules if name.partition(".")[0] in {"langgraph", "langchain", "langchain_core"}))
"""
    done = python(code)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_without_langgraph_there_are_the_registry_and_the_runners_and_the_rest_names_its_extra():
    code = """
import continuity.integrations as there
print(there.RegisteredTool.__name__, there.GovernedToolRunner.__name__, there.AsyncGovernedToolRunner.__name__)
for name in ("governed_langgraph_tools", "agoverned_langgraph_tools", "GovernedToolsMiddleware"):
    try:
        getattr(there, name)
    except ImportError as error:
        print(error)
"""
    done = python(code, "langgraph", "langchain", "langchain_core")
    lines = done.stdout.splitlines()
    assert lines[0] == "RegisteredTool GovernedToolRunner AsyncGovernedToolRunner", done.stderr
    for line, extra in zip(lines[1:], ["langgraph", "langgraph", "langchain"], strict=True):
        assert f"[{extra}]" in line
