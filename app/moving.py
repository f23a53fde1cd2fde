"""Moves a vault from SQLite to PostgreSQL: every row, each compared afterwards, and the source left as it is.

Rules:

* Nobody else writes to the source meanwhile: its server must be stopped, and its write lock is held.
* Until the last row has been compared the target's revision says that it is being moved into, so that no program
  serves from it or makes a vault in it. It names whose: another vault's move is never mixed with it. Each unit of
  writing holds the mark, so that a second mover, of a copy of the instance, writes nothing once the first has ended.
* Killed anywhere, the same command goes on. Rows that are there and equal are not written again.
* The target is an empty database, or one of an unfinished move of this vault. Nothing in it is dropped that was not
  made here.
* Keys, shred list and anchor stay where they are: the instance goes on with another address of its database. From
  the moment in which that one can be used, a note in the instance folder refuses the old file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from app import databases, instance, migrating, revisions, vaults
from app.backup_contents import tables
from app.config import Settings
from continuity.errors import ContinuityError, UnavailableError
from continuity.store import copies, moving
from continuity.store.engine import make_engine
from continuity.store.store import Store

T = TypeVar("T")
Tell = Callable[[str, int, int], None]
_UNCHANGED: Final = "Nothing was changed."


class TargetError(ContinuityError):
    """The target cannot answer. What was copied stays, and is not in use."""

    code = "target_unavailable"


class MovingError(ContinuityError):
    """A vault cannot be moved there. The message says what was changed."""

    code = "moving_refused"


@dataclass(frozen=True, slots=True)
class Moved:
    """What is in the new database: rows compared, those written by this call, and in how many tables.

    Nothing was compared when an earlier call has ended the move.
    """

    rows: int
    written: int
    tables: int

    @property
    def was_done(self) -> bool:
        """Whether an earlier call has ended the move."""
        return self.tables == 0


def check_address(url: str) -> None:
    """Refuse an address that is none of a database of PostgreSQL, or that holds a password.

    Raises:
        MovingError: What it must be, without saying what it was.
    """
    if not url.startswith(("postgresql://", "postgresql+psycopg://")):
        raise MovingError("must begin with postgresql://.")
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        parsed = None
    if parsed is None or not parsed.database:
        raise MovingError("must be like postgresql://user@host:port/database.")
    if parsed.password:
        raise MovingError("must not hold the password: set PGPASSWORD, or use a .pgpass file.")


def move(settings: Settings, target_url: str, *, tell: Tell) -> Moved:
    """Move the instance's vault into the PostgreSQL database at `target_url`.

    Args:
        settings: Of an instance on SQLite.
        target_url: ``postgresql://…`` of a database whose owner the user in it is.
        tell: Called with the step, and the rows that are done and that there are.

    Raises:
        MovingError: The source is no SQLite database, the target is none that may be written, or rows differ.
        UnavailableError: The source does not answer, or its tables are not those of this program.
        InstanceError: A server has the instance open.
        TargetError: The target does not answer, or the user may not do this there; run the command again.
    """
    if settings.is_postgresql:
        raise MovingError(f"ATMEM_DATABASE_URL: the vault is on PostgreSQL already. {_UNCHANGED}")
    instance.guard(settings)
    with instance.held(settings), databases.opened(settings) as store:
        databases.check_schema(store)
        databases.check_whole(store, tables())
        row = vaults.vault_row(store)
        if row is None:
            raise MovingError(f"The instance has no vault yet: atmem init makes one on PostgreSQL. {_UNCHANGED}")
        mark = _mark(row)
        target = Store(make_engine(target_url, pool_size=2))
        try:
            if _is_done(settings, target, mark):
                return Moved(0, 0, 0)
            with copies.held_still(store.engine) as source:
                _prepare(target, mark)
                return _Move(settings, source, target, mark).run(tell)
        except sa.exc.DBAPIError as error:
            raise _unanswered(error, of_source=store.engine.dialect.loaded_dbapi.Error) from error
        except UnavailableError as error:
            cause = error.__cause__ or error
            raise _unanswered(cause, of_source=store.engine.dialect.loaded_dbapi.Error) from error
        except revisions.SchemaError as error:
            raise MovingError(f"The target: {error} {_UNCHANGED}") from error
        finally:
            databases.close(target)


@dataclass(frozen=True, slots=True)
class _Move:
    settings: Settings
    source: sa.Connection
    target: Store
    mark: str

    def run(self, tell: Tell) -> Moved:
        there = tables()
        whole = sum(moving.count(self.source, table) for table in there)
        written = done = 0
        for table in there:
            self._writing(partial(moving.drop_others, table=table, source=self.source))
            for rows in moving.pages(self.source, table):
                if column := moving.misfit(self.source, table, rows):
                    raise MovingError(_damaged(table, column))
                written += self._writing(partial(moving.put, table=table, rows=rows))
                done += len(rows)
                tell("copying", done, whole)
        _compare(self.source, self.target.engine, there, lambda rows: tell("comparing", rows, whole))
        # Without it the first questions are planned as if the tables were empty.
        self._writing(lambda connection: connection.exec_driver_sql("ANALYZE"))
        # Before the new database can be used, so that there is no moment in which both can be.
        _say_where(self.settings, _named(self.target.engine.url))
        self._writing(partial(_finish, there=there, given=moving.numbers_given(self.source, there)))
        return Moved(whole, written, len(there))

    def _writing(self, work: Callable[[sa.Connection], T]) -> T:
        """Run a unit that may take its time, while the target is still being moved into."""

        def marked(connection: sa.Connection) -> T:
            if revisions.held_revision(connection) != self.mark:
                raise MovingError("Somebody else has ended this move meanwhile: the target is in use. Stop and look.")
            return work(connection)

        return _unhurried(self.target, marked)


def _mark(row: sa.Row[Any]) -> str:
    return revisions.moving_mark(hashlib.sha256(row.sealed_canary).hexdigest())


def _is_done(settings: Settings, target: Store, mark: str) -> bool:
    """Say whether an earlier call has ended this very move, as one whose connection was cut at its end may not know."""
    if instance.read_note(settings, instance.MOVED).get("to") != _named(target.engine.url):
        return False
    if target.read(revisions.revision_of) != revisions.newest():
        return False
    row = vaults.vault_row(target)
    return row is not None and _mark(row) == mark


def _unhurried(target: Store, work: Callable[[sa.Connection], T]) -> T:
    def unhurried(connection: sa.Connection) -> T:
        copies.hurry_not(connection)
        return work(connection)

    return target.write(unhurried)


def _finish(connection: sa.Connection, there: list[sa.Table], given: dict[str, int]) -> None:
    copies.set_counters(connection, there, given)
    migrating.finish_moving(connection)


def _prepare(target: Store, mark: str) -> None:
    """Make empty tables under the mark, or find those of this vault's unfinished move."""

    def work(connection: sa.Connection) -> None:
        found = revisions.revision_of(connection)
        if found == mark:
            return
        if found is not None:
            what = "another vault's unfinished move" if revisions.is_moving(found) else "an instance of this product"
            raise MovingError(f"The target holds {what}. Give an empty database. {_UNCHANGED}")
        known = {table.name for table in tables()} & set(sa.inspect(connection).get_table_names())
        if known:
            raise MovingError(f"The target has a table {min(known)} already. Give an empty database. {_UNCHANGED}")
        migrating.begin_moving(connection, mark)

    _unhurried(target, work)


def _compare(source: sa.Connection, engine: sa.Engine, there: list[sa.Table], told: Callable[[int], None]) -> None:
    """Read every row of both once more, and stop at the first that differs."""
    done = 0
    with copies.snapshot(engine) as target:
        for table in there:
            before = done
            for rows in moving.pages(source, table):
                if any(moving.wrong(target, table, rows)):
                    raise MovingError(_differs(table))
                done += len(rows)
                told(done)
            if moving.count(target, table) != done - before:
                raise MovingError(_differs(table))


def _say_where(settings: Settings, to: str) -> None:
    try:
        instance.leave_note(settings, instance.MOVED, {"to": to})
    except OSError as error:
        raise MovingError(
            f"{settings.instance} cannot be written: {error.strerror}. The new database is whole and not in use yet; "
            "run the command again to end the move."
        ) from error


def _named(url: sa.URL) -> str:
    """Return a database's address without who uses it."""
    given = url.host or url.query.get("host") or "this host"
    where = given if isinstance(given, str) else given[0]
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{where}{port}/{url.database}"


def _unanswered(error: BaseException, *, of_source: type[BaseException]) -> ContinuityError:
    # The words of the driver name host and user, never a password.
    original = getattr(error, "orig", error)
    words = str(original).strip() or type(error).__name__
    why = words.splitlines()[0].rstrip(".")
    if isinstance(original, of_source):
        return UnavailableError(f"The SQLite database: {why}. What was copied stays; run the command again to go on.")
    return TargetError(f"The target: {why}. The source is as it was; run the command again to go on.")


def _damaged(table: sa.Table, column: str) -> str:
    return (
        f"The source is damaged: a row of {table.name} holds in {column} what cannot be there. It is as it was, and "
        "the target is not in use. See what atmem db check and atmem audit verify say, and restore a backup first."
    )


def _differs(table: sa.Table) -> str:
    return (
        f"Rows of {table.name} differ although they were copied: somebody else writes to the target. It is not in use "
        "yet; the source is as it was. Run the command again."
    )
