"""Nothing that guards is an `assert`: the product does the same under ``python -O``, which drops them (V26)."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.servers import ROOT, environment

QUICK = ["tests/security/test_sealed_rows.py", "tests/unit/test_vault_keys.py"]
ALL = [
    *QUICK, "tests/unit/test_vault_sealing.py", "tests/unit/test_tokens.py", "tests/unit/test_vault_shred.py",
    "tests/unit/test_vault_secrecy.py", "tests/unit/test_wire.py", "tests/unit/test_jsontext.py",
    "tests/unit/test_decisions_begin.py", "tests/unit/test_decisions_outcomes.py",
    "tests/integration/test_services_integrity.py", "tests/integration/test_accounts_sessions.py",
    "tests/integration/test_accounts_throttle.py", "tests/web/test_api_matrix.py", "tests/web/test_api_scope.py",
    "tests/web/test_auth_csrf.py", "tests/web/test_auth_signin.py", "tests/web/test_edge_framing.py",
    "tests/sdk/test_transport.py", "tests/sdk/test_publisher.py",
]  # fmt: skip


def test_no_code_of_the_product_asserts_more_than_that_something_is_there():
    """For a reader and for mypy, where the line before it has made sure."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in ("app", "continuity", "observations", "migrations")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert) and not ast.unparse(node.test).endswith(" is not None")
    ]

    assert found == []


def optimised(files, folder):
    done = subprocess.run(
        [sys.executable, "-O", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly",
         "-W", "ignore::pytest.PytestConfigWarning", "-m", "not postgresql and not soak", *files],
        cwd=ROOT, env={**environment(folder), "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True,
        timeout=1_200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3_000:]


def test_what_guards_the_vault_guards_it_without_assertions(tmp_path):
    optimised(QUICK, tmp_path)


@pytest.mark.soak
def test_what_guards_anything_guards_it_without_assertions(tmp_path):
    optimised(ALL, tmp_path)
