"""A person's second factor: setting it up, proving it, new recovery codes, taking it away.

Rules:

* It counts from the moment a first code of it was given: a secret that no app has must lock nobody out.
* A code is counted as an attempt before it is looked at, and taken in the transaction of what it is for. Taking it
  moves `last_step` or deletes the recovery code, by one conditional statement: of two requests with one code at
  most one finds it.
* Time is never earlier than the vault's high-water mark: a clock set back revives no code. While it is behind, only
  recovery codes are good.
* Setting it up and taking it away end every session of the person and begin a new one. Both, and new recovery codes,
  ask for a password given within ten minutes; the last two for a code as well.
* Whatever is wrong with a code has one answer.

Source: security.md 3.1, 3.2; ASVS 6.3.3, 6.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth import entering, one_time_codes, sessions, throttle
from app.auth.entering import Entering, Visit, Welcome
from app.auth.factor_seal import FactorSeal
from app.auth.schema import recovery_codes, second_factors, users
from app.auth.sessions import SignedIn
from app.auth.settings import SECOND_US, SecondFactorSettings
from app.auth.throttle import Throttle
from continuity.errors import ConflictError, DecryptionError, ForbiddenError, UnauthenticatedError
from continuity.services.clock import Clock
from continuity.store.schema import vault
from continuity.store.store import Store

WRONG: Final = "The code is wrong, or was used already."
FAILED: Final = "second_factor_failed"
"""Code of the refusal; also the result that the audit log has of it."""
USED_RECOVERY_CODE: Final = "user.use_recovery_code"
_CHANGED: Final = "Your account has changed meanwhile. Sign in again."
_NEVER: Final = -1


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A second factor that was begun: what the app must be told. `secret` is base32."""

    secret: str = field(repr=False)
    address: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A second factor that counts from now on, with its recovery codes, this once."""

    welcome: Welcome
    codes: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class FactorState:
    """What a person's page says: since when (microseconds, None without one), and how many recovery codes are left."""

    since_us: int | None
    codes_left: int


class SecondFactors:
    """Sets up, proves and takes away second factors."""

    def __init__(
        self, store: Store, *, clock: Clock, seal: FactorSeal, limit: Throttle, entering_: Entering,
        settings: SecondFactorSettings,
    ) -> None:  # fmt: skip
        self._store = store
        self._clock = clock
        self._seal = seal
        self._limit = limit
        self._entering = entering_
        self._settings = settings

    def state(self, user_pk: int) -> FactorState:
        """Return what there is of a person's second factor."""

        def look(connection: Connection) -> FactorState:
            since_us = connection.execute(
                sa.select(second_factors.c.confirmed_at).where(second_factors.c.user_pk == user_pk)
            ).scalar_one_or_none()
            left = connection.execute(
                sa.select(sa.func.count()).select_from(recovery_codes).where(recovery_codes.c.user_pk == user_pk)
            ).scalar_one()
            return FactorState(since_us, left)

        return self._store.read(look)

    def start(self, person: SignedIn, *, visit: Visit) -> Enrolment:
        """Make a secret for the person's app. It counts for nothing yet; one that was begun before is forgotten."""
        _check_fresh(person)
        secret = one_time_codes.new_secret()

        def work(connection: Connection) -> None:
            row = self._locked(connection, person)
            if row.has_second_factor:
                raise _conflict()
            connection.execute(sa.delete(second_factors).where(second_factors.c.user_pk == row.user_pk))
            connection.execute(sa.insert(second_factors).values(
                user_pk=row.user_pk, sealed_secret=self._seal.seal(secret, user_pk=row.user_pk),
                started_at=self._now_us(connection), confirmed_at=None, last_step=_NEVER,
            ))  # fmt: skip
            self._entering.record(connection, row, action="user.start_second_factor", visit=visit)

        self._store.write(work)
        return _enrolment(secret, person)

    def pending(self, person: SignedIn) -> Enrolment | None:
        """Return what was begun and not confirmed, None when there is nothing or it is too old."""
        _check_fresh(person)

        def look(connection: Connection) -> Enrolment | None:
            row = self._pending_row(connection, person.user_pk)
            return None if row is None else _enrolment(self._opened(row), person)

        return self._store.read(look)

    def confirm(self, person: SignedIn, code: str, *, visit: Visit) -> Enrolled:
        """Take the first code of the person's app: from now on signing in asks for one. Return recovery codes."""
        _check_fresh(person)
        self._limit.count_code(person.username, address=visit.address)
        codes = one_time_codes.new_recovery_codes()

        def work(connection: Connection) -> Welcome:
            row = self._locked(connection, person)
            step = self._confirmed_step(connection, row, one_time_codes.cleaned(code))
            connection.execute(
                sa.update(second_factors)
                .where(second_factors.c.user_pk == row.user_pk)
                .values(confirmed_at=self._clock.now_us(), last_step=step)
            )
            self._replace_codes(connection, row.user_pk, codes)
            throttle.clear_code(connection, row.username)
            sessions.check_there(connection, person.session_id)
            changed = self._entering.move_stamp(connection, row)
            return self._entering.enter(
                connection, changed, action="user.add_second_factor", visit=visit, replaced=person.session_id
            )

        welcome = self._recorded(work, person, action="user.add_second_factor", visit=visit)
        return Enrolled(welcome, _as_shown(codes))

    def remove(self, person: SignedIn, code: str, *, visit: Visit) -> Welcome:
        """Take the second factor away, by a code of it: the password alone signs in from now on."""

        def work(connection: Connection) -> Welcome:
            row = self._proved(connection, person, code, visit=visit)
            remove_all(connection, user_pk=row.user_pk)
            sessions.check_there(connection, person.session_id)
            changed = self._entering.move_stamp(connection, row)
            return self._entering.enter(
                connection, changed, action="user.remove_second_factor", visit=visit, replaced=person.session_id
            )

        return self._counted(work, person, action="user.remove_second_factor", visit=visit)

    def renew_codes(self, person: SignedIn, code: str, *, visit: Visit) -> tuple[str, ...]:
        """Make new recovery codes, by a code of the second factor; the ones before are void."""
        codes = one_time_codes.new_recovery_codes()

        def work(connection: Connection) -> None:
            row = self._proved(connection, person, code, visit=visit)
            self._replace_codes(connection, row.user_pk, codes)
            self._entering.record(connection, row, action="user.renew_recovery_codes", visit=visit)

        self._counted(work, person, action="user.renew_recovery_codes", visit=visit)
        return _as_shown(codes)

    def spend(self, connection: Connection, row: Any, code: str, *, visit: Visit) -> None:
        """Take a code of an account's second factor inside the caller's transaction, whichever kind it is.

        UnauthenticatedError with the code ``second_factor_failed`` when it is wrong, too old or was taken before:
        then the caller's transaction must end without a trace.
        """
        given = one_time_codes.cleaned(code)
        if one_time_codes.is_of_app(given):
            is_taken = self._spend_step(connection, row.user_pk, given)
        else:
            is_taken = self._spend_recovery_code(connection, row.user_pk, given)
            if is_taken:
                self._entering.record(connection, row, action=USED_RECOVERY_CODE, visit=visit)
        if not is_taken:
            raise wrong()
        throttle.clear_code(connection, row.username)

    def _spend_step(self, connection: Connection, user_pk: int, code: str) -> bool:
        found: Any = connection.execute(_FACTOR, {"user_pk": user_pk}).one_or_none()
        if found is None or found.confirmed_at is None:
            return False
        try:
            secret = self._opened(found)
        except DecryptionError:
            # Changed, or sealed under a key that is gone: it proves nothing any more.
            return False
        step = one_time_codes.step_of(secret, code, now_us=self._now_us(connection), after=found.last_step)
        if step is None:
            return False
        values: dict[str, object] = {"last_step": step}
        if self._seal.is_outdated(found.sealed_secret):
            values["sealed_secret"] = self._seal.seal(secret, user_pk=user_pk)
        moved = connection.execute(
            sa.update(second_factors)
            .where(second_factors.c.user_pk == user_pk, second_factors.c.last_step < step)
            .values(values)
        )
        return moved.rowcount == 1

    def _spend_recovery_code(self, connection: Connection, user_pk: int, given: str) -> bool:
        code = one_time_codes.as_recovery_code(given)
        if code is None:
            return False
        hashes = self._seal.code_hashes(code, user_pk=user_pk)
        gone = connection.execute(
            sa.delete(recovery_codes).where(recovery_codes.c.user_pk == user_pk, recovery_codes.c.code_hash.in_(hashes))
        )
        return gone.rowcount == 1

    def _counted(self, work: Any, person: SignedIn, *, action: str, visit: Visit) -> Any:
        _check_fresh(person)
        self._limit.count_code(person.username, address=visit.address)
        return self._recorded(work, person, action=action, visit=visit)

    def _recorded(self, work: Any, person: SignedIn, *, action: str, visit: Visit) -> Any:
        """Run `work` in one transaction; a code that it refuses is put on record, and nothing else happens."""
        try:
            return self._store.write(work)
        except UnauthenticatedError as error:
            if error.code == FAILED:
                self._entering.refuse(person, action=action, visit=visit, result=FAILED)
            raise

    def _proved(self, connection: Connection, person: SignedIn, code: str, *, visit: Visit) -> Any:
        row = self._locked(connection, person)
        if not row.has_second_factor:
            raise _conflict()
        self.spend(connection, row, code, visit=visit)
        return row

    def _locked(self, connection: Connection, person: SignedIn) -> Any:
        entering.check_unchanged(connection, person, message=_CHANGED)
        return entering.account(connection, users.c.user_pk == person.user_pk)

    def _confirmed_step(self, connection: Connection, row: Any, code: str) -> int:
        if row.has_second_factor:
            raise _conflict()
        found = self._pending_row(connection, row.user_pk)
        if found is None:
            raise ConflictError("Begin again: it took longer than ten minutes.", code="request_conflict")
        step = one_time_codes.step_of(self._opened(found), code, now_us=self._now_us(connection), after=_NEVER)
        if step is None:
            raise wrong()
        return step

    def _pending_row(self, connection: Connection, user_pk: int) -> Any:
        row: Any = connection.execute(_FACTOR, {"user_pk": user_pk}).one_or_none()
        if row is None or row.confirmed_at is not None:
            return None
        age_us = self._now_us(connection) - row.started_at
        return row if 0 <= age_us < self._settings.enrolment_s * SECOND_US else None

    def _opened(self, row: Any) -> str:
        return self._seal.open(row.sealed_secret, user_pk=row.user_pk)

    def _replace_codes(self, connection: Connection, user_pk: int, codes: list[str]) -> None:
        connection.execute(sa.delete(recovery_codes).where(recovery_codes.c.user_pk == user_pk))
        rows = [{"user_pk": user_pk, "code_hash": self._seal.code_hash(code, user_pk=user_pk)} for code in codes]
        connection.execute(sa.insert(recovery_codes), rows)

    def _now_us(self, connection: Connection) -> int:
        return max(self._clock.now_us(), connection.execute(sa.select(vault.c.clock_high_water)).scalar_one())


# Whoever changes it holds the account's row.
_FACTOR: Final = sa.select(second_factors).where(second_factors.c.user_pk == sa.bindparam("user_pk"))


def remove_all(connection: Connection, *, user_pk: int) -> bool:
    """Delete a person's second factor and recovery codes inside the caller's transaction; say whether it counted."""
    connection.execute(sa.delete(recovery_codes).where(recovery_codes.c.user_pk == user_pk))
    was_on = connection.execute(
        sa.select(second_factors.c.confirmed_at).where(second_factors.c.user_pk == user_pk)
    ).scalar_one_or_none()
    connection.execute(sa.delete(second_factors).where(second_factors.c.user_pk == user_pk))
    return was_on is not None


def wrong() -> UnauthenticatedError:
    """Return the one refusal of every code."""
    return UnauthenticatedError(WRONG, code=FAILED)


def _enrolment(secret: str, person: SignedIn) -> Enrolment:
    return Enrolment(secret, one_time_codes.address_of(secret, username=person.username))


def _as_shown(codes: list[str]) -> tuple[str, ...]:
    return tuple(one_time_codes.in_groups(code, between="-") for code in codes)


def _check_fresh(person: SignedIn) -> None:
    if not person.is_fresh:
        raise ForbiddenError("Give your password again first.", code="reauthentication_required")


def _conflict() -> ConflictError:
    return ConflictError("The second factor of this account has changed meanwhile.", code="request_conflict")
