"""Pages for people: server-rendered HTML that works without scripts, with htmx where it helps.

=============== ======================================================================
module          what it knows
=============== ======================================================================
display         icons, moments and visible text, for templates
shell           the frame: who is signed in and where they may go
destinations    where to go on after signing in
problems        errors as pages
home            the first page
sign_in         signing in and out
password        choosing a new password
reauthentication  giving the password again, on a page or inside a form
settings        people, sessions, credentials, vault, about: a package, for administrators
account         a person's own sessions and password
second_factor   setting up a second factor and turning it off; `qr_code`: its picture
resume_work     Decisions → Resume work: the list, and one workflow
controls        what people do to a workflow from its page
forms           what its forms bring; `keeping`: it survives a form that is no longer good
worklist        the list as a value; `workflow_view`, `situations`, `late`, `histories`: the workflow
explanations    every reason of the decision table in words; `conflicts`: every refusal of a control
activity        Activity → Resume work: what was observed, one workflow of it, and the files of both
asking          what the page of activity was asked for; `activity_view`: its values; `costchart`: its chart
audit           Settings → Audit: the list, an entry, verifying; `audit_view`, `audit_words`, `audit_files`: its values
evidence        Evidence: runs, records, a transcript, taking away, destroying; `evidence_view`: its values
threads         Threads: the list, and one conversation; `threads_controls`: what people do to it
threads_list    the list as a value; `threads_view`: a conversation; `threads_words`: where it stands, in words
threads_asks    what an agent asks; `threads_fields`: forms made of schemas; `threads_decisions`: LangChain's own
threads_conflicts  every refusal; `threads_sent`: a form as it was sent
money           what something cost in words: known, at least, not known, contradicted
activity_downloads  JSON and CSV of what was observed; `spreadsheet`: cells that are no formulas
wording         words for capabilities, modes, outcomes and spans of time
timeline        geometry of an operation's attempts
=============== ======================================================================
"""

from __future__ import annotations

from typing import Final

from flask import Blueprint, Flask

from app import htmx
from app.pages import (
    account,
    activity,
    audit,
    controls,
    destinations,
    display,
    evidence,
    home,
    notes,
    password,
    problems,
    reauthentication,
    second_factor,
    settings,
    shell,
    sign_in,
    threads_controls,
)

BLUEPRINTS: Final[tuple[Blueprint, ...]] = (
    home.blueprint,
    sign_in.blueprint,
    password.blueprint,
    reauthentication.blueprint,
    account.blueprint,
    second_factor.blueprint,
    controls.blueprint,
    activity.blueprint,
    audit.blueprint,
    evidence.blueprint,
    settings.blueprint,
    threads_controls.blueprint,
)
"""Every blueprint of pages; each names its whole paths."""

__all__ = ["BLUEPRINTS", "destinations", "install"]


def install(app: Flask) -> None:
    """Add the pages to `app`, which already has its errors and its people."""
    htmx.install(app)
    display.install(app)
    shell.install(app)
    settings.install(app)
    notes.install(app)
    problems.install(app)
    for blueprint in BLUEPRINTS:
        problems.PAGE_BLUEPRINTS.add(blueprint.name)
        app.register_blueprint(blueprint)
