"""Libraries, secrets in the repository, and what no code of ours does (Y01 to Y04, N04, F10)."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
import zlib
from functools import cache

import pytest

from tests.servers import ROOT

FLOORS = {
    "flask": "3.1.3", "werkzeug": "3.1.6", "jinja2": "3.1.6", "waitress": "3.0.1", "urllib3": "2.7.0",
    "requests": "2.33.1", "langgraph": "1.0.10", "langgraph-checkpoint": "4.0.0",
    "langgraph-checkpoint-sqlite": "3.0.1", "langchain-core": "1.2.22",
}  # fmt: skip
"""From advisories: below these a known hole is open. The installed, the locked and the allowed must all be above."""
OURS = ("app", "continuity", "observations", "migrations", "examples")
LOCKS = [*sorted((ROOT / "requirements").glob("*.lock")), *sorted((ROOT / "requirements/langgraph").glob("*.lock"))]
TOKEN = re.compile(rb"atm_[a-z]_[A-Za-z0-9_-]{43}_[0-9A-Za-z]{6}")
PRIVATE = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----|AKIA[0-9A-Z]{16}|ghp_[A-Za-z0-9]{36}|xox[bp]-[0-9A-Za-z-]{20,}"
)


def number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


@cache
def modules():
    return [
        (path, ast.parse(path.read_text(encoding="utf-8")))
        for package in OURS
        for path in sorted((ROOT / package).rglob("*.py"))
    ]


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


def allowed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in [
        *project["dependencies"],
        *(each for e in project["optional-dependencies"].values() for each in e),
    ]:
        found = re.match(r"([a-z0-9-]+)(?:\[[a-z]+\])?>=([0-9.]+)", requirement)
        if found:
            yield found[1], found[2]


def test_no_release_with_a_known_hole_may_be_installed():
    found = list(allowed())

    assert {"flask", "requests", "waitress", "langgraph"} <= {name for name, _ in found}
    assert [(name, floor) for name, floor in found if name in FLOORS and number(floor) < number(FLOORS[name])] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_no_release_with_a_known_hole_is_locked_and_each_file_has_its_hash(lock):
    pins = re.findall(
        r"^([a-z0-9.-]+)(?:\[[a-z,]+\])?==([^ ;\\]+)([^\n]*(?:\n +--hash[^\n]+)*)", lock.read_text(), re.MULTILINE
    )

    assert len(pins) > 20
    assert [(name, pin) for name, pin, _ in pins if name in FLOORS and number(pin) < number(FLOORS[name])] == []
    assert [name for name, _, rest in pins if "--hash=sha256:" not in rest] == []


def test_nothing_is_deserialised_evaluated_or_given_to_a_shell():
    banned = {
        "eval", "exec", "compile", "os.system", "os.popen", "pickle.loads", "pickle.load", "marshal.loads", "yaml.load",
        "shelve.open", "dill.loads", "tempfile.mktemp", "__import__",
    }  # fmt: skip
    for path, tree in modules():
        for node, name in calls(tree):
            assert name not in banned, (path, name)
            assert not any(word.arg == "shell" for word in node.keywords), path


def test_no_statement_is_made_of_text_that_comes_from_data():
    """Only names of constants stand in text given to the database; each of these places was looked at."""
    looked_at = {
        "app/migrating.py", "app/databases.py", "continuity/store/sqlite.py", "continuity/store/postgresql.py",
        "continuity/store/writer.py", "continuity/store/copies.py", "observations/schema.py",
        "observations/workflow_list.py",
    }  # fmt: skip
    for path, tree in modules():
        where = path.relative_to(ROOT).as_posix()
        for node, name in calls(tree):
            if name.rpartition(".")[2] not in {"exec_driver_sql", "text", "literal_column"} or not node.args:
                continue
            is_made = isinstance(node.args[0], ast.JoinedStr | ast.BinOp) or (
                isinstance(node.args[0], ast.Call) and "format" in ast.unparse(node.args[0].func)
            )
            assert not is_made or where in looked_at or where.startswith("migrations/"), (where, ast.unparse(node))


def test_no_writing_transaction_begins_outside_of_the_store():
    """Every write begins immediate there: a read that turns into a write cannot meet a newer state (F10)."""
    allowed_in = {"continuity/store", "app/migrating.py", "app/databases.py", "app/replacing.py", "app/backups.py",
                  "app/restores.py"}  # fmt: skip
    for path, tree in modules():
        where = path.relative_to(ROOT).as_posix()
        if where.startswith("migrations") or any(where.startswith(each) for each in allowed_in):
            continue
        for _, name in calls(tree):
            assert not re.search(r"engine\.(begin|connect|raw_connection)$", name), (where, name)


def test_the_server_fetches_nothing_but_from_its_own_machine():
    """What reaches out is the SDK, the commands, `atmem status`, and a provider of keys that somebody set up."""
    reaching = re.compile(r"^(?:requests|urllib\.request|http\.client|urllib3|httpx|aiohttp|hvac|ftplib|smtplib)$")
    found = {
        path.relative_to(ROOT).as_posix()
        for path, tree in modules()
        if path.relative_to(ROOT).parts[0] in {"app", "continuity", "observations"}
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
        if reaching.fullmatch(name)
    }

    server = {each for each in found if not each.startswith("app/cli/")}
    assert server <= {
        "app/overview.py", "continuity/transport.py", "continuity/connections.py", "continuity/replies.py",
        "continuity/vault/transit.py", "observations/telemetry.py",
    }  # fmt: skip


def test_the_repository_holds_no_credential():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout
    names = [name for name in listed.decode().split("\0") if name] or [
        str(path.relative_to(ROOT)) for path in ROOT.rglob("*.*") if ".venv" not in path.parts
    ]
    found = []
    for name in names:
        path = ROOT / name
        if not path.is_file() or path.stat().st_size > 5_000_000:
            continue
        content = path.read_bytes()
        found += [(name, each) for each in TOKEN.findall(content) if is_real(each)]
        found += [(name, each) for each in PRIVATE.findall(content) if b"tests/" not in name.encode()]
    # The tokens of these pages are made up, to show how one looks; nothing was ever issued with them.
    assert {name for name, _ in found} <= {"tests/unit/test_tokens.py", "app/auth/tokens.py"}


def is_real(token: bytes) -> bool:
    """Say whether the checksum of a token is right: a real one, or one of a test of just that."""
    body, _, given = token.rpartition(b"_")
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    value, spelled = zlib.crc32(body), ""
    for _ in range(6):
        value, digit = divmod(value, 62)
        spelled = digits[digit] + spelled
    return given.decode() == spelled


def test_the_scan_finds_a_token_that_was_issued(site, scenes):
    from app.auth import tokens  # noqa: PLC0415
    from continuity.services.callers import CallerKind  # noqa: PLC0415

    issued = tokens.new_token(CallerKind.OPERATOR).encode()

    assert TOKEN.findall(b"x " + issued + b" y") == [issued]
    assert is_real(issued)
    assert not is_real(issued[:-1] + (b"0" if issued[-1:] != b"0" else b"1"))
