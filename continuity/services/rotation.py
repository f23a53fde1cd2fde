"""A new master key for the vault, step by step, while everybody goes on working.

    adding -> announced -> running -> retiring -> done
                                   -> held

Rules:

* ``adding``: the new key becomes durable at its source (`RingKeeper.add`) before anything is wrapped under it.
* ``announced``: every process is told to fetch it, and one that has said lately that it lacks it is waited for.
* The switch, one transaction under the exclusive lock of the vault's row: canary and index key are sealed under the new
  key, and the row names it. Whoever wraps a data key reads that row under a shared lock (`partitions`), so that after
  this nothing comes under the old key, whatever a process believes.
* ``running``: data keys are rewrapped in batches; each is proved to open before it is written, and written only if its
  row is what was read. The cursor moves in the same transaction: of two that work at once, one's batch counts.
* A data key that does not open stays where it is and is counted. It never stops the others.
* The end, under the exclusive lock again: the rows under other keys are counted. None: ``retiring``, and the old keys
  are dropped at their source. Some: ``held``, the keys that they name stay, and the rotation is over all the same.
* Each step can be repeated. Any process that has the keys goes on where another one was killed.
* The index key does not change: whatever was found before is found again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from continuity.errors import ConflictError, DecryptionError, IntegrityError, SealedError
from continuity.limits import SECOND_US
from continuity.services import proofs
from continuity.services.audit import AuditEntry
from continuity.services.locking import require_administrator
from continuity.store import keyring as statements

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection

    from continuity.services.audit import AuditLog
    from continuity.services.callers import Caller
    from continuity.store.store import Store
    from continuity.vault.vault import Vault

BATCH: Final = 50
"""Data keys of one transaction: some milliseconds in which no other writer of SQLite has a turn."""
HOLDER_US: Final = 60 * SECOND_US
"""Who has not said for so long what it holds is not waited for."""
SHOWN: Final = 20
"""How many unreadable partitions are named."""
_SYSTEM: Final = "system"
_FINISHED: Final = frozenset({"done", "held"})


class RingKeeper(Protocol):
    """Changes the source of the master keys and lets this process and others have them. Repeatable, durable."""

    def next_key_id(self, current: int) -> int:
        """Say which number the new key will have; raises `KeySourceError`."""

    def add(self, key_id: int) -> None:
        """Make the new key durable and adopt it here; keep one that is there. Raises `KeySourceError`."""

    def settle(self, key_id: int, *, keep: frozenset[int]) -> None:
        """Drop all keys but `key_id` and `keep` from the source. Raises `KeySourceError`."""


@dataclass(frozen=True, slots=True)
class RotationProgress:
    """Where a rotation stands.

    Attributes:
        rotation_pk: Its number.
        state: ``adding, announced, running, retiring``; over: ``done``, or ``held`` when data keys do not open.
        old_key_id: The master key before.
        new_key_id: The one from now on.
        total: Data keys when it began.
        done: Of them, rewrapped.
        unreadable: Of them, those that do not open.
        started_at_us: When, microseconds since 1970, UTC.
        started_by: Who.
        finished_at_us: When it was over, None before.
        driven_at_us: When somebody worked on it last.
        cursor: The last partition looked at.
    """

    rotation_pk: int
    state: str
    old_key_id: int
    new_key_id: int
    total: int
    done: int
    unreadable: int
    started_at_us: int
    started_by: str
    finished_at_us: int | None
    driven_at_us: int
    cursor: str

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.state in _FINISHED


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rotates the master key. Safe to share between threads and to run in several processes at once.

    Attributes:
        store: Where everything is written.
        vault: Open, with all keys that this process has.
        audit: The audit log.
        keeper: The source of the keys.
        now_us: The clock, microseconds since 1970, UTC.
        batch: Data keys of one transaction.
    """

    store: Store
    vault: Vault
    audit: AuditLog
    keeper: RingKeeper
    now_us: Callable[[], int]
    batch: int = BATCH

    def progress(self) -> RotationProgress | None:
        """Return the last rotation, over or not; None when there never was one. Needs no key."""
        return self.store.autocommit(_latest)

    def unreadable(self) -> list[tuple[str, int]]:
        """Name the partitions whose data keys are not under the master key of now, with the key that each names.

        Returns:
            At most `SHOWN`, by id. While a rotation runs these are also those that it has not reached.
        """
        row = self.store.autocommit(lambda connection: connection.execute(statements.RING).one())
        found = self.store.autocommit(lambda c: statements.under_other_keys(c, row.key_id, count=SHOWN))
        return [(each.partition_id, each.key_id) for each in found]

    def start(self, caller: Caller) -> RotationProgress:
        """Begin a rotation, or return the one that is under way. Nothing is rewrapped yet: call `step`.

        Raises:
            ForbiddenError: The caller may not. Nothing has happened.
            SealedError: The vault is locked. Nothing has happened.
            KeySourceError: There can be no new key as things are; the message says what to do. Nothing has happened.
            IntegrityError: The vault's row is not what was written last. Nothing has happened.
        """
        require_administrator(caller)
        current = self.store.autocommit(lambda connection: connection.execute(statements.RING).one()).key_id
        new_key_id = self.keeper.next_key_id(current)

        def work(connection: Connection) -> None:
            row = self._exclusive(connection)
            latest = _latest(connection)
            if latest is not None and not latest.is_finished:
                return
            if row.key_id != current:
                raise ConflictError("Somebody has just rotated the key. Look again.")
            now_us = self.now_us()
            statements.insert_rotation(connection, {
                "state": "adding", "old_key_id": current, "new_key_id": new_key_id,
                "total": statements.count_data_keys(connection), "done": 0, "unreadable": 0, "cursor": "",
                "started_at": now_us, "started_by": caller.actor, "driven_at": now_us, "finished_at": None,
            })  # fmt: skip
            self._note(
                connection, "vault.rotation_started", actor=caller.actor, request_id=caller.request_id,
                object_id=f"key:{new_key_id}", now_us=now_us,
            )  # fmt: skip

        self.store.write(work)
        return self._required()

    def step(self) -> RotationProgress | None:
        """Do the next bounded piece of an unfinished rotation.

        Returns:
            Where it stands now; the same as before when others are waited for. None when there never was one.

        Raises:
            SealedError: The vault is locked, here or by the flag. It goes on after the unlock.
            KeySourceError: The source of the keys fails. What was written stands; call again.
            IntegrityError: The vault's row is not what was written last.
            UnavailableError: Storage cannot answer.
        """
        latest = self.progress()
        if latest is None or latest.is_finished:
            return latest
        if self.vault.is_locked:
            raise SealedError("The vault is locked.")
        steps: Mapping[str, Callable[[RotationProgress], None]] = {
            "adding": self._add, "announced": self._switch, "running": self._rewrap, "retiring": self._retire,
        }  # fmt: skip
        steps[latest.state](latest)
        return self.progress()

    def waited_for(self, progress: RotationProgress) -> list[str]:
        """Name the processes that have said lately that they lack the new key."""
        since = self.now_us() - HOLDER_US
        found = self.store.autocommit(lambda connection: statements.holders(connection, seen_since=since))
        return [
            each.holder_id for each in found
            if each.state == "open" and str(progress.new_key_id) not in each.key_ids.split(",")
        ]  # fmt: skip

    # ---- the steps

    def _add(self, progress: RotationProgress) -> None:
        self.keeper.add(progress.new_key_id)

        def work(connection: Connection) -> None:
            self._exclusive(connection)
            if self._move(connection, progress, state="announced"):
                statements.raise_generation(connection)

        self.store.write(work)

    def _switch(self, progress: RotationProgress) -> None:
        if self.waited_for(progress):
            return

        def work(connection: Connection) -> None:
            row = self._exclusive(connection)
            if not self._move(connection, progress, state="running"):
                return
            if row.key_id != progress.old_key_id:
                raise IntegrityError("The vault's row names another master key than its rotation. Nothing was done.")
            made = self.vault.resealed(row.wrapped_index_key, new_key_id=progress.new_key_id)
            statements.switch_key(
                connection, key_id=made.key_id, canary=made.canary, wrapped_index_key=made.wrapped_index_key
            )

        self.store.write(work)

    def _rewrap(self, progress: RotationProgress) -> None:
        rows = self.store.autocommit(lambda connection: statements.to_rewrap(
            connection, after=progress.cursor, new_key_id=progress.new_key_id, count=self.batch
        ))  # fmt: skip
        if not rows:
            self._close(progress)
            return
        # Outside of the transaction: nobody waits for the arithmetic.
        made, unreadable = self._rewrapped(rows, progress.new_key_id)

        def work(connection: Connection) -> None:
            if connection.execute(statements.WRAPPING).one().state == "locked":
                raise SealedError("The vault is locked.")
            moved = {
                "cursor": rows[-1].partition_id, "done": progress.done + len(made),
                "unreadable": progress.unreadable + unreadable,
            }  # fmt: skip
            if self._move(connection, progress, state="running", **moved):
                statements.rewrap(connection, made)

        self.store.write(work)

    def _rewrapped(self, rows: Sequence[Any], new_key_id: int) -> tuple[list[dict[str, Any]], int]:
        made: list[dict[str, Any]] = []
        for row in rows:
            try:
                wrapped = self.vault.rewrap(row.partition_id, row.wrapped_key, key_id=row.key_id, new_key_id=new_key_id)
            except DecryptionError:
                continue
            made.append({
                "b_partition_id": row.partition_id, "b_before": row.wrapped_key, "b_key_id": new_key_id,
                "b_wrapped": wrapped,
            })  # fmt: skip
        return made, len(rows) - len(made)

    def _close(self, progress: RotationProgress) -> None:
        """Count what is not under the new key, while nobody can add to it."""

        def work(connection: Connection) -> dict[int, int]:
            self._exclusive(connection)
            left = statements.count_by_other_key(connection, progress.new_key_id)
            if not left:
                self._move(connection, progress, state="retiring")
            elif sum(left.values()) > progress.unreadable:
                # Behind the cursor somebody's row has changed, or a restore put one there: once more from the start.
                self._move(connection, progress, state="running", cursor="", unreadable=0)
            return left

        left = self.store.write(work)
        if left and sum(left.values()) <= progress.unreadable:
            self.keeper.settle(progress.new_key_id, keep=frozenset(left))
            self._finish(progress, "held", unreadable=sum(left.values()))

    def _retire(self, progress: RotationProgress) -> None:
        self.keeper.settle(progress.new_key_id, keep=frozenset())
        self._finish(progress, "done")

    def _finish(self, progress: RotationProgress, state: str, **values: int) -> None:
        def work(connection: Connection) -> None:
            self._exclusive(connection)
            now_us = self.now_us()
            if self._move(connection, progress, state=state, finished_at=now_us, **values):
                statements.raise_generation(connection)
                self._note(
                    connection, "vault.rotated", actor=_SYSTEM, request_id=None,
                    object_id=f"key:{progress.new_key_id}", now_us=now_us, result=state,
                )  # fmt: skip

        self.store.write(work)

    # ---- what they share

    def _exclusive(self, connection: Connection) -> Any:
        row = connection.execute(statements.EXCLUSIVE).one()
        if row.vault_state == "locked":
            raise SealedError("The vault is locked. Nothing was done.")
        proofs.check_vault(self.vault, row)
        return row

    def _move(self, connection: Connection, progress: RotationProgress, **values: Any) -> bool:
        return statements.move_rotation(
            connection, progress.rotation_pk, state=progress.state, cursor=progress.cursor,
            values={"driven_at": self.now_us(), **values},
        )  # fmt: skip

    def _note(
        self, connection: Connection, action: str, *, actor: str, request_id: str | None, object_id: str, now_us: int,
        result: str = "done",
    ) -> None:  # fmt: skip
        entry = AuditEntry(action=action, actor=actor, object_id=object_id, result=result, request_id=request_id)
        self.audit.append(connection, entry, now_us=now_us)

    def _required(self) -> RotationProgress:
        found = self.progress()
        if found is None:
            raise IntegrityError("The rotation that was just written is not there.")
        return found


def _latest(connection: Connection) -> RotationProgress | None:
    row = connection.execute(statements.LATEST).one_or_none()
    if row is None:
        return None
    return RotationProgress(
        rotation_pk=row.rotation_pk, state=row.state, old_key_id=row.old_key_id, new_key_id=row.new_key_id,
        total=row.total, done=row.done, unreadable=row.unreadable, started_at_us=row.started_at,
        started_by=row.started_by, finished_at_us=row.finished_at, driven_at_us=row.driven_at, cursor=row.cursor,
    )  # fmt: skip
