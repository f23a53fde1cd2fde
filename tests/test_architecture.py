"""The import contracts hold, and each of them is able to fail."""

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("app", "continuity", "observations")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]

# One offence or more a contract: what to append to which module. A file that does not exist is made.
OFFENCES = [
    ("continuity-layers", "continuity/store/schema.py", "import continuity.vault"),
    ("continuity-layers", "continuity/decisions/states.py", "import continuity.wire"),
    ("continuity-layers", "continuity/services/clock.py", "import continuity.client"),
    ("continuity-layers", "continuity/novelty.py", "WITHOUT_RING = True"),
    ("observations-layers", "observations/events.py", "import observations.client"),
    ("observations-layers", "observations/novelty.py", "WITHOUT_RING = True"),
    ("app-layers", "app/wiring.py", "import app.cli"),
    ("app-layers", "app/novelty.py", "WITHOUT_RING = True"),
    ("nothing-imports-app", "continuity/transport.py", "import app.config"),
    ("nothing-imports-app", "observations/events.py", "import app.config"),
    ("sdk-without-server", "continuity/tools.py", "import continuity.store"),
    ("sdk-without-server", "observations/client.py", "import continuity.services"),
    ("producers-without-server", "observations/client.py", "import observations.store"),
    ("producers-without-server", "observations/usage.py", "import observations.costs, observations.queries"),
    ("server-without-sdk", "app/wiring.py", "import continuity.client"),
    ("server-without-sdk", "app/cli/__init__.py", "import continuity.tools"),
    ("vault-knows-errors-only", "continuity/vault/place.py", "import continuity.limits"),
    ("cleartext-is-marked", "app/wiring.py", "import continuity.vault.cleartext"),
    ("cleartext-is-marked", "continuity/vault/parts.py", "import continuity.vault.cleartext"),
    ("core-is-pure", "continuity/decisions/states.py", "import time"),
    ("core-is-pure", "continuity/wire.py", "import os"),
    ("core-is-pure", "continuity/jsontext.py", "import io"),
    ("core-is-pure", "continuity/errors.py", "import logging"),
    ("core-is-pure", "continuity/limits.py", "import random"),
    ("core-is-pure", "continuity/decisions/states.py", "import secrets"),
    ("core-is-pure", "observations/events.py", "import socket"),
    ("core-is-pure", "observations/costs.py", "import time"),
    ("delivery-decides-nothing", "app/api/__init__.py", "import continuity.store"),
    ("delivery-decides-nothing", "app/cli/__init__.py", "import continuity.vault"),
    ("auth-without-vault", "app/auth/tokens.py", "import continuity.vault"),
    ("libraries", "continuity/client.py", "import requests"),
    ("libraries", "continuity/store/schema.py", "import cryptography"),
    ("libraries", "continuity/decisions/states.py", "import pydantic"),
    ("libraries", "app/auth/tokens.py", "import pydantic"),
    ("libraries", "app/config.py", "import a_library_that_nobody_has_heard_of"),
]


def lint_imports(root, *arguments):
    """Run import-linter as `make lint` does, in `root`."""
    program = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]
    return subprocess.run(
        [*program, "--no-logo", "--no-cache", *arguments], cwd=root, capture_output=True, text=True, check=False
    )


@pytest.fixture
def tree(tmp_path):
    """A copy of the packages, the contracts and our contract type."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "static"))
    (tmp_path / "tests").mkdir()
    for name in ("pyproject.toml", "tests/__init__.py", "tests/library_contract.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def modules():
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def test_every_contract_is_kept():
    result = lint_imports(ROOT)

    assert result.returncode == 0, result.stdout + result.stderr


def test_every_contract_has_an_offence_that_breaks_it():
    assert {contract["id"] for contract in CONTRACTS} == {contract for contract, _, _ in OFFENCES}


def contract_of(identifier):
    return next(contract for contract in CONTRACTS if contract["id"] == identifier)


def names(*layers):
    """The modules of some layers of `continuity`, each layer written as in the contract."""
    return {f"continuity.{name.strip()}" for layer in layers for name in layer.replace(":", "|").split("|")}


def test_the_contracts_of_the_sdk_name_every_layer_above_the_server():
    layers = contract_of("continuity-layers")["layers"]
    sdk = names(*layers[: layers.index("services")]) | {"observations.client"}

    assert set(contract_of("sdk-without-server")["source_modules"]) == sdk
    assert set(contract_of("server-without-sdk")["forbidden_modules"]) == sdk


def test_the_contract_of_purity_names_every_layer_below_the_server():
    layers = contract_of("continuity-layers")["layers"]
    core = names(*layers[layers.index("vault | store") + 1 :]) | {"observations.events", "observations.costs"}

    assert set(contract_of("core-is-pure")["source_modules"]) == core


@pytest.mark.parametrize("offence", OFFENCES, ids=" ".join)
def test_an_offence_breaks_its_contract(tree, offence):
    contract, module, statement = offence
    path = tree / module
    before = path.read_text(encoding="utf-8") if path.exists() else '"""New."""\n'
    path.write_text(f"{before}\n{statement}\n", encoding="utf-8")

    result = lint_imports(tree, "--contract", contract)

    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout, result.stdout + result.stderr


def test_every_folder_of_modules_is_a_package():
    folders = {path.parent for path in modules()}

    assert [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_every_module_says_what_lives_in_it():
    silent = [path for path in modules() if ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) is None]

    assert [str(path.relative_to(ROOT)) for path in silent] == []
