"""Puts the files that a restore has prepared in the places of those of an instance: all of them, or none.

Rules:

* A prepared file lies beside its place, under the same name with `SUFFIX`, complete and durable.
* On SQLite the restore is decided by one file, the journal, which names every move. From then on whoever opens the
  instance first finishes it; before that nothing was touched.
* On PostgreSQL the database decides, in one transaction: the journal says of which epoch the vault is then. Whoever
  opens the instance compares, and moves the files or drops them.
* One process at a time, by a lock that ends with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from app.config import InstanceError, Settings
from continuity.errors import UnavailableError
from continuity.store import schema
from continuity.store.engine import make_engine
from continuity.store.store import Store
from continuity.vault import files

if os.name == "posix":
    import fcntl

JOURNAL: Final = "restore.json"
LOCK: Final = "restore.lock"
SUFFIX: Final = ".restoring"
_BESIDE_SQLITE: Final = ("-wal", "-shm", "-journal")

Tell = Callable[[str, int, int], None]
"""Told of each step: its name, how far it is, and how far it goes (0 where nobody knows)."""


@dataclass(frozen=True, slots=True)
class Journal:
    """What is to be done once a restore is decided.

    Attributes:
        moves: From where to where, in this order.
        drops: Files that must be gone before: what belonged to the database that was there.
        epoch: On PostgreSQL the vault's epoch by which the decision is known; None on SQLite.
    """

    moves: tuple[tuple[Path, Path], ...]
    drops: tuple[Path, ...]
    epoch: int | None


def prepared(path: Path) -> Path:
    """Return where the file is prepared that shall stand at `path`."""
    return path.with_name(path.name + SUFFIX)


def beside_sqlite(database: Path) -> tuple[Path, ...]:
    """Return the files that belong to a SQLite database, and to no other that is put in its place."""
    return tuple(database.with_name(database.name + end) for end in _BESIDE_SQLITE)


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Keep other restores of this instance out.

    Raises:
        InstanceError: Another one is under way.
    """
    with _locked(settings, waits=False):
        yield


def decide(settings: Settings, journal: Journal) -> None:
    """Write the journal, durably: on SQLite this is the moment from which the restore has happened."""
    value = {
        "moves": [[str(source), str(target)] for source, target in journal.moves],
        "drops": [str(path) for path in journal.drops], "epoch": journal.epoch,
    }  # fmt: skip
    files.replace(settings.instance / JOURNAL, lambda: json.dumps(value).encode())


def settle(settings: Settings) -> None:
    """Finish a restore that was decided and interrupted. Costs one look at the folder where there is none.

    Raises:
        InstanceError: What the journal says cannot be done.
        UnavailableError: The database that decides does not answer.
    """
    if not (settings.instance / JOURNAL).exists():
        return
    with _locked(settings, waits=True):
        finish(settings)


def finish(settings: Settings, tell: Tell = lambda _step, _done, _whole: None) -> None:
    """Do what the journal says, for whoever holds the lock. Safe to repeat after a kill at any point."""
    path = settings.instance / JOURNAL
    try:
        journal = _read(path)
        if journal is None:
            return
        if journal.epoch is not None and _epoch(settings) != journal.epoch:
            # The transaction that decides was not committed.
            for source, _ in journal.moves:
                source.unlink(missing_ok=True)
        else:
            _apply(journal, tell)
        path.unlink(missing_ok=True)
        _sync(settings.instance)
    except OSError as error:
        raise InstanceError(
            f"ATMEM_INSTANCE: a restore was interrupted and cannot be finished: {error.filename}: {error.strerror}. "
            "Mend that and run the command again."
        ) from error


def _apply(journal: Journal, tell: Tell) -> None:
    steps = len(journal.drops) + len(journal.moves)
    # Once the database is in its place, what lies beside it is its own.
    is_begun = not all(source.exists() for source, _ in journal.moves)
    for number, path in enumerate(() if is_begun else journal.drops):
        tell("replacing", number, steps)
        path.unlink(missing_ok=True)
    for number, (source, target) in enumerate(journal.moves, start=len(journal.drops)):
        tell("replacing", number, steps)
        with suppress(FileNotFoundError):
            source.replace(target)
        _sync(target.parent)
    tell("replacing", steps, steps)


def _read(path: Path) -> Journal | None:
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    moves = tuple((Path(source), Path(target)) for source, target in value["moves"])
    return Journal(moves, tuple(map(Path, value["drops"])), value["epoch"])


def _epoch(settings: Settings) -> int | None:
    engine = make_engine(settings.database_url, pool_size=1)
    store = Store(engine)
    try:
        row = store.autocommit(lambda connection: connection.execute(sa.select(schema.vault.c.epoch)).first())
    except UnavailableError as error:
        if "UndefinedTable" in type(getattr(error.__cause__, "orig", None)).__name__:
            return None
        raise
    finally:
        store.close()
        engine.dispose()
    return None if row is None else row.epoch


@contextmanager
def _locked(settings: Settings, *, waits: bool) -> Iterator[None]:
    path = settings.instance / LOCK
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise InstanceError(f"ATMEM_INSTANCE: {path} cannot be opened: {error.strerror}.") from error
    try:
        if os.name == "posix":
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        yield
    except BlockingIOError:
        raise InstanceError(
            f"ATMEM_INSTANCE: another restore of {settings.instance} is under way. Nothing was changed."
        ) from None
    finally:
        os.close(descriptor)


def _sync(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
