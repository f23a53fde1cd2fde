"""What an installed copy holds and needs."""

import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from app import vendored

ROOT = Path(__file__).resolve().parent.parent

# Runs in a fresh interpreter: every library is refused but requests and what requests needs.
ONLY_REQUESTS = """
import importlib, importlib.abc, sys
ALLOWED = {"certifi", "charset_normalizer", "idna", "requests", "urllib3"}
OURS = {"continuity", "observations"}

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        top = fullname.partition(".")[0]
        if top not in ALLOWED | OURS | sys.stdlib_module_names and not top.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"not in the base install: {fullname}", name=fullname)

sys.path.insert(0, sys.argv[1])
sys.meta_path.insert(0, Refuse())
for name in sys.argv[2:]:
    importlib.import_module(name)
SERVER = ("continuity.services", "continuity.store", "continuity.vault")
loaded = [name for name in sys.modules if name.startswith(SERVER)]
assert not loaded, loaded
"""


def import_with_requests_only(*names):
    return subprocess.run(
        [sys.executable, "-c", ONLY_REQUESTS, str(ROOT), *names], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["continuity.client", "continuity.tools", "continuity.example", "observations.client"])
def test_the_sdk_imports_where_only_requests_is_installed(name):
    result = import_with_requests_only(name)

    assert result.returncode == 0, result.stderr


def test_the_server_does_not_import_there():
    """Shows that the refusal of the test above refuses."""
    result = import_with_requests_only("continuity.store.schema")

    assert result.returncode == 1
    assert "not in the base install: sqlalchemy" in result.stderr


def test_the_base_install_names_requests_and_what_secures_it_only():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert [requirement.partition(">")[0] for requirement in project["dependencies"]] == ["requests", "urllib3"]


def test_the_front_end_files_are_there():
    assert vendored.damaged_files() == []


def test_a_changed_front_end_file_stops_the_start(tmp_path):
    for file in vendored.VENDORED:
        (tmp_path / file.name).write_bytes((vendored.FOLDER / file.name).read_bytes())
    vendored.check_vendored(tmp_path)

    with (tmp_path / "htmx-2.min.js").open("ab") as stream:
        stream.write(b"\n")

    with pytest.raises(RuntimeError, match=r"missing or changed: htmx-2\.min\.js;"):
        vendored.check_vendored(tmp_path)


def test_the_table_of_front_end_files_needs_nothing_installed():
    """The build hook runs it by its path, in an environment without this project."""
    table = runpy.run_path(str(ROOT / "app" / "vendored.py"))

    assert [file.name for file in table["VENDORED"]] == [file.name for file in vendored.VENDORED]


def test_the_build_pins_the_packages_that_carry_the_front_end():
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]

    pinned = {requirement.partition("==")[0] for requirement in requires if "==" in requirement}
    assert pinned == {file.distribution for file in vendored.VENDORED}


@pytest.mark.parametrize("name", ["server.lock", "demo.lock", "dev.lock"])
def test_every_locked_package_has_a_hash_and_no_address(name):
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    blocks = text.replace("\\\n", " ").splitlines()

    assert [block for block in blocks if "==" not in block or "--hash=sha256:" not in block] == []
    assert "://" not in text


def test_the_locks_agree():
    """A server, `make demo` and `make test` install the same versions of what they have in common."""
    versions = [
        {
            line.split(" ")[0]
            for line in (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
            if "==" in line
        }
        for name in ("server.lock", "demo.lock", "dev.lock")
    ]

    assert versions[0] <= versions[1] <= versions[2]
