"""Which versions are admitted, and that the promised range is the one that is tested."""

from __future__ import annotations

import re
import tomllib
import warnings
from importlib.metadata import version

import pytest

from continuity.client import ContinuityClient, RecoveryBlocked
from continuity.integrations import GovernedToolRunner, UntestedVersionWarning, governed_langgraph_tools
from continuity.integrations.checks import TESTED, check_version, is_tested
from continuity.integrations.langgraph import admit_version
from tests.servers import ROOT

LOCKS = [ROOT / "requirements" / "dev.lock", *sorted((ROOT / "requirements" / "langgraph").glob("*.lock"))]
THREADS = ROOT / "docs" / "threads.md"
RUNNER = GovernedToolRunner(ContinuityClient("http://127.0.0.1:1", "token"), [], namespace="tests", enabled=True)


@pytest.mark.parametrize("library", TESTED)
def test_the_promised_range_is_that_of_the_environments_of_the_tests(library):
    pinned = [re.search(rf"^{library}==([0-9.]+)", lock.read_text(), re.MULTILINE)[1] for lock in LOCKS]
    ordered = sorted(pinned, key=lambda one: tuple(map(int, one.split("."))))
    assert (ordered[0], ordered[-1]) == TESTED[library]


def test_the_guide_of_threads_names_the_range():
    named = re.search(
        r"LangGraph ([0-9.]+) to ([0-9.]+), and LangChain ([0-9.]+) to ([0-9.]+) for", THREADS.read_text()
    )
    assert (named.groups()[:2], named.groups()[2:]) == (TESTED["langgraph"], TESTED["langchain"])


def test_the_extra_admits_nothing_older_than_the_range():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, library in (("langgraph", "langgraph"), ("langchain", "langchain")):
        assert any(wanted.startswith(f"{library}>={TESTED[library][0]},") for wanted in extras[extra])


def test_the_installed_versions_are_tested():
    assert all(is_tested(library, version(library)) for library in TESTED)


@pytest.mark.parametrize(
    ("installed", "is_admitted"),
    [
        ("1.1.4", False), ("1.1.5", True), ("1.1.10", True), ("1.2", True), ("1.2.12", True), ("1.2.24", True),
        ("1.2.25", False), ("1.3.0", False), ("2.0", False), ("0.9.9", False), ("1.2.24rc1", False),
        ("1.2.0.dev3", False), ("1.2.24+local", False), ("", False), ("unknown", False),
    ],
)  # fmt: skip
def test_versions_of_langgraph_are_compared_as_numbers_and_a_prerelease_is_none(installed, is_admitted):
    assert is_tested("langgraph", installed) is is_admitted
    assert (check_version("langgraph", installed, untested="refuse") is None) is is_admitted
    assert check_version("langgraph", installed, untested="run_without_proof") is None


def test_an_untested_version_is_refused_and_says_which_are_tested(monkeypatch):
    monkeypatch.setitem(TESTED, "langgraph", ("0.1", "0.2"))
    with pytest.raises(RecoveryBlocked, match=r"0\.1 to 0\.2 are tested") as caught:
        governed_langgraph_tools(RUNNER)
    assert (caught.value.code, caught.value.workflow_id) == ("version_not_tested", "")


def test_an_untested_version_that_is_accepted_says_what_is_lost(monkeypatch):
    monkeypatch.setitem(TESTED, "langgraph", ("0.1", "0.2"))
    with pytest.warns(UntestedVersionWarning, match="An effect may happen twice"):
        governed_langgraph_tools(RUNNER, untested_langgraph="run_without_proof")


def test_a_tested_version_is_admitted_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        admit_version(RUNNER, "langgraph", untested="run_without_proof")
