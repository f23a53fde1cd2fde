"""People with an authenticator app: what tests of second factors begin with."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import sqlalchemy as sa

from app.auth import one_time_codes
from app.auth.schema import throttle
from app.auth.services import Auth
from app.auth.sessions import SignedIn
from app.auth.signin import Visit
from tests.people import FakeClock

VISIT = Visit(address="192.0.2.9", request_id="req_factor")


@dataclass
class App:
    """An authenticator app with one account. It has a clock of its own, which is the server's unless told else."""

    secret: str
    clock: FakeClock
    recovery_codes: tuple[str, ...] = ()

    def code(self, *, steps: int = 0) -> str:
        """Return the code that it shows; `steps` later or earlier than now."""
        return one_time_codes.code_at(self.secret, one_time_codes.step_at(self.clock.now_us()) + steps)

    def next_code(self) -> str:
        """Wait for a code that was not shown yet."""
        self.clock.advance(one_time_codes.STEP_S)
        return self.code()

    def wrong_code(self) -> str:
        """Return six digits that are right at no time near now."""
        near = {self.code(steps=steps) for steps in range(-3, 4)}
        return next(code for code in (f"{n:06d}" for n in range(sys.maxsize)) if code not in near)


def person(auth: Auth, username: str, password: str, *, code: str | None = None) -> SignedIn:
    """Sign in and return who that is."""
    welcome = auth.sign_in.sign_in(username, password, visit=VISIT, replaced=None, code=code)
    found = auth.sessions.find(welcome.session.session_id)
    assert found is not None
    return found


def enrolled(auth: Auth, clock: FakeClock, username: str, password: str) -> App:
    """Give somebody a second factor; return the app that makes its codes."""
    who = person(auth, username, password)
    app = App(auth.second_factors.start(who, visit=VISIT).secret, clock)
    done = auth.second_factors.confirm(who, app.code(), visit=VISIT)
    app.recovery_codes = done.codes
    clock.advance(one_time_codes.STEP_S)
    return app


def forget_attempts(store) -> None:
    """Let everybody try again: tests give codes faster than people."""
    store.write(lambda connection: connection.execute(sa.delete(throttle)).rowcount)
