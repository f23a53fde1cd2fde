"""The power fails between any two calls of a writer: what it had acknowledged is there afterwards (F02).

The calls of a real writer are recorded by strace and played again up to each of them, with what no sync had made
durable lost, or half of it. A file exists from the sync of its folder on. The same with the setting of SQLite that is
below ours must lose something, or this test would see nothing.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from continuity.store.sqlite import choose_driver
from tests.servers import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is a program of Linux")

COMMITS = 8
WRITER = """
import os, sys
import sqlalchemy as sa
from continuity.store.engine import make_engine
from continuity.store.schema import workspaces
from continuity.store.store import Store

engine = make_engine(sys.argv[1], pool_size=1)
if sys.argv[2] == "NORMAL":
    sa.event.listen(engine, "connect", lambda made, _: made.execute("PRAGMA synchronous=NORMAL"))
store = Store(engine)
os.write(1, b"BEGIN\\n")
for number in range(int(sys.argv[3])):
    store.write(lambda c: c.execute(sa.insert(workspaces).values(name=f"n{number}" + "x" * 100)).rowcount)
    os.write(1, b"ACK\\n")
os._exit(0)
"""
CALL = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclass
class File:
    """What is on the disk for certain, and what was written since."""

    durable: bytearray
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    is_named: bool = False

    def left(self, keeps) -> bytes:
        content = bytearray(self.durable)
        for at, data in self.pending:
            if keeps():
                content.extend(bytes(max(0, at + len(data) - len(content))))
                content[at : at + len(data)] = data
        return bytes(content)

    def sync(self) -> None:
        self.durable, self.pending = bytearray(self.left(lambda: True)), []


class Disk:
    """Plays the calls on the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = {path.name: File(bytearray(path.read_bytes()), is_named=True) for path in folder.iterdir()}
        self.open: dict[int, str] = {}
        self.has_begun, self.acks = False, 0

    def play(self, name: str, arguments: str, result: int) -> bool:
        """Play one call; say whether the power may as well fail behind it."""
        texts = [bytes.fromhex(found.replace("\\x", "")) for found in TEXT.findall(arguments)]
        number = int(arguments.split(",", maxsplit=1)[0]) if arguments[:1].isdigit() else -1
        if name == "openat" and result >= 0:
            path = Path(texts[0].decode())
            self.open.pop(result, None)
            if self.folder in {path, path.parent}:
                self.open[result] = "" if path == self.folder else path.name
                if path != self.folder:
                    self.files.setdefault(path.name, File(bytearray()))
            return False
        if name == "write" and number == 1:
            self.has_begun |= texts[0] == b"BEGIN\n"
            self.acks += texts[0] == b"ACK\n"
            return self.has_begun
        if number not in self.open:
            return False
        return self._change(name, arguments, texts, self.open[number])

    def _change(self, name: str, arguments: str, texts: list[bytes], path: str) -> bool:
        if name == "pwrite64":
            self.files[path].pending.append((int(arguments.rsplit(",", 1)[1]), texts[0]))
        elif name in {"fsync", "fdatasync"}:
            if path:
                self.files[path].sync()
            else:
                for each in self.files.values():
                    each.is_named = True
        return self.has_begun

    def leave(self, folder: Path, keeps) -> None:
        folder.mkdir()
        for name, each in self.files.items():
            if each.is_named and not name.endswith("-shm"):
                (folder / name).write_bytes(each.left(keeps))


def recorded(folder: Path, level: str) -> list[tuple[str, str, int]]:
    trace = folder.with_name("trace")
    subprocess.run(
        ["strace", "-f", "-xx", "-s", "70000", "-o", str(trace), "-e",
         "trace=openat,pwrite64,write,fsync,fdatasync,ftruncate,unlink", sys.executable, "-c", WRITER,
         f"sqlite:///{folder / 'atmem.db'}", level, str(COMMITS)],
        cwd=ROOT, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return [
        (found[1], found[2], int(found[3])) for line in trace.read_text().splitlines() if (found := CALL.match(line))
    ]


def lost(calls, folder: Path, whole: Path) -> list[int]:
    """Return how many acknowledged commits were missing after each failure of the power."""
    draw = random.Random(7)
    disk, missing = Disk(folder), []
    disk.files = {"atmem.db": File(bytearray(whole.read_bytes()), is_named=True)}
    for name, arguments, result in calls:
        if not disk.play(name, arguments, result):
            continue
        for keeps in (lambda: False, lambda: draw.random() < 0.5):
            left = folder.with_name("left")
            disk.leave(left, keeps)
            missing.append(max(0, disk.acks - found_in(left / "atmem.db")))
            shutil.rmtree(left)
    return missing


def found_in(path: Path) -> int:
    with closing(choose_driver()[0].connect(str(path))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return connection.execute("SELECT count(*) FROM continuity_workspaces WHERE name LIKE 'n%'").fetchone()[0]


@pytest.fixture
def database(sqlite_template, tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    whole = tmp_path / "whole.db"
    sqlite_template.copy_to(folder / "atmem.db")
    shutil.copy(folder / "atmem.db", whole)
    return folder, whole


def test_no_acknowledged_commit_is_lost_wherever_the_power_fails(database):
    assert shutil.which("strace"), "these tests need strace (make tools)"
    folder, whole = database

    missing = lost(recorded(folder, "FULL"), folder, whole)

    assert len(missing) > 6 * COMMITS
    assert sum(missing) == 0


def test_with_less_than_our_setting_commits_are_lost(database):
    folder, whole = database

    assert sum(lost(recorded(folder, "NORMAL"), folder, whole)) > 0
