"""Settings: people, sessions, credentials, vault, and what this installation is. For administrators.

=============== ======================================================================
module          what it knows
=============== ======================================================================
area            the blueprint, who is admitted, the navigation inside Settings
forms           from a form to its effect, and back with all that was written
refusals        why something was refused, and what is in the way
people          accounts: list, create, one person and what can be done to their account
sessions        where everybody is signed in, and ending that
credentials     bearer tokens: list, issue, renew, revoke
vault           its keys, locking, rotating, capture, recovery; `vault_view`: it as a value
about           versions, database, licences, where to go on
=============== ======================================================================
"""

from __future__ import annotations

from app.pages.settings import about, area, credentials, people, sessions, vault

blueprint = area.blueprint
install = area.install

__all__ = ["about", "blueprint", "credentials", "install", "people", "sessions", "vault"]
