"""Everything of this package, built once and handed to views and commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.auth.accounts import Accounts
from app.auth.challenges import Challenges
from app.auth.cookies import SessionCookie, challenge_cookie_for, cookie_for, visitor_cookie_for
from app.auth.credential_list import CredentialList
from app.auth.credentials import Credentials
from app.auth.entering import Entering
from app.auth.factor_seal import FactorSeal, SecretKeys
from app.auth.names import Names
from app.auth.others_sessions import OthersSessions
from app.auth.own_sessions import OwnSessions
from app.auth.passwords import Passwords
from app.auth.people import People
from app.auth.policy import Policy
from app.auth.principals import EnvironmentToken, Principals
from app.auth.second_factor import SecondFactors
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
    second_factors: SecondFactors
    policy: Policy
    challenges: Challenges
    throttle: Throttle
    cookie: SessionCookie
    visitor_cookie: SessionCookie
    challenge_cookie: SessionCookie
    own_sessions: OwnSessions
    names: Names
    people: People
    others_sessions: OthersSessions
    credential_list: CredentialList

    def tidy(self) -> None:
        """Delete what has ended by time and write down last uses: for the housekeeping, about once a minute."""
        self.principals.uses.flush()
        self.sessions.prune()
        self.challenges.prune()
        self.throttle.prune()


def build(
    store: Store,
    owners: Owners,
    *,
    audit: AuditLog,
    clock: Clock,
    url: str,
    secret_keys: SecretKeys,
    settings: AuthSettings | None = None,
    of_environment: Sequence[EnvironmentToken] = (),
) -> Auth:
    """Wire the package.

    `secret_keys` seal second factors. `settings` other than the defaults are for tests, `of_environment` are
    the environment's tokens.
    """
    settings = settings or AuthSettings()
    passwords = Passwords(settings.hashing)
    limit = Throttle(store, clock, settings.throttle)
    sessions = Sessions(store, clock, settings.session)
    entering = Entering(store, audit, clock=clock, sessions_=sessions)
    challenges = Challenges(store, clock, settings.second_factor)
    second_factors = SecondFactors(
        store, clock=clock, seal=FactorSeal(secret_keys), limit=limit, entering_=entering,
        settings=settings.second_factor,
    )  # fmt: skip
    return Auth(
        url=url,
        accounts=Accounts(store, audit, clock=clock, passwords=passwords, settings=settings),
        credentials=Credentials(store, owners, audit=audit, clock=clock, settings=settings.credential),
        principals=Principals(store, clock, owners=owners, of_environment=of_environment),
        sessions=sessions,
        sign_in=SignIn(
            store,
            audit,
            clock=clock,
            passwords=passwords,
            limit=limit,
            entering_=entering,
            challenges=challenges,
            second_factors=second_factors,
        ),
        second_factors=second_factors,
        policy=Policy(store, audit, clock=clock),
        challenges=challenges,
        throttle=limit,
        cookie=cookie_for(url),
        visitor_cookie=visitor_cookie_for(url),
        challenge_cookie=challenge_cookie_for(url),
        own_sessions=OwnSessions(store, audit, clock=clock, settings=settings.session),
        names=Names(store, owners),
        people=People(store, clock),
        others_sessions=OthersSessions(store, audit, clock=clock, settings=settings.session),
        credential_list=CredentialList(store, owners, clock),
    )
