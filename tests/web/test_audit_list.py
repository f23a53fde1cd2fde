"""Every action of the audit log: in the docs, in words at the page, driven once, and found with who, what and result.

Source: security.md G03, G04; docs/audit.md, "What is recorded".
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.auth.accounts import By
from app.auth.requests import GrantRequest, RevokeRequest
from app.pages.audit_words import ACTIONS
from continuity.errors import ContinuityError
from continuity.evidence import RecordEvidence, SearchEvidence
from continuity.services.callers import Role
from continuity.store import schema
from tests.patience import PATIENCE_S
from tests.people import VISIT
from tests.second_factors import enrolled, forget_attempts, person
from tests.servers import ROOT
from tests.web.pages import get, post
from tests.web.scenes import Stage
from tests.web.site import site_on

PASSPHRASE = "a passphrase of some length"
NOT_ACTIONS = {
    # Names of permissions, files and endpoints that are spelled alike.
    "backup.copy", "backup.lock", "vault.key", "vault.locked", "vault.sealed", "vault.shred", "vault.transit",
}  # fmt: skip
ELSEWHERE = {
    "vault.backup": "tests/integration/test_backups.py",
    "vault.restored": "tests/integration/test_backups.py",
    "vault.restore_accepted": "tests/cli/test_vault_backups.py",
    "vault.close_recovery": "tests/integration/test_backups.py",
    "vault.rotated": "tests/integration/test_vault_rotation.py",
    "thread.viewed": "tests/integration/test_audit_threads.py",
    "thread.steered": "tests/integration/test_audit_threads.py",
    "thread.followed_up": "tests/integration/test_audit_threads.py",
    "thread.replied": "tests/integration/test_audit_threads.py",
    "thread.stopped": "tests/integration/test_audit_threads.py",
    "thread.resumed": "tests/integration/test_audit_threads.py",
    "thread.created": "tests/integration/test_audit_threads.py",
    "thread.deletion_begun": "tests/integration/test_audit_threads.py",
    "thread.deleted": "tests/integration/test_audit_threads.py",
    "thread.trimmed": "tests/integration/test_services_threads.py",
}  # fmt: skip
"""Actions that need another stage, and where they are driven."""


class Theatre:
    """Whatever the drivers need: one site with people, work and evidence."""

    def __init__(self, site):
        self.site, self.auth, self.services = site, site.wiring.auth, site.wiring.services
        self.stage = Stage(site)
        self.adm = self.stage.person
        self.by = By(self.adm.actor, "req_test")

    def one(self, username, role=Role.OPERATOR):
        forget_attempts(self.site.wiring.store)
        self.site.person(username, role)
        return username

    def signed(self, username):
        forget_attempts(self.site.wiring.store)
        return self.site.signed_in(username)

    def recorded(self, event):
        asked = RecordEvidence("run-1", "agent", 1, event, "text", "hello", self.site.clock.now_us() / 1e6)
        return self.services.evidence.record(self.stage.host, asked)["evidence_id"]

    def factor(self, username):
        self.one(username)
        app = enrolled(self.auth, self.site.clock, username, self.site.passwords[username])
        forget_attempts(self.site.wiring.store)
        return app


def people(at):
    auth = at.auth
    at.one("ada")
    at.signed("ada").sign_in("ada", "a wrong password of some length")
    browser = at.signed("ada")
    post(browser, "/reauthenticate", {"password": at.site.passwords["ada"]})
    post(browser, "/account/sessions/end-others")
    post(browser, "/logout")
    auth.accounts.set_role("ada", Role.INVESTIGATOR, by=at.by)
    auth.accounts.set_workspaces("ada", ["default", "other"], by=at.by)
    auth.accounts.disable("ada", by=at.by)
    auth.accounts.enable("ada", by=at.by)
    auth.accounts.reset_password("ada", by=at.by)
    auth.accounts.recover_administrator("ada")


def second_factors(at):
    auth = at.auth
    app = at.factor("ben")
    password = at.site.passwords["ben"]
    who = person(auth, "ben", password, code=app.recovery_codes[0])
    app.clock.advance(30)
    auth.second_factors.renew_codes(who, code=app.next_code(), visit=VISIT)
    forget_attempts(at.site.wiring.store)
    auth.second_factors.remove(who, code=app.next_code(), visit=VISIT)
    at.factor("cyd")
    auth.accounts.reset_second_factor("cyd", by=at.by)
    auth.policy.set_administrators_need_second_factor(True, by=at.by)
    auth.policy.set_administrators_need_second_factor(False, by=at.by)


def credentials(at):
    asked = GrantRequest.from_json({"principal_id": "op", "role": "evidence_collector", "workspace_id": "default"})
    at.auth.credentials.issue(at.adm, asked)
    at.auth.credentials.revoke(at.adm, RevokeRequest("op", None))


def refusals(at):
    at.one("dan")
    get(at.signed("dan"), "/settings/audit")
    forget_attempts(at.site.wiring.store)
    for _ in range(12):
        at.site.browser().sign_in("dan", "a wrong password of some length")
    forget_attempts(at.site.wiring.store)
    broken = at.stage.mail().workflow_id
    at.site.wiring.store.write(lambda connection: connection.execute(
        sa.update(schema.workflows).where(schema.workflows.c.workflow_id == broken).values(sealed_head=b"x" * 200)
    ).rowcount)  # fmt: skip
    get(at.signed("dan"), f"/resume-work/{broken}")
    at.site.wiring.audits.denials.write()


def work(at):
    scene = at.stage.mail()
    scene.pause().enable()
    scene.lose()
    scene.confirm(happened=True)
    at.services.reviewing.review(at.adm, scene.workflow_id)
    at.services.deletions.delete(at.adm, scene.workflow_id)
    at.stage.mail().stop()


def evidence(at):
    run = at.recorded("1")
    at.services.evidence_search.page(at.adm, SearchEvidence(search="hello"))
    at.services.evidence_reading.run(at.adm, run)
    at.services.evidence_reading.manifest(at.adm, run)
    at.services.exporting.encrypted(at.adm, run, PASSPHRASE)
    at.services.exporting.plaintext(at.adm, run)
    at.services.evidence_deletions.delete(at.adm, run)


def log(at):
    at.one("eve", Role.ADMINISTRATOR)
    browser = at.signed("eve")
    detailed = next(row.seq for row in rows(at.site) if row.sealed_detail is not None)
    get(browser, f"/settings/audit/entries/{detailed}")
    get(browser, "/settings/audit/entries.csv")
    get(browser, "/settings/audit/checkpoint.jsonl")
    at.site.wiring.audits.checks.begin(by=at.adm.actor, request_id="req_test", against=None)
    at.site.wiring.audits.checks.wait(PATIENCE_S)


def vault(at):
    life = at.site.wiring.vault_life
    life.start_rotation(at.adm)
    while life.rotation() is not None and life.rotation().state != "done":
        life.drive()
    with pytest.raises(ContinuityError):
        # Unfinished work needs what it would leave out.
        at.services.capture.set_mode(at.adm, "metadata")
    life.lock(at.adm, PASSPHRASE)
    life.unlock(at.adm, PASSPHRASE)


def capture(at):
    at.services.capture.set_mode(at.adm, "metadata")
    at.services.capture.set_mode(at.adm, "full")


ACTS = (capture, people, second_factors, credentials, work, evidence, refusals, log, vault)


def rows(site):
    return site.wiring.store.read(
        lambda connection: connection.execute(sa.select(schema.audit).order_by(schema.audit.c.seq)).all()
    )


@pytest.fixture(scope="module")
def played(instance_template, tmp_path_factory):
    """All entries after everything was done once."""
    instance = instance_template.copy_to(tmp_path_factory.mktemp("list") / "instance")
    with site_on(instance.folder) as site:
        at = Theatre(site)
        for act in ACTS:
            forget_attempts(site.wiring.store)
            act(at)
        assert site.wiring.store.read(site.wiring.audit.verify).fault is None
        yield rows(site)


@pytest.mark.parametrize("action", sorted(ACTIONS.keys() - ELSEWHERE.keys()))
def test_an_action_leaves_its_entry(played, action):
    found = [row for row in played if row.action == action]

    assert found, action
    for row in found:
        assert re.fullmatch(r"(user|cred):\w+|cli|system|nobody", row.actor), row
        assert row.result == "done" or re.fullmatch(r"[a-z_]+", row.result), row
        assert row.at > 0
        assert row.request_id is None or row.request_id.startswith("req_"), row


@pytest.mark.parametrize("action", ELSEWHERE)
def test_an_action_of_another_stage_is_driven_there(action):
    assert action in (ROOT / ELSEWHERE[action]).read_text()


def test_who_did_something_over_the_web_is_named_with_the_request(played):
    for action in ("audit.exported", "audit.checkpointed", "user.sign_out", "access.refused", "workflow.deleted"):
        for row in (row for row in played if row.action == action):
            assert row.request_id, row
            assert row.actor.startswith("user:"), row


def test_signing_in_has_both_results(played):
    assert {row.result for row in played if row.action == "user.sign_in"} >= {"done", "unauthenticated"}


def test_no_clear_column_holds_what_somebody_typed(played):
    told = " ".join(str(tuple(row)[:7]) for row in played)
    for secret in (PASSPHRASE, "a wrong password", "hello", "The customer cancelled", "Looked at the outbox"):
        assert secret not in told


def test_every_action_in_the_source_has_words_and_stands_in_the_docs():
    spelled = set()
    for folder in ("app", "continuity"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.name not in {"documentation.py", "audit_words.py"}:
                spelled |= actions_in(path)
    told = set(re.findall(r"`([a-z]+\.[a-z_]+)`", (ROOT / "docs/audit.md").read_text())) - {"secret.key"}

    assert spelled - NOT_ACTIONS == ACTIONS.keys()
    assert {word for word in told if word in ACTIONS or word.partition(".")[0] in NOUNS} == ACTIONS.keys()


NOUNS = {action.partition(".")[0] for action in ACTIONS}


def actions_in(path: Path) -> set[str]:
    found = set(re.findall(rf'"((?:{"|".join(sorted(NOUNS))})\.[a-z_]+)"', path.read_text()))
    # Names of views.
    return {word for word in found if not re.search(rf'url_for\("{re.escape(word)}"|endpoint', path.read_text())} | {
        word for word in found if word in ACTIONS
    }
