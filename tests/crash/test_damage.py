"""A damaged, foreign, empty or missing database: a start stops and says to restore it, and nothing is made anew.

Where a flipped bit leaves the structure of the file sound, it lies in a value: then what is read is what was written,
or nothing, and no key that was used can be used again.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from app import commanding, wiring
from app.cli import main
from app.config import Settings, load_settings
from continuity.errors import ContinuityError, UnavailableError
from continuity.services.checking import Checker
from continuity.store import schema
from continuity.wire import CreateWorkflow, ListRequest
from tests.crash.sweep import files
from tests.crash.test_disk import atmem
from tests.entry import OVERRIDES
from tests.web.scenes import MAIL, QUERY, Stage
from tests.web.site import site_on

PAGE = 4_096
KINDS = ["table", "index", "schema", "free list"]
ADVICE = "Restore it from the backup of the instance folder."
SEALS = {
    "A sealed value could not be opened.",
    "The master key is not that of this vault, or the vault's row was changed.",
}
"""What is told of a damaged value under a seal."""
JOURNAL = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
"""How a rollback journal of SQLite begins."""
_INTERIOR, _TABLE, _INDEX = 0x05, 0x0D, 0x0A


@dataclass
class Ledger:
    """An instance with work in it, and what was true when it was whole."""

    folder: Path
    content: bytes
    views: dict[str, dict[str, Any]]
    host: Any
    person: Any

    @property
    def database(self) -> Path:
        return self.folder / "continuity.db"

    def put(self, content: bytes) -> None:
        for left in self.folder.glob("continuity.db-*"):
            left.unlink()
        self.database.write_bytes(content)
        self.database.chmod(0o600)

    def pages(self, kind: str) -> list[int]:
        """Return the numbers, from 0, of the pages of a kind."""
        schema = self._schema_pages()
        free = self._free_pages()
        numbers = range(len(self.content) // PAGE)
        found = {
            "schema": schema,
            "free list": free,
            "table": [n for n in numbers if self._kind(n) == _TABLE and n not in {*schema, *free}],
            "index": [n for n in numbers if self._kind(n) == _INDEX and n not in free],
        }
        return found[kind]

    def _kind(self, number: int) -> int:
        return self.content[number * PAGE + (100 if number == 0 else 0)]

    def _schema_pages(self) -> list[int]:
        """Walk the table of tables: its root is the first page."""
        if self._kind(0) != _INTERIOR:
            return [0]
        cells = int.from_bytes(self.content[103:105], "big")
        pointers = [int.from_bytes(self.content[112 + 2 * n : 114 + 2 * n], "big") for n in range(cells)]
        children = [int.from_bytes(self.content[at : at + 4], "big") for at in pointers]
        return [0, *(child - 1 for child in [*children, int.from_bytes(self.content[108:112], "big")])]

    def _free_pages(self) -> list[int]:
        trunk = int.from_bytes(self.content[32:36], "big")
        count = int.from_bytes(self.content[36:40], "big")
        assert 0 < count < PAGE // 4, "there is a free list, of one trunk"
        start = (trunk - 1) * PAGE
        leaves = [int.from_bytes(self.content[start + 8 + 4 * n : start + 12 + 4 * n], "big") for n in range(count - 1)]
        return [trunk - 1, *(leaf - 1 for leaf in leaves)]


@pytest.fixture(scope="module")
def ledger(instance_template, tmp_path_factory):
    instance = instance_template.copy_to(tmp_path_factory.mktemp("damage") / "instance")
    with site_on(instance.folder) as site:
        stage = Stage(site)
        done = [stage.mail(f"done-{n}", **QUERY) for n in range(3)]
        for scene in done:
            scene.begin().report("confirmed_succeeded", effect_id="e-1", result={"text": "x" * 300})
        lost = [stage.mail(f"lost-{n}") for n in range(2)]
        for scene in lost:
            scene.lose()
        large = stage.ready({**MAIL, "arguments": {"text": "y" * 60_000}}, key="gone")
        large.begin().report("confirmed_succeeded", effect_id="e-2", result="z" * 40_000)
        site.wiring.services.deletions.delete(stage.person, large.workflow_id)
        views = {scene.workflow_id: scene.view() for scene in [*done, *lost]}
        host, person = stage.host, stage.person
    content = (instance.folder / "continuity.db").read_bytes()
    return Ledger(instance.folder, content, views, host, person)


def started(ledger: Ledger) -> wiring.Wiring:
    """Do what `atmem serve` does before it listens."""
    settings = settings_of(ledger)
    commanding.check_whole(settings)
    return wiring.build(settings, overrides=OVERRIDES)


def settings_of(ledger: Ledger) -> Settings:
    return load_settings({"ATMEM_INSTANCE": str(ledger.folder)})


def definition_of_new_work(key: str) -> CreateWorkflow:
    return CreateWorkflow.from_json({"workflow_key": key, "operations": [MAIL]})


def refused_or(call):
    """Return what a call gives, or how it refuses."""
    try:
        return call()
    except ContinuityError as error:
        return error


def told(call):
    try:
        return call()
    except ContinuityError as error:
        return error.code


def check_nothing_else_is_told(ledger: Ledger, built: wiring.Wiring) -> set[str]:
    """Compare what a server on a damaged file says with what was true; return the refusals."""
    refusals = set()
    workflows = built.services.workflows
    for workflow_id, true in ledger.views.items():
        shown = told(partial(workflows.view, ledger.host, workflow_id))
        again = CreateWorkflow.from_json({
            "workflow_key": true["workflow_key"], "operations": [definition(each) for each in true["operations"]],
        })  # fmt: skip
        found = told(partial(workflows.create, ledger.host, again))
        refusals |= {each for each in (shown, found) if isinstance(each, str)}
        if not isinstance(shown, str):
            assert facts(shown) == facts(true)
        if not isinstance(found, str):
            assert found["workflow_id"] == workflow_id, "a key that was used has made new work"
    return refusals


def definition(operation):
    fields = ("name", "tool", "arguments", "capability", "timeout_seconds", "retention_seconds")
    return {name: operation[name] for name in fields}


def facts(view):
    """What was decided and reported, without what follows from the time of looking."""
    return [
        (each["name"], each["status"], each["receipt"], each["arguments"], len(each["attempts"]))
        for each in view["operations"]
    ]


def flip(ledger: Ledger, kind: str, count: int) -> set[str]:
    """Flip single bits of pages of a kind, each in a whole file; return what was told of them."""
    draw = random.Random(f"{count} flips of {kind}")
    pages = ledger.pages(kind)
    told_of = set()
    for _ in range(count):
        at = draw.choice(pages) * PAGE + draw.randrange(PAGE)
        damaged = bytearray(ledger.content)
        damaged[at] ^= 1 << draw.randrange(8)
        ledger.put(bytes(damaged))
        built = refused_or(partial(started, ledger))
        if isinstance(built, ContinuityError):
            told_of.add(built.message)
            assert ledger.database.read_bytes() == bytes(damaged)
            continue
        try:
            told_of |= check_nothing_else_is_told(ledger, built)
        finally:
            built.close()
    return told_of


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_stops_the_start_or_changes_nothing_that_is_told(ledger, kind):
    told_of = flip(ledger, kind, 12)

    assert told_of or kind != "schema"
    assert all(is_explained(each) for each in told_of)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_flipped_bits_stop_the_start_or_change_nothing_that_is_told(ledger, kind):
    told_of = flip(ledger, kind, 50)

    assert told_of or kind == "free list"
    assert all(is_explained(each) for each in told_of)


def is_explained(told_of: str) -> bool:
    """Say whether it is one line, of a file to restore or of a value that was not told."""
    is_one_line = len(told_of.splitlines()) == 1
    return is_one_line and (ADVICE in told_of or told_of in {"vault_integrity_error", *SEALS})


def test_an_index_that_does_not_find_a_key_any_more_stops_the_start(ledger):
    """Nothing else would: the page is sound, and the key would be free to be used again."""
    with wiring.built(settings_of(ledger), overrides=OVERRIDES) as built:
        row = built.store.read(lambda connection: connection.execute(sa.select(schema.workflows)).first())
    # The row's own copy comes first: the index is the last place that holds it.
    places = [found.start() for found in re.finditer(re.escape(row.key_ix), ledger.content)]
    index = next(at for at in places if at // PAGE in ledger.pages("index"))
    damaged = bytearray(ledger.content)
    damaged[index + 3] ^= 0x10
    ledger.put(bytes(damaged))

    with pytest.raises(UnavailableError, match=f"missing from index .*{ADVICE}"):
        started(ledger)


WRONG = {
    "half of it": lambda content: content[: len(content) // 2], "a few pages": lambda content: content[: 3 * PAGE],
    "a piece of a page": lambda content: content[:5_000], "less than a header": lambda content: content[:50],
    "nothing": lambda _content: b"", "another program's": lambda _content: b"GIF89a" * 4_000,
    "zeros": lambda content: bytes(len(content)),
}  # fmt: skip


@pytest.mark.parametrize("what", [*WRONG, "no file at all"])
def test_a_file_that_is_no_ledger_any_more_is_neither_used_nor_made_anew(ledger, what, monkeypatch):
    for name in [name for name in os.environ if name.startswith("ATMEM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ATMEM_INSTANCE", str(ledger.folder))
    ledger.put(WRONG.get(what, lambda content: content)(ledger.content))
    if what == "no file at all":
        ledger.database.unlink()
    before = files(ledger.folder)

    with pytest.raises(UnavailableError):
        started(ledger)
    for command in (["init"], ["db", "upgrade"], ["init"], ["status"], ["users", "list"]):
        result = CliRunner().invoke(main, command, obj=OVERRIDES)
        assert result.exit_code == 1, command
        assert result.stderr.startswith("Error: "), result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert "estored from its backup" in result.stderr or "estore it from" in result.stderr, command

    after = files(ledger.folder)
    if what == "nothing":
        # SQLite gives an empty file its heading.
        assert len(after.pop("continuity.db")) <= PAGE
        before.pop("continuity.db")
    assert after == before


def test_a_server_does_not_start_on_an_empty_database_where_there_was_a_vault(ledger):
    ledger.put(b"")

    status, said = atmem(ledger.folder, "serve", "--port", "0")

    assert status == 1
    assert "restored from its backup" in said
    assert ledger.database.stat().st_size <= PAGE


# --- The files beside it (F08)


@pytest.fixture(scope="module")
def busy(instance_template, tmp_path_factory):
    """A ledger as a killed server leaves it: the newest work stands in the -wal file alone."""
    instance = instance_template.copy_to(tmp_path_factory.mktemp("busy") / "instance")
    with site_on(instance.folder) as site:
        stage = Stage(site)
        for n in range(4):
            stage.mail(f"work-{n}").begin().report("confirmed_succeeded", effect_id="e-1", result=None)
        left = instance.folder.with_name("left")
        shutil.copytree(instance.folder, left)
    left.chmod(0o700)
    assert (left / "continuity.db-wal").stat().st_size > 20 * PAGE
    return left


def other_wal(_wal: bytes, ledger: Ledger) -> bytes:
    """Return the -wal of the other ledger."""
    ledger.put(ledger.content)
    with wiring.built(settings_of(ledger), overrides=OVERRIDES) as built:
        again = definition_of_new_work("of-another-ledger")
        built.services.workflows.create(ledger.host, again)
        return (ledger.folder / "continuity.db-wal").read_bytes()


BESIDE = {
    "a -wal that was cut": ("-wal", lambda wal, _: wal[: len(wal) * 2 // 3 + 100]),
    "a -wal of its head alone": ("-wal", lambda wal, _: wal[:32]),
    "a -wal with garbage in the middle": ("-wal", lambda wal, _: wal[: len(wal) // 2] + b"\xa5" * PAGE * 3),
    "a -wal of nothing but garbage": ("-wal", lambda wal, _: b"\x5a" * len(wal)),
    "no -wal": ("-wal", lambda _wal, _: None),
    "an empty -wal": ("-wal", lambda _wal, _: b""),
    "the -wal of another ledger": ("-wal", other_wal),
    "a stale -shm": ("-shm", lambda _wal, _: bytes(32_768)),
    "a -shm of garbage": ("-shm", lambda _wal, _: b"\xa5" * 32_768),
    "a rollback journal of garbage": ("-journal", lambda _wal, _: JOURNAL + b"\xa5" * 9_000),
}  # fmt: skip


@pytest.mark.parametrize("what", BESIDE)
def test_wrong_files_beside_the_database_stop_the_start_or_leave_a_ledger_that_agrees_with_itself(
    busy, ledger, tmp_path, what
):
    folder = tmp_path / "instance"
    shutil.copytree(busy, folder)
    folder.chmod(0o700)
    suffix, make = BESIDE[what]
    content = make((folder / "continuity.db-wal").read_bytes(), ledger)
    beside = folder / f"continuity.db{suffix}"
    beside.unlink(missing_ok=True)
    if content is not None:
        beside.write_bytes(content)
        beside.chmod(0o600)
    mine = Ledger(folder, b"", {}, ledger.host, ledger.person)

    built = refused_or(partial(started, mine))
    if isinstance(built, ContinuityError):
        assert is_explained(built.message), built.message
        return
    try:
        findings = Checker(built.store, built.services.attempts.ledger).check()
        keys = {each["workflow_key"] for each in built.services.listing.page(ledger.host, ListRequest())["workflows"]}
    finally:
        built.close()
    assert findings == []
    assert commanding.check_database(settings_of(mine)) == []
    assert keys <= {f"work-{n}" for n in range(4)}
    if suffix == "-shm":
        assert len(keys) == 4
