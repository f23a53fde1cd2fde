"""Signing in, changing and giving again a password, signing out.

Rules:

* In this order: refuse text that cannot be a password, count the attempt, hash, decide. Never argon2 inside a
  transaction, never a reply before the attempt is on disk.
* Unknown name, wrong password, disabled account and dead temporary password have one answer and cost one hash.
* Whoever has a second factor owes a code after the right password; what stands between the two is no session
  (`challenges`). Wrong, old and used codes have one answer. Only a right code clears the counted attempts.
* What was verified is checked again under the row's lock: whoever was disabled or reset meanwhile is not let in.
* Each of them begins a new session; the one that was there before is dead, and so is its CSRF token.
* Giving the password again asks for no code: the session began with one, and whoever has the cookie alone does not
  know the password. What a thief of both could make last, taking the second factor away or new recovery codes, asks
  for a code by itself (`second_factor`).

Source: security.md A01, A03, A05, A07 to A09, S02, S12.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.auth import accounts, entering, sessions, throttle
from app.auth import passwords as password_rules
from app.auth.challenges import Challenge, Challenges
from app.auth.entering import LOCAL_VISIT, SIGN_IN, Entering, Visit, Welcome
from app.auth.passwords import Passwords
from app.auth.schema import users
from app.auth.second_factor import FAILED, SecondFactors
from app.auth.sessions import SignedIn
from app.auth.throttle import Throttle
from continuity.errors import MalformedError, UnauthenticatedError
from continuity.services.audit import AuditEntry, AuditLog
from continuity.services.clock import Clock
from continuity.store.store import Store

__all__ = ["CODE_REQUIRED", "OVER", "WRONG", "SignIn", "Visit", "Welcome"]

WRONG = "Username or password is wrong."
CODE_REQUIRED = "second_factor_required"
"""Code of the refusal of a right password without the code that must come with it."""
OVER = "sign_in_over"
"""Code of the refusal of a code that comes too late after its password."""
_WRONG_CURRENT = "The current password is wrong."


class SignIn:
    """Everything that takes a password."""

    def __init__(
        self,
        store: Store,
        audit: AuditLog,
        *,
        clock: Clock,
        passwords: Passwords,
        limit: Throttle,
        entering_: Entering,
        challenges: Challenges,
        second_factors: SecondFactors,
    ) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock
        self._passwords = passwords
        self._limit = limit
        self._entering = entering_
        self._challenges = challenges
        self._second_factors = second_factors

    def sign_in(
        self, username: str, password: str, *, visit: Visit, replaced: str | None, code: str | None = None
    ) -> Welcome:
        """Begin a session by password, and code where one is due; the session the browser had (`replaced`) ends.

        Raises:
            UnauthenticatedError: Password or code is wrong. With the code ``second_factor_required``: the password
                is right and no code came with it.
        """
        row = self._knocked(username, password, visit=visit)
        if not row.has_second_factor:
            return self._store.write(lambda connection: self._entered(connection, row, visit=visit, replaced=replaced))
        if not code:
            self._entering.refuse(row, action=SIGN_IN, visit=visit, result=CODE_REQUIRED)
            raise UnauthenticatedError("This account has a second factor: give its code as well.", code=CODE_REQUIRED)
        self._limit.count_code(username, address=visit.address)

        def work(connection: Connection) -> Welcome:
            # The account is locked before its second factor, here as everywhere, against deadlock.
            entering.check_unchanged(connection, row, message=WRONG)
            self._second_factors.spend(connection, row, code, visit=visit)
            return self._entered(connection, row, visit=visit, replaced=replaced)

        return self._write_or_refuse(work, row, action=SIGN_IN, visit=visit)

    def begin(self, username: str, password: str, *, visit: Visit, replaced: str | None) -> Welcome | Challenge:
        """Take the password, and begin a session; or the step to the code, for an account that has a second factor."""
        row = self._knocked(username, password, visit=visit)

        def work(connection: Connection) -> Welcome | Challenge:
            if not row.has_second_factor:
                return self._entered(connection, row, visit=visit, replaced=replaced)
            entering.check_unchanged(connection, row, message=WRONG)
            made = self._challenges.open(connection, user_pk=row.user_pk, stamp=row.stamp)
            self._entering.record(connection, row, action=SIGN_IN, visit=visit, result=CODE_REQUIRED)
            return made

        return self._store.write(work)

    def is_under_way(self, challenge_id: str) -> bool:
        """Say whether a code still counts after this password."""
        return self._challenges.user_of(challenge_id) is not None

    def finish(self, challenge_id: str, code: str, *, visit: Visit, replaced: str | None) -> Welcome:
        """Take the code after the password, and begin the session.

        Raises:
            UnauthenticatedError: The code is wrong and may be given again; with the code ``sign_in_over``, the step
                is over and the password must come first.
        """
        user_pk = self._challenges.user_of(challenge_id)
        row = None if user_pk is None else self._entering.account(users.c.user_pk == user_pk)
        if row is None or not self._entering.may_enter(row):
            self._challenges.drop(challenge_id)
            raise _over()
        self._limit.count_code(row.username, address=visit.address)

        def work(connection: Connection) -> Welcome:
            entering.check_unchanged(connection, row, message=WRONG)
            self._second_factors.spend(connection, row, code, visit=visit)
            if not self._challenges.take(connection, challenge_id):
                raise _over()
            return self._entered(connection, row, visit=visit, replaced=replaced)

        return self._write_or_refuse(work, row, action=SIGN_IN, visit=visit)

    def change_password(self, person: SignedIn, *, current: str, new: str, visit: Visit) -> Welcome:
        """Replace the password, end every session of the person, begin a new one."""
        password_rules.check_text(current, name="current_password")
        password_rules.check_new(new, username=person.username, name="new_password")
        row = self._verified(person, current, action="user.change_password", visit=visit)
        if new == current:
            raise MalformedError("new_password must differ from the current one.")
        password_hash = self._passwords.hash(new)

        def work(connection: Connection) -> Welcome:
            entering.check_unchanged(connection, row, message=_WRONG_CURRENT)
            sessions.check_there(connection, person.session_id)
            changed = self._entering.move_stamp(connection, row, password_hash=password_hash, temporary_until=None)
            return self._entering.enter(
                connection, changed, action="user.change_password", visit=visit, replaced=person.session_id
            )

        return self._store.write(work)

    def check_locally(self, username: str, password: str) -> bool:
        """Refuse a wrong password at the host's command line before another one is asked for. It is an attempt.

        Returns:
            Whether the account has a second factor: then a code must come with the change.
        """
        password_rules.check_text(password)
        return bool(self._verified_locally(username, password).has_second_factor)

    def change_password_locally(self, username: str, *, current: str, new: str, code: str | None = None) -> None:
        """Do the same at the host's command line: no session begins, all end."""
        password_rules.check_text(current)
        password_rules.check_new(new, username=username)
        row = self._verified_locally(username, current)
        if new == current:
            raise MalformedError("The new password must differ from the current one.")
        if row.has_second_factor:
            if not code:
                raise UnauthenticatedError("This account has a second factor: give its code.", code=CODE_REQUIRED)
            self._limit.count_code(username, address=LOCAL_VISIT.address)
        password_hash = self._passwords.hash(new)

        def work(connection: Connection) -> None:
            entering.check_unchanged(connection, row, message=WRONG)
            if row.has_second_factor:
                self._second_factors.spend(connection, row, code or "", visit=LOCAL_VISIT)
            throttle.clear_account(connection, row.username)
            self._entering.move_stamp(connection, row, password_hash=password_hash, temporary_until=None)
            self._entering.record(connection, row, action="user.change_password", visit=LOCAL_VISIT)

        self._write_or_refuse(work, row, action="user.change_password", visit=LOCAL_VISIT)

    def reauthenticate(self, person: SignedIn, *, password: str, visit: Visit) -> Welcome:
        """Take the password again; for ten minutes from now the session may do what asks for that."""
        password_rules.check_text(password)
        row = self._verified(person, password, action="user.reauthenticate", visit=visit)

        def work(connection: Connection) -> Welcome:
            entering.check_unchanged(connection, row, message=_WRONG_CURRENT)
            sessions.check_there(connection, person.session_id)
            return self._entering.enter(
                connection, row, action="user.reauthenticate", visit=visit, replaced=person.session_id
            )

        return self._store.write(work)

    def sign_out(self, person: SignedIn, *, visit: Visit) -> None:
        """End the session."""

        def work(connection: Connection) -> None:
            sessions.end(connection, person.session_id)
            entry = AuditEntry(
                action="user.sign_out", actor=person.actor, object_id=person.user_id, result="done",
                request_id=visit.request_id, detail=None,
            )  # fmt: skip
            self._audit.append(connection, entry, now_us=self._clock.now_us())

        self._store.write(work)

    def _knocked(self, username: str, password: str, *, visit: Visit) -> Any:
        """Return the account whose password this is."""
        password_rules.check_text(password)
        self._limit.count(username, address=visit.address)
        row = self._entering.account(accounts.named(username))
        if not self._is_right(row, password):
            self._entering.refuse(row, action=SIGN_IN, visit=visit)
            raise UnauthenticatedError(WRONG)
        if self._passwords.is_outdated(row.password_hash):
            self._rehash(row, password)
        return row

    def _entered(self, connection: Connection, row: Any, *, visit: Visit, replaced: str | None) -> Welcome:
        entering.check_unchanged(connection, row, message=WRONG)
        return self._entering.enter(connection, row, action=SIGN_IN, visit=visit, replaced=replaced)

    def _write_or_refuse(self, work: Any, row: Any, *, action: str, visit: Visit) -> Any:
        """Run `work` in one transaction; a code that it refuses is put on record, and nothing else happens."""
        try:
            return self._store.write(work)
        except UnauthenticatedError as error:
            if error.code == FAILED:
                self._entering.refuse(row, action=action, visit=visit, result=FAILED)
            raise

    def _is_right(self, row: Any, password: str) -> bool:
        """Pay for one hash whatever is wrong, and say whether this person may come in."""
        if row is None or not self._entering.may_enter(row):
            self._passwords.verify_nothing(password)
            return False
        return self._passwords.verify(row.password_hash, password)

    def _verified(self, person: SignedIn, password: str, *, action: str, visit: Visit) -> Any:
        self._limit.count(person.username, address=visit.address)
        row = self._entering.account(users.c.user_pk == person.user_pk)
        if not self._is_right(row, password):
            self._entering.refuse(row, action=action, visit=visit)
            raise UnauthenticatedError(_WRONG_CURRENT)
        return row

    def _verified_locally(self, username: str, password: str) -> Any:
        self._limit.count(username, address=LOCAL_VISIT.address)
        row = self._entering.account(accounts.named(username))
        if not self._is_right(row, password):
            self._entering.refuse(row, action="user.change_password", visit=LOCAL_VISIT)
            raise UnauthenticatedError(WRONG)
        return row

    def _rehash(self, row: Any, password: str) -> None:
        """Write the hash again under today's settings, unless somebody has replaced it meanwhile."""
        password_hash = self._passwords.hash(password)
        mine = sa.and_(users.c.user_pk == row.user_pk, users.c.password_hash == row.password_hash)
        self._store.write(lambda connection: connection.execute(
            sa.update(users).where(mine).values(password_hash=password_hash)
        ).rowcount)  # fmt: skip


def _over() -> UnauthenticatedError:
    return UnauthenticatedError("Too much time has passed since the password. Sign in again.", code=OVER)
