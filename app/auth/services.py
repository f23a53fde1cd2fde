"""Everything of this package, built once and handed to views and commands."""

from __future__ import annotations

from dataclasses import dataclass

from app.auth.accounts import Accounts
from app.auth.cookies import SessionCookie, cookie_for, visitor_cookie_for
from app.auth.credentials import Credentials
from app.auth.names import Names
from app.auth.own_sessions import OwnSessions
from app.auth.passwords import Passwords
from app.auth.principals import Principals, ProducerToken
from app.auth.sessions import Sessions
from app.auth.settings import AuthSettings
from app.auth.signin import SignIn
from app.auth.throttle import Throttle
from continuity.services.audit import AuditLog
from continuity.services.clock import Clock
from continuity.services.owners import Owners
from continuity.store.store import Store


@dataclass(frozen=True, slots=True)
class Auth:
    """People and credentials of one installation.

    `url` is the address by which browsers reach it: requests from other origins are refused.
    """

    url: str
    accounts: Accounts
    credentials: Credentials
    principals: Principals
    sessions: Sessions
    sign_in: SignIn
    throttle: Throttle
    cookie: SessionCookie
    visitor_cookie: SessionCookie
    own_sessions: OwnSessions
    names: Names

    def tidy(self) -> None:
        """Delete what has ended by time and write down last uses: for the housekeeping, about once a minute."""
        self.principals.uses.flush()
        self.sessions.prune()
        self.throttle.prune()


def build(
    store: Store,
    owners: Owners,
    *,
    audit: AuditLog,
    clock: Clock,
    url: str,
    settings: AuthSettings | None = None,
    producer: ProducerToken | None = None,
) -> Auth:
    """Wire the package; `settings` other than the defaults are for tests, `producer` is the environment's token."""
    settings = settings or AuthSettings()
    passwords = Passwords(settings.hashing)
    limit = Throttle(store, clock, settings.throttle)
    sessions = Sessions(store, clock, settings.session)
    return Auth(
        url=url,
        accounts=Accounts(store, audit, clock=clock, passwords=passwords, settings=settings),
        credentials=Credentials(store, owners, audit=audit, clock=clock, settings=settings.credential),
        principals=Principals(store, clock, owners=owners, producer=producer),
        sessions=sessions,
        sign_in=SignIn(store, audit, clock=clock, passwords=passwords, limit=limit, sessions_=sessions),
        throttle=limit,
        cookie=cookie_for(url),
        visitor_cookie=visitor_cookie_for(url),
        own_sessions=OwnSessions(store, audit, clock=clock, settings=settings.session),
        names=Names(store, owners),
    )
